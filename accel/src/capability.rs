//! What some backends can do beyond [`Accelerator`]; code that needs it asks for the trait.

use crate::{Accelerator, Error, ReduceOp};

/// Collectives among the devices of one process, by links that they have of their own.
///
/// Each call has one buffer of each of its devices, which need not be all there are. The order of
/// the buffers is that of the ranks. As everywhere, calls on one device take effect in the order in
/// which they were made; all results have the same bits on every device. In which order floats are
/// combined is the backend's choice.
pub trait NativeCollectives: Accelerator {
    /// Replaces every buffer by `op` of all of them, divided by their number for a mean.
    ///
    /// # Shapes
    /// All buffers hold the same number of elements of the same type, on devices of their own.
    ///
    /// # Errors
    /// [`Error::DeviceRepeated`], [`Error::ElementMismatch`], [`Error::LengthMismatch`],
    /// [`Error::UnsupportedOp`].
    fn all_reduce(&self, op: ReduceOp, buffers: &mut [&mut Self::Buffer]) -> Result<(), Error>;

    /// Replaces every buffer by the one at place `root`.
    ///
    /// # Shapes
    /// Those of [`all_reduce`](Self::all_reduce).
    ///
    /// # Errors
    /// [`Error::RootOutside`], [`Error::DeviceRepeated`], [`Error::ElementMismatch`],
    /// [`Error::LengthMismatch`].
    fn broadcast(&self, root: usize, buffers: &mut [&mut Self::Buffer]) -> Result<(), Error>;

    /// Replaces every output by the concatenation of all inputs.
    ///
    /// # Shapes
    /// Input and output at one place are on one device. All inputs have one length, and the outputs
    /// that times their number.
    ///
    /// # Errors
    /// [`Error::CountMismatch`], [`Error::DeviceMismatch`], [`Error::DeviceRepeated`],
    /// [`Error::ElementMismatch`], [`Error::LengthMismatch`].
    fn all_gather(
        &self,
        inputs: &[&Self::Buffer],
        outputs: &mut [&mut Self::Buffer],
    ) -> Result<(), Error>;

    /// Leaves at each place its block of `op` of all inputs, divided by their number for a mean.
    ///
    /// # Shapes
    /// Input and output at one place are on one device. All outputs have one length, and the inputs
    /// that times their number: block `r` is for place `r`.
    ///
    /// # Errors
    /// Those of [`all_gather`](Self::all_gather), and [`Error::UnsupportedOp`].
    fn reduce_scatter(
        &self,
        op: ReduceOp,
        inputs: &[&Self::Buffer],
        outputs: &mut [&mut Self::Buffer],
    ) -> Result<(), Error>;
}

/// A backend that counts its live buffers, so that tests detect leaks.
pub trait LiveBuffers: Accelerator {
    /// How many buffers have been allocated and not been dropped yet.
    fn live_buffers(&self) -> usize;
}
