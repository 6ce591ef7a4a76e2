//! Where elements are, and where they go, along as few axes as that takes: pure.

use meshwork_accel::{Arrangement, Error, Region, StridedSlice};

use super::{SQUARE, Width};

/// The most axes that one kernel walks along: `AXES` of the source.
pub(crate) const MOST_AXES: usize = 16;

/// Elements that are copied to other places: all indices along some axes, at regular distances.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Axes {
    /// The places of what is lowest in what is read and in what is written.
    first: [usize; 2],
    /// From the outermost to the innermost; none for a single element.
    axes: Vec<Axis>,
}

/// One axis, and how far apart its elements are in what is read and in what is written. Backwards,
/// the distance is one by which numbers wrap.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Axis {
    pub(crate) size: usize,
    pub(crate) apart: [usize; 2],
}

impl Axes {
    /// A box that is cut out of a whole.
    pub(crate) fn cut(part: &Region) -> Result<Self, Error> {
        let sizes: Vec<usize> = part
            .part()
            .iter()
            .map(|range| range.end - range.start)
            .collect();
        let (whole, own) = (distances(part.whole()), distances(&sizes));
        let starts = part.part().iter().zip(&whole);
        let first = starts.map(|(range, apart)| range.start * apart).sum();
        let axes = sizes.iter().zip(whole.iter().zip(&own));
        let axes = axes.map(|(&size, (&from, &into))| Axis {
            size,
            apart: [from, into],
        });
        Self::of([first, 0], axes)
    }

    /// A box that is put into a whole.
    pub(crate) fn paste(part: &Region) -> Result<Self, Error> {
        let mut axes = Self::cut(part)?;
        axes.first.reverse();
        for axis in &mut axes.axes {
            axis.apart.reverse();
        }
        Ok(axes)
    }

    /// Axes that go to other places, and are repeated along all others.
    pub(crate) fn arrange(to: &Arrangement) -> Result<Self, Error> {
        let (source, target) = (distances(to.from()), distances(to.to()));
        let mut axes: Vec<Axis> = to
            .to()
            .iter()
            .zip(target)
            .map(|(size, apart)| new_axis(*size, apart))
            .collect();
        for ((place, apart), size) in to.places().iter().zip(source).zip(to.from()) {
            if let Some(axis) = axes.get_mut(*place).filter(|_| *size > 1) {
                axis.apart[0] = apart;
            }
        }
        Self::of([0, 0], axes)
    }

    /// Elements at regular distances, forwards or backwards; of a choice that has some.
    pub(crate) fn step(by: &StridedSlice) -> Result<Self, Error> {
        let sizes: Vec<usize> = by.along().iter().map(|stride| stride.count).collect();
        let (whole, own) = (distances(by.whole()), distances(&sizes));
        let bounds = by.bounds().into_iter().flatten().zip(&whole);
        let lowest = bounds.map(|((low, _), apart)| low * apart).sum();
        let axes = by.along().iter().zip(whole.iter().zip(&own));
        let axes = axes.map(|(stride, (&from, &into))| Axis {
            size: stride.count,
            apart: [from.wrapping_mul(stride.step.get().cast_unsigned()), into],
        });
        Self::of([lowest, 0], axes)
    }

    /// Without axes of one element, and with those as one that are as regular together.
    fn of(first: [usize; 2], all: impl IntoIterator<Item = Axis>) -> Result<Self, Error> {
        let mut axes: Vec<Axis> = Vec::new();
        for axis in all.into_iter().filter(|axis| axis.size != 1) {
            match axes.last_mut() {
                Some(outer) if outer.continues(axis) => {
                    let size = outer.size * axis.size;
                    *outer = Axis { size, ..axis };
                }
                _ => axes.push(axis),
            }
        }
        match axes.len() <= MOST_AXES {
            true => Ok(Self { first, axes }),
            false => Err(Error::TooManyAxes {
                axes: axes.len(),
                most: MOST_AXES,
            }),
        }
    }

    /// The same bytes, of elements of this width, moved as many at a time as are contiguous
    /// everywhere, between addresses that are multiples of `aligned` bytes: a GPU moves no more at
    /// a time than the address is a multiple of.
    pub(crate) fn widened(mut self, mut width: Width, aligned: usize) -> (Self, Width) {
        let fits = |wider: &Width| wider.bytes() <= aligned;
        while let Some(wider) = width.doubled().filter(fits).filter(|_| self.is_of_pairs()) {
            width = wider;
            let halved = |numbers: [usize; 2]| {
                numbers.map(|number| (number.cast_signed() / 2).cast_unsigned())
            };
            self.first = halved(self.first);
            if let Some((inner, outer)) = self.axes.split_last_mut() {
                inner.size /= 2;
                for axis in outer {
                    axis.apart = halved(axis.apart);
                }
            }
        }
        (self, width)
    }

    fn is_of_pairs(&self) -> bool {
        let Some((inner, outer)) = self.axes.split_last() else {
            return false;
        };
        let even = |numbers: &[usize; 2]| numbers.iter().all(|number| number % 2 == 0);
        inner.apart == [1, 1]
            && inner.size % 2 == 0
            && even(&self.first)
            && outer.iter().all(|axis| even(&axis.apart))
    }

    /// The same in an order for the kernel that transposes, and how many squares it takes, if that
    /// reads and writes faster: where neighbours that are read lie along another axis than
    /// neighbours that are written, and both are many. The two are last, that of what is written
    /// behind the other.
    pub(crate) fn transposed(&self) -> Option<(Self, u32)> {
        let (last, outer) = self.axes.split_last()?;
        let across = outer
            .iter()
            .position(|axis| axis.apart[0] == 1 && axis.size >= LEAST_TO_TRANSPOSE)?;
        if last.apart[1] != 1 || last.apart[0] == 1 || last.size < LEAST_TO_TRANSPOSE {
            return None;
        }
        let mut ordered = self.clone();
        let columns = ordered.axes.remove(across);
        let place = ordered.axes.len() - 1;
        ordered.axes.insert(place, columns);
        let (outer, square) = ordered.axes.split_at(place);
        let each = square.iter().map(|axis| axis.size.div_ceil(SQUARE));
        let mut sizes = outer.iter().map(|axis| axis.size).chain(each);
        let squares = sizes.try_fold(1, usize::checked_mul)?;
        Some((ordered, u32::try_from(squares).ok()?))
    }

    /// How many elements move.
    pub(crate) fn count(&self) -> usize {
        self.axes.iter().map(|axis| axis.size).product()
    }

    /// The places of what is lowest in what is read and in what is written.
    pub(crate) fn first(&self) -> [usize; 2] {
        self.first
    }

    /// From the outermost to the innermost.
    pub(crate) fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// How many elements from the lowest to the highest that is read, and written, both included.
    /// There are some.
    pub(crate) fn reach(&self) -> [usize; 2] {
        [0, 1].map(|side| {
            let ways = self.axes.iter().map(|axis| axis.way(side).unsigned_abs());
            ways.sum::<usize>() + 1
        })
    }

    /// How many elements after the lowest the first one is read.
    pub(crate) fn start(&self) -> usize {
        let ways = self.axes.iter().map(|axis| axis.way(0));
        ways.filter(|way| *way < 0).map(isize::unsigned_abs).sum()
    }

    /// Whether all are contiguous, in the same order on both sides.
    pub(crate) fn is_one_piece(&self) -> bool {
        match self.axes.as_slice() {
            [] => true,
            [only] => only.apart == [1, 1],
            _ => false,
        }
    }
}

/// With fewer neighbours, most threads of a square would have nothing to do.
const LEAST_TO_TRANSPOSE: usize = SQUARE / 2;

impl Axis {
    /// Whether the axis `inner` continues where one step of this one ends, on both sides.
    fn continues(self, inner: Self) -> bool {
        let one_step = inner.apart.map(|apart| apart.wrapping_mul(inner.size));
        self.apart == one_step
    }

    /// From its first element to its last one.
    fn way(self, side: usize) -> isize {
        (self.size.wrapping_sub(1))
            .wrapping_mul(self.apart[side])
            .cast_signed()
    }
}

/// An axis that is repeated, until it is known what goes there.
fn new_axis(size: usize, apart: usize) -> Axis {
    Axis {
        size,
        apart: [0, apart],
    }
}

/// How far apart neighbours along each axis are, row after row.
fn distances(sizes: &[usize]) -> Vec<usize> {
    let mut apart: Vec<usize> = sizes.iter().rev().scan(1, next_distance).collect();
    apart.reverse();
    apart
}

fn next_distance(apart: &mut usize, size: &usize) -> Option<usize> {
    let this = *apart;
    *apart *= size;
    Some(this)
}

#[cfg(test)]
mod tests;
