//! Small meshes, and all layouts on them.

use meshwork_core::Mesh;

use crate::{Layout, PartialReduction, ShardingSpec};

/// What cuts each tensor dimension, and what is partial: mesh dimensions by their numbers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Arrangement {
    pub(super) dims: Vec<Vec<usize>>,
    pub(super) partial: Vec<usize>,
}

/// Every arrangement of some of these mesh dimensions on a tensor with so many axes, with at most
/// so many partial ones.
pub(super) fn arrangements(mesh_dims: usize, axes: usize, partial: usize) -> Vec<Arrangement> {
    let mut found = vec![Arrangement {
        dims: vec![Vec::new(); axes],
        partial: Vec::new(),
    }];
    // Puts the mesh dimensions in one by one, each at every place there is.
    for dim in 0..mesh_dims {
        for before in found.clone() {
            for axis in 0..axes {
                for place in 0..=before.dims[axis].len() {
                    let mut next = before.clone();
                    next.dims[axis].insert(place, dim);
                    found.push(next);
                }
            }
            if before.partial.len() < partial {
                let mut next = before;
                next.partial.push(dim);
                found.push(next);
            }
        }
    }
    found
}

/// A mesh x, y, z of these sizes, as many as there are.
pub(super) fn mesh(sizes: &[usize]) -> Mesh {
    Mesh::new(NAMES.into_iter().zip(sizes.iter().copied())).unwrap()
}

pub(super) fn layout(mesh: &Mesh, arrangement: &Arrangement) -> Layout {
    let names = |dims: &[usize]| dims.iter().map(|&dim| NAMES[dim]).collect::<Vec<_>>();
    let specs = arrangement
        .dims
        .iter()
        .map(|dims| ShardingSpec::nested(names(dims)).unwrap());
    let layout = Layout::new(specs, mesh).unwrap();
    layout
        .with_partial(names(&arrangement.partial), PartialReduction::Sum)
        .unwrap()
}

/// The shards of a tensor that holds the row-major numbers of its elements.
pub(super) fn shards(layout: &Layout, shape: &[usize]) -> Vec<Vec<i64>> {
    let shard = |rank| {
        let held = layout.shard(rank, shape).unwrap();
        let mut numbers = vec![0];
        for (range, &size) in held.iter().zip(shape) {
            let next = numbers
                .iter()
                .flat_map(|number| range.clone().map(move |at| number * size + at));
            numbers = next.collect();
        }
        numbers
            .into_iter()
            .map(|number| i64::try_from(number).unwrap())
            .collect()
    };
    layout.mesh().ranks().map(shard).collect()
}

const NAMES: [&str; 3] = ["x", "y", "z"];
