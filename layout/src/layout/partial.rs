use meshwork_core::DimName;
use smallvec::SmallVec;

use super::{Cut, Layout, Partial, idle};
use crate::{Error, PartialReduction};

/// Partial layouts: elements that are still to be reduced.
impl Layout {
    /// The same layout with exactly these mesh dimensions partial: along them each rank holds a
    /// term of every element, and `reduction` of the terms gives the value.
    ///
    /// Such a layout results from a sum over an axis that they cut, until an all-reduce or a
    /// reduce-scatter finishes it. Their order does not matter; without any, nothing is partial.
    /// TensorFlow has no such layouts, it reduces at once.
    ///
    /// ```
    /// use meshwork_core::Mesh;
    /// use meshwork_layout::{Layout, PartialReduction};
    ///
    /// let mesh = Mesh::new([("batch", 4), ("model", 2)])?;
    /// let loss = Layout::replicated(&mesh, 0).with_partial(["batch"], PartialReduction::Sum)?;
    /// assert_eq!(loss.reduction(), Some(PartialReduction::Sum));
    /// assert_eq!((loss.terms(), loss.copies()), (4, 2));
    /// # Ok::<(), meshwork_layout::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Mesh`] for a mesh dimension that the mesh does not have, [`Error::CutAndPartial`]
    /// for one that cuts a tensor dimension, [`Error::RepeatedPartial`] for one that is given
    /// twice.
    pub fn with_partial(
        self,
        dims: impl IntoIterator<Item = impl AsRef<str>>,
        reduction: PartialReduction,
    ) -> Result<Self, Error> {
        let mut cuts: SmallVec<[Cut; 1]> = SmallVec::new();
        for dim in dims {
            let cut = Cut::of(&self.mesh, self.mesh.dim_index(dim.as_ref())?);
            let dim = || self.mesh.dims()[cut.dim].name().clone();
            if let Some(axis) = self.axes.iter().position(|axis| axis.cuts.contains(&cut)) {
                return Err(Error::CutAndPartial { dim: dim(), axis });
            }
            if cuts.contains(&cut) {
                return Err(Error::RepeatedPartial { dim: dim() });
            }
            cuts.push(cut);
        }
        cuts.sort_unstable_by_key(|cut| cut.dim);
        let cutting = self.axes.iter().flat_map(|axis| &axis.cuts);
        Ok(Self {
            idle: idle(&self.mesh, cutting.chain(&cuts)),
            partial: (!cuts.is_empty()).then_some(Partial { reduction, cuts }),
            ..self
        })
    }

    /// The partial mesh dimensions, major to minor.
    #[doc(alias = "unreduced")]
    pub fn partial(&self) -> impl ExactSizeIterator<Item = &DimName> {
        let cuts = self.partial_cuts().iter();
        cuts.map(|cut| self.mesh.dims()[cut.dim].name())
    }

    /// The reduction along the [`partial`](Self::partial) mesh dimensions, if there are any.
    #[must_use]
    pub fn reduction(&self) -> Option<PartialReduction> {
        self.partial.as_ref().map(|partial| partial.reduction)
    }

    /// How many terms are to be reduced to one element: 1 where nothing is partial.
    #[must_use]
    pub fn terms(&self) -> usize {
        // A factor of the mesh's size, which fits.
        self.partial_cuts().iter().map(|cut| cut.size).product()
    }

    pub(super) fn partial_cuts(&self) -> &[Cut] {
        self.partial.as_ref().map_or(&[], |partial| &partial.cuts)
    }
}
