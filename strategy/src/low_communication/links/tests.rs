//! What counts as slow, and a training that measures its links again.

use meshwork_collectives::{Group, GroupConfig, JobSecret, Rank, Transport};
use meshwork_testing::{free_addresses, in_threads};

use super::super::exchange::{self, How};
use super::super::rounds::Contribution;
use super::super::tests::{LENGTHS, beginning, bits, inner_step, streaming};
use super::*;

#[test]
fn a_fragment_is_slow_beside_its_own_fastest_exchange_only() {
    let (second, mut fastest) = (Duration::from_secs(1), Fastest::of(2));
    assert_eq!([fastest.limit(0), fastest.limit(1)], [None, None]);
    for time in [4, 2, 3] {
        fastest.took(1, time * second);
    }
    assert_eq!(fastest.limit(0), None);
    assert_eq!(fastest.limit(1), Some(6 * second + MOMENT));
    fastest.took(0, Duration::MAX);
    assert_eq!(fastest.limit(0), Some(Duration::MAX));
    fastest.forget();
    assert_eq!(fastest.limit(1), None);
}

#[test]
fn more_workers_than_can_be_measured_end_no_training_and_other_errors_do() {
    let (world, most) = (65, 64);
    let too_many = OperationError::TooManyToMeasure { world, most };
    assert_eq!(unless_too_many(Err(too_many)), Ok(None));
    let other = OperationError::NoEpochs;
    assert_eq!(unless_too_many(Err(other.clone())), Err(other));
}

/// Whether an exchange is slow on ranks that have these limits.
fn is_slow(limits: &[Option<Duration>]) -> Vec<bool> {
    let groups = Group::local(u32::try_from(limits.len()).unwrap()).unwrap();
    in_threads(groups.into_iter().zip(limits), |(mut group, limit)| {
        let how = How {
            residual: &[],
            compression: None,
            limit: *limit,
        };
        let outcome = exchange::carry_out(&mut group, &Contribution::none(5), how);
        group.leave().unwrap();
        outcome.sealed.unwrap().is_slow
    })
}

#[test]
fn an_exchange_is_slow_where_all_workers_find_so() {
    let (always, never) = (Some(Duration::ZERO), Some(Duration::MAX));
    assert_eq!(is_slow(&[always; 3]), [true; 3]);
    assert_eq!(is_slow(&[always, never, always]), [false; 3]);
    assert_eq!(is_slow(&[always, always, None]), [false; 3]);
}

/// Processes of several hosts, as far as they know.
fn each_over_quic<R: Send>(
    world: u32,
    program: impl Fn(MultiWorkerMirroredStrategy) -> R + Sync,
) -> Vec<R> {
    let members = free_addresses(world as usize);
    let secret = JobSecret::generate().unwrap();
    in_threads(Rank::all(world), |rank| {
        let config = GroupConfig::new(members.clone(), rank, secret.clone()).unwrap();
        let group = Group::connect(&config.with_transport(Transport::Quic)).unwrap();
        program(MultiWorkerMirroredStrategy::from_group(group).unwrap())
    })
}

#[test]
fn a_training_measures_its_links_and_again_where_all_found_them_slow() {
    let settings = streaming().with_measured_links();
    let ended = each_over_quic(3, |mut strategy| {
        let mut own = beginning();
        let made = OuterOptimizer::new(&mut strategy, settings, &LENGTHS, &own);
        let mut outer = made.unwrap();
        let first = outer.links().unwrap().clone();
        let mut again = Vec::new();
        for step in 1..=18 {
            inner_step(&mut own, strategy.rank().index(), step);
            outer.step(&mut strategy, &mut own).unwrap();
            if step == 8 {
                // As if all had found slow what is under way, and is applied after step 10.
                outer.links = None;
                outer.arrive_all(&mut strategy).unwrap();
                let seal = &mut outer.rounds.exchanges[0].seal;
                seal.as_mut().unwrap().is_slow = true;
            }
            again.push(outer.links().cloned());
        }
        outer.finish(&mut strategy, &mut own).unwrap();
        strategy.leave().unwrap();
        (first, again, bits(&own))
    });
    for (first, again, own) in &ended {
        assert_eq!((first, again, own), (&ended[0].0, &ended[0].1, &ended[0].2));
        let known: Vec<bool> = again.iter().map(Option::is_some).collect();
        let expected: Vec<bool> = (1..=18).map(|step| step != 8 && step != 9).collect();
        assert_eq!(known, expected);
    }
}
