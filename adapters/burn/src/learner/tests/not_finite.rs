//! Losses that are NaN on one worker.

use super::*;
use crate::testing::elastic;

/// An item of the second worker's second batch is no number.
fn job(workers: usize) -> Job {
    let mut job = Job::new(12 * workers, 8);
    job.train.order[17] = NO_NUMBER;
    job
}

#[test]
fn it_is_named_on_all_workers_which_keep_what_the_steps_before_have_made() {
    // The first batch of each, and no more.
    let mut first = Job::new(24, 8);
    first.train.order = [0..4, 12..16].into_iter().flatten().collect();
    first.epochs = 1;
    let expected = run(&first, 2, |_, _| {});
    for accumulation in [None, Some(1)] {
        let ran = run(&job(2), 2, |_, job| {
            job.interrupter = Interrupter::new();
            job.accumulation = accumulation;
        });
        check_all_are_told(&ran);
        assert_eq!(ran[0].values, expected[0].values);
    }
}

#[test]
fn nobody_goes_on_where_workers_may_be_lost() {
    let ran = elastic(3, |_, strategy| {
        let mut job = job(3);
        job.interrupter = Interrupter::new();
        job.run(strategy)
    });
    check_all_are_told(&ran);
}

#[track_caller]
fn check_all_are_told(ran: &[Ran]) {
    for worker in ran {
        let Err(Error::NotFinite { ranks }) = &worker.left else {
            panic!("{worker:?}");
        };
        assert_eq!(*ranks, [Rank::new(1)]);
        let error = worker.error.as_deref().unwrap();
        let told = "an output of rank 1 has a mean that is not finite, such as its loss";
        assert!(error.contains(told), "{error}");
        let is_finite = |bits: &u32| f32::from_bits(*bits).is_finite();
        assert!(worker.values.iter().all(is_finite), "{worker:?}");
        assert_eq!(worker.values, ran[0].values);
    }
}

#[test]
fn who_wants_to_goes_on_as_burn_does() {
    let mut job = job(2);
    job.epochs = 1;
    let mut ran = each(2, |strategy| {
        let mut job = job.clone();
        job.interrupter = Interrupter::new();
        let own = strategy.rank().index() as f32;
        let distributed = Distributed::new(strategy).without_error_if_nonfinite();
        job.run_by(distributed, own)
    });
    ran.push(alone(job));
    for worker in ran {
        assert!(worker.error.is_none() && worker.left.is_ok(), "{worker:?}");
        let is_nan = |bits: &u32| f32::from_bits(*bits).is_nan();
        assert!(worker.values.iter().all(is_nan), "{worker:?}");
    }
}
