//! Steps over inputs of unequal length: weights, epochs resumed with another number of workers, and
//! cursors and inputs that are refused.

use meshwork_collectives::Rank;
use meshwork_core::Mesh;

use super::*;
use crate::testing::each;
use crate::{DifferenceError, Readers};

fn numbers(samples: usize, batch: usize) -> Input<Vec<usize>> {
    Input::batches(move |_| {
        let all: Vec<usize> = (0..samples).collect();
        all.chunks(batch).map(<[usize]>::to_vec).collect::<Vec<_>>()
    })
}

/// What each worker takes from `from` on, at most `steps` steps, and where it then is.
fn take(
    input: &Input<Vec<usize>>,
    policy: AutoShard,
    workers: u32,
    from: Cursor,
    steps: usize,
) -> Vec<(Vec<StepShards<Vec<usize>>>, Cursor)> {
    each(workers, |mut strategy| {
        let mut batches = strategy.distribute_batches(input, policy, from).unwrap();
        let mut taken = Vec::new();
        while taken.len() < steps
            && let Some(share) = batches.next_step(&mut strategy).unwrap()
        {
            taken.push(share);
        }
        strategy.leave().unwrap();
        (taken, batches.cursor())
    })
}

fn samples(taken: &[(Vec<StepShards<Vec<usize>>>, Cursor)]) -> Vec<usize> {
    let shares = taken.iter().flat_map(|(shares, _)| shares);
    let shards = shares.flat_map(|share| share.shards().local_results().flatten());
    let mut samples: Vec<usize> = shards.flatten().copied().collect();
    samples.sort_unstable();
    samples
}

#[test]
fn workers_that_run_out_go_on_without_samples_and_weights_stay_right() {
    // Worker `w` of 3 has 2 w numbers, one at a time.
    let input = Input::sharded(|shard, _| (0..2 * shard.index()).map(|number| vec![number]));
    let taken = take(&input, AutoShard::Hint, 3, Cursor::start(), 99);
    assert!(
        taken
            .iter()
            .all(|(shares, _)| shares.len() == taken[0].0.len())
    );
    for step in 0..taken[0].0.len() {
        let shares: Vec<_> = taken.iter().map(|(shares, _)| &shares[step]).collect();
        let weight: f64 = shares
            .iter()
            .flat_map(|share| share.weights().into_vec())
            .sum();
        let rows = shares[0].global_rows();
        assert!(rows == 0 || (weight - 1.0).abs() < 1e-12, "{weight}");
        assert!(shares.iter().all(|share| share.global_rows() == rows));
    }
    assert_eq!(samples(&taken), [0, 0, 1, 1, 2, 3]);
}

#[test]
fn a_resumed_epoch_uses_the_rest_once_whatever_the_number_of_workers() {
    let input = numbers(23, 4);
    let first = take(&input, AutoShard::Data, 3, Cursor::start(), 2);
    let cursor = first[2].1;
    assert_eq!((cursor.epoch(), cursor.position()), (0, 2));
    for workers in [1, 2, 4] {
        let rest = take(&input, AutoShard::Data, workers, cursor, 99);
        let mut seen = [samples(&first), samples(&rest)].concat();
        seen.sort_unstable();
        assert_eq!(seen, (0..23).collect::<Vec<_>>(), "{workers} workers");
    }
}

#[test]
fn an_epoch_that_began_split_by_data_ends_so_when_the_files_suffice_for_fewer_workers() {
    // Ten numbers from each of two files.
    let input = Input::files(["0", "10"], |files, _| {
        let first = files
            .iter()
            .map(|file| file.to_str().unwrap().parse::<usize>().unwrap());
        let all: Vec<usize> = first.flat_map(|first| first..first + 10).collect();
        all.chunks(4).map(<[usize]>::to_vec).collect::<Vec<_>>()
    });
    let input = input.unwrap();
    let first = take(&input, AutoShard::Auto, 3, Cursor::start(), 2);
    for workers in [1, 2, 4] {
        let rest = take(&input, AutoShard::Auto, workers, first[0].1, 1);
        let last = take(&input, AutoShard::Auto, 3, rest[0].1, 99);
        let mut seen = [samples(&first), samples(&rest), samples(&last)].concat();
        seen.sort_unstable();
        assert_eq!(seen, (0..20).collect::<Vec<_>>(), "{workers} workers");
    }
}

#[test]
fn a_cursor_of_shares_is_refused_by_another_number_of_workers() {
    let input = Input::sharded(|shard, _| {
        shard
            .of(0..12)
            .map(|number| vec![number])
            .collect::<Vec<_>>()
    });
    let first = take(&input, AutoShard::Hint, 2, Cursor::start(), 1);
    for replicas in [1, 2] {
        let alone = MultiWorkerMirroredStrategy::alone().unwrap();
        let mut alone = alone.with_local_replicas(replicas).unwrap();
        let refused = alone.distribute_batches(&input, AutoShard::Hint, first[0].1);
        let expected = Error::CursorElsewhere {
            saved: Readers::new(2, 2),
            readers: Readers::new(replicas, 1),
        };
        assert_eq!(refused.map(drop), Err(expected));
    }
}

#[test]
fn an_input_without_batches_has_no_step() {
    let taken = take(&numbers(0, 4), AutoShard::Data, 2, Cursor::start(), 9);
    assert!(taken.iter().all(|(shares, _)| shares.is_empty()));
}

#[test]
fn a_cursor_behind_more_shards_than_can_be_counted_is_refused() {
    let text = "0:18446744073709551615:0";
    let mut strategy = MultiWorkerMirroredStrategy::mirrored(2).unwrap();
    let cursor = text.parse().unwrap();
    let refused = strategy.distribute_batches(&numbers(23, 4), AutoShard::Data, cursor);
    let text = text.to_owned();
    assert_eq!(refused.map(drop), Err(Error::CursorText { text }));
}

#[test]
fn an_iterator_that_goes_on_after_its_end_does_not_begin_the_epoch_again() {
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let mut turn = 0;
    let batches = std::iter::from_fn(move || {
        turn += 1;
        (turn != 2).then(|| vec![turn])
    });
    let mut batches = strategy.distribute_local_batches(batches);
    let mut is_step = || batches.next_step(&mut strategy).unwrap().is_some();
    assert_eq!([is_step(), is_step(), is_step()], [true, false, false]);
}

/// What each worker says to the first step over its own list of files.
fn first_steps(policy: AutoShard, lists: &[&[&str]]) -> Vec<Result<usize, Error>> {
    each(u32::try_from(lists.len()).unwrap(), |strategy| {
        let own = lists[strategy.rank().index()];
        Ok(epoch(strategy, policy, own)?[0])
    })
}

/// The samples of all workers in each step over a worker's own list of files, of one sample each.
fn epoch(
    mut strategy: MultiWorkerMirroredStrategy,
    policy: AutoShard,
    own: &[&str],
) -> Result<Vec<usize>, Error> {
    let input = Input::files(own, |files, _| vec![vec![0]; files.len()])?;
    let mut batches = strategy.distribute_batches(&input, policy, Cursor::start())?;
    let mut steps = Vec::new();
    while let Some(step) = batches.next_step(&mut strategy)? {
        steps.push(step.global_rows());
    }
    strategy.leave()?;
    Ok(steps)
}

/// How to share, the lists of all, and the rank that differs, with its number of files and the
/// chief's.
type Case<'a> = (AutoShard, &'a [&'a [&'a str]], [usize; 3]);

#[test]
fn other_files_and_another_order_are_an_error_on_all_with_rank_and_numbers() {
    use AutoShard::{Auto, Data, File};
    let (sorted, turned) = (&["a", "b"][..], &["b", "a"][..]);
    let cases: [Case<'_>; 7] = [
        (File, &[sorted, turned], [1, 2, 2]),
        (Data, &[sorted, turned], [1, 2, 2]),
        (Auto, &[turned, sorted], [1, 2, 2]),
        (Auto, &[sorted, sorted, turned], [2, 2, 2]),
        (File, &[sorted, &["a", "c"]], [1, 2, 2]),
        // One would read whole files, and the other parts of batches.
        (Auto, &[sorted, &["a"]], [1, 1, 2]),
        (Data, &[sorted, &["a", "b", "c"]], [1, 3, 2]),
    ];
    for (policy, lists, [rank, files, chiefs]) in cases {
        let told = format!(
            "rank {rank} does not share its {files} input files as rank 0 does its {chiefs}: "
        );
        for step in first_steps(policy, lists) {
            // Whoever finds it first may end the group before another has looked.
            let text = step.unwrap_err().to_string();
            assert!(text.contains(&told), "{policy:?}, {lists:?}: {text}");
        }
    }
}

/// What each of `replicas` × 2 workers, of which two compute a replica, says to an epoch over two
/// files, which one of them has in another order.
fn split_epochs(replicas: usize, turned: Option<usize>) -> Vec<Result<Vec<usize>, Error>> {
    let mesh = Mesh::new([("data", replicas), ("tensor", 2)]).unwrap();
    each(u32::try_from(mesh.size()).unwrap(), |strategy| {
        let own = match Some(strategy.rank().index()) == turned {
            true => ["b", "a"],
            false => ["a", "b"],
        };
        let (strategy, _tensor) = strategy.split_along(&mesh, "tensor")?;
        epoch(strategy, AutoShard::File, &own)
    })
}

#[test]
fn workers_that_compute_one_replica_compare_their_files_too() {
    // Whoever differs is called by the rank in the job, not among those of the same place.
    for (replicas, turned) in [(1, 1), (2, 1), (2, 2), (2, 3)] {
        let told = format!("rank {turned} does not share its 2 input files as rank 0 does its 2: ");
        for steps in split_epochs(replicas, Some(turned)) {
            let text = steps.unwrap_err().to_string();
            assert!(text.contains(&told), "{replicas}: {text}");
        }
    }
    assert_eq!(split_epochs(1, None), vec![Ok(vec![1, 1]); 2]);
    // The batch of a file is split among two replicas' steps, of which the second gets nothing.
    assert_eq!(split_epochs(2, None), vec![Ok(vec![2, 0]); 4]);
}

#[test]
fn folders_of_files_may_differ_and_so_may_inputs_that_workers_have_for_themselves() {
    let elsewhere: &[&[&str]] = &[&["/data/a", "/data/b"], &["a", "/mnt/b"]];
    assert_eq!(first_steps(AutoShard::File, elsewhere), [Ok(2), Ok(2)]);
    let own: &[&[&str]] = &[&["a", "b"], &["b", "a"]];
    assert_eq!(first_steps(AutoShard::Off, own), [Ok(2), Ok(2)]);
    let steps = each(2, |mut strategy| {
        let own = vec![vec![0; 1 + strategy.rank().index()]];
        let mut batches = strategy.distribute_local_batches(own);
        let step = batches.next_step(&mut strategy).unwrap().unwrap();
        strategy.leave().unwrap();
        step.global_rows()
    });
    assert_eq!(steps, [3, 3]);
}

#[test]
fn another_policy_is_an_error_amid_an_epoch_too() {
    let cursor = Cursor::start().step();
    let errors = each(2, |mut strategy| {
        let policy = match strategy.is_chief() {
            true => AutoShard::Auto,
            false => AutoShard::File,
        };
        let input = Input::files(["a", "b"], |files, _| vec![vec![0]; 2 * files.len()]);
        let batches = strategy.distribute_batches(&input.unwrap(), policy, cursor);
        let step = batches.unwrap().next_step(&mut strategy);
        step.unwrap_err().to_string()
    });
    for error in errors {
        let told = "rank 1 does not share its 2 input files as rank 0 does its 2: ";
        assert!(error.contains(told), "{error}");
    }
}

#[test]
fn who_has_other_files_in_an_elastic_job_ends_alone() {
    let files = ["a", "b", "c"];
    let errors = each(3, |strategy| {
        let mut strategy = strategy.made_elastic();
        let mut own = files;
        own.rotate_left(strategy.rank().index() / 2);
        let input = Input::files(own, |files, _| vec![vec![0]; files.len()]).unwrap();
        let batches = strategy.distribute_batches(&input, AutoShard::File, Cursor::start());
        let mut batches = batches.unwrap();
        // The others may hear of it in their second step only.
        let first = batches.next_step(&mut strategy);
        let ended = first.and_then(|_| batches.next_step(&mut strategy));
        ended.unwrap_err()
    });
    let differs = DifferenceError::Inputs {
        rank: Rank::new(2),
        files: 3,
        chiefs: 3,
    };
    assert_eq!(errors[2], Error::from(differs.clone()));
    for error in errors {
        assert_eq!(error.rank_at_fault(), Some(Rank::new(2)), "{error}");
        assert!(error.to_string().contains(&differs.to_string()), "{error}");
    }
}
