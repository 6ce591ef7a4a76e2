//! A list of the ops that tensors went through, in the order in which they were carried out.

use std::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{AnyTensor, Primitive, Value};
use crate::{DTensor, Scalar};

/// Ops in order, until it is closed.
pub(crate) struct Recording {
    purpose: Purpose,
    state: Mutex<State>,
}

/// How many there are in the process. Most programs train by what they have compiled, and have none
/// when an op is carried out.
static ALL: AtomicUsize = AtomicUsize::new(0);

/// What ops are recorded for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Purpose {
    /// To be differentiated: elements are kept that gradients need.
    Gradients,
    /// To be carried out again with other elements: those of constants are kept.
    Program,
}

#[derive(Default)]
struct State {
    /// An op that is not needed any more is given up.
    nodes: Vec<Option<Arc<Node>>>,
    is_closed: bool,
}

/// An op that was carried out.
pub(crate) struct Node {
    pub(crate) primitive: Primitive,
    /// Where the program asked for it.
    pub(crate) at: &'static Location<'static>,
    pub(crate) operands: Vec<Operand>,
    /// Of most only shape, layout and type of elements.
    results: Mutex<Vec<Option<AnyTensor>>>,
}

/// What an op was given.
pub(crate) struct Operand {
    /// Which value of the recording it is, if it is one.
    pub(crate) value: Option<Value>,
    /// Its elements only if they are needed.
    pub(crate) tensor: AnyTensor,
}

impl Recording {
    /// An empty one.
    pub(crate) fn new(purpose: Purpose) -> Arc<Self> {
        ALL.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self {
            purpose,
            state: Mutex::default(),
        })
    }

    /// Whether there is one at all. It is made before any tensor that it records, so whoever holds
    /// such a tensor finds it counted.
    pub(super) fn is_any() -> bool {
        ALL.load(Ordering::Relaxed) > 0
    }

    /// What ops are recorded for.
    pub(crate) fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// Whether ops are still recorded.
    pub(crate) fn is_open(&self) -> bool {
        !self.state().is_closed
    }

    /// Stops recording; whether it did record until now.
    pub(crate) fn close(&self) -> bool {
        !std::mem::replace(&mut self.state().is_closed, true)
    }

    /// Records an op, and says its number.
    pub(super) fn begin(
        self: &Arc<Self>,
        primitive: Primitive,
        at: &'static Location<'static>,
        operands: &[AnyTensor],
    ) -> usize {
        let operands = operands.iter().enumerate();
        let operands = operands.map(|(number, operand)| {
            let value = operand.trace().value_in(self);
            let is_kept = match self.purpose {
                Purpose::Gradients => primitive.needs_operand(number),
                Purpose::Program => value.is_none(),
            };
            let tensor = match is_kept {
                true => Arc::clone(operand),
                false => operand.emptied(),
            };
            Operand { value, tensor }
        });
        let node = Node {
            operands: operands.collect(),
            primitive,
            at,
            results: Mutex::default(),
        };
        let mut state = self.state();
        state.nodes.push(Some(Arc::new(node)));
        state.nodes.len() - 1
    }

    /// Takes note of a result, which carries its trace.
    pub(super) fn keep_result<T: Scalar>(&self, node: usize, number: usize, made: &DTensor<T>) {
        let Some(node) = self.node(node) else {
            return;
        };
        let is_kept = match self.purpose {
            Purpose::Gradients => node.primitive.needs_result(number),
            Purpose::Program => false,
        };
        let kept: AnyTensor = match is_kept {
            true => Arc::new(made.clone()),
            false => Arc::new(made.without_elements()),
        };
        let mut results = node.results();
        if results.len() <= number {
            results.resize(number + 1, None);
        }
        results[number] = Some(kept);
    }

    /// A value of its own, which is this tensor.
    #[track_caller]
    pub(crate) fn give<T: Scalar>(self: &Arc<Self>, tensor: &DTensor<T>) -> DTensor<T> {
        let node = self.begin(Primitive::Given, Location::caller(), &[]);
        let value = Value { node, result: 0 };
        let given = tensor.clone().with_trace(tensor.trace().and(self, value));
        self.keep_result(node, 0, &given);
        given
    }

    /// How many ops there are.
    pub(crate) fn len(&self) -> usize {
        self.state().nodes.len()
    }

    /// The op of this number; none for one that was given up.
    pub(crate) fn node(&self, number: usize) -> Option<Arc<Node>> {
        self.state().nodes.get(number).cloned().flatten()
    }

    /// Gives an op up, and what it keeps.
    pub(crate) fn release(&self, number: usize) {
        if let Some(node) = self.state().nodes.get_mut(number) {
            *node = None;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        ALL.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Node {
    /// The result of this number, if it has been made.
    pub(crate) fn result(&self, number: usize) -> Option<AnyTensor> {
        self.results().get(number).cloned().flatten()
    }

    fn results(&self) -> MutexGuard<'_, Vec<Option<AnyTensor>>> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
