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
