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
        check(setting, 0..25);
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
fn a_seed_gives_the_same_story_every_time() {
    for seed in 0..8 {
        let once = tell(&Setting::default(), seed);
        let again = tell(&Setting::default(), seed);
        assert_eq!(once.story(), again.story());
        assert!(once.story().len() > 3, "{:?}", once.story());
    }
}

#[test]
fn a_planted_mistake_is_found() {
    let setting = Setting {
        ranks: Some(2),
        scenario: Scenario::Partition,
        plant: Plant::SilenceIsProof,
    };
    let found = |seed| play(&setting, seed).problem().cloned();
    let problem = (0..50).find_map(found);
    assert!(
        matches!(problem, Some(Problem::TwoDecisions { .. })),
        "{problem:?}"
    );
    let right = Setting {
        plant: Plant::Nothing,
        ..setting
    };
    check(right, 0..50);
}
