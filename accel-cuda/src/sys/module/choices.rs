//! How the kernels that choose, convert, scan and compare elements are called. Parts that are too
//! short for what a kernel is to read or write are refused.

use meshwork_accel::{ElementType, ReduceOp};

use super::tensors::{AlongSizes, fits};
use super::{Launch, Module, arguments};
use crate::error::Failure;
use crate::kernels::{Grid, Kernel, Pass, Scan, Width};
use crate::sys::memory::Part;

impl Module {
    /// Replaces each element of `into` by the same of `from`, as one of another type.
    pub(crate) fn convert(
        &self,
        [source, result]: [ElementType; 2],
        from: Part<'_>,
        into: Part<'_>,
    ) -> Result<(), Failure> {
        let kernel = Kernel::Convert;
        let mut count = (into.bytes() / result.size()) as u64;
        fits(kernel, into.bytes() / result.size() * source.size(), from)?;
        let (mut to, mut at) = (into.address(), from.address());
        let (mut result, mut source) = (result as u32, source as u32);
        let grid = Grid::of_elements(count, self.multiprocessors);
        let mut arguments = arguments![to, at, result, source, count];
        self.launch_in_order(Launch { kernel, grid }, &mut arguments, into, &[from])
    }

    /// Replaces `into` by the elements at `indices`, numbers of 64 bits, along the middle axis of
    /// `[outer, len, inner]` elements of `from`.
    pub(crate) fn take(
        &self,
        width: Width,
        [outer, len, inner]: [usize; 3],
        [from, indices]: [Part<'_>; 2],
        into: Part<'_>,
    ) -> Result<(), Failure> {
        let (kernel, chosen) = (Kernel::Take(width), indices.bytes() / INDEX);
        let rows = outer.saturating_mul(inner);
        let bytes = |of_axis: usize| rows.saturating_mul(of_axis).saturating_mul(width.bytes());
        fits(kernel, bytes(len), from)?;
        fits(kernel, bytes(chosen), into)?;
        let (mut to, mut at, mut by) = (into.address(), from.address(), indices.address());
        let mut sizes = TakeSizes {
            len: len as u64,
            inner: inner as u64,
            chosen: chosen as u64,
        };
        let mut count = rows.saturating_mul(chosen) as u64;
        let grid = Grid::of_elements(count, self.multiprocessors);
        let mut arguments = arguments![to, at, by, sizes, count];
        self.launch_in_order(
            Launch { kernel, grid },
            &mut arguments,
            into,
            &[from, indices],
        )
    }

    /// Replaces `into` by a row for each of `indices`, numbers of 64 bits.
    pub(crate) fn one_hot(
        &self,
        one: One,
        indices: Part<'_>,
        into: Part<'_>,
    ) -> Result<(), Failure> {
        let One { width, bits, first } = one;
        let kernel = Kernel::OneHot(width);
        let rows = (indices.bytes() / INDEX).max(1) as u64;
        let mut count = (into.bytes() / width.bytes()) as u64;
        let (mut to, mut at) = (into.address(), indices.address());
        let (mut first, mut classes, mut one) = (first as u64, count.div_ceil(rows), bits);
        let grid = Grid::of_elements(count, self.multiprocessors);
        let mut arguments = arguments![to, at, first, classes, one, count];
        self.launch_in_order(Launch { kernel, grid }, &mut arguments, into, &[indices])
    }

    /// Replaces each element of `into` by the same of `yes` where that of `holds`, a truth value,
    /// is true, and of `no` elsewhere.
    pub(crate) fn select(
        &self,
        width: Width,
        holds: Part<'_>,
        [yes, no]: [Part<'_>; 2],
        into: Part<'_>,
    ) -> Result<(), Failure> {
        let kernel = Kernel::Select(width);
        let mut count = (into.bytes() / width.bytes()) as u64;
        fits(kernel, into.bytes() / width.bytes(), holds)?;
        fits(kernel, into.bytes(), yes)?;
        fits(kernel, into.bytes(), no)?;
        let (mut to, mut by) = (into.address(), holds.address());
        let (mut one, mut other) = (yes.address(), no.address());
        let grid = Grid::of_elements(count, self.multiprocessors);
        let mut arguments = arguments![to, by, one, other, count];
        self.launch_in_order(
            Launch { kernel, grid },
            &mut arguments,
            into,
            &[holds, yes, no],
        )
    }

    /// Replaces each element of `into` by the op of the same of `from` and all before it along the
    /// middle axis.
    pub(crate) fn scan(
        &self,
        op: ReduceOp,
        element: ElementType,
        sizes: [usize; 3],
        [from, into]: [Part<'_>; 2],
    ) -> Result<(), Failure> {
        let kernel = Kernel::Scan(op, element);
        let mut scan = Scan::new(sizes, self.multiprocessors);
        let elements = usize::try_from(scan.elements()).unwrap_or(usize::MAX);
        for part in [from, into] {
            fits(kernel, elements.saturating_mul(element.size()), part)?;
        }
        let (mut to, mut at) = (into.address(), from.address());
        let grid = Grid::of_blocks(scan.blocks(), self.multiprocessors);
        let mut arguments = arguments![to, at, scan];
        self.launch_in_order(Launch { kernel, grid }, &mut arguments, into, &[from])
    }
}

impl Module {
    /// Replaces each element of `into`, a number of 64 bits, by where an extreme of its line is, or
    /// of one of the chunks that a line is cut into.
    pub(crate) fn arg(&self, pass: Pass, lines: Lines<'_>, into: Part<'_>) -> Result<(), Failure> {
        let kernel = Kernel::Arg(pass.op, pass.element);
        let bytes = |count: u64, size: usize| {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            count.saturating_mul(size)
        };
        let elements = (pass.count / pass.chunks).saturating_mul(lines.len);
        fits(kernel, bytes(elements, pass.element.size()), lines.elements)?;
        fits(kernel, bytes(pass.count, INDEX), into)?;
        let (mut to, mut at, mut by) = (into.address(), lines.elements.address(), 0);
        let mut sources = vec![lines.elements];
        if let Some(candidates) = lines.candidates {
            fits(kernel, bytes(pass.sources(), INDEX), candidates)?;
            by = candidates.address();
            sources.push(candidates);
        }
        let (mut len, mut sizes) = (lines.len, AlongSizes::of(pass));
        let grid = Grid::of_blocks(pass.blocks(), self.multiprocessors);
        let mut arguments = arguments![to, at, by, len, sizes];
        self.launch_in_order(Launch { kernel, grid }, &mut arguments, into, &sources)
    }
}

/// Where extremes are looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lines<'a> {
    /// All elements of all lines.
    pub(crate) elements: Part<'a>,
    /// How many a line has.
    pub(crate) len: u64,
    /// The indices in question, where not all are.
    pub(crate) candidates: Option<Part<'a>>,
}

/// What stands for the class that is the index; 0 stands for all others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct One {
    /// That of an element.
    pub(crate) width: Width,
    /// The bytes of the element.
    pub(crate) bits: u64,
    /// The first class.
    pub(crate) first: usize,
}

/// `struct take` of the kernels' source.
#[repr(C)]
struct TakeSizes {
    len: u64,
    inner: u64,
    chosen: u64,
}

/// Bytes of an index.
const INDEX: usize = size_of::<i64>();
