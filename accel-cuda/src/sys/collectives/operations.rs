//! What the ranks of a communicator do together: calls that queue work on its stream.
#![expect(unsafe_code, reason = "functions of other languages are called here")]

use std::ffi::c_int;

use cudarc::nccl::sys::{self, CUstream_st, ncclComm, ncclDataType_t, ncclRedOp_t};

use super::{Comm, DataType};
use crate::error::Failure;
use crate::sys::foreign::call;
use crate::sys::memory::Part;

/// Bytes, which move and are not computed with.
const BYTES: ncclDataType_t = ncclDataType_t::ncclUint8;

impl Comm {
    /// Replaces `values` by the op of all ranks' values.
    pub(crate) fn all_reduce(
        &self,
        values: Part<'_>,
        kind: DataType,
        op: ncclRedOp_t,
    ) -> Result<(), Failure> {
        let _here = self.stream.gpu().enter()?;
        let (comm, stream) = self.handles();
        let (at, count) = (values.pointer(), values.bytes() / kind.bytes);
        // SAFETY: so many elements are there, and are freed only after the stream's work; in place
        // is allowed.
        unsafe {
            call!(
                self.nccl,
                ncclAllReduce(at, at, count, kind.code, op, comm, stream)
            )
        }
    }

    /// Replaces the `values` of `root` by the op of all ranks' values; the others keep theirs.
    pub(crate) fn reduce(
        &self,
        values: Part<'_>,
        kind: DataType,
        op: ncclRedOp_t,
        root: c_int,
    ) -> Result<(), Failure> {
        let _here = self.stream.gpu().enter()?;
        let (comm, stream) = self.handles();
        let (at, count) = (values.pointer(), values.bytes() / kind.bytes);
        // SAFETY: so many elements are there, and are freed only after the stream's work; in place
        // is allowed, and only the root is written to.
        unsafe {
            call!(
                self.nccl,
                ncclReduce(at, at, count, kind.code, op, root, comm, stream)
            )
        }
    }

    /// Replaces `to` by all ranks' `from`, in their order; `to` has their number times its bytes.
    pub(crate) fn all_gather(&self, from: Part<'_>, to: Part<'_>) -> Result<(), Failure> {
        let _here = self.stream.gpu().enter()?;
        let (comm, stream) = self.handles();
        let (at, into, count) = (from.pointer(), to.pointer(), from.bytes());
        // SAFETY: so many bytes are there, in `to` for each rank, and are freed only after the
        // stream's work.
        unsafe {
            call!(
                self.nccl,
                ncclAllGather(at, into, count, BYTES, comm, stream)
            )
        }
    }

    /// Replaces `to` by this rank's block of the op of all ranks' `from`, which has a block for
    /// each.
    pub(crate) fn reduce_scatter(
        &self,
        from: Part<'_>,
        to: Part<'_>,
        kind: DataType,
        op: ncclRedOp_t,
    ) -> Result<(), Failure> {
        let _here = self.stream.gpu().enter()?;
        let (comm, stream) = self.handles();
        let (at, into, count) = (from.pointer(), to.pointer(), to.bytes() / kind.bytes);
        // SAFETY: so many elements are there, in `from` for each rank, and are freed only after the
        // stream's work.
        unsafe {
            call!(
                self.nccl,
                ncclReduceScatter(at, into, count, kind.code, op, comm, stream)
            )
        }
    }

    /// Replaces `values` by those of the rank `root`.
    pub(crate) fn broadcast(&self, values: Part<'_>, root: c_int) -> Result<(), Failure> {
        let _here = self.stream.gpu().enter()?;
        let (comm, stream) = self.handles();
        let (at, count) = (values.pointer(), values.bytes());
        // SAFETY: so many bytes are there, and are freed only after the stream's work; in place is
        // allowed.
        unsafe {
            call!(
                self.nccl,
                ncclBroadcast(at, at, count, BYTES, root, comm, stream)
            )
        }
    }

    fn handles(&self) -> (*mut ncclComm, *mut CUstream_st) {
        (self.handle.0, self.stream.handle.0.cast())
    }
}
