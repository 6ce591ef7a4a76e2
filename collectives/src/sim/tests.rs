//! Scenarios whose promises must hold for many seeds, and planted mistakes that must be found.

use super::*;

#[track_caller]
fn check(setting: Setting, seeds: std::ops::Range<u64>) -> Vec<Played> {
    let mut all = Vec::new();
    for seed in seeds {
        let played = play(&setting, seed);
        if let Some(problem) = played.problem() {
            let story = tell(&setting, seed).story().join("\n");
            panic!("seed {seed} of {setting:?}: {problem}\n{story}");
        }
        all.push(played);
    }
    all
}

#[test]
fn every_scenario_holds_what_is_promised() {
    for (_, scenario) in Scenario::ALL {
        let setting = Setting {
            scenario,
            ..Setting::default()
        };
        check(setting, 0..15);
    }
}

#[test]
fn a_group_to_which_nothing_happens_keeps_its_first_epoch() {
    let setting = Setting {
        scenario: Scenario::Calm,
        ..Setting::default()
    };
    for played in check(setting, 0..40) {
        assert_eq!(played.epochs(), 1);
    }
}

#[test]
fn groups_shrink_grow_again_and_finish() {
    let setting = Setting {
        ranks: Some(4),
        scenario: Scenario::Restart,
        plant: Plant::Nothing,
    };
    let played = check(setting, 100..130);
    // One epoch to begin with, one without the dead rank, one with the newcomer.
    let grown = |played: &&Played| played.epochs() >= 3 && played.finished() == 4;
    let count = played.iter().filter(grown).count();
    assert!(count >= 10, "{count} of 30 groups were whole at the end");
}

#[test]
fn groups_grow_past_their_list_and_all_who_came_finish() {
    let setting = Setting {
        ranks: Some(2),
        scenario: Scenario::Growth,
        plant: Plant::Nothing,
    };
    let played = check(setting, 100..140);
    let grown = |played: &&Played| played.epochs() >= 2 && played.finished() >= 3;
    let count = played.iter().filter(grown).count();
    assert!(count >= 20, "{count} of 40 groups were larger at the end");
    let doubled = |played: &&Played| played.epochs() >= 3 && played.finished() == 5;
    assert!(played.iter().any(|played| doubled(&played)));
}

#[test]
fn whoever_is_stopped_until_it_is_lost_is_left_out_and_the_others_finish() {
    let setting = Setting {
        ranks: Some(4),
        scenario: Scenario::Stop,
        plant: Plant::Nothing,
    };
    let played = check(setting, 100..130);
    let without = |played: &&Played| played.epochs() >= 2 && (1..4).contains(&played.finished());
    let count = played.iter().filter(without).count();
    assert!(count >= 10, "{count} of 30 groups went on without it");
}

#[test]
fn of_two_ranks_never_both_go_on_alone() {
    let setting = Setting {
        scenario: Scenario::TwoMemberPolicy,
        ..Setting::default()
    };
    let played = check(setting, 350..500);
    let alone = |played: &&Played| played.epochs() >= 2 && played.finished() == 1;
    let count = played.iter().filter(alone).count();
    assert!(count >= 10, "in {count} of 150 groups one went on");
}

#[test]
fn founders_that_have_forgotten_are_not_let_in_again() {
    let setting = Setting {
        ranks: Some(5),
        scenario: Scenario::Amnesia,
        plant: Plant::Nothing,
    };
    let played = check(setting, 0..40);
    let without = |played: &&Played| played.epochs() >= 2 && played.finished() >= 3;
    let count = played.iter().filter(without).count();
    assert!(count >= 20, "{count} of 40 groups went on without them");
}

#[test]
fn links_that_drop_for_half_a_minute_cost_patient_ranks_nothing() {
    let setting = Setting {
        ranks: Some(3),
        scenario: Scenario::Outage,
        plant: Plant::Nothing,
    };
    for played in check(setting, 0..40) {
        assert_eq!((played.epochs(), played.finished()), (1, 3));
    }
}

#[test]
fn a_seed_gives_the_same_story_every_time() {
    for seed in 0..8 {
        let once = tell(&Setting::default(), seed);
        let again = tell(&Setting::default(), seed);
        assert_eq!(once.story(), again.story());
        assert!(once.story().len() > 3, "{:?}", once.story());
    }
}

/// The first seed on which a mistake leads to a problem of this kind.
fn finds(plant: Plant, kind: ProblemKind) -> Option<u64> {
    let setting = Setting {
        plant,
        scenario: plant.scenario(),
        ..Setting::default()
    };
    let is_found = |seed: &u64| {
        let played = play(&setting, *seed);
        played.problem().map(Problem::kind) == Some(kind)
    };
    (0..200).find(is_found)
}

#[test]
fn every_planted_mistake_is_found() {
    for (name, plant) in Plant::ALL {
        if let Some(kind) = plant.leads_to() {
            let found = finds(plant, kind);
            assert!(found.is_some(), "{name} did not lead to {kind:?}");
        }
    }
}

#[test]
fn there_is_a_mistake_for_every_kind_of_problem() {
    for kind in ProblemKind::ALL {
        let leads = |(_, plant): &(_, Plant)| plant.leads_to() == Some(kind);
        assert!(Plant::ALL.iter().any(leads), "{kind:?}");
    }
}
