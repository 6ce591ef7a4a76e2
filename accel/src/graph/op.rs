//! The ops of graphs; what each makes of its operands is in `result`.

use std::ops::Range;

use super::{Loop, LoopResult};
use crate::{
    Arrangement, ConvolutionShape, ElementType, ImageWindows, Pairwise, Pointwise, ProductShape,
    ReduceOp, Region, StridedSlice,
};

/// What each device has of its own: one for all, or one for each in their order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PerDevice<T>(Vec<T>);

impl<T: Eq> PerDevice<T> {
    /// The same for all.
    pub fn all(value: T) -> Self {
        Self(vec![value])
    }

    /// One for each; where they do not differ, it is one for all. `None` for none.
    #[must_use]
    pub fn each(mut values: Vec<T>) -> Option<Self> {
        let first = values.first()?;
        if values.iter().all(|value| value == first) {
            values.truncate(1);
        }
        Some(Self(values))
    }

    /// The one of all, if they do not differ.
    #[must_use]
    pub fn same(&self) -> Option<&T> {
        match &self.0[..] {
            [one] => Some(one),
            _ => None,
        }
    }

    /// The first one.
    #[must_use]
    pub fn first(&self) -> &T {
        &self.0[0]
    }

    /// All that differ: one, or one for each device.
    #[must_use]
    pub fn values(&self) -> &[T] {
        &self.0
    }
}

/// Devices, by their place, that exchange among themselves; groups of one size have all devices.
pub type Groups = Vec<Vec<usize>>;

/// Some rows of a table, of which each device may have others.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TableRows {
    /// The index of the first one.
    pub first: PerDevice<usize>,
    /// How many there are.
    pub count: usize,
    /// How many elements a row has.
    pub width: usize,
}

/// What a device does with its values, or devices with each other's.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum GraphOp {
    /// These elements, row after row, in the bytes that host memory has for them.
    Constant(ElementType, PerDevice<Vec<u8>>),
    /// The op of each element, see [`Elementwise`](crate::Elementwise).
    Pointwise(Pointwise),
    /// The op of each element of the first operand and the same one of the second.
    Pairwise(Pairwise),
    /// The op of each element of the first operand and the same one of the second, as devices
    /// reduce.
    Reduce(ReduceOp),
    /// The products of two stacks of matrices, see [`Matmul`](crate::Matmul).
    Product(ProductShape),
    /// The elements as those of another type.
    Convert(ElementType),
    /// Elements of the second operand where those of the first are not 0, and else of the third.
    Select,
    /// A box of a whole, see [`Arrange`](crate::Arrange).
    Cut(PerDevice<Region>),
    /// The first operand with a box replaced by the second.
    Paste(PerDevice<Region>),
    /// Axes in other places, and repeated.
    Arrange(Arrangement),
    /// The elements along the middle one of three axes made one, see [`Fold`](crate::Fold).
    Fold(ReduceOp, [usize; 3]),
    /// Each element along the middle one of three axes made the op of it and all before it.
    Scan(ReduceOp, [usize; 3]),
    /// The index of the first of the smallest or largest elements along the middle one of three
    /// axes, as `I64`. NaN is neither, but for one at index 0.
    ArgReduce(ReduceOp, [usize; 3]),
    /// Some indices along each axis.
    Step(StridedSlice),
    /// The elements along the middle one of three axes at the indices that are the second operand.
    Take([usize; 3]),
    /// The rows of the first operand at the indices that are the second, and zeros for those of
    /// rows that a device does not have.
    TakeRows(TableRows),
    /// A row for each index, with 1 for its class, of a range of them.
    OneHot(PerDevice<Range<usize>>, ElementType),
    /// Sums of rows of numbers, which are the second operand, by the indices that are the first:
    /// zeros where there are none. An index that no row has counts for nothing.
    AddRows(TableRows),
    /// Sums of products of windows of the first operand with the second, the filter.
    Convolution(ConvolutionShape),
    /// The gradient of such sums by the images: the first operand is that by the sums, the second
    /// the filter.
    ConvolutionInputGradient(ConvolutionShape),
    /// The gradient of such sums by the filter: the first operand is the images, the second the
    /// gradient by the sums.
    ConvolutionFilterGradient(ConvolutionShape),
    /// The largest or the mean of each window, channel by channel; padding counts for nothing.
    Pool(ReduceOp, ImageWindows),
    /// The gradient of a pooling: the first operand is the images, the second the gradient by the
    /// result. Of several largest elements of a window, which has no gaps then, the first has it.
    PoolGradient(ReduceOp, ImageWindows),
    /// The op of the operands of each group, on all of its devices.
    AllReduce(ReduceOp, Groups),
    /// The operands of each group, one after the other, on all of its devices.
    AllGather(Groups),
    /// The op of the operands of each group, of which each device keeps its part.
    ReduceScatter(ReduceOp, Groups),
    /// Part `i` of the operand of device `j` of a group becomes part `j` of the result of its
    /// device `i`.
    AllToAll(Groups),
    /// The operand of each first device becomes the result of its second; each is named once on
    /// each side.
    Permute(Vec<(usize, usize)>),
    /// A graph carried out several times; the value is the first of its results.
    Loop(Box<Loop>),
    /// One of the results of a loop, which is the operand.
    LoopResult(LoopResult),
}

impl GraphOp {
    /// One op that does on each device what these do, one for each: they differ in no more than
    /// what may be [for each device](PerDevice). `None` where they do.
    #[must_use]
    pub fn joined(ops: &[&Self]) -> Option<Self> {
        let first = *ops.first()?;
        let joined = match first {
            Self::Constant(element, _) => {
                Self::Constant(*element, each(ops, |op| op.bytes(*element))?)
            }
            Self::Cut(part) => Self::Cut(each(ops, |op| match op {
                Self::Cut(own) => own.same().filter(|own| fits(own, part.first())),
                _ => None,
            })?),
            Self::Paste(part) => Self::Paste(each(ops, |op| match op {
                Self::Paste(own) => own.same().filter(|own| fits(own, part.first())),
                _ => None,
            })?),
            Self::OneHot(classes, element) => {
                let count = classes.first().len();
                let own = each(ops, |op| match op {
                    Self::OneHot(own, to) if to == element => {
                        own.same().filter(|own| own.len() == count)
                    }
                    _ => None,
                })?;
                Self::OneHot(own, *element)
            }
            Self::AddRows(rows) => Self::AddRows(rows.joined(each(ops, |op| match op {
                Self::AddRows(own) => own.beside(rows),
                _ => None,
            })?)),
            Self::TakeRows(rows) => Self::TakeRows(rows.joined(each(ops, |op| match op {
                Self::TakeRows(own) => own.beside(rows),
                _ => None,
            })?)),
            _ => ops.iter().all(|op| *op == first).then(|| first.clone())?,
        };
        Some(joined)
    }

    fn bytes(&self, of: ElementType) -> Option<&Vec<u8>> {
        match self {
            Self::Constant(element, bytes) if *element == of => bytes.same(),
            _ => None,
        }
    }
}

impl TableRows {
    /// The first one, if it is the same for all, and there are as many and as wide as in another.
    fn beside(&self, other: &Self) -> Option<&usize> {
        let is_alike = self.count == other.count && self.width == other.width;
        self.first.same().filter(|_| is_alike)
    }

    /// As many rows from other ones on.
    fn joined(&self, first: PerDevice<usize>) -> Self {
        let (count, width) = (self.count, self.width);
        Self {
            first,
            count,
            width,
        }
    }
}

fn each<'a, T: Clone + Eq + 'a>(
    ops: &[&'a GraphOp],
    own: impl Fn(&'a GraphOp) -> Option<&'a T>,
) -> Option<PerDevice<T>> {
    let each = ops.iter().map(|op| own(op).cloned());
    PerDevice::each(each.collect::<Option<_>>()?)
}

/// Whether two boxes of wholes are alike but for where they begin.
fn fits(one: &Region, other: &Region) -> bool {
    let lens = |region: &Region| -> Vec<usize> {
        region.part().iter().map(ExactSizeIterator::len).collect()
    };
    one.whole() == other.whole() && lens(one) == lens(other)
}
