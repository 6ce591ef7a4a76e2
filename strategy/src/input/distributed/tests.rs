//! Steps over inputs of unequal length: weights, epochs resumed with another number of workers, and
//! cursors that are refused.

use super::*;
use crate::Readers;
use crate::testing::each;

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
