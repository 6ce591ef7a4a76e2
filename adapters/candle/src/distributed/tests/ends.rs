//! Workers that end without a word: by an error of their program, or in a panic.

use std::panic::{self, AssertUnwindSafe};

use super::*;

/// A worker behind its first step.
fn trained(strategy: MultiWorkerMirroredStrategy) -> (Distributed<SGD>, Linear) {
    let (vars, layer) = layer(0);
    let optimizer = SGD::new(vars.all_vars(), 0.1).unwrap();
    let mut optimizer = Distributed::with_strategy(strategy, optimizer, &vars).unwrap();
    optimizer.backward_step(&loss(&layer, 0, 0..4)).unwrap();
    (optimizer, layer)
}

/// The first worker makes a second step, before which the other is dropped by `end`.
#[track_caller]
fn check_it_is_lost_at_once(end: impl Fn(Distributed<SGD>) + Sync) {
    let ended = each(2, |strategy| {
        let is_chief = strategy.is_chief();
        let (mut optimizer, layer) = trained(strategy);
        if is_chief {
            return Some(optimizer.backward_step(&loss(&layer, 1, 0..4)).unwrap_err());
        }
        end(optimizer);
        None
    });
    let Some(Error::Strategy(chiefs)) = &ended[0] else {
        panic!("{ended:?}");
    };
    assert!(chiefs.is_loss(), "{chiefs}");
    assert_eq!(chiefs.rank_at_fault(), Some(Rank::new(1)), "{chiefs}");
}

#[test]
fn one_whose_program_fails_is_lost_at_once() {
    check_it_is_lost_at_once(|optimizer| {
        let program = move || {
            let _optimizer = optimizer;
            Tensor::new(&[1.0_f32, 2.0], &Device::Cpu)?.reshape(3)?;
            Ok::<_, Error>(())
        };
        program().unwrap_err();
    });
}

#[test]
fn one_that_panics_is_lost_at_once() {
    check_it_is_lost_at_once(|optimizer| {
        let panicked = panic::catch_unwind(AssertUnwindSafe(move || {
            let _optimizer = optimizer;
            panic!("on purpose");
        }));
        panicked.unwrap_err();
    });
}
