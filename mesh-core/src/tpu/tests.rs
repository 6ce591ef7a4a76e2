//! Core orders of TPU slices: every enumeration is a permutation, neighbours on a ring are
//! neighbours in the slice, hosts and blocks stay together, and slices that do not fit are refused.

use super::*;

fn locations(cores: &[TpuCore]) -> Vec<[usize; 4]> {
    cores.iter().map(|core| core.location()).collect()
}

/// All permutations of the four directions.
fn all_axes() -> Vec<[TpuAxis; 4]> {
    let axes = [TpuAxis::X, TpuAxis::Y, TpuAxis::Z, TpuAxis::Core];
    let mut all = Vec::new();
    for code in 0..256 {
        let picked = [code % 4, code / 4 % 4, code / 16 % 4, code / 64].map(|index| axes[index]);
        if axes.iter().all(|axis| picked.contains(axis)) {
            all.push(picked);
        }
    }
    all
}

#[test]
fn every_way_of_counting_meets_every_core_once() {
    for sizes in [
        [1, 1, 1, 1],
        [1, 1, 1, 2],
        [2, 2, 1, 2],
        [4, 4, 2, 1],
        [2, 6, 4, 2],
    ] {
        let topology = TpuTopology::new(sizes).unwrap();
        for axes in all_axes() {
            for hosts in [TpuHosts::MaySplit, TpuHosts::Whole] {
                let rings = TpuRings::new().axes(axes).hosts(hosts);
                let mut cores = locations(&rings.enumerate(&topology, topology.cores()).unwrap());
                cores.sort_unstable();
                cores.dedup();
                assert_eq!(
                    cores.len(),
                    topology.cores(),
                    "{sizes:?} {axes:?} {hosts:?}"
                );
                let inside =
                    |core: &[usize; 4]| core.iter().zip(sizes).all(|(&at, size)| at < size);
                assert!(cores.iter().all(inside));
            }
        }
    }
}

#[test]
fn the_first_direction_counts_fastest_and_tiles_are_counted_to_their_end() {
    let topology = TpuTopology::new([4, 2, 1, 1]).unwrap();
    let axes = [TpuAxis::Y, TpuAxis::X, TpuAxis::Z, TpuAxis::Core];
    let counted = |rings: TpuRings| {
        let cores = rings.enumerate(&topology, 8).unwrap();
        cores
            .iter()
            .map(|core| core.location()[0] * 10 + core.location()[1])
            .collect::<Vec<_>>()
    };
    assert_eq!(counted(TpuRings::new()), [0, 10, 20, 30, 1, 11, 21, 31]);
    assert_eq!(
        counted(TpuRings::new().axes(axes)),
        [0, 1, 10, 11, 20, 21, 30, 31]
    );
    let tiles = TpuRings::new().bounds([2, 2, 1, 1]);
    assert_eq!(counted(tiles), [0, 10, 1, 11, 20, 30, 21, 31]);
}

/// In the plane, neighbours on a ring of chips are neighbours in the slice, and so are its ends.
#[test]
fn a_ring_over_an_even_plane_only_steps_to_neighbours() {
    for (width, height) in [(2, 2), (4, 4), (2, 6), (8, 4), (3, 4)] {
        let topology = TpuTopology::new([width, height, 1, 1]).unwrap();
        let cores = TpuRings::new()
            .enumerate(&topology, width * height)
            .unwrap();
        let order = all_reduce_ring(&cores, RingPlane::Rows);
        assert_eq!(order.len(), cores.len());
        for step in 0..order.len() {
            let [x, y, ..] = cores[order[step]].location();
            let [next_x, next_y, ..] = cores[order[(step + 1) % order.len()]].location();
            let distance = x.abs_diff(next_x) + y.abs_diff(next_y);
            assert_eq!(
                distance, 1,
                "{width}×{height}: {x},{y} to {next_x},{next_y}"
            );
        }
    }
}

#[test]
fn a_ring_of_rings_keeps_blocks_together() {
    let topology = TpuTopology::new([4, 4, 1, 1]).unwrap();
    let rings = TpuRings::new().across(RingAcross::Ring(RingPlane::Rows));
    let straight = TpuRings::new().order(&topology, &[4, 4]).unwrap();
    let across = rings.order(&topology, &[4, 4]).unwrap();
    let block = |cores: &[TpuCore], block: usize| cores[block * 4..][..4].to_vec();
    let order = [0, 3, 2, 1];
    for (position, from) in order.into_iter().enumerate() {
        assert_eq!(block(&across, position), block(&straight, from));
    }
}

#[test]
fn what_does_not_fit_the_slice_is_refused() {
    let topology = TpuTopology::new([4, 4, 1, 2]).unwrap();
    let refused = |rings: TpuRings| rings.order(&topology, &[16, 2]).unwrap_err();
    let rings = TpuRings::new;
    let (ranks, cores) = (6, 32);
    assert_eq!(
        rings().order(&topology, &[3, 2]),
        Err(TpuError::CoreCount { ranks, cores })
    );
    let (found, dims) = (3, 2);
    assert_eq!(
        refused(rings().dims(RingDims::Leading(3))),
        TpuError::RingDims { found, dims }
    );
    assert_eq!(
        refused(rings().dims(RingDims::Trailing(3))),
        TpuError::RingDims { found, dims }
    );
    let (ring, host) = (2, 8);
    assert_eq!(
        refused(rings().hosts(TpuHosts::Whole)),
        TpuError::RingTooSmall { ring, host }
    );
    let axes = [TpuAxis::X, TpuAxis::X, TpuAxis::Y, TpuAxis::Z];
    assert_eq!(refused(rings().axes(axes)), TpuError::Axes { axes });
    for bounds in [[9; 4], [3, 4, 1, 2], [0, 4, 1, 2]] {
        assert!(matches!(
            refused(rings().bounds(bounds)),
            TpuError::RingBounds { .. }
        ));
    }
    // A core takes 32 bytes, and a list at most one byte less than 2^63.
    assert!(TpuTopology::new([(1 << 58) - 1, 1, 1, 1]).is_ok());
    for sizes in [
        [0, 1, 1, 1],
        [2, 2, 1, 3],
        [usize::MAX, 2, 1, 1],
        [1 << 58, 1, 1, 1],
        [1 << 60, 1, 1, 1],
    ] {
        assert_eq!(TpuTopology::new(sizes), Err(TpuError::Topology { sizes }));
    }
    assert!("q".parse::<TpuAxis>().is_err());
    let core = TpuCore::new([9, 0, 0, 0]);
    let host = crate::DeviceSpec::parse("/job:w/task:0").unwrap();
    let mesh = crate::Mesh::builder([("x", 32)]);
    assert_eq!(
        create_tpu_mesh(mesh, &topology, &rings(), &host, &[core]),
        Err(TpuError::ForeignCore { core })
    );
}
