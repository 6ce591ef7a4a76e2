//! Ops as data, for those who want to know what became of a tensor: a [`Tape`](crate::Tape)
//! differentiates what was done.
//!
//! ```text
//!     w, watched by a tape     x                a tensor says who records it, and as which value;
//!        trace: [tape, 0]      trace: []        what an op makes of it is recorded there too
//!              └──── matmul ────┘
//!                      │
//!                trace: [tape, 1]
//! ```
//!
//! An op is a [`Record`] while it is carried out: it takes note of the operands, and gives its
//! results their traces. Recordings are known weakly: when the tape is gone, nothing is recorded.

use std::cell::{OnceCell, RefCell};
use std::panic::Location;
use std::sync::{Arc, Weak};

use crate::{DTensor, Error, Scalar};

mod any_tensor;
mod described;
mod primitive;
mod recording;
mod scan;

pub(crate) use any_tensor::{
    AnyTensor, Tensor, like, made_of, with_float, with_indices, with_scalar,
};
pub(crate) use described::Described;
pub(crate) use primitive::Primitive;
pub(crate) use recording::{Node, Purpose, Recording};
pub(crate) use scan::{Body, Direction, Scan, slice, stacked};

/// Who records a tensor, and as what. Most tensors are recorded by nobody.
#[derive(Clone, Default)]
pub(crate) struct Trace(Option<Arc<[Entry]>>);

#[derive(Clone)]
struct Entry {
    recording: Weak<Recording>,
    value: Value,
}

/// A result of a recorded op.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Value {
    /// The op, by its number in the recording.
    pub(crate) node: usize,
    /// The result among those of the op.
    pub(crate) result: usize,
}

impl Trace {
    /// Which value of a recording the tensor is; none where it is not one.
    pub(crate) fn value_in(&self, recording: &Arc<Recording>) -> Option<Value> {
        let entry = self.entries().iter();
        let mut own = entry.filter(|entry| entry.recording.as_ptr() == Arc::as_ptr(recording));
        own.next().map(|entry| entry.value)
    }

    /// The same, and a value of one more recording. Those that are gone are left out.
    pub(crate) fn and(&self, recording: &Arc<Recording>, value: Value) -> Self {
        let recording = Arc::downgrade(recording);
        let more = [Entry { recording, value }];
        let entries = self.entries().iter();
        let known = entries.filter(|entry| entry.recording.strong_count() > 0);
        Self(Some(known.cloned().chain(more).collect()))
    }

    /// The same but for tapes: what only programs have of it.
    pub(crate) fn of_programs(&self) -> Self {
        let is_program = |entry: &&Entry| {
            let recording = entry.recording.upgrade();
            recording.is_some_and(|recording| recording.purpose() == Purpose::Program)
        };
        let left: Vec<Entry> = self.entries().iter().filter(is_program).cloned().collect();
        Self((!left.is_empty()).then(|| left.into()))
    }

    /// Whether a program is traced through the tensor now.
    pub(crate) fn is_in_program(&self) -> bool {
        self.is_recorded_for(Purpose::Program)
    }

    /// Whether somebody records the tensor now for this purpose.
    pub(crate) fn is_recorded_for(&self, purpose: Purpose) -> bool {
        let mut recordings = self.recordings();
        recordings.any(|recording| recording.purpose() == purpose)
    }

    /// Whether somebody records the tensor now.
    pub(crate) fn is_recorded(&self) -> bool {
        self.recordings().next().is_some()
    }

    /// Whether nobody records the tensor, or ever did.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    fn entries(&self) -> &[Entry] {
        match &self.0 {
            Some(entries) => entries,
            None => &[],
        }
    }

    /// The recordings that are still there and still record.
    fn recordings(&self) -> impl Iterator<Item = Arc<Recording>> + '_ {
        let entries = self.entries().iter();
        let known = entries.filter_map(|entry| entry.recording.upgrade());
        known.filter(|recording| recording.is_open())
    }
}

/// An op on its way to the recordings of its operands.
pub(crate) struct Record {
    primitive: Primitive,
    at: &'static Location<'static>,
    operands: RefCell<Vec<AnyTensor>>,
    /// In which recordings it is, and its number in each.
    begun: OnceCell<Vec<(Arc<Recording>, usize)>>,
}

impl Record {
    /// An op without operands so far.
    #[track_caller]
    pub(crate) fn of(primitive: Primitive) -> Self {
        Self {
            primitive,
            at: Location::caller(),
            operands: RefCell::default(),
            begun: OnceCell::new(),
        }
    }

    /// The same op with a more exact name.
    pub(crate) fn named(self, primitive: Primitive) -> Self {
        Self { primitive, ..self }
    }

    /// Takes note of the next operand.
    pub(crate) fn note<T: Scalar>(&self, operand: &DTensor<T>) {
        if Recording::is_any() {
            self.operands.borrow_mut().push(Arc::new(operand.clone()));
        }
    }

    /// The same of elements of any type.
    pub(crate) fn note_any(&self, operand: &AnyTensor) {
        self.operands.borrow_mut().push(Arc::clone(operand));
    }

    /// The same op with one operand more.
    pub(crate) fn with<T: Scalar>(self, operand: &DTensor<T>) -> Self {
        self.note(operand);
        self
    }

    /// A result, recorded wherever one of the operands is.
    pub(crate) fn result<T: Scalar>(
        &self,
        number: usize,
        made: DTensor<T>,
    ) -> Result<DTensor<T>, Error> {
        if self.begun.get().is_none() {
            let _ = self.begun.set(self.begin()?);
        }
        let begun: &[_] = match self.begun.get() {
            Some(begun) => begun,
            None => &[],
        };
        let mut trace = Trace::default();
        for (recording, node) in begun {
            let (node, result) = (*node, number);
            trace = trace.and(recording, Value { node, result });
        }
        if begun.is_empty() {
            return Ok(made);
        }
        let made = made.with_trace(trace);
        for (recording, node) in begun {
            recording.keep_result(*node, number, &made);
        }
        Ok(made)
    }

    fn begin(&self) -> Result<Vec<(Arc<Recording>, usize)>, Error> {
        let operands = self.operands.borrow();
        let mut begun: Vec<(Arc<Recording>, usize)> = Vec::new();
        for recording in operands
            .iter()
            .flat_map(|operand| operand.trace().recordings())
        {
            if begun
                .iter()
                .any(|(other, _)| Arc::ptr_eq(other, &recording))
            {
                continue;
            }
            if recording.purpose() == Purpose::Program
                && let Primitive::Closure(op) = self.primitive
            {
                let at = self.at;
                return Err(Error::NotTraceable { op, at });
            }
            let node = recording.begin(self.primitive.clone(), self.at, &operands);
            begun.push((recording, node));
        }
        Ok(begun)
    }
}
