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
