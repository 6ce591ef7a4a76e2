use crate::{Error, Layout, Shape};

/// The shape and layout of a tensor, as [`infer`](super::infer) takes them for operands and returns
/// them for results.
///
/// ```
/// use meshwork_core::Mesh;
/// use meshwork_layout::{Layout, ops::TensorLayout};
///
/// let mesh = Mesh::new([("batch", 2)])?;
/// let images = TensorLayout::new([8, 28, 28], Layout::batch_sharded(&mesh, "batch", 3)?)?;
/// assert_eq!(images.shape(), [8, 28, 28]);
/// # Ok::<(), meshwork_layout::Error>(())
/// ```
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct TensorLayout {
    shape: Shape,
    layout: Layout,
}

impl TensorLayout {
    /// A tensor of this shape, in elements, in this layout.
    ///
    /// # Errors
    /// [`Error::RankMismatch`] if the layout is for tensors of another rank.
    pub fn new(shape: impl IntoIterator<Item = usize>, layout: Layout) -> Result<Self, Error> {
        let shape: Shape = shape.into_iter().collect();
        if shape.len() != layout.rank() {
            return Err(Error::RankMismatch {
                found: shape.to_vec(),
                expected: layout.rank(),
            });
        }
        Ok(Self { shape, layout })
    }

    /// The sizes of the axes, in elements.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The layout.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// How many axes there are.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.shape.len()
    }
}

#[cfg(test)]
mod tests {
    use meshwork_core::Mesh;

    use super::*;

    #[test]
    fn a_shape_has_the_rank_of_its_layout() {
        let mesh = Mesh::new([("x", 2)]).unwrap();
        let mismatch = Error::RankMismatch {
            found: vec![4, 4],
            expected: 1,
        };
        let layout = Layout::replicated(&mesh, 1);
        assert_eq!(TensorLayout::new([4, 4], layout), Err(mismatch));
    }
}
