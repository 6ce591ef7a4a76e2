use std::path::Path;

use proptest::prelude::*;

use super::*;

fn chunks(numbers: impl IntoIterator<Item = usize>, batch: usize) -> Vec<Vec<usize>> {
    let numbers: Vec<usize> = numbers.into_iter().collect();
    numbers.chunks(batch).map(<[usize]>::to_vec).collect()
}

/// Ten numbers from each file, which is named by the first.
fn files(count: usize, batch: usize) -> Input<Vec<usize>> {
    let names = (0..count).map(|file| (10 * file).to_string());
    let first = |file: &PathBuf| -> usize { file.to_str().unwrap().parse().unwrap() };
    let read = move |files: &[PathBuf], _| {
        chunks(files.iter().map(first).flat_map(|at| at..at + 10), batch)
    };
    Input::files(names, read).unwrap()
}

fn all(input: &Input<Vec<usize>>, policy: AutoShard, workers: usize) -> Vec<Vec<usize>> {
    let own = |worker| {
        let context = InputContext::new(workers, worker, workers).unwrap();
        let shards = input.replica_shards(policy, &context, 0).unwrap();
        shards.flatten().flatten().collect()
    };
    (0..workers).map(own).collect()
}

proptest! {
    #[test]
    fn every_split_but_off_uses_each_sample_once(
        count in 1_usize..9, workers in 1_usize..5, batch in 1_usize..13,
    ) {
        let sharded = move || Input::sharded(move |shard, _| chunks(shard.of(0..10 * count), batch));
        let cases = [
            (files(count, batch), AutoShard::Auto),
            (files(count, batch).with_batch_size(batch).unwrap(), AutoShard::Auto),
            (files(count, batch), AutoShard::Data),
            (sharded(), AutoShard::Hint),
            (sharded(), AutoShard::Auto),
            (sharded(), AutoShard::Data),
        ];
        for (input, policy) in cases {
            let mut seen: Vec<usize> = all(&input, policy, workers).concat();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..10 * count).collect::<Vec<_>>(), "{:?}", policy);
        }
        let off = all(&files(count, batch), AutoShard::Off, workers);
        prop_assert!(off.iter().all(|own| own.len() == 10 * count));
    }
}

#[test]
fn files_stay_whole_where_there_are_enough_of_them() {
    let own = all(&files(3, 4), AutoShard::Auto, 2);
    assert_eq!(own[1], (10..20).collect::<Vec<_>>());
    // With fewer files than workers, nobody is left without.
    let own = all(&files(1, 4), AutoShard::Auto, 2);
    assert_eq!(own, [vec![0, 1, 4, 5, 8], vec![2, 3, 6, 7, 9]]);
}

#[test]
fn files_that_are_none_or_too_few_are_refused_by_number() {
    let context = InputContext::new(3, 0, 3).unwrap();
    let refused = |input: Input<Vec<usize>>| {
        let shards = input.replica_shards(AutoShard::File, &context, 0);
        shards.map(drop).unwrap_err()
    };
    let expected = Error::TooFewFiles {
        files: 2,
        workers: 3,
    };
    assert_eq!(refused(files(2, 4)), expected);
    let memory = Input::batches(|_| chunks(0..10, 4));
    assert_eq!(refused(memory), Error::NotFiles { workers: 3 });
    let none = Input::<Vec<usize>>::files(Vec::<PathBuf>::new(), |_, _| Vec::new());
    assert_eq!(none.map(drop).unwrap_err(), Error::NoFiles);
}

#[test]
fn each_epoch_is_opened_anew_and_told_its_number() {
    let input = Input::files(["a", "b"], |files: &[PathBuf], epoch| {
        let name = |file: &PathBuf| format!("{}{epoch}", Path::new(file).display());
        vec![files.iter().map(name).collect::<Vec<_>>()]
    })
    .unwrap();
    let context = InputContext::new(1, 0, 1).unwrap();
    for epoch in 0..2 {
        let shards = input
            .replica_shards(AutoShard::Auto, &context, epoch)
            .unwrap();
        let names: Vec<String> = shards.flatten().flatten().collect();
        assert_eq!(names, [format!("a{epoch}"), format!("b{epoch}")]);
    }
}
