//! Local and global shapes, shard numbers and coordinates on small meshes, uneven and empty shards
//! included. That `shard` and `owners` agree is tested with `Layout` itself.

use meshwork_core::Mesh;

use super::*;
use crate::ShardingSpec;

fn layout(specs: &[&[&str]]) -> Layout {
    let mesh = Mesh::new([("x", 2), ("y", 3), ("z", 2)]).unwrap();
    let specs = specs
        .iter()
        .map(|dims| ShardingSpec::nested(*dims).unwrap());
    Layout::new(specs, &mesh).unwrap()
}

fn layouts() -> Vec<Layout> {
    [
        [[].as_slice(), &[]],
        [&["x"], &[]],
        [&[], &["y"]],
        [&["z"], &["y"]],
        [&["y", "x"], &["z"]],
        [&["x"], &["z", "y"]],
        [&["z", "y", "x"], &[]],
    ]
    .map(|specs| layout(&specs))
    .to_vec()
}

#[test]
fn shards_of_one_index_each_begin_at_their_coordinates() {
    for layout in layouts() {
        let shards = [0, 1].map(|axis| layout.num_shards(axis).unwrap());
        for rank in layout.mesh().ranks() {
            let ranges = layout.shard(rank, &shards).unwrap();
            let starts = ranges.iter().map(|range| range.start);
            let coords = layout.shard_coords(rank).unwrap();
            assert!(coords.iter().copied().eq(starts), "{layout} {rank}");
        }
    }
}

#[test]
fn ranks_hold_the_same_part_exactly_if_their_shards_have_one_number() {
    for layout in layouts() {
        let shape = [0, 1].map(|axis| layout.num_shards(axis).unwrap());
        let held = |rank| layout.shard(rank, &shape).unwrap();
        let number = |rank| {
            let coords = layout.shard_coords(rank).unwrap();
            layout.shard_number(&coords).unwrap()
        };
        for a in layout.mesh().ranks() {
            assert!(number(a) < shape[0] * shape[1]);
            for b in layout.mesh().ranks() {
                assert_eq!(held(a) == held(b), number(a) == number(b), "{layout}");
            }
        }
    }
}

#[test]
fn a_local_shape_is_even_exactly_if_all_ranks_hold_as_much() {
    for layout in layouts() {
        for (a, b) in (0..14).flat_map(|a| (0..14).map(move |b| (a, b))) {
            let shape = [a, b];
            let mut ranks = layout.mesh().ranks();
            let largest = layout.local_shape(MeshRank::new(0), &shape).unwrap();
            let all = ranks.all(|rank| layout.local_shape(rank, &shape).unwrap() == largest);
            match layout.even_local_shape(&shape) {
                Ok(local) => {
                    assert!(all && local == largest, "{layout} {shape:?}");
                    assert_eq!(layout.global_shape(&local).unwrap().as_slice(), shape);
                }
                Err(error) => assert!(!all, "{layout} {shape:?}: {error}"),
            }
        }
    }
}

#[test]
fn no_rank_holds_more_than_rank_0() {
    for layout in layouts() {
        for size in 0..30 {
            let shape = [size, 29 - size];
            let largest = layout.local_shape(MeshRank::new(0), &shape).unwrap();
            for rank in layout.mesh().ranks() {
                let local = layout.local_shape(rank, &shape).unwrap();
                assert!(local.iter().zip(&largest).all(|(size, most)| size <= most));
            }
        }
    }
}

#[test]
fn uneven_and_too_large_sizes_are_named() {
    let layout = layout(&[&["z"], &["x", "y"]]);
    let error = layout.even_local_shape(&[2, 8]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "tensor dimension 1 of size 8 makes no 6 equal shards: ask what each rank holds, or pad it \
         to a multiple of 6"
    );
    let size = usize::MAX / 4;
    assert_eq!(
        layout.global_shape(&[1, size]),
        Err(Error::TooLarge {
            axis: 1,
            size,
            shards: 6
        })
    );
}

#[test]
fn shapes_and_coordinates_have_the_rank_of_the_layout() {
    let layout = layout(&[&["z"], &["x"]]);
    let mismatch = |found: &[usize]| Error::RankMismatch {
        found: found.to_vec(),
        expected: 2,
    };
    assert_eq!(layout.even_local_shape(&[2]), Err(mismatch(&[2])));
    assert_eq!(layout.global_shape(&[]), Err(mismatch(&[])));
    assert_eq!(layout.shard_number(&[1, 1, 1]), Err(mismatch(&[1, 1, 1])));
    assert_eq!(
        layout.shard_number(&[1, 2]),
        Err(Error::ShardOutside {
            axis: 1,
            shard: 2,
            shards: 2
        })
    );
    assert!(layout.shard_coords(MeshRank::new(12)).is_err());
}
