//! What a model library has to do for its gradients to be summed on their device.

use std::fmt::Display;
use std::sync::Arc;

use meshwork_accel::{Accelerator, DeviceCommunicators, ElementType, Elementwise, Fold};

use crate::Error;

/// A model library whose tensors lie on devices of an accelerator: what
/// [`DeviceGradients`](crate::DeviceGradients) asks of it. All tensors are of `f32`.
///
/// Only what [`concatenate`](Self::concatenate) has made is ever lent and written to: tensors of a
/// library may share their memory, as the gradients of both terms of a sum do.
pub trait DeviceTensors {
    /// A tensor, as cheap to clone as a handle.
    type Tensor: Clone;
    /// What knows the memory of the library's devices.
    type Accelerator: DeviceCommunicators<Buffer: Send + 'static>
        + Elementwise
        + Fold
        + Send
        + Sync
        + 'static;
    /// The errors of whoever adapts the library.
    type Error: From<Error> + Display;

    /// What knows the memory of the library's devices.
    fn accelerator(&self) -> &Arc<Self::Accelerator>;

    /// How many elements a tensor has.
    fn len(&self, tensor: &Self::Tensor) -> usize;

    /// A tensor of so many zeros.
    ///
    /// # Errors
    /// Those of the library.
    fn zeros(&self, len: usize) -> Result<Self::Tensor, Self::Error>;

    /// A new tensor of one axis with the elements of all parts, one part after the other, row-major
    /// and without gaps, in memory that no other tensor has. It stays on the device.
    ///
    /// # Errors
    /// Those of the library.
    fn concatenate(&self, parts: Vec<Self::Tensor>) -> Result<Self::Tensor, Self::Error>;

    /// The memory of a packed tensor as a buffer of `element`, which has as many bytes as `f32`.
    /// What the library has queued is done before the buffer is worked on. The buffer keeps the
    /// memory allocated.
    ///
    /// # Errors
    /// Those of the library, and of the accelerator for a tensor of another device.
    fn lend(
        &self,
        packed: &Self::Tensor,
        element: ElementType,
    ) -> Result<BufferOf<Self>, Self::Error>;
}

/// The buffers of a library's accelerator.
pub type BufferOf<L> = <<L as DeviceTensors>::Accelerator as Accelerator>::Buffer;
