//! The numbers of one unit, which are here, or with an operation that is under way.

use std::sync::Arc;

use meshwork_collectives::{Group, OperationError, Pending};

use super::UnitSpec;
use super::held::{Held, Updated};
use super::partition::Partition;
use super::relayout::Arriving;
use super::survivors::Layout;
use super::tensors::Tensors;
use crate::Error;

/// A unit of a model that is trained.
#[derive(Debug)]
pub(super) struct ShardedUnit {
    pub(super) spec: UnitSpec,
    pub(super) partition: Arc<Partition>,
    pub(super) layout: Layout,
    /// `None` while an operation has it, after one that has failed, and before there is any.
    held: Option<Box<Held>>,
    pending: Option<Pending<Operated>>,
    /// What an operation that has failed has left.
    left: Option<Box<Held>>,
    /// What there was among other workers, until all have taken over from it.
    pub(super) before: Option<Before>,
    /// What has come of what there is to be, where a loss has ended that.
    pub(super) arriving: Option<Arriving>,
    /// Backward passes since the last step.
    pub(super) passes: u32,
}

/// The numbers of a unit, and what came of the operation on them.
type Operated = (Box<Held>, Result<(), OperationError>);

/// The numbers of a unit as they were divided before.
#[derive(Debug)]
pub(super) struct Before {
    pub(super) layout: Layout,
    pub(super) held: Box<Held>,
}

impl ShardedUnit {
    /// Without numbers.
    pub(super) fn empty(spec: &UnitSpec) -> Self {
        let partition = Partition::new(spec.parameters(), spec.trainable().len(), 1);
        Self {
            spec: spec.clone(),
            partition: Arc::new(partition),
            layout: Layout::NONE,
            held: None,
            pending: None,
            left: None,
            before: None,
            arriving: None,
            passes: 0,
        }
    }

    pub(super) fn is_trainable(&self) -> bool {
        !self.spec.trainable().is_empty()
    }

    /// Of each tensor that is trained, whether workers that compute a replica have parts of it.
    pub(super) fn cuts(&self) -> impl Iterator<Item = bool> {
        (0..self.spec.trainable().len()).map(|tensor| self.spec.is_cut(tensor))
    }

    /// Its numbers, when the operation that has them is done.
    pub(super) fn here(&mut self) -> Result<&mut Held, Error> {
        if let Some(pending) = self.pending.take() {
            let (held, ended) = pending.wait()?;
            if let Err(error) = ended {
                self.left = Some(held);
                return Err(error.into());
            }
            self.held = Some(held);
        }
        self.held.as_deref_mut().ok_or_else(|| Error::UnitLost {
            unit: self.spec.name().to_owned(),
        })
    }

    /// Its numbers as the last operation has left them, whether or not it has failed.
    pub(super) fn take(&mut self) -> Option<Box<Held>> {
        // The error is that of the group, which its caller knows.
        let _ = self.here();
        self.held.take().or_else(|| self.left.take())
    }

    pub(super) fn put(&mut self, held: Box<Held>) {
        self.held = Some(held);
    }

    /// How it is divided among so many workers.
    pub(super) fn divided(&self, workers: usize) -> Partition {
        let (all, trainable) = (self.spec.parameters(), self.spec.trainable());
        Partition::new(all, trainable.len(), workers)
    }

    /// Whose part this worker has in the layout of that id, if it has one.
    pub(super) fn place_in(&self, id: u64) -> Option<usize> {
        let before = self.before.as_ref().map(|before| before.layout);
        let layouts = [Some(self.layout), before].into_iter().flatten();
        let mut those = layouts.filter(|layout| layout.id == id);
        Some(those.next()?.place)
    }

    /// The parameters, if a model library has them.
    pub(super) fn lent(&mut self) -> Option<&mut Tensors> {
        let parameters = &mut self.held.as_mut()?.parameters;
        matches!(parameters, Tensors::Lent(_)).then_some(parameters)
    }

    /// Lets `act` have its numbers in the layout of that id.
    pub(super) fn with_layout(
        &mut self,
        id: u64,
        act: impl FnOnce(&mut Held),
    ) -> Result<(), Error> {
        if self.layout.id == id {
            act(self.here()?);
            return Ok(());
        }
        let before = self.before.take();
        let now = self.here()?;
        if let Some(mut before) = before {
            // What a model library has is there once, whole, and after the same step.
            if before.held.lend_from(now) {
                before.held.updated = Updated::InPlace;
            }
            act(&mut before.held);
            now.lend_from(&mut before.held);
            self.before = Some(before);
        }
        Ok(())
    }

    /// Keeps its numbers in the layout of that id as what was before. What a model library has goes
    /// on to `next`.
    pub(super) fn retire(&mut self, id: u64, next: &mut Held) {
        let Some(mut held) = self.take() else {
            return;
        };
        next.lend_from(&mut held);
        let layout = self.layout;
        if layout.id == id {
            self.before = Some(Before { layout, held });
        }
    }

    /// Starts an operation on its numbers.
    pub(super) fn start(
        &mut self,
        group: &mut Group,
        operation: impl FnOnce(&mut Group, &mut Held) -> Result<(), OperationError> + Send + 'static,
    ) -> Result<(), Error> {
        self.here()?;
        if let Some(held) = self.held.take() {
            // The numbers outlive a failure: others may need them.
            let started = group.start_operations((held, Ok(())), |group, (held, ended)| {
                *ended = operation(group, held);
                Ok(())
            });
            self.pending = Some(started?);
        }
        Ok(())
    }
}
