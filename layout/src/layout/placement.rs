//! Index arithmetic of layouts: the shard of a rank, local and global shapes, shard coordinates,
//! and the owners of an element. All in closed form, so that meshes of a million ranks cost no
//! more. Layouts between the steps of a plan are in `plan/mesh_placement`.

use std::ops::Range;

use meshwork_core::{Coords, MeshRank};
use smallvec::SmallVec;

use super::{Axis, Cut, Layout, Ranges, Shape};
use crate::{Error, geometry};

/// Which rank holds which part, and how large it is.
impl Layout {
    /// The indices that a rank holds of a tensor of this shape; an empty range is at the end of the
    /// range that is cut. [`owners`](Self::owners) is the inverse query.
    ///
    /// # Errors
    /// [`Error::Mesh`] for a rank outside the mesh, [`Error::RankMismatch`] for a shape of another
    /// rank.
    pub fn shard(&self, rank: MeshRank, global_shape: &[usize]) -> Result<Ranges, Error> {
        self.check_rank(global_shape)?;
        let coords = self.mesh.coords(rank)?;
        let held = |(axis, &size): (&Axis, &usize)| {
            let part = |piece, cut: &Cut| geometry::part(&piece, cut.size, coords[cut.dim]);
            axis.cuts.iter().fold(0..size, part)
        };
        Ok(self.axes.iter().zip(global_shape).map(held).collect())
    }

    /// The shape of the shard that a rank holds of a tensor of this shape, exact for uneven and
    /// empty shards. Rank 0 holds the largest, so its shape is the one to pad to.
    ///
    /// # Errors
    /// Those of [`shard`](Self::shard).
    pub fn local_shape(&self, rank: MeshRank, global_shape: &[usize]) -> Result<Shape, Error> {
        let shard = self.shard(rank, global_shape)?;
        Ok(shard.iter().map(Range::len).collect())
    }

    /// The local shape of a tensor of this shape, where the shards of all ranks are equal; inverse
    /// of [`global_shape`](Self::global_shape).
    ///
    /// # Errors
    /// [`Error::RankMismatch`] for a shape of another rank, [`Error::Uneven`] for a size that is no
    /// multiple of its [`num_shards`](Self::num_shards), where TensorFlow rounds down.
    #[doc(alias = "local_shape_from_global_shape")]
    pub fn even_local_shape(&self, global_shape: &[usize]) -> Result<Shape, Error> {
        self.check_rank(global_shape)?;
        let axes = self.axes.iter().zip(global_shape).enumerate();
        let local = axes.map(|(number, (axis, &size))| {
            let shards = axis.num_shards();
            let even = size.is_multiple_of(shards);
            even.then(|| size / shards).ok_or(Error::Uneven {
                axis: number,
                size,
                shards,
            })
        });
        local.collect()
    }

    /// The global shape of a tensor whose shards all have this shape; inverse of
    /// [`even_local_shape`](Self::even_local_shape).
    ///
    /// # Errors
    /// [`Error::RankMismatch`] for a shape of another rank, [`Error::TooLarge`] for a size that no
    /// integer holds.
    #[doc(alias = "global_shape_from_local_shape")]
    pub fn global_shape(&self, local_shape: &[usize]) -> Result<Shape, Error> {
        self.check_rank(local_shape)?;
        let axes = self.axes.iter().zip(local_shape).enumerate();
        let global = axes.map(|(number, (axis, &size))| {
            let shards = axis.num_shards();
            size.checked_mul(shards).ok_or(Error::TooLarge {
                axis: number,
                size,
                shards,
            })
        });
        global.collect()
    }

    /// The shard coordinates of a rank: which shard of each tensor dimension it holds, counted from
    /// 0.
    ///
    /// # Errors
    /// [`Error::Mesh`] for a rank outside the mesh.
    #[doc(alias = "offset_to_shard")]
    pub fn shard_coords(&self, rank: MeshRank) -> Result<Coords, Error> {
        let coords = self.mesh.coords(rank)?;
        let nested = |axis: &Axis| {
            let inner = |shard: usize, cut: &Cut| shard * cut.size + coords[cut.dim];
            axis.cuts.iter().fold(0, inner)
        };
        Ok(self.axes.iter().map(nested).collect())
    }

    /// The number of the shard with these coordinates, row-major, counted from 0: ranks whose
    /// shards have one number hold the same part.
    ///
    /// # Errors
    /// [`Error::RankMismatch`] for more or fewer coordinates than tensor dimensions,
    /// [`Error::ShardOutside`].
    #[doc(alias = "offset_tuple_to_global_index")]
    pub fn shard_number(&self, shard_coords: &[usize]) -> Result<usize, Error> {
        self.check_rank(shard_coords)?;
        let mut number = 0;
        for (axis, &shard) in shard_coords.iter().enumerate() {
            let shards = self.axes[axis].num_shards();
            if shard >= shards {
                return Err(Error::ShardOutside {
                    axis,
                    shard,
                    shards,
                });
            }
            // Below the mesh's size throughout, as no mesh dimension cuts twice.
            number = number * shards + shard;
        }
        Ok(number)
    }

    /// The ranks that hold this element of a tensor of this shape, or a term of it, ascending:
    /// [`copies`](Self::copies) × [`terms`](Self::terms). Takes no more time than their number.
    ///
    /// # Errors
    /// [`Error::RankMismatch`] for an index or shape of another rank, [`Error::IndexOutside`].
    pub fn owners(
        &self,
        index: &[usize],
        global_shape: &[usize],
    ) -> Result<impl ExactSizeIterator<Item = MeshRank>, Error> {
        self.check_rank(global_shape)?;
        self.check_rank(index)?;
        let mut first = 0;
        for (axis, (&index, &size)) in index.iter().zip(global_shape).enumerate() {
            if index >= size {
                return Err(Error::IndexOutside { axis, index, size });
            }
            let mut piece = 0..size;
            for cut in &self.axes[axis].cuts {
                let part = geometry::part_of(&piece, cut.size, index);
                piece = geometry::part(&piece, cut.size, part);
                first += part * cut.stride;
            }
        }
        let idle = self.idle.iter().chain(self.partial_cuts());
        let mut whole: SmallVec<[Cut; 4]> = idle.copied().collect();
        whole.sort_unstable_by_key(|cut| cut.dim);
        let holders = self.copies() * self.terms();
        Ok((0..holders).map(move |holder| MeshRank::new(first + offset(holder, &whole))))
    }

    fn check_rank(&self, numbers: &[usize]) -> Result<(), Error> {
        if numbers.len() == self.rank() {
            return Ok(());
        }
        Err(Error::RankMismatch {
            found: numbers.to_vec(),
            expected: self.rank(),
        })
    }
}

/// The offset of the rank with this number from the one with number 0, where ranks are counted
/// along these mesh dimensions, the last fastest.
fn offset(number: usize, along: &[Cut]) -> usize {
    let digit = |(number, offset): (usize, usize), cut: &Cut| {
        (number / cut.size, offset + number % cut.size * cut.stride)
    };
    along.iter().rev().fold((number, 0), digit).1
}

#[cfg(test)]
mod tests;
