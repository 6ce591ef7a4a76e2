//! `DVariable`: a tensor that is assigned to and keeps its shape and layout, and the choice to save
//! it rounded to `bf16`. Variables of data-parallel training are in the strategy crate.

use meshwork_layout::Layout;

use crate::{DTensor, Error, Number, Scalar};

/// A variable: a tensor that can be assigned to and keeps its shape and layout.
///
/// ```
/// use meshwork_core::{Client, Mesh};
/// use meshwork_dtensor::{Context, DVariable, Error};
/// use meshwork_layout::Layout;
///
/// let context = Context::alone(Client::new("localhost", 0, 1)?);
/// let mesh = Mesh::new([("x", 2)])?;
/// let rows = Layout::batch_sharded(&mesh, "x", 2)?;
/// let mut weights = DVariable::new(context.zeros::<f32>(&[4, 2], &rows)?);
/// let whole = context.full(&[4, 2], &Layout::replicated(&mesh, 2), 0.5)?;
/// weights.assign_add(&whole)?;
/// assert_eq!(weights.layout(), &rows);
/// assert!(weights.value().to_host()?.iter().all(|weight| *weight == 0.5));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct DVariable<T: Scalar> {
    value: DTensor<T>,
    saved_as: SavedAs,
}

/// How a variable is written to a checkpoint.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SavedAs {
    /// With the elements that it has.
    #[default]
    Itself,
    /// Rounded to `bf16`; they are made wider again when they are read.
    Bf16,
}

impl<T: Scalar> DVariable<T> {
    /// A variable with this value and its layout.
    #[must_use]
    pub fn new(value: DTensor<T>) -> Self {
        Self {
            value,
            saved_as: SavedAs::Itself,
        }
    }

    /// A variable with this value, which has to have this layout.
    ///
    /// # Errors
    /// [`Error::LayoutDiffers`].
    pub fn with_layout(value: DTensor<T>, layout: &Layout) -> Result<Self, Error> {
        value.check_layout(layout)?;
        Ok(Self::new(value))
    }

    /// The value.
    #[must_use]
    #[doc(alias = "read_value")]
    pub fn value(&self) -> &DTensor<T> {
        &self.value
    }

    /// The layout.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        self.value.layout()
    }

    /// The sizes of the axes of the whole tensor, in elements.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        self.value.shape()
    }

    /// Replaces the value by another that lies alike.
    pub(crate) fn hold(&mut self, value: DTensor<T>) {
        self.value = value;
    }

    /// Replaces the value by another, brought into this layout.
    ///
    /// # Errors
    /// [`Error::AssignedShape`] and those of [`DTensor::relayout`]; the value is then unchanged.
    #[track_caller]
    pub fn assign(&mut self, value: &DTensor<T>) -> Result<(), Error> {
        if value.shape() != self.shape() {
            return Err(Error::AssignedShape {
                found: value.shape().to_vec(),
                expected: self.shape().to_vec(),
            });
        }
        self.value = value.stop_gradient().into_layout(self.layout())?;
        Ok(())
    }

    /// How it is written to a checkpoint.
    #[must_use]
    #[doc(alias = "save_as_bf16")]
    pub fn saved_as(&self) -> SavedAs {
        self.saved_as
    }
}

impl<T: Number> DVariable<T> {
    /// Adds a tensor, brought into this layout.
    ///
    /// # Errors
    /// Those of [`assign`](Self::assign).
    #[track_caller]
    pub fn assign_add(&mut self, value: &DTensor<T>) -> Result<(), Error> {
        self.updated(value, DTensor::add)
    }

    /// Subtracts a tensor, brought into this layout.
    ///
    /// # Errors
    /// Those of [`assign`](Self::assign).
    #[track_caller]
    pub fn assign_sub(&mut self, value: &DTensor<T>) -> Result<(), Error> {
        self.updated(value, DTensor::sub)
    }

    #[track_caller]
    fn updated(
        &mut self,
        value: &DTensor<T>,
        update: impl Fn(&DTensor<T>, &DTensor<T>) -> Result<DTensor<T>, Error>,
    ) -> Result<(), Error> {
        if value.shape() != self.shape() {
            return self.assign(value);
        }
        let value = value.stop_gradient().into_layout(self.layout())?;
        self.assign(&update(&self.value, &value)?)
    }
}

impl DVariable<f32> {
    /// Chooses how it is written to a checkpoint. Only elements of this type can be rounded.
    #[must_use]
    pub fn save_as(self, saved_as: SavedAs) -> Self {
        Self { saved_as, ..self }
    }
}

#[cfg(test)]
mod tests {
    use meshwork_core::{Client, Mesh};
    use ndarray::array;

    use super::*;
    use crate::Context;

    fn variable() -> (Context, DVariable<i32>) {
        let context = Context::alone(Client::new("localhost", 0, 1).unwrap());
        let mesh = Mesh::new([("x", 2), ("y", 2)]).unwrap();
        let layout = Layout::from_names(["x", "unsharded"], &mesh).unwrap();
        let value = context
            .copy_to_mesh(array![[1, 2], [3, 4]], &layout)
            .unwrap();
        (context, DVariable::new(value))
    }

    #[test]
    fn what_is_assigned_takes_the_layout_of_the_variable() {
        let (context, mut variable) = variable();
        let layout = variable.layout().clone();
        let other = Layout::from_names(["unsharded", "y"], layout.mesh()).unwrap();
        let value = context
            .copy_to_mesh(array![[1, 0], [0, 1]], &other)
            .unwrap();
        variable.assign_add(&value).unwrap();
        assert_eq!(variable.layout(), &layout);
        assert_eq!(
            variable.value().to_host().unwrap(),
            array![[2, 2], [3, 5]].into_dyn()
        );
        variable.assign_sub(&value).unwrap();
        variable.assign_sub(&value).unwrap();
        assert_eq!(
            variable.value().to_host().unwrap(),
            array![[0, 2], [3, 3]].into_dyn()
        );
    }

    #[test]
    fn another_shape_changes_nothing() {
        let (context, mut variable) = variable();
        let wide = Layout::replicated(variable.layout().mesh(), 2);
        let wide = context.zeros::<i32>(&[1, 2], &wide).unwrap();
        let (found, expected) = (vec![1, 2], vec![2, 2]);
        let refused = Err(Error::AssignedShape { found, expected });
        assert_eq!(variable.assign(&wide), refused);
        assert_eq!(variable.assign_add(&wide), refused);
        assert_eq!(
            variable.value().to_host().unwrap(),
            array![[1, 2], [3, 4]].into_dyn()
        );
    }
}
