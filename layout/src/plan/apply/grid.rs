//! The parts of a tensor that no step of a plan cuts.

use std::ops::Range;

use meshwork_core::{DimName, MeshRank};

use crate::plan::{MeshPlacement, Plan};
use crate::{Layout, Ranges};

/// Where the tensor may be cut: for each dimension the indices between which nothing cuts.
#[derive(Debug)]
pub(super) struct Grid(Vec<Vec<usize>>);

impl Grid {
    pub(super) fn with_bounds(bounds: Vec<Vec<usize>>) -> Self {
        Self(bounds)
    }

    /// The grid of all boundaries of all blocks that occur in a plan.
    pub(super) fn of(plan: &Plan) -> Self {
        let shape = plan.shape();
        let mut bounds: Vec<Vec<usize>> = shape.iter().map(|&size| vec![0, size]).collect();
        let mut add = |ranges: Ranges| {
            for (bounds, range) in bounds.iter_mut().zip(ranges) {
                bounds.extend([range.start, range.end]);
            }
        };
        for layout in [plan.from(), plan.to()] {
            let end = End::new(layout);
            layout
                .mesh()
                .ranks()
                .for_each(|rank| add(end.held(rank, shape)));
        }
        for step in plan.steps() {
            for placement in [step.before(), step.after()] {
                placement
                    .mesh()
                    .ranks()
                    .for_each(|rank| add(shard(placement, rank, shape)));
            }
        }
        for bounds in &mut bounds {
            bounds.sort_unstable();
            bounds.dedup();
        }
        Self(bounds)
    }

    /// The cells that these indices cover.
    pub(super) fn covered(&self, ranges: &[Range<usize>]) -> Vec<Range<usize>> {
        let place = |bounds: &[usize], index| bounds.partition_point(|&bound| bound < index);
        let both = self.0.iter().zip(ranges);
        both.map(|(bounds, range)| place(bounds, range.start)..place(bounds, range.end))
            .collect()
    }

    /// All cells of a block, row-major.
    pub(super) fn cells(&self, block: &[Range<usize>]) -> impl Iterator<Item = Vec<usize>> + use<> {
        let block = block.to_vec();
        let count = block.iter().map(Range::len).product::<usize>();
        (0..count).map(move |mut number| {
            let mut cell = vec![0; block.len()];
            for (place, range) in cell.iter_mut().zip(&block).rev() {
                *place = range.start + number % range.len();
                number /= range.len();
            }
            cell
        })
    }

    /// How many elements a cell has.
    pub(super) fn volume(&self, cell: &[usize]) -> usize {
        let lengths = self
            .0
            .iter()
            .zip(cell)
            .map(|(bounds, &at)| bounds[at + 1] - bounds[at]);
        lengths.product()
    }
}

/// A layout, asked about ranks of its own mesh and a shape of its own rank only.
pub(super) struct End<'a> {
    layout: &'a Layout,
    /// Stride and size of each partial mesh dimension, major to minor.
    partial: Vec<(usize, usize)>,
}

impl<'a> End<'a> {
    pub(super) fn new(layout: &'a Layout) -> Self {
        let mesh = layout.mesh();
        let dim = |name: &DimName| {
            let dim = mesh.dim_index(name.as_str()).ok()?;
            Some((mesh.strides()[dim], mesh.dims()[dim].size()))
        };
        Self {
            layout,
            partial: layout.partial().filter_map(dim).collect(),
        }
    }

    pub(super) fn held(&self, rank: MeshRank, shape: &[usize]) -> Ranges {
        self.layout
            .shard(rank, shape)
            .expect("a rank of the mesh, a shape of the right rank")
    }

    pub(super) fn term(&self, rank: MeshRank) -> usize {
        let digit =
            |term, (stride, size): &(usize, usize)| term * size + rank.index() / stride % size;
        self.partial.iter().fold(0, digit)
    }

    /// The first of the ranks that hold terms of the same elements.
    pub(super) fn first(&self, rank: MeshRank) -> usize {
        let below = |number, (stride, size): &(usize, usize)| {
            number - rank.index() / stride % size * stride
        };
        self.partial.iter().fold(rank.index(), below)
    }
}

/// The shard that a rank of the placement's mesh holds of a tensor of the plan's shape.
pub(super) fn shard(placement: &MeshPlacement, rank: MeshRank, shape: &[usize]) -> Ranges {
    placement
        .shard(rank, shape)
        .expect("a rank of the mesh, a shape of the right rank")
}
