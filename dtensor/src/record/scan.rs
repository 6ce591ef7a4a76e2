//! A loop as one op: a body that is carried out once for each slice of stacked operands, whose
//! first results are its first operands the next time.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::{AnyTensor, Primitive, Purpose, Record, like, with_scalar};
use crate::{DTensor, Error};

/// What is done each time: carried values, slices and captured values become carried values and
/// slices of what is made.
pub(crate) trait Body: Any + Send + Sync {
    /// The results for these operands, recorded wherever these are.
    fn run(&self, operands: &[AnyTensor]) -> Result<Vec<AnyTensor>, Error>;
    /// What it does, line by line.
    fn lines(&self) -> Vec<String>;
    fn as_any(&self) -> &dyn Any;
}

/// From which slice a loop goes to which.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Direction {
    Forward,
    /// From the last one to the first.
    Backward,
}

/// A loop.
#[derive(Clone)]
pub(crate) struct Scan {
    pub(crate) body: Arc<dyn Body>,
    pub(crate) count: usize,
    pub(crate) direction: Direction,
    /// How many operands and results are carried.
    pub(crate) carried: usize,
    /// How many operands behind these are stacks; the others are the same each time.
    pub(crate) stacked: usize,
    /// How many results are stacks.
    pub(crate) made: usize,
    /// Whether what was carried into each time are further stacks among the results: gradients go
    /// through each time once more, from there.
    pub(crate) keeps: bool,
}

impl PartialEq for Scan {
    fn eq(&self, other: &Self) -> bool {
        let numbers = |own: &Self| (own.count, own.carried, own.stacked, own.made, own.keeps);
        Arc::ptr_eq(&self.body, &other.body)
            && numbers(self) == numbers(other)
            && self.direction == other.direction
    }
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan")
            .field("count", &self.count)
            .field("direction", &self.direction)
            .field("carried", &self.carried)
            .field("stacked", &self.stacked)
            .field("made", &self.made)
            .finish_non_exhaustive()
    }
}

impl Scan {
    /// The results for carried values, stacks and captured values, recorded as one op wherever one
    /// of these is.
    #[track_caller]
    pub(crate) fn apply(self: &Arc<Self>, operands: &[AnyTensor]) -> Result<Vec<AnyTensor>, Error> {
        if !operands.iter().any(|own| own.trace().is_recorded()) {
            return self.carried_out(operands);
        }
        let is_taped = |own: &AnyTensor| own.trace().is_recorded_for(Purpose::Gradients);
        let keeps = self.keeps || operands.iter().any(is_taped);
        let own = Self {
            keeps,
            ..Self::clone(self)
        };
        let plain: Vec<AnyTensor> = operands.iter().map(|own| own.untraced()).collect();
        let made = own.carried_out(&plain)?;
        let record = Record::of(Primitive::Scan(Arc::new(own)));
        operands.iter().for_each(|own| record.note_any(own));
        let mut results = Vec::with_capacity(made.len());
        for (number, tensor) in made.iter().enumerate() {
            let recorded = with_scalar!(&**tensor, |tensor| {
                Arc::new(record.result(number, tensor.clone())?) as AnyTensor
            });
            results.push(recorded.ok_or(Error::NotKept)?);
        }
        results.truncate(self.results());
        Ok(results)
    }

    /// How many results there are.
    pub(crate) fn results(&self) -> usize {
        let kept = if self.keeps { self.carried } else { 0 };
        self.carried + self.made + kept
    }

    /// The results for operands that nobody records.
    #[track_caller]
    fn carried_out(&self, operands: &[AnyTensor]) -> Result<Vec<AnyTensor>, Error> {
        let (carried, rest) = operands.split_at(self.carried);
        let (stacks, captured) = rest.split_at(self.stacked);
        let mut carried = carried.to_vec();
        let mut made: Vec<Vec<AnyTensor>> = vec![Vec::new(); self.results() - self.carried];
        for number in self.direction.numbers(self.count) {
            let mut given = carried.clone();
            for stack in stacks {
                given.push(slice(stack, number)?);
            }
            given.extend(captured.iter().cloned());
            let mut results = self.body.run(&given)?.into_iter();
            let before = std::mem::take(&mut carried).into_iter();
            carried.extend(results.by_ref().take(self.carried));
            let kept = before.filter(|_| self.keeps);
            for (stack, slice) in made.iter_mut().zip(results.chain(kept)) {
                stack.push(slice);
            }
        }
        for slices in made {
            carried.push(stacked(slices, self.direction)?);
        }
        Ok(carried)
    }
}

impl Direction {
    /// The slices in their order.
    pub(crate) fn numbers(self, count: usize) -> Box<dyn Iterator<Item = usize>> {
        match self {
            Self::Forward => Box::new(0..count),
            Self::Backward => Box::new((0..count).rev()),
        }
    }
}

/// One slice along the first axis, which goes away.
#[track_caller]
pub(crate) fn slice(of: &AnyTensor, number: usize) -> Result<AnyTensor, Error> {
    let rank = of.placement().shape().len();
    let (mut begin, mut size) = (vec![0; rank], vec![None; rank]);
    (begin[0], size[0]) = (number, Some(1));
    let slice = with_scalar!(&**of, |of| {
        Arc::new(of.slice(&begin, &size)?.squeeze(&[0])?) as AnyTensor
    });
    slice.ok_or(Error::NotKept)
}

/// Slices along a new first axis, given in the order of a loop. They stay cut as they are, which
/// the op that stacks does not promise.
#[track_caller]
pub(crate) fn stacked(
    mut slices: Vec<AnyTensor>,
    direction: Direction,
) -> Result<AnyTensor, Error> {
    if direction == Direction::Backward {
        slices.reverse();
    }
    let first = slices.first().ok_or(Error::NotKept)?;
    let stack = with_scalar!(&**first, |first| {
        let row = |slice| like(first, slice)?.expand_dims(0);
        let rows: Vec<_> = slices.iter().map(row).collect::<Result<_, Error>>()?;
        let rows: Vec<_> = rows.iter().collect();
        Arc::new(DTensor::concat(0, &rows)?) as AnyTensor
    });
    stack.ok_or(Error::NotKept)
}
