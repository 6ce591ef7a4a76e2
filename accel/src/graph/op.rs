//! The ops of graphs, and what each makes of its operands.

use std::ops::Range;

use super::Vector;
use crate::shape::count;
use crate::{
    Arrangement, ElementType, Error, Pairwise, Pointwise, ProductShape, ReduceOp, Region,
    StridedSlice,
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
    /// Some indices along each axis.
    Step(StridedSlice),
    /// The elements along the middle one of three axes at the indices that are the second operand.
    Take([usize; 3]),
    /// A row for each index, with 1 for its class, of a range of them.
    OneHot(PerDevice<Range<usize>>, ElementType),
    /// Sums of rows of numbers, which are the second operand, by the indices that are the first:
    /// zeros where there are none. An index that no row has counts for nothing.
    AddRows {
        /// The index of the first row.
        first: PerDevice<usize>,
        /// How many rows come of it.
        rows: usize,
        /// How many numbers a row has.
        width: usize,
    },
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
            Self::AddRows { rows, width, .. } => {
                let (rows, width) = (*rows, *width);
                let own = each(ops, |op| match op {
                    Self::AddRows {
                        first,
                        rows: own,
                        width: wide,
                    } if *own == rows && *wide == width => first.same(),
                    _ => None,
                })?;
                Self::AddRows {
                    first: own,
                    rows,
                    width,
                }
            }
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

    /// What is made of these operands.
    pub(super) fn result(&self, devices: usize, of: &[Vector]) -> Result<Vector, Error> {
        let (inputs, outputs) = (of.len(), self.operands());
        if let Some(own) = self.differing().filter(|own| *own != devices) {
            let (inputs, outputs) = (own, devices);
            return Err(Error::CountMismatch { inputs, outputs });
        }
        match (self, of) {
            _ if inputs != outputs => Err(Error::CountMismatch { inputs, outputs }),
            (Self::Constant(element, bytes), _) => constant(*element, bytes),
            (_, [first, rest @ ..]) => self.of(*first, rest),
            (_, []) => Err(Error::CountMismatch { inputs, outputs }),
        }
    }

    const fn operands(&self) -> usize {
        match self {
            Self::Constant(..) => 0,
            Self::Pairwise(_)
            | Self::Reduce(_)
            | Self::Product(_)
            | Self::Paste(_)
            | Self::AddRows { .. }
            | Self::Take(_) => 2,
            Self::Select => 3,
            _ => 1,
        }
    }

    /// Of how many devices each has something of its own; none where they do not differ.
    fn differing(&self) -> Option<usize> {
        let count = match self {
            Self::Constant(_, bytes) => bytes.0.len(),
            Self::Cut(part) | Self::Paste(part) => part.0.len(),
            Self::OneHot(classes, _) => classes.0.len(),
            Self::AddRows { first, .. } => first.0.len(),
            _ => 1,
        };
        (count != 1).then_some(count)
    }

    fn of(&self, first: Vector, rest: &[Vector]) -> Result<Vector, Error> {
        let resized = |len: usize| Vector { len, ..first };
        Ok(match (self, rest) {
            (Self::Pairwise(_) | Self::Reduce(_), [other]) => alike(first, *other)?,
            (Self::Product(shape), [other]) => {
                long(first, shape.left())?;
                alike(resized(shape.right()), *other)?;
                resized(shape.product())
            }
            (Self::Select, [yes, no]) => long(alike(*yes, *no)?, first.len)?,
            (Self::Paste(part), [by]) => {
                alike(resized(part.first().len()), *by)?;
                part.values().iter().try_for_each(|own| {
                    long(first, own.whole_len())?;
                    long(*by, own.len()).map(|_| ())
                })?;
                first
            }
            (Self::AddRows { rows, width, .. }, [by]) => {
                long(*by, count(&[first.len, *width])?)?;
                let len = count(&[*rows, *width])?;
                Vector { len, ..*by }
            }
            (Self::Take(sizes), [indices]) => {
                long(first, count(sizes)?)?;
                resized(count(&[sizes[0], indices.len, sizes[2]])?)
            }
            _ => return self.of_one(first),
        })
    }

    fn of_one(&self, first: Vector) -> Result<Vector, Error> {
        let resized = |len: usize| Vector { len, ..first };
        Ok(match self {
            Self::Convert(element) => Vector {
                element: *element,
                ..first
            },
            Self::Cut(part) => {
                let len = part.first().len();
                part.values().iter().try_for_each(|own| {
                    long(first, own.whole_len())?;
                    long(resized(own.len()), len).map(|_| ())
                })?;
                resized(len)
            }
            Self::Arrange(to) => long(first, to.from_len()).map(|_| resized(to.len()))?,
            Self::Step(by) => long(first, by.whole_len()).map(|_| resized(by.len()))?,
            Self::Fold(_, sizes) => {
                long(first, count(sizes)?)?;
                resized(sizes[0] * sizes[2])
            }
            Self::Scan(_, sizes) => long(first, count(sizes)?)?,
            Self::OneHot(classes, element) => {
                let (element, row) = (*element, classes.first().len());
                let mut rows = classes.values().iter();
                rows.try_for_each(|own| equal(own.len(), row))?;
                let len = count(&[first.len, row])?;
                Vector { element, len }
            }
            Self::AllGather(groups) => resized(count(&[first.len, shared(groups)?])?),
            Self::ReduceScatter(_, groups) => resized(divided(first.len, shared(groups)?)?),
            Self::AllToAll(groups) => divided(first.len, shared(groups)?).map(|_| first)?,
            _ => first,
        })
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

fn constant(element: ElementType, bytes: &PerDevice<Vec<u8>>) -> Result<Vector, Error> {
    let held = bytes.first().len();
    let all = bytes.values().iter();
    for own in all {
        equal(own.len(), held)?;
    }
    let len = divided(held, element.size())?;
    Ok(Vector { element, len })
}

fn equal(left: usize, right: usize) -> Result<(), Error> {
    match left == right {
        true => Ok(()),
        false => Err(Error::LengthMismatch { left, right }),
    }
}

fn long(vector: Vector, len: usize) -> Result<Vector, Error> {
    equal(vector.len, len).map(|()| vector)
}

fn alike(one: Vector, other: Vector) -> Result<Vector, Error> {
    if one.element != other.element {
        let (buffer, other) = (one.element, other.element);
        return Err(Error::ElementMismatch { buffer, other });
    }
    long(one, other.len)
}

/// The size of each group, which is one.
fn shared(groups: &Groups) -> Result<usize, Error> {
    let size = groups.first().map(Vec::len).filter(|size| *size > 0);
    let operation = "a collective of nobody";
    let size = size.ok_or(Error::Unsupported { operation })?;
    for group in groups {
        equal(group.len(), size)?;
    }
    Ok(size)
}

fn divided(len: usize, by: usize) -> Result<usize, Error> {
    equal(len / by * by, len).map(|()| len / by)
}
