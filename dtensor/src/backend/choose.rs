//! What backends choose, scan and convert; what one does not have is none.

use std::ops::Range;

use meshwork_accel::{ElementType, ReduceOp, StridedSlice};

use super::{Backend, BackendResult, DeviceBlock};

impl Backend {
    /// The op of each element along the middle one of three axes and of those before it.
    pub(crate) fn scan(&self, op: ReduceOp, sizes: [usize; 3], of: &DeviceBlock) -> BackendResult {
        self.by(self.0.shaping.as_deref(), of.bytes, |shaping| {
            shaping.scan(op, sizes, self.own(of)?)
        })
    }

    /// Where along the middle one of three axes the first of the smallest or largest elements is.
    pub(crate) fn arg_reduce(
        &self,
        op: ReduceOp,
        sizes: [usize; 3],
        of: &DeviceBlock,
    ) -> BackendResult {
        let bytes = (sizes[0] * sizes[2] * size_of::<i64>()) as u64;
        self.by(self.0.shaping.as_deref(), bytes, |shaping| {
            shaping.arg_reduce(op, sizes, self.own(of)?)
        })
    }

    /// Some indices along each axis.
    pub(crate) fn step(&self, of: &DeviceBlock, by: &StridedSlice) -> BackendResult {
        let bytes = of.share(by.len(), by.whole_len());
        self.by(self.0.shaping.as_deref(), bytes, |shaping| {
            shaping.step(self.own(of)?, by)
        })
    }

    /// The elements along the middle one of three axes at some indices; `len` in all.
    pub(crate) fn take(
        &self,
        of: &DeviceBlock,
        sizes: [usize; 3],
        len: usize,
        indices: &DeviceBlock,
    ) -> BackendResult {
        let bytes = of.share(len, sizes.iter().product());
        self.by(self.0.shaping.as_deref(), bytes, |shaping| {
            shaping.take(self.own(of)?, sizes, self.own(indices)?)
        })
    }

    /// A row for each index, with elements of a type for a range of classes; `len` in all.
    pub(crate) fn one_hot(
        &self,
        indices: &DeviceBlock,
        classes: Range<usize>,
        element: ElementType,
        len: usize,
    ) -> BackendResult {
        let bytes = (len * element.size()) as u64;
        self.by(self.0.shaping.as_deref(), bytes, |shaping| {
            shaping.one_hot(self.own(indices)?, classes, element)
        })
    }

    /// The elements, `len` of them, converted to another type.
    pub(crate) fn convert(&self, of: &DeviceBlock, to: ElementType, len: usize) -> BackendResult {
        let bytes = (len * to.size()) as u64;
        self.by(self.0.arithmetic.as_deref(), bytes, |arithmetic| {
            arithmetic.convert(self.own(of)?, to)
        })
    }

    /// The first elements where the conditions are not 0, and the second ones elsewhere.
    pub(crate) fn select(
        &self,
        conditions: &DeviceBlock,
        [yes, no]: [&DeviceBlock; 2],
    ) -> BackendResult {
        self.by(self.0.arithmetic.as_deref(), yes.bytes, |arithmetic| {
            arithmetic.select(self.own(conditions)?, [self.own(yes)?, self.own(no)?])
        })
    }
}
