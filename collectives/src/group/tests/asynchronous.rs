//! Operations that asynchronous code awaits.

use std::sync::{Barrier, Mutex, mpsc};

use super::*;

#[test]
fn other_tasks_go_on_while_an_operation_is_awaited() {
    for over in [Over::Memory, Over::Quic] {
        let (sender, receiver) = mpsc::channel();
        let (sender, receiver) = (Mutex::new(Some(sender)), Mutex::new(receiver));
        over.run(2, |mut group| {
            if group.rank() == Rank::CHIEF {
                let sender = sender.lock().unwrap().take().unwrap();
                let mut start = || group.start_all_reduce(vec![1_u32; 4], ReduceOp::Sum);
                let runtime = Builder::new_current_thread().build().unwrap();
                let (sum, ()) = runtime.block_on(async {
                    // The other rank comes when the second task has run.
                    tokio::join!(start().unwrap(), async { sender.send(()).unwrap() })
                });
                assert_eq!(sum, Ok(vec![3; 4]));
            } else {
                receiver.lock().unwrap().recv().unwrap();
                group.all_reduce(&mut [2_u32; 4], ReduceOp::Sum).unwrap();
            }
            group.leave().unwrap();
        });
    }
}

#[test]
fn an_awaited_operation_ends_at_its_deadline() {
    let over = Barrier::new(2);
    Over::Memory.run(2, |mut group| {
        if group.rank() == Rank::CHIEF {
            group.set_operation_timeout(Duration::from_millis(50));
            let pending = group.start_all_reduce(vec![1_u32; 4], ReduceOp::Sum);
            let runtime = Builder::new_current_thread().build().unwrap();
            let error = runtime.block_on(pending.unwrap()).unwrap_err();
            assert_eq!(error.rank_at_fault(), Some(Rank::new(1)), "{error}");
            assert!(matches!(error, OperationError::TimedOut { .. }), "{error}");
        }
        over.wait();
    });
}

#[test]
fn started_operations_follow_what_was_started_before_and_a_panic_ends_the_group() {
    for over in [Over::Memory, Over::Quic] {
        over.run(2, |mut group| {
            let first = group
                .start_all_reduce(vec![1_u32; 4], ReduceOp::Sum)
                .unwrap();
            let parts = group.start_operations(vec![2_u32; 100], |group, buffer| {
                let mut parts = buffer.chunks_mut(30);
                parts.try_for_each(|part| group.all_reduce(part, ReduceOp::Sum))
            });
            // Behind both.
            let mut last = [3_u32];
            group.all_reduce(&mut last, ReduceOp::Sum).unwrap();
            assert_eq!(last, [6]);
            assert_eq!(parts.unwrap().wait().unwrap(), [4; 100]);
            assert_eq!(first.wait().unwrap(), [2; 4]);
            let rank = group.rank();
            let panicked = group.start_operations((), move |group, ()| match rank {
                Rank::CHIEF => panic!("expected by the test"),
                _ => group.all_reduce(&mut [1_u32], ReduceOp::Sum),
            });
            let error = panicked.unwrap().wait().unwrap_err();
            assert_eq!(error.rank_at_fault(), Some(Rank::CHIEF), "{error}");
            assert!(error.to_string().contains("panicked"), "{error}");
            assert!(group.all_reduce(&mut [1_u32], ReduceOp::Sum).is_err());
        });
    }
}

#[test]
fn asynchronous_code_ends_a_group_as_any_other() {
    for over in [Over::Local, Over::Memory, Over::Quic] {
        let errors = over.run(2, |mut group| match group.rank() {
            Rank::CHIEF => {
                let runtime = Builder::new_current_thread().build().unwrap();
                runtime.block_on(async { group.abort("there is no data") })
            }
            _ => group.barrier().unwrap_err(),
        });
        for error in errors {
            let text = error.to_string();
            assert!(text.ends_with("there is no data"), "{over:?}: {text}");
        }
    }
}

/// What a program returns that might wait for ever.
fn ends<R: Send + 'static>(program: impl FnOnce(Group) -> R + Send + 'static) -> R {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(program(Group::local(1).unwrap().remove(0))));
    let ended = receiver.recv_timeout(PATIENCE);
    ended.expect("it comes to its end")
}

#[test]
fn operations_that_wait_for_others_behind_them_are_told_so() {
    type Wait = fn(Pending<Vec<u32>>) -> Result<Vec<u32>, OperationError>;
    let waits: [Wait; 2] = [Pending::wait, |behind| {
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(behind)
    }];
    for wait in waits {
        let [waited, later] = ends(move |mut group| {
            let operations = group.operations().unwrap();
            let others = operations.clone();
            let before = operations.start(vec![1_u32], |group, sum| {
                group.all_reduce(sum, ReduceOp::Sum)
            });
            let waiting = operations.start((), move |_, ()| {
                assert_eq!(wait(before), Ok(vec![1]));
                let behind = others.start(vec![1_u32], |group, sum| {
                    group.all_reduce(sum, ReduceOp::Sum)
                });
                wait(behind).map(drop)
            });
            [waiting.wait(), group.barrier()]
        });
        assert_eq!(waited, Err(OperationError::InsideOperations));
        assert_eq!(later, Ok(()));
    }
}

#[test]
fn operations_that_wait_for_a_prepared_one_behind_them_are_told_so() {
    let [waited, later] = ends(|mut group| {
        let prepared = group.prepare_all_reduce(vec![1_u32], ReduceOp::Sum);
        let mut prepared = prepared.unwrap();
        let waiting = group.start_operations((), move |_, ()| {
            prepared.start()?;
            prepared.wait().map(drop)
        });
        [waiting.unwrap().wait(), group.barrier()]
    });
    assert_eq!(waited, Err(OperationError::InsideOperations));
    assert_eq!(later, Ok(()));
}

#[test]
fn operations_start_and_prepare_no_others_by_the_group_that_they_are_given() {
    let [nested, prepared, later] = ends(|mut group| {
        let operations = group.operations().unwrap();
        let others = operations.clone();
        let nested = operations.start((), move |group, ()| {
            let behind = others.start(vec![1_u32], |group, sum| {
                group.all_reduce(sum, ReduceOp::Sum)
            });
            let waiting = group.start_operations(Some(behind), |_, behind| {
                behind.take().unwrap().wait().map(drop)
            });
            waiting.map(drop)
        });
        let prepared = operations.start((), |group, ()| {
            let prepared = group.prepare_all_reduce(vec![1_u32], ReduceOp::Sum);
            prepared.map(drop)
        });
        [nested.wait(), prepared.wait(), group.barrier()]
    });
    assert_eq!(nested, Err(OperationError::InsideOperations));
    assert_eq!(prepared, Err(OperationError::InsideOperations));
    assert_eq!(later, Ok(()));
}

#[test]
fn operations_await_more_that_are_done_than_a_task_has_turns() {
    let awaited = ends(|mut group| {
        let operations = group.operations().unwrap();
        let start = |_| {
            operations.start(vec![1_u32], |group, sum| {
                group.all_reduce(sum, ReduceOp::Sum)
            })
        };
        let before: Vec<_> = (0..200).map(start).collect();
        let awaiting = operations.start((), move |_, ()| {
            let runtime = Builder::new_current_thread().build().unwrap();
            runtime.block_on(async move {
                for done in before {
                    assert_eq!(done.await, Ok(vec![1]));
                }
            });
            Ok(())
        });
        awaiting.wait()
    });
    assert_eq!(awaited, Ok(()));
}

#[test]
fn operations_start_more_others_than_may_wait_in_line() {
    const OTHERS: usize = 300;
    let sums = ends(|mut group| {
        let operations = group.operations().unwrap();
        let others = operations.clone();
        let starting = operations.start(Vec::new(), move |_, started| {
            for _ in 0..OTHERS {
                started.push(others.start(vec![1_u32], |group, sum| {
                    group.all_reduce(sum, ReduceOp::Sum)
                }));
            }
            Ok(())
        });
        let started = starting.wait().unwrap();
        let sums = started.into_iter().map(|other| other.wait().unwrap());
        sums.collect::<Vec<_>>()
    });
    assert_eq!(sums, vec![[1]; OTHERS]);
}

#[test]
fn operations_may_use_the_group_itself_that_they_are_of() {
    let mut group = ends(|mut group| {
        let operations = group.operations().unwrap();
        let used = operations.start(group, |_, group| group.barrier());
        used.wait().unwrap()
    });
    assert_eq!(group.barrier(), Ok(()));
}

#[test]
fn a_group_that_its_own_operations_drop_ends_as_any_that_is_dropped() {
    let mut group = Group::local(1).unwrap().remove(0);
    let (observer, operations) = (group.observer(), group.operations().unwrap());
    let (go_on, waits) = mpsc::channel();
    drop(operations.start(group, move |_, _| {
        waits.recv().unwrap();
        Ok(())
    }));
    go_on.send(()).unwrap();
    let began = Instant::now();
    let failure = loop {
        if let Some(failure) = observer.statistics().failure {
            break failure;
        }
        assert!(began.elapsed() < PATIENCE);
        thread::yield_now();
    };
    assert!(failure.contains("it dropped its group"), "{failure}");
}

/// A buffer of a program whose code fails when it is dropped.
struct FailsAtItsEnd;

impl Drop for FailsAtItsEnd {
    fn drop(&mut self) {
        panic!("expected by the test")
    }
}

#[test]
fn a_buffer_that_nobody_waits_for_and_whose_drop_panics_ends_the_group_and_no_wait_hangs() {
    let error = ends(|mut group| {
        let (go_on, waits) = mpsc::channel();
        let pending = group.start_operations(FailsAtItsEnd, move |_, _| {
            waits.recv().unwrap();
            Ok(())
        });
        drop(pending);
        go_on.send(()).unwrap();
        group.barrier().unwrap_err()
    });
    assert!(error.to_string().contains("panicked"), "{error}");
}

#[test]
fn operations_that_were_started_do_not_change_the_members() {
    type Change = fn(&mut Group) -> Result<(), OperationError>;
    let changes: [Change; 2] = [Group::grow, Group::shrink];
    Over::Memory.run(2, |mut group| {
        for change in changes {
            let changed = group.start_operations((), move |group, ()| change(group));
            let refused = changed.unwrap().wait();
            assert_eq!(refused, Err(OperationError::InsideOperations));
        }
        group.barrier().unwrap();
        assert_eq!(group.epoch().number(), 1);
        group.leave().unwrap();
    });
}

/// A buffer of a program whose code fails when it is asked for the values.
struct Failing;

impl AsMut<[u32]> for Failing {
    fn as_mut(&mut self) -> &mut [u32] {
        panic!("expected by the test")
    }
}

#[test]
fn a_prepared_operation_that_panics_ends_the_group_and_keeps_nobody_waiting() {
    Over::Local.run(2, |mut group| {
        let mut failing = group.prepare_all_reduce(Failing, ReduceOp::Sum).unwrap();
        failing.start().unwrap();
        assert!(failing.wait().is_err());
        let error = group.all_reduce(&mut [1_u32], ReduceOp::Sum).unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
    });
}
