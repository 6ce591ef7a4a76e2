//! Every way to lose some of a few workers, against what is left of each part.

use proptest::prelude::*;

use super::*;

/// The worker in this place of so many, with a copy of the part before its own.
fn layout(id: u64, parts: usize, place: usize) -> Layout {
    let copied = (parts > 1).then(|| (place + parts - 1) % parts);
    Layout {
        id,
        parts,
        place,
        copied,
    }
}

fn standing(steps: u64, next: NextStep, units: Vec<[Layout; 2]>) -> Standing {
    Standing {
        steps,
        next,
        had_values: false,
        units,
    }
}

#[test]
fn a_part_is_lost_exactly_if_its_worker_and_the_next_one_are() {
    for parts in 1..7_usize {
        for alive in 1..1_usize << parts {
            let is_alive = |place: usize| alive >> place & 1 == 1;
            let left: Vec<usize> = (0..parts).filter(|place| is_alive(*place)).collect();
            let all: Vec<Standing> = left
                .iter()
                .map(|place| {
                    let unit = [layout(1, parts, *place), Layout::NONE];
                    standing(5, NextStep::Open, vec![unit; 2])
                })
                .collect();
            let lost: Vec<usize> = (0..parts)
                .filter(|place| !is_alive(*place) && !is_alive((place + 1) % parts))
                .collect();
            match decide(&all) {
                Decision::Lost { parts } => assert_eq!(parts, lost),
                Decision::Kept { steps, units } => {
                    assert!(lost.is_empty());
                    assert_eq!((steps, units.len()), (5, 2));
                    for (part, sources) in units[1].of_parts.iter().enumerate() {
                        let copies = (part + 1) % parts;
                        let own = is_alive(part).then_some((part, Whose::Own));
                        let copied = parts > 1 && is_alive(copies);
                        let copy = copied.then_some((copies, Whose::Neighbours));
                        let found = sources
                            .iter()
                            .map(|source| (left[source.worker], source.whose));
                        assert!(found.eq(own.into_iter().chain(copy)), "{sources:?}");
                    }
                }
                Decision::New => panic!("there are numbers"),
            }
        }
    }
}

#[test]
fn who_has_made_fewer_steps_gives_only_if_it_can_make_the_next() {
    let unit = |place| vec![[layout(3, 3, place), Layout::NONE]];
    let decide = |next| {
        let first = standing(8, NextStep::Open, unit(0));
        decide(&[first, standing(7, next, unit(1))])
    };
    let Decision::Kept { steps, units } = decide(NextStep::Ready) else {
        panic!("worker 0 has a copy of part 2");
    };
    let givers: Vec<_> = units[0].of_parts.iter().map(|one| one[0].worker).collect();
    assert_eq!((steps, givers), (8, vec![0, 1, 0]));
    let lost = Decision::Lost { parts: vec![1] };
    assert_eq!(decide(NextStep::Open), lost);
}

#[test]
fn newcomers_give_nothing_and_nobody_has_a_new_model() {
    let nothing = standing(0, NextStep::Open, vec![[Layout::NONE; 2]]);
    let all = [nothing.clone(), nothing.clone()];
    assert_eq!((decide(&all), next_id(&all)), (Decision::New, 1));
    // But where there were values, there is no new one.
    let knows = Standing {
        had_values: true,
        ..nothing.clone()
    };
    let parts = Vec::new();
    assert_eq!(decide(&[nothing.clone(), knows]), Decision::Lost { parts });
    let alone = standing(4, NextStep::Open, vec![[layout(2, 1, 0), Layout::NONE]]);
    let all = [nothing, alone];
    let Decision::Kept { steps, units } = decide(&all) else {
        panic!("worker 1 has all");
    };
    assert_eq!((steps, next_id(&all)), (4, 3));
    assert_eq!(units[0].of_parts[0][0].worker, 1);
}

/// Of three workers the last was lost, and of the two that took over from it the second, when only
/// the first had its new part of the unit.
#[test]
fn what_was_before_counts_until_all_have_taken_over() {
    let taken = [layout(2, 2, 0), layout(1, 3, 0)];
    let waits = [layout(1, 3, 1), Layout::NONE];
    let both = [vec![taken], vec![waits]].map(|units| standing(6, NextStep::Open, units));
    let Decision::Kept { units, .. } = decide(&both) else {
        panic!("both divisions are whole");
    };
    // Of the later one, worker 0 has both parts.
    assert_eq!(units[0].id, 2);
    let Decision::Kept { units, .. } = decide(&both[..1]) else {
        panic!("of two, one has both parts");
    };
    assert_eq!(units[0].id, 2);
    // Of four parts, the later division has too few holders, and the former one all.
    let taken = [layout(2, 3, 0), layout(1, 4, 0)];
    let waits = [layout(1, 4, 2), Layout::NONE];
    let both = [vec![taken], vec![waits]].map(|units| standing(6, NextStep::Open, units));
    let Decision::Kept { units, .. } = decide(&both) else {
        panic!("the former division is whole");
    };
    assert_eq!(units[0].id, 1);
    let workers: Vec<_> = units[0].of_parts.iter().map(|one| one[0].worker).collect();
    assert_eq!(workers, [0, 1, 1, 0]);
}

proptest! {
    #[test]
    fn standings_come_back_from_their_words(
        units in prop::collection::vec((1_u64..9, 1_usize..9, 0_usize..9), 0..5),
        steps in any::<u64>(), is_ready in any::<bool>(), had_values in any::<bool>(),
        workers in 1_usize..4,
    ) {
        let next = if is_ready { NextStep::Ready } else { NextStep::Open };
        let unit = |(id, parts, place): &(u64, usize, usize)| {
            [layout(*id, *parts, place % parts), Layout::NONE]
        };
        let one = standing(steps, next, units.iter().map(unit).collect());
        let one = Standing { had_values, ..one };
        let words = one.words();
        prop_assert_eq!(words.len(), words_of(units.len()));
        let all = words.repeat(workers);
        prop_assert_eq!(Standing::read_all(&all, units.len()), vec![one; workers]);
    }
}
