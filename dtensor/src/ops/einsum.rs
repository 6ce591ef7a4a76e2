//! Sums of products along named axes, of blocks on the host or on devices.

use std::num::NonZeroIsize;

use meshwork_accel::{ReduceOp, StridedRange};
use meshwork_layout::Shape;

use super::kernel::Monoid;
use super::local::Local;
use crate::{Error, Number};

/// The sums of products of some operands, each with a letter for each of its axes, along the axes
/// that the result has not.
pub(super) fn einsum<T: Number>(
    operands: Vec<(&[char], Local<T>)>,
    result: &[char],
) -> Result<Local<T>, Error> {
    let letters: Vec<&[char]> = operands.iter().map(|(letters, _)| *letters).collect();
    let mut product: Option<Named<T>> = None;
    for (number, (labels, local)) in operands.into_iter().enumerate() {
        let later = &letters[number + 1..];
        let is_kept = |label: char| {
            result.contains(&label) || later.iter().any(|labels| labels.contains(&label))
        };
        let next = Named::of(labels, local)?;
        product = Some(match product {
            None => next,
            Some(product) => product.times(next, is_kept)?,
        });
    }
    let product = product.ok_or(meshwork_layout::ops::OpError::NoOperands { op: "einsum" })?;
    product
        .summed(|label| result.contains(&label))?
        .ordered(result)
}

/// Blocks with a letter for each axis, none of them twice.
struct Named<T: Number> {
    labels: Vec<char>,
    local: Local<T>,
}

impl<T: Number> Named<T> {
    /// Along a letter that occurs twice, the diagonal.
    fn of(labels: &[char], local: Local<T>) -> Result<Self, Error> {
        let mut named = Self {
            labels: labels.to_vec(),
            local: local.carried()?,
        };
        while let Some([first, second]) = named.twice() {
            named = named.diagonal(first, second)?;
        }
        Ok(named)
    }

    /// The axes of a letter that occurs more than once.
    fn twice(&self) -> Option<[usize; 2]> {
        let axes = self.labels.iter().enumerate();
        let mut pairs = axes.filter_map(|(second, label)| {
            let first = self.labels[..second].iter().position(|one| one == label)?;
            Some([first, second])
        });
        pairs.next()
    }

    /// The diagonal of two axes: elements with the same index along both become one axis, the last.
    fn diagonal(self, first: usize, second: usize) -> Result<Self, Error> {
        let others = (0..self.labels.len()).filter(|axis| *axis != first && *axis != second);
        let mut order: Vec<usize> = others.collect();
        let mut labels: Vec<char> = order.iter().map(|axis| self.labels[*axis]).collect();
        labels.push(self.labels[first]);
        order.extend([first, second]);
        let turned = self.local.transposed(&order)?;
        let joined = turned.sizes().iter().map(|sizes| {
            let (others, both) = sizes.split_at(sizes.len() - 2);
            Shape::from([others, &[both[0] * both[1]]].concat())
        });
        let joined: Vec<Shape> = joined.collect();
        let local = turned.reshaped(&joined)?.stepped(|place| {
            let sizes = &turned.sizes()[place];
            let (others, both) = sizes.split_at(sizes.len() - 2);
            let step = NonZeroIsize::new(both[1].cast_signed() + 1);
            let step = step.expect("one more than a size, which is not negative");
            let along = StridedRange {
                first: 0,
                step,
                count: both[0],
            };
            others
                .iter()
                .map(|size| StridedRange::all(*size))
                .chain([along])
                .collect()
        })?;
        Ok(Self { labels, local })
    }

    /// Without the axes that are not needed.
    fn summed(self, is_needed: impl Fn(char) -> bool) -> Result<Self, Error> {
        let axes = 0..self.labels.len();
        let (kept, gone): (Vec<usize>, Vec<usize>) =
            axes.partition(|axis| is_needed(self.labels[*axis]));
        if gone.is_empty() {
            return Ok(self);
        }
        let sizes = self.local.sizes().iter();
        let sizes = sizes.map(|sizes| kept.iter().map(|axis| sizes[*axis]).collect());
        let sizes: Vec<Shape> = sizes.collect();
        Ok(Self {
            labels: kept.iter().map(|axis| self.labels[*axis]).collect(),
            local: self
                .local
                .fold(ReduceOp::Sum, &gone, &sizes, &Monoid::sum())?,
        })
    }

    /// The axes in this order, of which there are as many.
    fn ordered(&self, labels: &[char]) -> Result<Local<T>, Error> {
        if self.labels == labels {
            return Ok(self.local.clone());
        }
        let axis = |label| {
            self.axis(label)
                .expect("each label of the order has an axis")
        };
        let axes: Vec<usize> = labels.iter().copied().map(axis).collect();
        self.local.transposed(&axes)
    }

    fn axis(&self, label: char) -> Option<usize> {
        self.labels.iter().position(|other| *other == label)
    }

    /// The sizes of some axes of the block at a place.
    fn sizes(&self, labels: &[char], place: usize) -> Vec<usize> {
        let sizes = &self.local.sizes()[place];
        let size = |label: &char| self.axis(*label).map_or(1, |axis| sizes[axis]);
        labels.iter().map(size).collect()
    }

    /// A stack of products of matrices: the stack is along what both have and is kept, the sums are
    /// along what both have and is not.
    fn times(self, other: Self, is_kept: impl Fn(char) -> bool) -> Result<Self, Error> {
        let theirs = other.labels.clone();
        let left = self.summed(|label| is_kept(label) || theirs.contains(&label))?;
        let right = other.summed(|label| is_kept(label) || left.labels.contains(&label))?;
        let is_shared = |label: &&char| left.labels.contains(label) && right.labels.contains(label);
        let shared = left.labels.iter().filter(is_shared);
        let (stack, gone): (Vec<char>, Vec<char>) = shared.partition(|label| is_kept(**label));
        let only = |labels: &[char]| -> Vec<char> {
            let labels = labels.iter().filter(|label| !is_shared(label));
            labels.copied().collect()
        };
        let (rows, columns) = (only(&left.labels), only(&right.labels));
        let a = left.matrices([&stack, &rows, &gone])?;
        let b = right.matrices([&stack, &gone, &columns])?;
        let (mut products, mut sizes) = (Vec::new(), Vec::new());
        for place in 0..a.sizes().len() {
            let [depth, height, width] = [
                a.sizes()[place][0],
                a.sizes()[place][1],
                b.sizes()[place][2],
            ];
            products.push(Shape::from([depth, height, width].as_slice()));
            let kept = [left.sizes(&stack, place), left.sizes(&rows, place)].concat();
            sizes.push(Shape::from([kept, right.sizes(&columns, place)].concat()));
        }
        Ok(Self {
            labels: [stack, rows, columns].concat(),
            local: a.multiplied(&b, &products)?.reshaped(&sizes)?,
        })
    }

    /// Three axes: those of each of these letters as one.
    fn matrices(&self, [stack, rows, columns]: [&[char]; 3]) -> Result<Local<T>, Error> {
        let places = 0..self.local.sizes().len();
        let joined = places.map(|place| {
            let joined = [stack, rows, columns].map(|labels| {
                let sizes = self.sizes(labels, place);
                sizes.iter().product::<usize>()
            });
            Shape::from(joined.as_slice())
        });
        let joined: Vec<Shape> = joined.collect();
        self.ordered(&[stack, rows, columns].concat())?
            .reshaped(&joined)
    }
}
