//! Coordinates and groups on all small meshes against nested loops, invariants of devices and ids,
//! and refusals of sizes, names and lists that do not fit.

use proptest::prelude::*;

use super::*;
use crate::MAX_MESH_SIZE;

fn mesh(shape: &[usize]) -> Mesh {
    Mesh::new(
        shape
            .iter()
            .zip('a'..)
            .map(|(&size, name)| (name.to_string(), size)),
    )
    .unwrap()
}

/// All coordinates of a shape in row-major order, by counting like an odometer.
fn odometer(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut rows = vec![vec![]];
    for &size in shape {
        rows = rows
            .iter()
            .flat_map(|row| (0..size).map(move |coord| [row.as_slice(), &[coord]].concat()))
            .collect();
    }
    rows
}

/// Every shape of up to four dimensions with sizes up to 3, and the one without dimensions.
fn small_shapes() -> Vec<Vec<usize>> {
    (0..=4)
        .flat_map(|dims| odometer(&vec![3; dims]))
        .map(|row| row.iter().map(|c| c + 1).collect())
        .collect()
}

#[track_caller]
fn check_against_odometer(shape: &[usize]) {
    let mesh = mesh(shape);
    let rows = odometer(shape);
    assert_eq!(mesh.size(), rows.len());
    assert!(mesh.ranks().eq((0..rows.len()).map(MeshRank::new)));
    for (rank, row) in mesh.ranks().zip(&rows) {
        assert_eq!(mesh.coords(rank).unwrap().as_slice(), row);
        assert_eq!(mesh.rank_of(row), Ok(rank));
        let named = mesh.named_coords(rank).unwrap();
        assert!(named.eq(mesh.dim_names().zip(row.iter().copied())));
        for (dim, name) in mesh.dim_names().enumerate() {
            let others_agree =
                |other: &Vec<usize>| (0..row.len()).all(|d| d == dim || other[d] == row[d]);
            let expected = mesh
                .ranks()
                .filter(|other| others_agree(&rows[other.index()]));
            let group = mesh.group_of(rank, name.as_str()).unwrap();
            assert!(group.ranks().eq(expected), "{shape:?} {rank} {name}");
            assert_eq!(group.len(), shape[dim]);
            for other in mesh.ranks() {
                let position = others_agree(&rows[other.index()]).then(|| rows[other.index()][dim]);
                assert_eq!(group.position(other), position);
            }
        }
    }
}

#[test]
fn coordinates_and_groups_match_nested_loops_on_every_small_mesh() {
    for shape in small_shapes() {
        check_against_odometer(&shape);
    }
}

/// All ordered choices of some of the dimensions.
fn choices(count: usize) -> Vec<Vec<usize>> {
    let mut all = vec![vec![]];
    let mut start = 0;
    while start < all.len() {
        let longer = (0..count).filter(|dim| !all[start].contains(dim));
        let longer: Vec<_> = longer
            .map(|dim| [all[start].as_slice(), &[dim]].concat())
            .collect();
        all.extend(longer);
        start += 1;
    }
    all
}

#[test]
fn groups_along_several_dimensions_match_sorted_lists_on_every_small_mesh() {
    for shape in small_shapes().into_iter().filter(|shape| shape.len() < 4) {
        let (mesh, rows) = (mesh(&shape), odometer(&shape));
        let names: Vec<&str> = mesh.dim_names().map(DimName::as_str).collect();
        for dims in choices(shape.len()) {
            let along = || dims.iter().map(|&dim| names[dim]);
            let place = |rank: &usize| dims.iter().map(|&dim| rows[*rank][dim]).collect::<Vec<_>>();
            let rest = |rank: usize| {
                let other = (0..shape.len()).filter(|dim| !dims.contains(dim));
                other.map(|dim| rows[rank][dim]).collect::<Vec<_>>()
            };
            for rank in mesh.ranks() {
                let group = mesh.group_along(rank, along()).unwrap();
                let mut expected: Vec<usize> = (0..rows.len())
                    .filter(|&other| rest(other) == rest(rank.index()))
                    .collect();
                expected.sort_by_key(place);
                let ranks = group.ranks().map(MeshRank::index);
                assert!(ranks.eq(expected.iter().copied()), "{shape:?} {dims:?}");
                for position in 0..=expected.len() {
                    let other = expected.get(position).copied().map(MeshRank::new);
                    assert_eq!(group.rank_at(position), other);
                }
                for other in 0..=rows.len() {
                    let position = expected.iter().position(|&member| member == other);
                    assert_eq!(group.position(MeshRank::new(other)), position);
                }
                let first = group.rank_at(0).unwrap();
                assert_eq!(mesh.group_along(first, along()), Ok(group));
            }
        }
    }
}

#[test]
fn a_mesh_without_dimensions_has_one_rank() {
    let mesh = mesh(&[]);
    assert_eq!(mesh.size(), 1);
    assert_eq!(mesh.rank_of(&[]), Ok(MeshRank::new(0)));
    assert!(mesh.coords(MeshRank::new(0)).unwrap().is_empty());
}

#[test]
fn a_mesh_of_a_million_ranks_answers_for_one_of_them() {
    let mesh = mesh(&[64, 128, 128]);
    assert_eq!(mesh.size(), 1_048_576);
    let last = MeshRank::new(1_048_575);
    assert_eq!(mesh.coords(last).unwrap().as_slice(), [63, 127, 127]);
    let group = mesh.group_of(last, "a").unwrap();
    assert_eq!(
        (group.len(), group.rank_at(0)),
        (64, Some(MeshRank::new(16_383)))
    );
}

#[test]
fn a_size_of_zero_is_refused_in_any_place() {
    for sizes in [[0, 2], [2, 0]] {
        let result = Mesh::new(sizes.map(|size| (if size == 0 { "none" } else { "some" }, size)));
        let name = DimName::new("none").unwrap();
        assert_eq!(result, Err(Error::EmptyDim { name }));
    }
}

#[test]
fn a_product_that_overflows_is_refused() {
    let too_many = |shape: &[usize]| {
        let result = Mesh::new(
            shape
                .iter()
                .zip('a'..)
                .map(|(&size, name)| (name.to_string(), size)),
        );
        assert_eq!(
            result,
            Err(Error::TooManyRanks {
                shape: shape.to_vec()
            })
        );
    };
    too_many(&[usize::MAX, 2]);
    too_many(&[2, usize::MAX]);
    too_many(&[MAX_MESH_SIZE + 1]);
    too_many(&[1 << 32, 1 << 32, 1]);
    assert_eq!(mesh(&[1, MAX_MESH_SIZE]).size(), MAX_MESH_SIZE);
}

#[test]
fn one_name_for_two_dimensions_is_refused() {
    let name = DimName::new("x").unwrap();
    assert_eq!(
        Mesh::new([("x", 2), ("x", 2)]),
        Err(Error::DuplicateDim { name })
    );
    assert!(matches!(
        Mesh::new([("any", 2)]),
        Err(Error::ReservedDimName { .. })
    ));
}

#[test]
fn what_the_mesh_does_not_have_is_refused() {
    let mesh = mesh(&[2, 4]);
    let rank = MeshRank::new(8);
    let outside = Error::RankOutside { rank, size: 8 };
    assert_eq!(mesh.coords(rank), Err(outside.clone()));
    assert_eq!(mesh.group_of(rank, "a"), Err(outside));
    let known = mesh.dim_names().cloned().collect();
    let unknown = Error::UnknownDim {
        name: "q".into(),
        known,
    };
    assert_eq!(mesh.dim_size("q"), Err(unknown.clone()));
    assert_eq!(mesh.group_of(MeshRank::new(0), "q"), Err(unknown));
    let name = DimName::new("a").unwrap();
    let repeated = mesh.group_along(MeshRank::new(0), ["a", "b", "a"]);
    assert_eq!(repeated, Err(Error::RepeatedDim { name }));
    assert!(mesh.contains_dim("a") && !mesh.contains_dim("q"));
    assert_eq!(
        mesh.rank_of(&[1]),
        Err(Error::CoordCount {
            found: 1,
            expected: 2
        })
    );
    let dim = DimName::new("b").unwrap();
    assert_eq!(
        mesh.rank_of(&[1, 4]),
        Err(Error::CoordOutside {
            dim,
            coord: 4,
            size: 4
        })
    );
}

#[test]
fn meshes_that_differ_in_name_or_devices_differ() {
    let mesh = mesh(&[2]);
    let named = mesh.clone().with_name("train").unwrap();
    assert_eq!((mesh.name(), named.name()), ("", "train"));
    assert_ne!(named, mesh);
    assert_eq!(named.with_name(""), Ok(mesh.clone()));
    let error = Error::MeshNameCharacter {
        name: "a|b".into(),
        character: '|',
    };
    assert_eq!(mesh.clone().with_name("a|b"), Err(error));
    assert_ne!(
        mesh.clone()
            .with_devices(devices(&["CPU:0", "CPU:1"]))
            .unwrap(),
        mesh
    );
}

fn devices(names: &[&str]) -> Vec<DeviceSpec> {
    names
        .iter()
        .map(|name| DeviceSpec::parse(name).unwrap())
        .collect()
}

#[test]
fn devices_come_in_rank_order_and_share_a_type() {
    let mesh = mesh(&[2])
        .with_devices(devices(&["/gpu:5", "/device:GPU:2"]))
        .unwrap();
    let expected = devices(&["GPU:5", "GPU:2"]);
    assert!(mesh.local_devices().iter().eq(expected.clone()));
    assert_eq!(mesh.device(MeshRank::new(1)), Ok(Some(expected[1].clone())));
    assert_eq!(mesh.device_type(), Some("GPU"));
    assert!(!mesh.is_remote());
    let bare = Mesh::new([("a", 2)]).unwrap();
    assert_eq!((bare.device_type(), bare.is_remote()), (None, true));
    assert_eq!(bare.device(MeshRank::new(1)), Ok(None));
}

#[test]
fn a_device_list_that_does_not_fit_the_mesh_is_refused() {
    let with = |names: &[&str]| mesh(&[2, 1]).with_devices(devices(names));
    let device = |name| DeviceSpec::parse(name).unwrap();
    assert_eq!(
        with(&["CPU:0"]),
        Err(Error::DeviceCount {
            found: 1,
            expected: 2
        })
    );
    assert_eq!(
        with(&["CPU:0", "/job:w"]),
        Err(Error::DeviceWithoutType {
            device: device("/job:w"),
            position: 1
        })
    );
    assert_eq!(
        with(&["CPU:0", "GPU:1"]),
        Err(Error::MixedDeviceTypes {
            first: "CPU".into(),
            other: "GPU".into(),
            position: 1
        })
    );
    assert_eq!(
        with(&["GPU:0", "GPU:0"]),
        Err(Error::DuplicateDevice {
            device: device("GPU:0"),
            first: 0,
            second: 1
        })
    );
    assert!(with(&["CPU:0", "CPU:0"]).is_ok());
    let three = mesh(&[3]).with_devices(devices(&["CPU:0", "CPU:1", "CPU:0"]));
    assert!(matches!(three, Err(Error::DuplicateDevice { .. })));
}

#[test]
fn a_builder_refuses_what_no_process_can_mean() {
    let ids = |ids: &[i64]| DeviceIds::new(ids.iter().copied()).unwrap();
    let list = |texts: &[&str]| Devices::parse(texts).unwrap();
    let builder = || Mesh::builder([("x", 2), ("y", 2)]);
    let two = list(&["/job:w/task:1/GPU:0", "/job:w/task:1/GPU:1"]);
    assert!(builder().local(ids(&[3, 1]), two.clone()).build().is_ok());
    assert_eq!(
        builder().local(ids(&[1, 4]), two.clone()).build(),
        Err(Error::ForeignLocalId { id: 4 })
    );
    assert_eq!(
        builder().local(ids(&[1]), two.clone()).build(),
        Err(Error::LocalDeviceCount { ids: 1, devices: 2 })
    );
    assert_eq!(
        builder().local(ids(&[]), list(&[])).build(),
        Err(Error::NoDevices)
    );
    assert_eq!(
        builder().global_devices(two.clone()).build(),
        Err(Error::GlobalDeviceCount {
            found: 2,
            expected: 4
        })
    );
    assert_eq!(
        builder().global_device_ids(ids(&[0, 1])).build(),
        Err(Error::IdCount {
            found: 2,
            expected: 4
        })
    );
    assert_eq!(
        builder().global_device_ids(ids(&[0, 2, 1, 3])).build(),
        Err(Error::IdsNotConsecutive {
            id: 2,
            position: 1,
            start: 0
        })
    );
    let cpus = list(&["CPU:0", "CPU:1", "CPU:2", "CPU:3"]);
    let mixed = builder().local(ids(&[0, 1]), two.clone());
    assert_eq!(
        mixed.global_devices(cpus).build(),
        Err(Error::LocalDeviceType {
            local: "GPU".into(),
            global: "CPU".into()
        })
    );
    assert_eq!(
        builder().local(ids(&[0, 1]), two).xla_spmd().build(),
        Err(Error::SpmdNeedsTpu {
            device_type: "GPU".into()
        })
    );
}

#[test]
fn ids_that_start_elsewhere_stand_for_ranks_from_0() {
    let ids = DeviceIds::consecutive(8, 4).unwrap();
    let gpus = Devices::parse(["GPU:0", "GPU:1"]).unwrap();
    let mesh = Mesh::builder([("x", 2), ("y", 2)])
        .global_device_ids(ids)
        .local(DeviceIds::new([11, 9]).unwrap(), gpus)
        .build()
        .unwrap();
    assert_eq!(mesh.min_global_device_id(), 8);
    assert!(mesh.local_ranks().eq([MeshRank::new(3), MeshRank::new(1)]));
    assert_eq!(mesh.device_id(MeshRank::new(3)), Ok(11));
    assert_eq!(mesh.rank_of_device_id(11), Some(MeshRank::new(3)));
    assert_eq!(mesh.rank_of_device_id(7), None);
    let first = mesh.device(MeshRank::new(3)).unwrap().unwrap();
    assert_eq!(first.to_string(), "/device:GPU:0");
    let rank = MeshRank::new(4);
    assert_eq!(
        mesh.device_id(rank),
        Err(Error::RankOutside { rank, size: 4 })
    );
}

#[test]
fn a_host_mesh_has_a_cpu_for_each_local_device() {
    let mesh: Mesh = "g|x=2,y=2|0,1,2,3|2,3|/job:w/task:1/device:GPU:0,/job:w/task:1/device:GPU:1"
        .parse()
        .unwrap();
    assert_eq!(
        mesh.host_mesh().unwrap().to_string(),
        "|x=2,y=2|0,1,2,3|2,3|/job:w/replica:0/task:1/device:CPU:0,\
         /job:w/replica:0/task:1/device:CPU:1"
    );
    assert_eq!(
        Mesh::new([("x", 2)]).unwrap().host_mesh(),
        Err(Error::RemoteHost)
    );
    let homeless = Mesh::new([("x", 1)]).unwrap();
    let homeless = homeless.with_devices(devices(&["GPU:0"])).unwrap();
    assert!(matches!(
        homeless.host_mesh(),
        Err(Error::DeviceWithoutHost { position: 0, .. })
    ));
    let uneven = Mesh::builder([("x", 3)])
        .local(
            DeviceIds::consecutive(0, 2).unwrap(),
            Devices::parse(["/job:w/task:0/GPU:0", "/job:w/task:0/GPU:1"]).unwrap(),
        )
        .build()
        .unwrap();
    assert_eq!(
        uneven.host_mesh(),
        Err(Error::UnevenLocalDevices { local: 2, size: 3 })
    );
}

proptest! {
    #[test]
    fn coordinates_are_inverse_to_ranks_on_large_meshes(
        shape in proptest::collection::vec(1_usize..1000, 0..6),
        seed: usize,
    ) {
        let mesh = mesh(&shape);
        let rank = MeshRank::new(seed % mesh.size());
        let coords = mesh.coords(rank)?;
        prop_assert_eq!(mesh.rank_of(&coords)?, rank);
        // Horner's rule reads the coordinates as one number in a mixed base.
        let number = coords.iter().zip(&shape).fold(0, |number, (coord, size)| number * size + coord);
        prop_assert_eq!(number, rank.index());
    }
}
