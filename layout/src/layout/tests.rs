//! Every layout of small meshes and shapes against an oracle that lists indices rank by rank;
//! constructors, equality, refusals and error messages.

use meshwork_core::MeshRank;
use proptest::prelude::*;

use super::*;

fn mesh(shape: &[usize]) -> Mesh {
    Mesh::new(
        shape
            .iter()
            .zip(["x", "y", "z", "w"])
            .map(|(&size, name)| (name, size)),
    )
    .unwrap()
}

/// Every way to cut tensors of `axes` dimensions: each mesh dimension, in each order, cuts one of
/// them or none.
fn all_layouts(mesh: &Mesh, axes: usize) -> Vec<Layout> {
    let mut all: Vec<Vec<Vec<DimName>>> = vec![vec![vec![]; axes]];
    for dim in mesh.dim_names() {
        let mut more = all.clone();
        for lists in &all {
            for axis in 0..axes {
                for place in 0..=lists[axis].len() {
                    let mut lists = lists.clone();
                    lists[axis].insert(place, dim.clone());
                    more.push(lists);
                }
            }
        }
        all = more;
    }
    let spec = |dims: Vec<DimName>| ShardingSpec::nested(dims).unwrap();
    all.into_iter()
        .map(|lists| Layout::new(lists.into_iter().map(spec), mesh).unwrap())
        .collect()
}

/// The indices that a rank holds along one axis, by dealing out lists of them.
fn dealt(layout: &Layout, axis: usize, rank: MeshRank, size: usize) -> Vec<usize> {
    let mut held: Vec<usize> = (0..size).collect();
    for dim in layout.axes[axis].spec.dims() {
        let ranks = layout.mesh().dim_size(dim.as_str()).unwrap();
        let mut named = layout.mesh().named_coords(rank).unwrap();
        let (_, coord) = named.find(|(name, _)| *name == dim).unwrap();
        let chunk = (0..).find(|chunk| chunk * ranks >= held.len()).unwrap();
        held = if chunk == 0 {
            vec![]
        } else {
            held.chunks(chunk).nth(coord).unwrap_or_default().to_vec()
        };
    }
    held
}

/// All indices of a shape.
fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![vec![]], |rows, &size| {
        let longer =
            |row: Vec<usize>| (0..size).map(move |index| [row.as_slice(), &[index]].concat());
        rows.into_iter().flat_map(longer).collect()
    })
}

fn check_against_dealing(layout: &Layout, shape: &[usize]) {
    let mut holders = vec![vec![]; shape.iter().product()];
    let all = indices(shape);
    for rank in layout.mesh().ranks() {
        let expected: Vec<Vec<usize>> = shape
            .iter()
            .enumerate()
            .map(|(axis, &size)| dealt(layout, axis, rank, size))
            .collect();
        let shard = layout.shard(rank, shape).unwrap();
        assert!(
            shard
                .iter()
                .cloned()
                .map(Vec::from_iter)
                .eq(expected.iter().cloned()),
            "{layout} {shape:?} {rank}"
        );
        let lens = layout.local_shape(rank, shape).unwrap();
        assert!(lens.iter().copied().eq(expected.iter().map(Vec::len)));
        for (index, holders) in all.iter().zip(&mut holders) {
            if index
                .iter()
                .zip(&expected)
                .all(|(index, held)| held.contains(index))
            {
                holders.push(rank);
            }
        }
    }
    for (index, holders) in all.iter().zip(holders) {
        assert_eq!(
            holders.len(),
            layout.copies(),
            "{layout} {shape:?} {index:?}"
        );
        let owners = layout.owners(index, shape).unwrap();
        assert_eq!(owners.len(), holders.len());
        assert!(owners.eq(holders), "{layout} {shape:?} {index:?}");
    }
}

fn check_all_layouts(mesh_shape: &[usize], shapes: &[Vec<usize>]) {
    let mesh = mesh(mesh_shape);
    for shape in shapes {
        for layout in all_layouts(&mesh, shape.len()) {
            check_against_dealing(&layout, shape);
        }
    }
}

#[test]
fn every_index_of_a_vector_is_held_once_per_copy() {
    let shapes: Vec<_> = (0..=13).map(|size| vec![size]).collect();
    for mesh in [
        [].as_slice(),
        &[1],
        &[2],
        &[3],
        &[4],
        &[5],
        &[2, 2],
        &[3, 2],
        &[1, 3],
        &[2, 4],
        &[2, 2, 2],
    ] {
        check_all_layouts(mesh, &shapes);
    }
}

#[test]
fn every_index_of_a_matrix_is_held_once_per_copy() {
    let shapes = indices(&[6, 6]);
    for mesh in [
        [].as_slice(),
        &[1],
        &[2],
        &[3],
        &[2, 1],
        &[2, 2],
        &[3, 2],
        &[2, 2, 2],
    ] {
        check_all_layouts(mesh, &shapes);
    }
}

#[test]
fn every_index_of_a_tensor_of_rank_0_or_3_is_held_once_per_copy() {
    for mesh in [[].as_slice(), &[2], &[3, 2], &[2, 2, 2]] {
        check_all_layouts(mesh, &[vec![], vec![3, 1, 2], vec![2, 0, 5], vec![1, 5, 3]]);
    }
}

#[test]
fn copies_are_the_ranks_along_idle_mesh_dimensions() {
    let mesh = mesh(&[2, 3, 2]);
    let layout = Layout::from_names(["y"], &mesh).unwrap();
    assert_eq!(layout.copies(), 4);
    let owners = layout.owners(&[3], &[6]).unwrap().map(MeshRank::index);
    assert!(owners.eq([2, 3, 8, 9]));
    assert_eq!(Layout::replicated(&mesh, 2).copies(), 12);
}

#[test]
fn partial_mesh_dimensions_turn_copies_into_terms() {
    let mesh = mesh(&[2, 3, 2]);
    let layout = Layout::from_names(["y"], &mesh).unwrap();
    for (dims, terms) in [
        (vec![], 1),
        (vec!["x"], 2),
        (vec!["z"], 2),
        (vec!["z", "x"], 4),
    ] {
        let partial = layout
            .clone()
            .with_partial(&dims, PartialReduction::Sum)
            .unwrap();
        assert_eq!((partial.copies(), partial.terms()), (4 / terms, terms));
        let owners = partial.owners(&[3], &[6]).unwrap().map(MeshRank::index);
        assert!(owners.eq([2, 3, 8, 9]), "{partial}");
        for rank in mesh.ranks() {
            assert_eq!(partial.shard(rank, &[6]), layout.shard(rank, &[6]));
        }
    }
}

#[test]
fn partial_mesh_dimensions_are_shown_and_replaced() {
    let mesh = mesh(&[2, 3, 2]);
    let whole = Layout::replicated(&mesh, 1);
    let both = whole
        .clone()
        .with_partial(["z", "x"], PartialReduction::Min);
    let both = both.unwrap();
    assert!(both.partial().map(DimName::as_str).eq(["x", "z"]));
    assert_eq!(both.reduction(), Some(PartialReduction::Min));
    assert!(!both.is_fully_replicated());
    let one = both
        .clone()
        .with_partial(["z"], PartialReduction::Min)
        .unwrap();
    assert!(one.partial().map(DimName::as_str).eq(["z"]));
    assert_ne!(
        Ok(&one),
        whole
            .clone()
            .with_partial(["z"], PartialReduction::Sum)
            .as_ref()
    );
    assert_eq!(both.with_partial([""; 0], PartialReduction::Min), Ok(whole));
}

#[test]
fn deleting_axes_leaves_partial_dimensions_partial() {
    let mesh = mesh(&[2, 2]);
    let layout = Layout::from_names([UNSHARDED, "y"], &mesh).unwrap();
    let partial = layout.with_partial(["x"], PartialReduction::Sum).unwrap();
    assert_eq!(
        partial.delete(&[1]),
        Layout::replicated(&mesh, 1).with_partial(["x"], PartialReduction::Sum)
    );
}

#[test]
fn a_partial_mesh_dimension_is_idle_known_and_listed_once() {
    let mesh = mesh(&[2, 2]);
    let layout = Layout::from_names([UNSHARDED, "y"], &mesh).unwrap();
    let partial = |dims: &[&str]| layout.clone().with_partial(dims, PartialReduction::Sum);
    let dim = |name| DimName::new(name).unwrap();
    assert_eq!(
        partial(&["x", "y"]),
        Err(Error::CutAndPartial {
            dim: dim("y"),
            axis: 1
        })
    );
    assert_eq!(
        partial(&["x", "x"]),
        Err(Error::RepeatedPartial { dim: dim("x") })
    );
    assert!(matches!(partial(&["q"]), Err(Error::Mesh(_))));
}

#[test]
fn nested_cuts_cut_the_chunks_of_the_major_one() {
    let mesh = mesh(&[2, 2]);
    let layout = Layout::new([ShardingSpec::nested(["x", "y"]).unwrap()], &mesh).unwrap();
    let shards = mesh
        .ranks()
        .map(|rank| layout.shard(rank, &[5]).unwrap()[0].clone());
    assert!(shards.eq([0..2, 2..3, 3..4, 4..5]));
    assert_eq!(layout.num_shards(0), Ok(4));
}

#[test]
fn an_owner_on_a_mesh_of_a_million_ranks_is_found_without_a_search() {
    let mesh = mesh(&[1024, 1024]);
    let layout = Layout::from_names(["x", "y"], &mesh).unwrap();
    let shape = [usize::MAX, 3];
    let owners = layout.owners(&[usize::MAX - 1, 2], &shape).unwrap();
    assert!(owners.eq([MeshRank::new(1023 * 1024 + 2)]));
    assert_eq!(
        layout
            .local_shape(MeshRank::new(3), &shape)
            .unwrap()
            .as_slice(),
        [1 << 54, 0]
    );
}

#[test]
fn named_layouts_cut_the_axis_they_are_named_for() {
    let mesh = mesh(&[2, 4]);
    let check = |layout: Result<Layout, Error>, names: &[&str]| {
        assert_eq!(layout, Layout::from_names(names, &mesh));
    };
    check(Ok(Layout::replicated(&mesh, 0)), &[]);
    check(Ok(Layout::replicated(&mesh, 2)), &[UNSHARDED, UNSHARDED]);
    check(Layout::batch_sharded(&mesh, "x", 2), &["x", UNSHARDED]);
    check(
        Layout::inner_sharded(&mesh, "y", 3),
        &[UNSHARDED, UNSHARDED, "y"],
    );
    check(Layout::inner_sharded(&mesh, "y", 1), &["y"]);
    check(
        Layout::axis_sharded(&mesh, "y", 3, 1),
        &[UNSHARDED, "y", UNSHARDED],
    );
}

#[test]
fn an_axis_outside_the_tensor_is_refused() {
    let mesh = mesh(&[2]);
    let outside = |axis, rank| Err(Error::AxisOutside { axis, rank });
    assert_eq!(Layout::axis_sharded(&mesh, "x", 2, 2), outside(2, 2));
    assert_eq!(Layout::batch_sharded(&mesh, "x", 0), outside(0, 0));
    assert_eq!(Layout::inner_sharded(&mesh, "x", 0), outside(0, 0));
    let layout = Layout::replicated(&mesh, 2);
    assert_eq!(layout.delete(&[0, 2]), outside(2, 2));
    assert_eq!(
        layout.num_shards(2),
        Err(Error::AxisOutside { axis: 2, rank: 2 })
    );
}

#[test]
fn a_mesh_dimension_is_used_once() {
    let mesh = mesh(&[2, 2]);
    let dim = || DimName::new("x").unwrap();
    assert_eq!(
        Layout::from_names(["x", "y", "x"], &mesh),
        Err(Error::RepeatedDim {
            dim: dim(),
            first: 0,
            second: 2
        })
    );
    assert_eq!(
        Layout::new([ShardingSpec::nested(["x", "x"]).unwrap()], &mesh),
        Err(Error::RepeatedDim {
            dim: dim(),
            first: 0,
            second: 0
        })
    );
}

#[test]
fn a_name_that_the_mesh_does_not_have_is_refused() {
    let mesh = mesh(&[2]);
    let known = vec![DimName::new("x").unwrap()];
    let unknown = meshwork_core::Error::UnknownDim {
        name: "q".into(),
        known,
    };
    assert_eq!(Layout::from_names(["q"], &mesh), Err(Error::Mesh(unknown)));
}

#[test]
fn deleting_axes_frees_their_mesh_dimensions() {
    let mesh = mesh(&[2, 2]);
    let layout = Layout::from_names(["x", UNSHARDED, "y"], &mesh).unwrap();
    assert_eq!(layout.delete(&[2, 0, 2]), Ok(Layout::replicated(&mesh, 1)));
    assert_eq!(layout.delete(&[1]), Layout::from_names(["x", "y"], &mesh));
    assert_eq!(layout.delete(&[]), Ok(layout.clone()));
    assert_eq!(layout.delete(&[0]).unwrap().copies(), 2);
}

#[test]
fn replicated_and_batch_parallel_go_by_name() {
    let mesh = mesh(&[2, 1]);
    let check = |specs: &str, replicated: bool, batch_parallel: bool| {
        let layout = Layout::from_specs(specs, &mesh).unwrap();
        assert_eq!(
            (layout.is_fully_replicated(), layout.is_batch_parallel()),
            (replicated, batch_parallel),
            "{specs}"
        );
    };
    check("", true, false);
    check("unsharded,unsharded", true, false);
    check("x", false, true);
    check("y|x,unsharded", false, true);
    check("x,y", false, false);
    check("unsharded,x", false, false);
    check("y,unsharded", false, true);
    check("unsharded partial:sum:y", false, false);
    check("x partial:sum:y", false, false);
}

#[test]
fn mesh_dimensions_of_size_1_cut_nothing_off_and_count_by_name() {
    let mesh = mesh(&[1, 8]);
    let layout = Layout::from_names(["x", UNSHARDED], &mesh).unwrap();
    assert_eq!(layout.copies(), mesh.size());
    assert_ne!(layout, Layout::replicated(&mesh, 2));
}

#[test]
fn shapes_and_indices_have_the_rank_of_the_layout() {
    let layout = Layout::replicated(&mesh(&[2]), 2);
    let mismatch = |found: &[usize]| Error::RankMismatch {
        found: found.to_vec(),
        expected: 2,
    };
    assert_eq!(layout.shard(MeshRank::new(0), &[4]), Err(mismatch(&[4])));
    assert_eq!(
        layout.local_shape(MeshRank::new(0), &[1, 2, 3]),
        Err(mismatch(&[1, 2, 3]))
    );
    assert_eq!(layout.owners(&[0], &[4, 4]).err(), Some(mismatch(&[0])));
    assert_eq!(layout.owners(&[0, 0], &[]).err(), Some(mismatch(&[])));
    let outside = Error::IndexOutside {
        axis: 1,
        index: 4,
        size: 4,
    };
    assert_eq!(layout.owners(&[0, 4], &[4, 4]).err(), Some(outside));
    let outside = meshwork_core::Error::RankOutside {
        rank: MeshRank::new(2),
        size: 2,
    };
    assert_eq!(
        layout.shard(MeshRank::new(2), &[4, 4]),
        Err(Error::Mesh(outside))
    );
}

#[test]
fn messages_name_the_thing_the_numbers_and_the_remedy() {
    let layout = Layout::replicated(&mesh(&[2]), 2);
    let message = |error: Error| error.to_string();
    assert_eq!(
        message(layout.shard(MeshRank::new(0), &[4]).unwrap_err()),
        "[4] has the rank 1, but the layout is for tensors of rank 2: give one number for each dimension"
    );
    assert_eq!(
        message(Layout::from_names(["x", "x"], layout.mesh()).unwrap_err()),
        "mesh dimension x cuts tensor dimension 0 and again tensor dimension 1: use each mesh dimension once"
    );
    assert_eq!(
        message(Layout::from_names(["q"], layout.mesh()).unwrap_err()),
        "mesh dimension \"q\" does not exist: the mesh has the dimension x"
    );
}

proptest! {
    #[test]
    fn an_element_is_in_the_shards_of_its_owners_and_in_no_others(
        mesh_shape in proptest::collection::vec(1_usize..6, 0..4),
        shape in proptest::collection::vec(1_usize..200, 0..4),
        (choice, at) in any::<(usize, [usize; 3])>(),
    ) {
        let mesh = mesh(&mesh_shape);
        let layouts = all_layouts(&mesh, shape.len());
        let layout = &layouts[choice % layouts.len()];
        let index: Vec<usize> = shape.iter().zip(at).map(|(size, at)| at % size).collect();
        let owners: Vec<MeshRank> = layout.owners(&index, &shape)?.collect();
        for rank in mesh.ranks() {
            let shard = layout.shard(rank, &shape)?;
            let held = shard.iter().zip(&index).all(|(range, index)| range.contains(index));
            prop_assert_eq!(held, owners.contains(&rank));
        }
    }
}
