//! Ring orders over planes of TPU chips: a boustrophedon through all rows but the first column, and
//! back along that column; rings of rings; and the same across several planes. Which cores are on
//! one ring is decided in `create`.

use std::cmp::Ordering;

use super::TpuCore;

/// The direction in which a ring winds through a plane of chips.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum RingPlane {
    /// Along rows of chips of one y; the column of the smallest x leads back.
    Rows,
    /// Along columns of chips of one x; the row of the smallest y leads back.
    Columns,
}

/// The order in which `cores` lie on a ring, as positions in `cores`.
///
/// In a plane the ring takes the first row from left to right, the other rows by turns without
/// their first column, and goes back along that column. Over several planes it takes one after the
/// other, every second one backwards, and goes back along the corners.
#[must_use]
pub fn all_reduce_ring(cores: &[TpuCore], plane: RingPlane) -> Vec<usize> {
    let places: Vec<Place> = cores.iter().map(|core| Place::new(*core, plane)).collect();
    let least = |coordinate: fn(&Place) -> usize| places.iter().map(coordinate).min();
    let first = (least(|place| place.column), least(|place| place.row));
    let (Some(column), Some(row)) = first else {
        return Vec::new();
    };
    let corner = Corner { column, row };
    let flat = places.iter().all(|place| place.layer == places[0].layer);
    let mut order: Vec<usize> = (0..cores.len()).collect();
    order.sort_by(|&left, &right| {
        let (left, right) = (&places[left], &places[right]);
        if flat {
            corner.in_plane(left, right)
        } else {
            corner.over_planes(left, right)
        }
    });
    order
}

/// The cores with each block of `ring_size` on a ring, and the blocks on rings as well.
///
/// The order within the first block is that of all, and so is the order of the first cores of all
/// blocks; those rings wind along `plane`. `ring_size` divides the number of cores, or all cores
/// stay as they are.
#[must_use]
pub fn rings_across(cores: &[TpuCore], ring_size: usize, plane: RingPlane) -> Vec<TpuCore> {
    let cores = rings_within(cores, ring_size);
    if ring_size == 0 || !cores.len().is_multiple_of(ring_size) {
        return cores;
    }
    let firsts: Vec<TpuCore> = cores.iter().step_by(ring_size).copied().collect();
    let order = all_reduce_ring(&firsts, plane);
    let blocks = order.into_iter().map(|block| block * ring_size);
    blocks
        .flat_map(|start| cores[start..start + ring_size].to_vec())
        .collect()
}

/// The cores with each block of `ring_size` in the order in which the first lies on a ring.
pub(super) fn rings_within(cores: &[TpuCore], ring_size: usize) -> Vec<TpuCore> {
    if ring_size == 0 || !cores.len().is_multiple_of(ring_size) {
        return cores.to_vec();
    }
    let order = all_reduce_ring(&cores[..ring_size.min(cores.len())], RingPlane::Rows);
    let blocks = cores.chunks(ring_size);
    blocks
        .flat_map(|block| order.iter().map(|&position| block[position]))
        .collect()
}

/// A core as the ring sees it.
struct Place {
    column: usize,
    row: usize,
    layer: usize,
    core: usize,
}

impl Place {
    fn new(core: TpuCore, plane: RingPlane) -> Self {
        let [x, y, layer, core] = core.location();
        let (column, row) = match plane {
            RingPlane::Rows => (x, y),
            RingPlane::Columns => (y, x),
        };
        Self {
            column,
            row,
            layer,
            core,
        }
    }
}

/// The first column and row of all cores, where rings lead back.
struct Corner {
    column: usize,
    row: usize,
}

impl Corner {
    fn in_plane(&self, left: &Place, right: &Place) -> Ordering {
        let leads_back = |place: &Place| place.column == self.column && place.row != self.row;
        leads_back(left).cmp(&leads_back(right)).then_with(|| {
            if leads_back(left) {
                right.row.cmp(&left.row).then(left.core.cmp(&right.core))
            } else {
                let ascending = left.column.cmp(&right.column);
                let by_turns = match left.row % 2 {
                    0 => ascending,
                    _ => ascending.reverse(),
                };
                let rows = left.row.cmp(&right.row).then(by_turns);
                rows.then(left.core.cmp(&right.core))
            }
        })
    }

    fn over_planes(&self, left: &Place, right: &Place) -> Ordering {
        let leads_back = |place: &Place| place.column == self.column && place.row == self.row;
        leads_back(left).cmp(&leads_back(right)).then_with(|| {
            if leads_back(left) {
                return right
                    .layer
                    .cmp(&left.layer)
                    .then(left.core.cmp(&right.core));
            }
            left.layer.cmp(&right.layer).then_with(|| {
                let forwards = self.in_plane(left, right);
                match left.layer % 2 {
                    0 => forwards,
                    _ => forwards.reverse(),
                }
            })
        })
    }
}
