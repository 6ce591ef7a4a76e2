//! How the kernels of tensors are called. Parts that are too short for what a kernel is to read or
//! write are refused.

use meshwork_accel::{ElementType, Pairwise, Pointwise, ProductShape};

use super::{Launch, Module, address_of, arguments};
use crate::error::Failure;
use crate::kernels::{Axes, Grid, Kernel, MOST_AXES, Pass, TILE, Width, computed_in};
use crate::sys::memory::{Operands, Part};

impl Module {
    /// Replaces each element by the op of it.
    pub(crate) fn pointwise(
        &self,
        op: Pointwise,
        element: ElementType,
        values: Part<'_>,
    ) -> Result<(), Failure> {
        let (mut at, mut count) = (values.address(), (values.bytes() / element.size()) as u64);
        let grid = Grid::of_packs(count, element.size(), self.multiprocessors);
        let mut arguments = arguments![at, count];
        let kernel = Kernel::Pointwise(op, element);
        self.launch(kernel, grid, values.stream(), &mut arguments)
    }

    /// Multiplies each element by `by`.
    pub(crate) fn scale(
        &self,
        element: ElementType,
        values: Part<'_>,
        by: f32,
    ) -> Result<(), Failure> {
        let (mut at, mut by) = (values.address(), by);
        let mut count = (values.bytes() / element.size()) as u64;
        let grid = Grid::of_elements(count, self.multiprocessors);
        let mut arguments = arguments![at, by, count];
        let kernel = Kernel::Scale(element);
        self.launch(kernel, grid, values.stream(), &mut arguments)
    }

    /// Replaces each element of `into` by the op of it and the same of `by`, as many as both have.
    pub(crate) fn pairwise(
        &self,
        op: Pairwise,
        element: ElementType,
        into: Part<'_>,
        by: Part<'_>,
    ) -> Result<(), Failure> {
        let (mut to, mut at) = (into.address(), by.address());
        let mut count = (into.bytes().min(by.bytes()) / element.size()) as u64;
        let grid = Grid::of_packs(count, element.size(), self.multiprocessors);
        let mut arguments = arguments![to, at, count];
        let kernel = Kernel::Pairwise(op, element);
        self.launch_in_order(Launch { kernel, grid }, &mut arguments, into, &[by])
    }

    /// Copies elements of `from`, from its first byte on, to places of `into`.
    pub(crate) fn place(
        &self,
        axes: &Axes,
        width: Width,
        from: Part<'_>,
        into: Part<'_>,
    ) -> Result<(), Failure> {
        let (mut count, mut squares);
        let (kernel, grid, mut walked, number) = match axes.transposed() {
            Some((axes, counted)) => {
                squares = counted;
                let grid = Grid::of_blocks(squares.into(), self.multiprocessors);
                let number = address_of(&mut squares);
                (Kernel::Transpose(width), grid, Walked::of(&axes), number)
            }
            None => {
                count = axes.count() as u64;
                let grid = Grid::of_elements(count, self.multiprocessors);
                let number = address_of(&mut count);
                (Kernel::Place(width), grid, Walked::of(axes), number)
            }
        };
        for (reach, part) in axes.reach().into_iter().zip([from, into]) {
            fits(kernel, reach.saturating_mul(width.bytes()), part)?;
        }
        let (mut to, mut at) = (into.address(), from.address());
        let mut arguments = [
            address_of(&mut to),
            address_of(&mut at),
            address_of(&mut walked),
            number,
        ];
        self.launch_in_order(Launch { kernel, grid }, &mut arguments, into, &[from])
    }

    /// Makes elements along an axis one.
    pub(crate) fn along(&self, pass: Pass, from: Part<'_>, into: Part<'_>) -> Result<(), Failure> {
        let kernel = Kernel::Along(pass.op, pass.element);
        for (count, part, element) in [
            (pass.sources(), from, pass.source),
            (pass.count, into, pass.result),
        ] {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            fits(kernel, count.saturating_mul(element.size()), part)?;
        }
        let wide = |one: ElementType, flag| {
            if one == computed_in(pass.element) {
                flag
            } else {
                0
            }
        };
        let (mut to, mut at) = (into.address(), from.address());
        let mut sizes = AlongSizes {
            wide: wide(pass.source, WIDE_SOURCE) | wide(pass.result, WIDE_RESULT),
            ..AlongSizes::of(pass)
        };
        let grid = Grid::of_blocks(pass.blocks(), self.multiprocessors);
        let mut arguments = arguments![to, at, sizes];
        self.launch_in_order(Launch { kernel, grid }, &mut arguments, into, &[from])
    }

    /// Replaces `into` by products of matrices, row after row.
    pub(crate) fn product(
        &self,
        element: ElementType,
        shape: ProductShape,
        operands: Operands<'_>,
    ) -> Result<(), Failure> {
        let Operands { left, right, into } = operands;
        let kernel = Kernel::Product(element);
        for (len, part) in [
            (shape.left(), left),
            (shape.right(), right),
            (shape.product(), into),
        ] {
            fits(kernel, len.saturating_mul(element.size()), part)?;
        }
        let (mut to, mut one, mut other) = (into.address(), left.address(), right.address());
        let mut sizes = ProductSizes {
            depth: shape.depth() as u64,
            rows: shape.rows() as u64,
            inner: shape.inner() as u64,
            columns: shape.columns() as u64,
        };
        let tiles = sizes.depth * sizes.rows.div_ceil(TILE) * sizes.columns.div_ceil(TILE);
        let grid = Grid::of_blocks(tiles, self.multiprocessors);
        let mut arguments = arguments![to, one, other, sizes];
        self.launch_in_order(
            Launch { kernel, grid },
            &mut arguments,
            into,
            &[left, right],
        )
    }
}

/// `struct axes` of the kernels' source.
#[repr(C)]
struct Walked {
    count: u32,
    first: u64,
    size: [u64; MOST_AXES],
    from: [u64; MOST_AXES],
    into: [u64; MOST_AXES],
}

impl Walked {
    /// A kernel walks along at least one axis.
    fn of(axes: &Axes) -> Self {
        let mut walked = Self {
            count: 1,
            first: axes.start() as u64,
            size: [1; MOST_AXES],
            from: [0; MOST_AXES],
            into: [0; MOST_AXES],
        };
        for (place, axis) in axes.axes().iter().enumerate().take(MOST_AXES) {
            let [from, into] = axis.apart;
            walked.count += u32::from(place > 0);
            walked.size[place] = axis.size as u64;
            walked.from[place] = from as u64;
            walked.into[place] = into as u64;
        }
        walked
    }
}

/// `struct along` of the kernels' source.
#[repr(C)]
pub(super) struct AlongSizes {
    len: u64,
    inner: u64,
    chunks: u64,
    per: u64,
    count: u64,
    lanes: u32,
    wide: u32,
}

impl AlongSizes {
    /// Of elements and results that are not wide.
    pub(super) fn of(pass: Pass) -> Self {
        Self {
            len: pass.len,
            inner: pass.inner,
            chunks: pass.chunks,
            per: pass.per,
            count: pass.count,
            lanes: pass.lanes,
            wide: 0,
        }
    }
}

/// `struct product` of the kernels' source.
#[repr(C)]
struct ProductSizes {
    depth: u64,
    rows: u64,
    inner: u64,
    columns: u64,
}

/// Refuses a part that is shorter than what a kernel reads or writes there.
pub(super) fn fits(kernel: Kernel, bytes: usize, part: Part<'_>) -> Result<(), Failure> {
    if bytes <= part.bytes() {
        return Ok(());
    }
    Err(Failure {
        function: "cuLaunchKernel",
        code: 0,
        status: format!(
            "{} works on {bytes} bytes, and {} were given",
            kernel.name(),
            part.bytes()
        ),
    })
}

const WIDE_SOURCE: u32 = 1;
const WIDE_RESULT: u32 = 2;
