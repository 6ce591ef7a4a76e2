//! What every device backend offers: element types, reduce ops and the [`Accelerator`] trait.
//!
//! This crate does not know any device API and any network. A backend is a crate of its own that
//! implements [`Accelerator`] and passes the suite in the module `conformance` (a feature of the
//! same name).
//!
//! ```text
//!   host slice  --upload-->  Buffer on device 0  --reduce-->  Buffer on device 0
//!   [1, 2, 3]                [1, 2, 3]            Sum         [11, 22, 33]
//!   host slice  <-download-  Buffer on device 0  --copy--->   Buffer on device 1
//! ```
//!
//! # When not to use it
//!
//! As an array library: there are no shapes and no broadcasting here, only what moving and reducing
//! tensors takes. Programs use a backend, or `meshwork-dtensor`.
//!
//! # Examples
//!
//! Host memory is reduced by the same definition of the ops:
//!
//! ```
//! use meshwork_accel::{ReduceOp, reduce_slice};
//!
//! let mut totals = [1.0_f32, 2.0, 3.0];
//! reduce_slice(ReduceOp::Sum, &mut totals, &[10.0, 20.0, 30.0])?;
//! assert_eq!(totals, [11.0, 22.0, 33.0]);
//! # Ok::<(), meshwork_accel::Error>(())
//! ```
//!
//! # Common calls
//!
//! | call | for |
//! |---|---|
//! | [`Accelerator::allocate`], [`Accelerator::upload`], [`Accelerator::download`] | buffers of a device |
//! | [`Accelerator::copy`], [`Accelerator::reduce`] | what happens to them |
//! | [`reduce_slice`], [`Reduction`] | the same ops on host memory |
//! | [`convert_slice`] | values as another type |
//! | [`DeviceCommunicators`] | collectives from device to device |
//! | [`Elementwise`], [`Matmul`], [`Arrange`], [`Graphs`] | what some backends can do beyond it |
//!
//! # Crate features
//!
//! | feature | adds |
//! |---|---|
//! | `conformance` | the suite that a backend runs in its tests |
//!
//! # Errors
//!
//! [`Error`], for all backends: what does not fit, what is not there ([`Absence`]), what the device
//! says, and when memory is out. A buffer that an operation has failed on holds unspecified values.
//!
//! # Costs
//!
//! [`reduce_slice`] takes one pass in the calling thread and allocates nothing. What a device does
//! may go on after the call: [`Accelerator::synchronize`] waits for it.
//!
//! # Map of the crate
//!
//! `element_type` and `element` (what can be moved and reduced), `reduce_op` and `reduce` (what
//! each op means, on host slices), `kernel` (the loops), `device` and `device_buffer` (what is
//! known of one), `accelerator` (the trait), `capability`, `communicator`, `compute`, `arrange`,
//! `strided_slice`, `windows` and `graph` (what some backends can do beyond it), `number` and
//! `convert` (what an element is as one of another type), `shape` (what they check first),
//! `memory_budget` (what they keep a memory limit by), `pinned_buffer` (pinned host memory),
//! `error`, `conformance` (the suite).

#[cfg(target_endian = "big")]
compile_error!(
    "elements travel as they are in memory, and every other system has the least byte first: build for a little-endian target"
);

mod accelerator;
mod arrange;
mod capability;
mod communicator;
mod compute;
#[cfg(feature = "conformance")]
pub mod conformance;
mod convert;
mod device;
mod device_buffer;
mod element;
mod element_type;
mod error;
mod graph;
mod kernel;
mod memory_budget;
mod number;
mod pinned_buffer;
mod reduce;
mod reduce_op;
mod rounding;
mod shape;
mod strided_slice;
mod windows;

pub use accelerator::Accelerator;
pub use arrange::{Arrange, Arrangement, Fold, Region};
pub use capability::{LiveBuffers, NativeCollectives};
pub use communicator::{
    CancelCheck, CommunicatorId, CommunicatorRank, DeviceCollective, DeviceCommunicator,
    DeviceCommunicators,
};
pub use compute::{Elementwise, Matmul, Pairwise, Pointwise, ProductShape};
pub use convert::convert_slice;
pub use device::{Device, DeviceId, Memory};
pub use device_buffer::{DeviceBuffer, extent};
pub use element::{Element, ElementTask};
pub use element_type::ElementType;
pub use error::{Absence, Error};
pub use graph::{
    Graph, GraphOp, Graphs, Groups, Loop, LoopResult, Node, PerDevice, TableRows, Vector,
};
pub use memory_budget::{MemoryBudget, MemoryReservation};
pub use pinned_buffer::{HostMemory, NotPinned, PinnedBuffer};
pub use reduce::{Reduction, balanced_split, reduce_slice};
pub use reduce_op::ReduceOp;
pub use rounding::{nearest_bf16, nearest_f16};
pub use shape::{BufferShape, count};
pub use strided_slice::{StridedRange, StridedSlice};
pub use windows::{ConvolutionShape, ImageWindows, WindowRange};

// Callers that hold 16-bit floats must name the very types that are elements here.
pub use half::{bf16, f16};
