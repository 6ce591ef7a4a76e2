//! Element-wise ops in one pass: a part of the elements at a time, small enough to stay in the
//! processor's cache, goes through all of them.
//!
//! ```text
//!     t0 = scale 0.9   m          1,024 elements of m and of g are read,
//!     t1 = scale 0.1   g          t0, t1 and t2 are written to memory that is used again,
//!     t2 = add         t0 t1      and t2 goes to the result
//! ```
//!
//! Each op rounds as it does by itself, so that the bits are the same.

use std::fmt::{self, Display};
use std::ops::Range;
use std::sync::Arc;

use meshwork_accel::{Pairwise, Pointwise};
use meshwork_layout::ops::Op;
use ndarray::{ArrayD, ArrayViewD};

use super::perform;
use crate::ops;
use crate::record::{AnyTensor, Described, Primitive, like, with_float};
use crate::{DTensor, Error, Float};

/// Ops of elements at one index, of operands that are repeated along axes of size 1.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chain {
    pub(super) links: Vec<Link>,
    /// The links whose elements are results.
    pub(super) results: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Link {
    pub(super) primitive: Primitive,
    pub(super) kind: Kind,
    pub(super) sources: Vec<Source>,
}

/// What a link does to elements at one index.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Pointwise(Pointwise),
    Pairwise(Pairwise),
    ByNumber(Pairwise, f64),
    Select,
}

/// Where a link has elements from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Source {
    /// An operand of the chain.
    Operand(usize),
    /// A link before.
    Link(usize),
}

/// How many elements go through the links at once: of 32 bits, the values between links take 4 KiB
/// each.
const PART: usize = 1024;

impl Chain {
    /// The results, which are described so: all of one shape and layout.
    #[track_caller]
    pub(super) fn run(
        &self,
        operands: &[AnyTensor],
        described: &[&Described],
    ) -> Result<Vec<AnyTensor>, Error> {
        let first = operands.first().ok_or(Error::NotKept)?;
        let done = with_float!(&**first, |first| {
            let typed = operands.iter().map(|operand| like(first, operand));
            let typed: Vec<&DTensor<_>> = typed.collect::<Result<_, _>>()?;
            match ops::computes(first) {
                true => self.one_by_one(operands)?,
                false => self.run_here(&typed, described)?,
            }
        });
        done.ok_or(Error::NotKept)
    }

    /// Op by op, where a backend has them.
    #[track_caller]
    fn one_by_one(&self, operands: &[AnyTensor]) -> Result<Vec<AnyTensor>, Error> {
        let mut made: Vec<AnyTensor> = Vec::with_capacity(self.links.len());
        for link in &self.links {
            let sources = link.sources.iter().map(|source| match source {
                Source::Operand(number) => Arc::clone(&operands[*number]),
                Source::Link(number) => Arc::clone(&made[*number]),
            });
            let sources: Vec<AnyTensor> = sources.collect();
            let results = perform::perform(&link.primitive, &sources, &[])?;
            made.extend(results);
        }
        let results = self.results.iter();
        Ok(results.map(|result| Arc::clone(&made[*result])).collect())
    }

    fn run_here<T: Float>(
        &self,
        operands: &[&DTensor<T>],
        described: &[&Described],
    ) -> Result<Vec<AnyTensor>, Error> {
        let (first, placement) = match (operands, described) {
            ([first, ..], [result, ..]) => (first, &result.placement),
            _ => return Ok(Vec::new()),
        };
        let mut blocks: Vec<Vec<_>> = vec![Vec::new(); self.results.len()];
        for (place, rank) in first.local_ranks().iter().enumerate() {
            let sizes = placement.layout().local_shape(*rank, placement.shape())?;
            let mut views = Vec::with_capacity(operands.len());
            for operand in operands {
                views.push(operand.unpack()?[place].view());
            }
            let made = self.block(&views, &sizes);
            for (blocks, made) in blocks.iter_mut().zip(made) {
                blocks.push(made.into_shared());
            }
        }
        let mut tensors: Vec<AnyTensor> = Vec::with_capacity(blocks.len());
        for blocks in blocks {
            tensors.push(Arc::new(DTensor::of(
                first.context(),
                placement.clone(),
                blocks,
            )?));
        }
        Ok(tensors)
    }

    /// The blocks of the results at one place.
    fn block<T: Float>(&self, operands: &[ArrayViewD<'_, T>], sizes: &[usize]) -> Vec<ArrayD<T>> {
        let len: usize = sizes.iter().product();
        let readers = operands.iter().map(|operand| Reader::of(operand, sizes));
        let readers: Vec<Reader<'_, T>> = readers.collect();
        let mut memory = vec![vec![T::default(); PART]; readers.len()];
        let mut made = vec![vec![T::default(); PART]; self.links.len()];
        let mut results: Vec<Vec<T>> = vec![Vec::with_capacity(len); self.results.len()];
        for start in (0..len).step_by(PART) {
            let part = start..len.min(start + PART);
            let read = readers.iter().zip(&mut memory);
            let read = read.map(|(reader, memory)| reader.part(part.clone(), memory));
            self.pass(&read.collect::<Vec<_>>(), &mut made, part.len());
            for (result, link) in results.iter_mut().zip(&self.results) {
                result.extend_from_slice(&made[*link][..part.len()]);
            }
        }
        let filled = |elements| ops::filled(sizes, elements);
        results.into_iter().map(filled).collect()
    }

    /// Each link's elements of a part, of so many.
    fn pass<T: Float>(&self, read: &[&[T]], made: &mut [Vec<T>], count: usize) {
        for (number, link) in self.links.iter().enumerate() {
            let (before, rest) = made.split_at_mut(number);
            let source = |at: usize| match link.sources[at] {
                Source::Operand(operand) => read[operand],
                Source::Link(link) => &before[link][..count],
            };
            link.kind.apply(source, &mut rest[0][..count]);
        }
    }
}

/// An operand's elements in the order of the result's.
enum Reader<'a, T> {
    /// The operand's own.
    Own(&'a [T]),
    /// All of them again and again: one number, or a row.
    Again(&'a [T]),
    /// Repeated in another order, and so copied.
    Copied(Vec<T>),
}

impl<'a, T: Float> Reader<'a, T> {
    fn of(operand: &'a ArrayViewD<'_, T>, sizes: &[usize]) -> Self {
        if let Some(elements) = operand.as_slice() {
            if operand.shape() == sizes {
                return Self::Own(elements);
            }
            let ones = operand.shape().iter().take_while(|size| **size == 1);
            if sizes.ends_with(&operand.shape()[ones.count()..]) {
                return Self::Again(elements);
            }
        }
        let spread = operand
            .broadcast(sizes)
            .expect("the rule of each op has checked the shapes");
        Self::Copied(spread.iter().copied().collect())
    }

    /// The elements of a part, in `memory` unless they have a place of their own.
    fn part<'b>(&'b self, part: Range<usize>, memory: &'b mut [T]) -> &'b [T] {
        match self {
            Self::Own(elements) => &elements[part],
            Self::Copied(elements) => &elements[part],
            Self::Again([element]) => {
                memory.fill(*element);
                &memory[..part.len()]
            }
            Self::Again(elements) => {
                let mut at = part.start % elements.len();
                let mut rest = &mut memory[..part.len()];
                while !rest.is_empty() {
                    let count = rest.len().min(elements.len() - at);
                    let (now, later) = rest.split_at_mut(count);
                    now.copy_from_slice(&elements[at..at + count]);
                    (rest, at) = (later, 0);
                }
                &memory[..part.len()]
            }
        }
    }
}

impl Kind {
    /// What an op does to elements at one index; none for one that looks at others too.
    pub(super) fn of(primitive: &Primitive) -> Option<Self> {
        match primitive {
            Primitive::Pointwise(by) => Some(Self::Pointwise(*by)),
            Primitive::Pairwise(by) => Some(Self::Pairwise(*by)),
            Primitive::ByNumber(by, number) => Some(Self::ByNumber(*by, number.get())),
            Primitive::Op(Op::BiasAdd) => Some(Self::Pairwise(Pairwise::Add)),
            Primitive::Op(Op::Select) => Some(Self::Select),
            Primitive::Op(_)
            | Primitive::Given
            | Primitive::LogSoftmax { .. }
            | Primitive::ArgMin { .. }
            | Primitive::RowsAdded(_)
            | Primitive::Cast(_)
            | Primitive::Scan(_)
            | Primitive::Closure(_) => None,
        }
    }

    /// The elements of a part, from those of the sources.
    fn apply<'b, T: Float>(self, source: impl Fn(usize) -> &'b [T], to: &mut [T]) {
        match self {
            Self::Pointwise(Pointwise::Negate) => {
                map(source(0), to, |x| T::from_f64(-0.0).minus(x));
            }
            Self::Pointwise(Pointwise::Relu) => map(source(0), to, |x| match x <= T::default() {
                true => T::default(),
                false => x,
            }),
            Self::Pointwise(Pointwise::Exp) => map(source(0), to, T::exp),
            Self::Pointwise(Pointwise::Ln) => map(source(0), to, T::ln),
            Self::Pairwise(Pairwise::Add) => zip([source(0), source(1)], to, T::plus),
            Self::Pairwise(Pairwise::Subtract) => zip([source(0), source(1)], to, T::minus),
            Self::Pairwise(Pairwise::Multiply) => zip([source(0), source(1)], to, T::times),
            Self::Pairwise(Pairwise::Divide) => zip([source(0), source(1)], to, T::over),
            Self::ByNumber(by, number) => {
                let number = T::from_f64(number);
                match by {
                    Pairwise::Add => map(source(0), to, |x| x.plus(number)),
                    Pairwise::Subtract => map(source(0), to, |x| x.minus(number)),
                    Pairwise::Multiply => map(source(0), to, |x| x.times(number)),
                    Pairwise::Divide => map(source(0), to, |x| x.over(number)),
                }
            }
            Self::Select => {
                let choices = source(1).iter().zip(source(2));
                let choices = source(0).iter().zip(choices);
                for (to, (holds, (yes, no))) in to.iter_mut().zip(choices) {
                    *to = if *holds == T::default() { *no } else { *yes };
                }
            }
        }
    }
}

fn map<T: Float>(from: &[T], to: &mut [T], function: impl Fn(T) -> T) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = function(*from);
    }
}

fn zip<T: Float>([left, right]: [&[T]; 2], to: &mut [T], function: impl Fn(T, T) -> T) {
    let both = left.iter().zip(right);
    for (to, (left, right)) in to.iter_mut().zip(both) {
        *to = function(*left, *right);
    }
}

impl Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.links.iter().map(|link| link.primitive.name());
        write!(f, "fused[{}]", names.collect::<Vec<_>>().join(" "))
    }
}
