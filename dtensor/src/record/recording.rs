//! A list of the ops that tensors went through, in the order in which they were carried out.

use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{AnyTensor, Primitive, Value};
use crate::{DTensor, Scalar};

/// Ops in order, until it is closed.
#[derive(Default)]
pub(crate) struct Recording {
    state: Mutex<State>,
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
        let operands = operands.map(|(number, operand)| Operand {
            value: operand.trace().value_in(self),
            tensor: match primitive.needs_operand(number) {
                true => Arc::clone(operand),
                false => operand.emptied(),
            },
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
        let kept: AnyTensor = match node.primitive.needs_result(number) {
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

impl Node {
    /// The result of this number, if it has been made.
    pub(crate) fn result(&self, number: usize) -> Option<AnyTensor> {
        self.results().get(number).cloned().flatten()
    }

    fn results(&self) -> MutexGuard<'_, Vec<Option<AnyTensor>>> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
