//! Workers that end without a word: dropped behind the last step, or in a panic.

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// A worker behind its first step.
fn trained(strategy: MultiWorkerMirroredStrategy) -> (Distributed<SGD>, Linear) {
    let (vars, layer) = layer(0);
    let optimizer = SGD::new(vars.all_vars(), 0.1).unwrap();
    let mut optimizer = Distributed::with_strategy(strategy, optimizer, &vars).unwrap();
    optimizer.backward_step(&loss(&layer, 0, 0..4)).unwrap();
    (optimizer, layer)
}

#[test]
fn one_that_is_dropped_leaves_with_the_others() {
    let others_leave = AtomicBool::new(false);
    each(2, |strategy| {
        let is_chief = strategy.is_chief();
        let (optimizer, _) = trained(strategy);
        match is_chief {
            true => {
                drop(optimizer);
                assert!(others_leave.load(Ordering::SeqCst), "it has not waited");
            }
            false => {
                others_leave.store(true, Ordering::SeqCst);
                optimizer.leave().unwrap();
            }
        }
    });
}

#[test]
fn one_that_panics_is_lost_at_once() {
    let ended = each(2, |strategy| {
        let is_chief = strategy.is_chief();
        let (mut optimizer, layer) = trained(strategy);
        if is_chief {
            return Some(optimizer.backward_step(&loss(&layer, 1, 0..4)).unwrap_err());
        }
        let panicked = panic::catch_unwind(AssertUnwindSafe(move || {
            let _optimizer = optimizer;
            panic!("on purpose");
        }));
        panicked.unwrap_err();
        None
    });
    let Some(Error::Strategy(chiefs)) = &ended[0] else {
        panic!("{ended:?}");
    };
    assert!(chiefs.is_loss(), "{chiefs}");
    assert_eq!(chiefs.rank_at_fault(), Some(Rank::new(1)), "{chiefs}");
}
