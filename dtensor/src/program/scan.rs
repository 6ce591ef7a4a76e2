//! Loops in programs: what is done each time is traced once, and is a program itself.

use std::any::Any;
use std::panic::Location;
use std::sync::Arc;

use super::Program;
use super::trace::recorded;
use crate::Error;
use crate::record::{
    self, AnyTensor, Described, Direction, Purpose, Recording, Scan, slice, stacked, with_scalar,
};

/// A loop that is yet to be traced or carried out.
pub(crate) struct Looped {
    pub(crate) count: usize,
    pub(crate) direction: Direction,
    pub(crate) carried: Vec<AnyTensor>,
    pub(crate) stacks: Vec<AnyTensor>,
    /// The line that errors and programs name for what is done each time; none where that is the
    /// program's own function.
    pub(crate) at: Option<&'static Location<'static>>,
}

/// What is carried, and slices: of what is given, or of what is made.
pub(crate) struct Turn {
    pub(crate) carried: Vec<AnyTensor>,
    pub(crate) slices: Vec<AnyTensor>,
}

/// A program that is carried out each time.
pub(super) struct LoopBody {
    /// As it was traced: each op can be recorded, and becomes nodes of graphs.
    pub(super) plain: Program,
    /// The same with chains.
    fused: Program,
}

impl Looped {
    /// What is carried after the last time, and stacks of the slices that were made. Where nobody
    /// records what is carried and stacked, the body is called each time; else once, to trace it.
    #[track_caller]
    pub(crate) fn carried_out(
        mut self,
        body: &mut dyn FnMut(Turn) -> Result<Turn, Error>,
    ) -> Result<Turn, Error> {
        for own in self.carried.iter_mut().chain(&mut self.stacks) {
            *own = whole(own)?;
        }
        let mut given = self.carried.iter().chain(&self.stacks);
        if given.any(|own| own.trace().is_recorded()) {
            return self.traced(body);
        }
        let mut made: Vec<Vec<AnyTensor>> = Vec::new();
        let mut carried = self.carried.clone();
        for number in self.direction.numbers(self.count) {
            let slices = self.stacks.iter().map(|stack| slice(stack, number));
            let slices = slices.collect::<Result<_, _>>()?;
            let next = self.turn(body, Turn { carried, slices })?;
            carried = next.carried;
            made.resize_with(next.slices.len(), Vec::new);
            for (stack, slice) in made.iter_mut().zip(next.slices) {
                stack.push(slice);
            }
        }
        let stacks = made.into_iter().map(|own| stacked(own, self.direction));
        let slices = stacks.collect::<Result<_, _>>()?;
        Ok(Turn { carried, slices })
    }

    /// The body once, whose results lie as what was carried into it.
    #[track_caller]
    fn turn(
        &self,
        body: &mut dyn FnMut(Turn) -> Result<Turn, Error>,
        given: Turn,
    ) -> Result<Turn, Error> {
        let made = body(given)?;
        let mut carried = Vec::with_capacity(made.carried.len());
        for (place, own) in self.carried.iter().enumerate() {
            let next = made.carried.get(place).ok_or(Error::NotKept)?;
            let (found, expected) = (Described::of(next), Described::of(own));
            let is_alike = found.element == expected.element
                && found.placement.shape() == expected.placement.shape();
            if !is_alike {
                let (found, expected) = (found.to_string(), expected.to_string());
                return Err(Error::CarriedDiffers {
                    place,
                    found,
                    expected,
                });
            }
            let layout = expected.placement.layout();
            let laid = with_scalar!(&**next, |next| Arc::new(next.relayout(layout)?)
                as AnyTensor);
            carried.push(laid.ok_or(Error::NotKept)?);
        }
        let slices = made.slices.iter().map(whole).collect::<Result<_, _>>()?;
        Ok(Turn { carried, slices })
    }

    #[track_caller]
    fn traced(self, body: &mut dyn FnMut(Turn) -> Result<Turn, Error>) -> Result<Turn, Error> {
        let recording = Recording::new(Purpose::Program);
        let first = self.direction.numbers(self.count).next();
        let first = first.ok_or(Error::NotKept)?;
        let given = |own: &AnyTensor| own.untraced().given(&recording);
        let carried: Vec<AnyTensor> = self.carried.iter().map(given).collect();
        let slices = self.stacks.iter().map(|stack| {
            let slice = slice(&stack.untraced(), first)?;
            Ok::<_, Error>(given(&slice))
        });
        let slices: Vec<AnyTensor> = slices.collect::<Result<_, _>>()?;
        let inputs: Vec<AnyTensor> = carried.iter().chain(&slices).cloned().collect();
        let turned = self.turn(body, Turn { carried, slices });
        recording.close();
        let turned = turned?;
        let made = turned.slices.len();
        let outputs: Vec<AnyTensor> = turned.carried.into_iter().chain(turned.slices).collect();
        let mut program = recorded(&recording, &inputs, &outputs)?;
        if let Some(at) = self.at {
            program.steps.iter_mut().for_each(|step| step.at = at);
        }
        let (body, captured) = LoopBody::of(program)?;
        let scan = Scan {
            body: Arc::new(body),
            count: self.count,
            direction: self.direction,
            carried: self.carried.len(),
            stacked: self.stacks.len(),
            made,
            keeps: false,
        };
        let operands: Vec<AnyTensor> = [self.carried, self.stacks, captured].concat();
        let mut results = Arc::new(scan).apply(&operands)?;
        let slices = results.split_off(results.len() - made);
        let carried = results;
        Ok(Turn { carried, slices })
    }
}

/// The same with nothing partial.
#[track_caller]
fn whole(of: &AnyTensor) -> Result<AnyTensor, Error> {
    let whole = with_scalar!(&**of, |of| Arc::new(of.reduce_partial()?) as AnyTensor);
    whole.ok_or(Error::NotKept)
}

impl LoopBody {
    /// A body whose constants are inputs behind the others, and these constants.
    fn of(program: Program) -> Result<(Self, Vec<AnyTensor>), Error> {
        let mut plain = program.simplified()?;
        let constants = std::mem::take(&mut plain.constants).into_iter();
        let (numbers, captured): (Vec<usize>, Vec<AnyTensor>) = constants.unzip();
        plain.inputs.extend(numbers);
        let mut fused = plain.clone();
        fused.fuse();
        let (plain, fused) = (plain.in_order(), fused.in_order());
        Ok((Self { plain, fused }, captured))
    }
}

impl record::Body for LoopBody {
    #[track_caller]
    fn run(&self, operands: &[AnyTensor]) -> Result<Vec<AnyTensor>, Error> {
        match operands.iter().any(|own| own.trace().is_recorded()) {
            true => self.plain.run(operands),
            false => self.fused.run(operands),
        }
    }

    fn lines(&self) -> Vec<String> {
        let text = self.fused.to_string();
        text.lines().skip(3).map(str::to_owned).collect()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
