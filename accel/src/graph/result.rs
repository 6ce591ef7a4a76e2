//! What the ops of graphs make of their operands: how many elements of which type, or why there is
//! no such op.

use super::{GraphOp, Groups, PerDevice, Vector};
use crate::device_buffer::equal;
use crate::shape::count;
use crate::{DeviceId, ElementType, Error, ReduceOp, WindowRange};

impl GraphOp {
    /// What is made of these operands.
    pub(super) fn result(&self, devices: usize, of: &[Vector]) -> Result<Vector, Error> {
        let (inputs, outputs) = (of.len(), self.operands());
        if let Some(own) = self.differing().filter(|own| *own != devices) {
            let (inputs, outputs) = (own, devices);
            return Err(Error::CountMismatch { inputs, outputs });
        }
        match (self, of) {
            (Self::Loop(own), _) => own.result(devices, of),
            _ if inputs != outputs => Err(Error::CountMismatch { inputs, outputs }),
            (Self::Constant(element, bytes), _) => constant(*element, bytes),
            (_, [first, rest @ ..]) => {
                self.named_once(devices)?;
                self.of(*first, rest)
            }
            (_, []) => Err(Error::CountMismatch { inputs, outputs }),
        }
    }

    /// Refuses a collective that does not have each device once.
    fn named_once(&self, devices: usize) -> Result<(), Error> {
        match self {
            Self::AllReduce(_, groups)
            | Self::AllGather(groups)
            | Self::ReduceScatter(_, groups)
            | Self::AllToAll(groups) => once(groups.iter().flatten(), devices),
            Self::Permute(pairs) => {
                once(pairs.iter().map(|pair| &pair.0), devices)?;
                once(pairs.iter().map(|pair| &pair.1), devices)
            }
            _ => Ok(()),
        }
    }

    const fn operands(&self) -> usize {
        match self {
            Self::Constant(..) => 0,
            Self::Pairwise(_)
            | Self::Reduce(_)
            | Self::Product(_)
            | Self::Paste(_)
            | Self::AddRows(_)
            | Self::TakeRows(_)
            | Self::Take(_)
            | Self::Convolution(_)
            | Self::ConvolutionInputGradient(_)
            | Self::ConvolutionFilterGradient(_)
            | Self::PoolGradient(..) => 2,
            Self::Select => 3,
            _ => 1,
        }
    }

    /// Of how many devices each has something of its own; none where they do not differ.
    fn differing(&self) -> Option<usize> {
        let count = match self {
            Self::Constant(_, bytes) => bytes.values().len(),
            Self::Cut(part) | Self::Paste(part) => part.values().len(),
            Self::OneHot(classes, _) => classes.values().len(),
            Self::AddRows(rows) | Self::TakeRows(rows) => rows.first.values().len(),
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
            (Self::AddRows(rows), [by]) => {
                long(*by, count(&[first.len, rows.width])?)?;
                let len = count(&[rows.count, rows.width])?;
                Vector { len, ..*by }
            }
            (Self::TakeRows(rows), [indices]) => {
                long(first, count(&[rows.count, rows.width])?)?;
                resized(count(&[indices.len, rows.width])?)
            }
            (Self::Take(sizes), [indices]) => {
                long(first, count(sizes)?)?;
                resized(count(&[sizes[0], indices.len, sizes[2]])?)
            }
            (
                Self::Convolution(_)
                | Self::ConvolutionInputGradient(_)
                | Self::ConvolutionFilterGradient(_)
                | Self::PoolGradient(..),
                [other],
            ) => return self.windowed(first, *other),
            _ => return self.of_one(first),
        })
    }

    /// What ops of windows with two operands make of them.
    fn windowed(&self, first: Vector, other: Vector) -> Result<Vector, Error> {
        let [left, right, made] = match self {
            Self::Convolution(of) => [of.over().images(), of.filter(), of.outputs()],
            Self::ConvolutionInputGradient(of) => [of.outputs(), of.filter(), of.over().images()],
            Self::ConvolutionFilterGradient(of) => [of.over().images(), of.outputs(), of.filter()],
            Self::PoolGradient(by, over) => {
                pools(*by)?;
                let operation = "the gradient of the largest elements of windows with gaps";
                let has_gaps = over.along().iter().any(WindowRange::has_gaps);
                if has_gaps && *by == ReduceOp::Max {
                    return Err(Error::Unsupported { operation });
                }
                [over.images(), over.windows(), over.images()]
            }
            _ => return self.of_one(first),
        };
        long(first, count(&left)?)?;
        let len = count(&right)?;
        alike(Vector { len, ..first }, other)?;
        let len = count(&made)?;
        Ok(Vector { len, ..first })
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
                resized(count(&[sizes[0], sizes[2]])?)
            }
            Self::Scan(_, sizes) => long(first, count(sizes)?)?,
            Self::ArgReduce(by, sizes) => {
                chooses(*by)?;
                long(first, count(sizes)?)?;
                let (element, len) = (ElementType::I64, count(&[sizes[0], sizes[2]])?);
                Vector { element, len }
            }
            Self::Pool(by, over) => {
                pools(*by)?;
                long(first, count(&over.images())?)?;
                resized(count(&over.windows())?)
            }
            Self::OneHot(classes, element) => {
                let (element, row) = (*element, classes.first().len());
                let mut rows = classes.values().iter();
                rows.try_for_each(|own| equal(own.len(), row))?;
                let len = count(&[first.len, row])?;
                Vector { element, len }
            }
            Self::LoopResult(own) => own.vector,
            Self::AllGather(groups) => resized(count(&[first.len, shared(groups)?])?),
            Self::ReduceScatter(_, groups) => resized(divided(first.len, shared(groups)?)?),
            Self::AllToAll(groups) => divided(first.len, shared(groups)?).map(|_| first)?,
            _ => first,
        })
    }
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

fn long(vector: Vector, len: usize) -> Result<Vector, Error> {
    equal(vector.len, len).map(|()| vector)
}

pub(super) fn alike(one: Vector, other: Vector) -> Result<Vector, Error> {
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

/// Refuses what does not name each of so many devices, and each once.
fn once<'a>(named: impl Iterator<Item = &'a usize>, devices: usize) -> Result<(), Error> {
    let mut is_named = vec![false; devices];
    for &number in named {
        let (device, available) = (DeviceId::new(number), devices);
        let own = is_named.get_mut(number);
        let own = own.ok_or(Error::UnknownDevice { device, available })?;
        if std::mem::replace(own, true) {
            return Err(Error::DeviceRepeated { device });
        }
    }
    let (inputs, outputs) = (is_named.iter().filter(|named| **named).count(), devices);
    match inputs == outputs {
        true => Ok(()),
        false => Err(Error::CountMismatch { inputs, outputs }),
    }
}

fn divided(len: usize, by: usize) -> Result<usize, Error> {
    equal(len / by * by, len).map(|()| len / by)
}

/// Refuses an op that makes nothing of windows.
fn pools(by: ReduceOp) -> Result<(), Error> {
    let operation = "a pooling by another op than max and mean";
    let is_known = matches!(by, ReduceOp::Max | ReduceOp::Mean);
    is_known
        .then_some(())
        .ok_or(Error::Unsupported { operation })
}

/// Refuses an op that chooses no element.
fn chooses(by: ReduceOp) -> Result<(), Error> {
    let operation = "an index by another op than min and max";
    let is_known = matches!(by, ReduceOp::Min | ReduceOp::Max);
    is_known
        .then_some(())
        .ok_or(Error::Unsupported { operation })
}
