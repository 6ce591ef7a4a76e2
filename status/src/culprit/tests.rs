//! Planted causes are named in time, and nothing else is.

#[path = "tests/model.rs"]
mod model;

use model::{Model, Plant, Random};

use super::*;

/// Cases of each kind.
const CASES: u64 = 100;
/// From when on a cause must be named, in seconds.
const IN_TIME: f64 = 2.0;
/// Between two looks.
const PAUSE: f64 = 1.0;
const END: f64 = 16.0;

/// A job of this seed in which nothing is wrong yet.
fn job(random: &mut Random) -> Model {
    let world = match random.below(4) {
        0 => 2 + random.below(3),
        1 => 5 + random.below(12),
        2 => 8,
        _ => 32,
    };
    let step = 0.01 * 40_f64.powf(random.between(0.0, 1.0));
    let share = random.between(0.3, 0.7);
    Model {
        world,
        compute: step * share,
        operation: step * (1.0 - share),
        jitter: random.between(0.0, 0.2),
        crowded: random.between(0.0, 0.3),
        spins: random.one_in(2),
        loss: random.between(0.0, 0.002),
        round_trip: random.between(0.0001, 0.001),
        plant: Plant::Nothing,
        from: random.between(4.0, 6.0),
        random: random.clone(),
    }
}

/// When what is named, of all looks; the cause itself is planted between two of them.
fn named(model: Model) -> (f64, Vec<(f64, Culprit)>) {
    let phase = model.random.clone().between(0.0, PAUSE);
    let mut story = model.play(END);
    let (mut looks, mut names) = (Vec::new(), Vec::new());
    let mut at = 1.0 + phase;
    while at < END - 1.0 {
        let look = story.look(at);
        let answered = look.at();
        looks.push(look);
        names.extend(culprit(&looks).map(|culprit| (answered, culprit)));
        at = (at + PAUSE).max(answered);
    }
    (story.shows, names)
}

fn planted(kind: u64, model: &Model, random: &mut Random) -> Plant {
    let rank = random.below(model.world);
    let times = random.between(3.0, 8.0);
    match kind {
        0 => Plant::Starved { rank, times },
        1 => Plant::Late {
            rank,
            times,
            computes: random.one_in(2),
        },
        2 => {
            let peer = (rank + 1) % model.world;
            let slow = model.world >= 4 && random.one_in(2);
            let [loss, delay] = match slow {
                true => [0.0, random.between(0.01, 0.2)],
                false => [random.between(0.03, 0.2), random.between(0.0, 0.01)],
            };
            Plant::Link {
                rank,
                peer: random.one_in(2).then_some(peer),
                times,
                loss,
                delay,
            }
        }
        _ => Plant::Stopped {
            rank,
            silence: if random.one_in(2) {
                Silence::Stopped
            } else {
                Silence::Gone
            },
        },
    }
}

fn is_right(plant: Plant, world: u32, found: &Culprit) -> bool {
    match plant {
        Plant::Starved { rank, .. } => (found.rank, found.cause) == (rank, CulpritCause::Starved),
        Plant::Late { rank, .. } => (found.rank, found.cause) == (rank, CulpritCause::Late),
        Plant::Stopped { rank, .. } => (found.rank, found.cause) == (rank, CulpritCause::Stopped),
        Plant::Link { rank, peer, .. } => {
            let ends = [Some(rank), peer];
            let named = [Some(found.rank), found.peer];
            // Between two ranks there is only one link.
            let one = peer.is_some() || world == 2;
            let same = match one && peer.is_some() {
                true => named.iter().all(|end| ends.contains(end)),
                false => named.contains(&Some(rank)) && (found.peer.is_some() == one),
            };
            found.cause == CulpritCause::Link && same
        }
        Plant::Nothing | Plant::Both(..) | Plant::Apart { .. } | Plant::Sites { .. } => false,
    }
}

#[test]
fn a_planted_cause_is_named_within_two_seconds_and_never_another() {
    for kind in 0..4 {
        for seed in 0..CASES {
            let mut random = Random(1000 * kind + seed);
            let mut model = job(&mut random);
            model.plant = planted(kind, &model, &mut random);
            let told = format!("seed {}: {model:?}", 1000 * kind + seed);
            let (plant, world) = (model.plant, model.world);
            let (shows, names) = named(model);
            for (at, culprit) in &names {
                assert!(
                    is_right(plant, world, culprit),
                    "at {at:.1} {culprit}: {told}"
                );
                assert!(*at >= shows, "at {at:.1}, before {shows:.1}: {told}");
            }
            let first = names.first().map(|(at, _)| at - shows);
            assert!(
                first.is_some_and(|after| after <= IN_TIME),
                "named {first:?} s after it showed: {told}"
            );
        }
    }
}

#[test]
fn nobody_is_named_who_is_as_the_others_are() {
    for kind in 0..5 {
        for seed in 0..CASES {
            let mut random = Random(10_000 + 1000 * kind + seed);
            let mut model = job(&mut random);
            let last = model.world - 1;
            let times = random.between(3.0, 8.0);
            model.plant = match kind {
                0 => Plant::Nothing,
                1 if last > 1 => Plant::Both([0, last], times),
                2 if last > 1 => Plant::Apart { rank: last },
                3 if last > 2 => Plant::Sites { delay: 0.03 },
                _ => {
                    // All lose packets, and lack cores. Two ranks have only one link.
                    model.crowded = 0.6;
                    model.loss = if last > 1 { 0.05 } else { 0.0 };
                    Plant::Nothing
                }
            };
            let told = format!("seed {}: {model:?}", 10_000 + 1000 * kind + seed);
            let plant = model.plant;
            for (_, culprit) in named(model).1 {
                // Of two that are slow one may come last by far.
                let one = matches!(plant, Plant::Both(slow, _) if slow.contains(&culprit.rank));
                assert!(
                    one && culprit.cause == CulpritCause::Late,
                    "{culprit}: {told}"
                );
            }
        }
    }
}

#[test]
fn a_rank_that_only_does_not_answer_is_named_after_longer_than_a_busy_one_takes() {
    for seed in 0..CASES {
        let mut random = Random(20_000 + seed);
        let mut model = job(&mut random);
        model.plant = Plant::Stopped {
            rank: 1,
            silence: Silence::Unknown,
        };
        let from = model.from;
        let (_, names) = named(model);
        let (at, culprit) = &names[0];
        assert_eq!(
            (culprit.rank, culprit.cause),
            (1, CulpritCause::Stopped),
            "seed {seed}"
        );
        assert!(
            *at >= from + SILENT && *at <= from + 2.0 * SILENT,
            "seed {seed}: {at}"
        );
    }
}

#[test]
fn one_look_names_nobody_but_who_is_stopped() {
    let mut random = Random(7);
    let mut model = job(&mut random);
    let silence = Silence::Stopped;
    (model.plant, model.from) = (Plant::Stopped { rank: 1, silence }, 2.0);
    let mut story = model.play(8.0);
    let after = [story.look(6.0)];
    assert_eq!(culprit(&after).unwrap().cause, CulpritCause::Stopped);
    assert_eq!(culprit(&[story.look(1.5)]), None);
    assert_eq!(culprit(&[]), None);
}
