//! Where tensors come from.

use meshwork_layout::ops::TensorLayout;
use meshwork_layout::{Layout, Ranges};
use ndarray::{Array, ArrayD, Dimension, IxDyn};

use super::DTensor;
use crate::exchange::Block;
use crate::{Context, Error, Scalar};

impl Context {
    /// The tensor of these blocks, one for each of this client's devices of the layout's mesh, in
    /// their order. All have the same shape; with a partial layout they are terms. Whether copies
    /// are equal is not looked at.
    ///
    /// # Errors
    /// [`Error::ComponentCount`], [`Error::ComponentRank`], [`Error::ComponentShape`],
    /// [`Error::UnknownDevice`], [`Error::RemoteMesh`], and [`Error::Layout`] for a tensor too
    /// large.
    #[track_caller]
    pub fn pack<T: Scalar, D: Dimension>(
        &self,
        components: impl IntoIterator<Item = Array<T, D>>,
        layout: &Layout,
    ) -> Result<DTensor<T>, Error> {
        let components: Vec<Block<T>> = blocks(components);
        self.check_count(&components, layout)?;
        check_ranks(&components, layout)?;
        let expected = components.first().map_or(&[][..], |first| first.shape());
        for (place, component) in components.iter().enumerate() {
            check_shape(place, component, expected)?;
        }
        let shape = layout.global_shape(expected)?;
        DTensor::of(self, TensorLayout::new(shape, layout.clone())?, components)
    }

    /// The tensor of this shape of these blocks, whose sizes the layout says: they may be uneven,
    /// or empty.
    ///
    /// # Errors
    /// Those of [`pack`](Self::pack).
    #[track_caller]
    pub fn pack_uneven<T: Scalar, D: Dimension>(
        &self,
        components: impl IntoIterator<Item = Array<T, D>>,
        layout: &Layout,
        shape: &[usize],
    ) -> Result<DTensor<T>, Error> {
        let components: Vec<Block<T>> = blocks(components);
        let placement = TensorLayout::new(shape.iter().copied(), layout.clone())?;
        self.check_count(&components, layout)?;
        check_ranks(&components, layout)?;
        let device_placement = self.device_placement(layout.mesh())?;
        for (place, (component, rank)) in
            components.iter().zip(device_placement.local()).enumerate()
        {
            check_shape(place, component, &layout.local_shape(*rank, shape)?)?;
        }
        DTensor::of(self, placement, components)
    }

    /// The tensor with the elements of an array of the host, which all clients have alike; inverse
    /// of [`DTensor::to_host`]. Each device gets its part.
    ///
    /// # Errors
    /// [`Error::Layout`] for a layout of another rank, [`Error::UnknownDevice`],
    /// [`Error::RemoteMesh`].
    #[track_caller]
    #[doc(alias = "relayout")]
    pub fn copy_to_mesh<T: Scalar, D: Dimension>(
        &self,
        array: Array<T, D>,
        layout: &Layout,
    ) -> Result<DTensor<T>, Error> {
        let array = array.into_dyn();
        let placement = TensorLayout::new(array.shape().iter().copied(), layout.clone())?;
        self.made(placement, |held| {
            let part = array.slice_each_axis(|axis| held[axis.axis.index()].clone().into());
            part.to_owned()
        })
    }

    /// The tensor whose elements are this function of their indices.
    ///
    /// # Errors
    /// Those of [`copy_to_mesh`](Self::copy_to_mesh).
    #[track_caller]
    pub fn from_fn<T: Scalar>(
        &self,
        shape: &[usize],
        layout: &Layout,
        element: impl Fn(&[usize]) -> T,
    ) -> Result<DTensor<T>, Error> {
        let placement = TensorLayout::new(shape.iter().copied(), layout.clone())?;
        self.made(placement, |held| {
            let sizes: Vec<usize> = held.iter().map(ExactSizeIterator::len).collect();
            ArrayD::from_shape_fn(sizes, |index| {
                let index = (0..held.len()).map(|axis| held[axis].start + index[axis]);
                element(&index.collect::<Vec<_>>())
            })
        })
    }

    /// A tensor of one element everywhere.
    ///
    /// # Errors
    /// Those of [`copy_to_mesh`](Self::copy_to_mesh).
    #[track_caller]
    #[doc(alias("fill", "ones"))]
    pub fn full<T: Scalar>(
        &self,
        shape: &[usize],
        layout: &Layout,
        element: T,
    ) -> Result<DTensor<T>, Error> {
        let placement = TensorLayout::new(shape.iter().copied(), layout.clone())?;
        self.made(placement, |held| {
            let sizes: Vec<usize> = held.iter().map(ExactSizeIterator::len).collect();
            ArrayD::from_elem(sizes, element)
        })
    }

    /// A tensor of zeros.
    ///
    /// # Errors
    /// Those of [`copy_to_mesh`](Self::copy_to_mesh).
    #[track_caller]
    pub fn zeros<T: Scalar>(&self, shape: &[usize], layout: &Layout) -> Result<DTensor<T>, Error> {
        self.full(shape, layout, T::default())
    }

    /// A tensor of this shape from the block of each device.
    #[track_caller]
    pub(crate) fn made_of<T: Scalar>(
        &self,
        shape: &[usize],
        layout: &Layout,
        block: impl Fn(&Ranges) -> ArrayD<T>,
    ) -> Result<DTensor<T>, Error> {
        self.made(
            TensorLayout::new(shape.iter().copied(), layout.clone())?,
            block,
        )
    }

    /// A tensor from the block of each device. If it is partial, the first of each group holds all,
    /// and the others the neutral element.
    #[track_caller]
    pub(crate) fn made<T: Scalar>(
        &self,
        placement: TensorLayout,
        block: impl Fn(&Ranges) -> ArrayD<T>,
    ) -> Result<DTensor<T>, Error> {
        let layout = placement.layout();
        let device_placement = self.device_placement(layout.mesh())?;
        let mut blocks = Vec::new();
        for rank in device_placement.local() {
            let held = layout.shard(*rank, placement.shape())?;
            let mut coords = layout.mesh().named_coords(*rank)?;
            let repeats = coords.any(|(dim, at)| at != 0 && layout.partial().any(|p| p == dim));
            let block = match layout.reduction().filter(|_| repeats) {
                None => block(&held),
                Some(reduction) => {
                    let sizes: Vec<usize> = held.iter().map(ExactSizeIterator::len).collect();
                    ArrayD::from_elem(IxDyn(&sizes), T::neutral(reduction))
                }
            };
            blocks.push(block.into_shared());
        }
        DTensor::of(self, placement, blocks)
    }

    fn check_count<T: Scalar>(&self, blocks: &[Block<T>], layout: &Layout) -> Result<(), Error> {
        let (found, expected) = (
            blocks.len(),
            self.device_placement(layout.mesh())?.local().len(),
        );
        match found == expected {
            true => Ok(()),
            false => Err(Error::ComponentCount { found, expected }),
        }
    }
}

/// Blocks in row-major order, as the engine wants them.
fn blocks<T: Scalar, D: Dimension>(
    components: impl IntoIterator<Item = Array<T, D>>,
) -> Vec<Block<T>> {
    let standard = |component: Array<T, D>| {
        let component = component.into_dyn();
        component.as_standard_layout().into_owned().into_shared()
    };
    components.into_iter().map(standard).collect()
}

fn check_ranks<T: Scalar>(components: &[Block<T>], layout: &Layout) -> Result<(), Error> {
    let mut ranks = components.iter().map(|component| component.ndim());
    match ranks.position(|rank| rank != layout.rank()) {
        None => Ok(()),
        Some(place) => Err(Error::ComponentRank {
            place,
            found: components[place].ndim(),
            expected: layout.rank(),
        }),
    }
}

fn check_shape<T: Scalar>(
    place: usize,
    component: &Block<T>,
    expected: &[usize],
) -> Result<(), Error> {
    if component.shape() == expected {
        return Ok(());
    }
    Err(Error::ComponentShape {
        place,
        found: component.shape().to_vec(),
        expected: expected.to_vec(),
    })
}
