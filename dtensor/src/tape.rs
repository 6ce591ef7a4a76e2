//! `Tape`: gradients of whatever was computed from tensors that it watches. The way back through
//! the ops is in `tape/backward`, the rule of each op in `tape/rules`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::record::{AnyTensor, Purpose, Recording};
use crate::{DTensor, Error, Float};

mod backward;
mod rules;

/// A record of what is done with the tensors that it watches, which gives gradients.
///
/// A watched tensor is recorded, and so is whatever is computed from it, on every client alike; a
/// tensor that was not watched is a constant. One training step:
///
/// ```
/// use meshwork_core::{Client, CreateMesh};
/// use meshwork_dtensor::{Context, DVariable, Error, Sgd, Tape};
/// use meshwork_layout::{Layout, UNSHARDED};
///
/// let context = Context::alone(Client::new("localhost", 0, 1)?.with_devices("CPU", 4)?);
/// let mesh = context.create_mesh(CreateMesh::new().dims([("data", 2), ("model", 2)]))?;
/// let inputs = context.random_normal::<f32>(
///     0, &[8, 6], &Layout::from_names(["data", UNSHARDED], &mesh)?)?;
/// let labels = context.full(&[8], &Layout::from_names(["data"], &mesh)?, 2_i64)?;
/// let columns = Layout::from_names([UNSHARDED, "model"], &mesh)?;
/// let mut weights = DVariable::new(context.random_normal(1, &[6, 4], &columns)?);
/// let mut bias = DVariable::new(context.zeros(&[4], &Layout::from_names(["model"], &mesh)?)?);
/// let mut sgd = Sgd::new(0.5);
/// let mut step = || {
///     let tape = Tape::new();
///     let (w, b) = (tape.watch(weights.value()), tape.watch(bias.value()));
///     let logits = inputs.matmul(&w)?.bias_add(&b)?;
///     let (losses, _) = logits.sparse_cross_entropy(&labels)?;
///     let loss = losses.mean_all()?;
///     let [by_w, by_b] = tape.gradient(&loss, [&w, &b])?;
///     sgd.step([(&mut weights, &by_w), (&mut bias, &by_b)])?;
///     Ok::<f32, Error>(loss.to_host()?.sum())
/// };
/// let first = step()?;
/// assert!(step()? < first);
/// # Ok::<(), Error>(())
/// ```
///
/// Only what gradients need is kept: of an addition the shapes, of a product both operands. The
/// tape records as long as it is there and, unless it is [persistent](Self::persistent), has not
/// given its gradients; its tensors outlive it.
///
/// # Layouts
///
/// Gradients lie as the ops that compute them lay them out, as with TensorFlow: that of a product's
/// operand need not be cut as the operand is. An optimizer brings each into the layout of its
/// variable.
///
/// # Gradients of gradients
///
/// A tensor may be watched by several tapes. What one of them computes as gradients is recorded by
/// the others, and by itself if it is persistent:
///
/// ```
/// # use meshwork_core::{Client, Mesh};
/// # use meshwork_dtensor::{Context, Error, Tape};
/// # use meshwork_layout::Layout;
/// # let context = Context::alone(Client::new("localhost", 0, 1)?);
/// # let scalar = Layout::replicated(&Mesh::new([("x", 2)])?, 0);
/// let (outer, inner) = (Tape::new(), Tape::new());
/// let x = outer.watch(&context.full(&[], &scalar, 2.0_f64)?);
/// let x = inner.watch(&x);
/// let cube = x.mul(&x)?.mul(&x)?;
/// let [slope] = inner.gradient(&cube, [&x])?; // 3x²
/// let [bend] = outer.gradient(&slope, [&x])?; // 6x
/// assert_eq!([slope.to_host()?.sum(), bend.to_host()?.sum()], [12.0, 12.0]);
/// # Ok::<(), Error>(())
/// ```
#[doc(alias = "GradientTape")]
pub struct Tape {
    recording: Arc<Recording>,
    lifetime: Lifetime,
}

impl fmt::Debug for Tape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tape")
            .field("ops", &self.recording.len())
            .field("lifetime", &self.lifetime)
            .finish()
    }
}

/// How often a tape gives gradients.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Lifetime {
    /// Once; what is not needed any more is given up on the way.
    Once,
    /// As often as it is asked.
    Persistent,
}

impl Default for Tape {
    fn default() -> Self {
        Self::new()
    }
}

impl Tape {
    /// A tape that gives gradients once.
    #[must_use]
    pub fn new() -> Self {
        Self::that_gives(Lifetime::Once)
    }

    /// A tape that gives gradients as often as it is asked. It keeps everything until it is gone,
    /// and records how it computes gradients too.
    #[must_use]
    pub fn persistent() -> Self {
        Self::that_gives(Lifetime::Persistent)
    }

    fn that_gives(lifetime: Lifetime) -> Self {
        Self {
            recording: Recording::new(Purpose::Gradients),
            lifetime,
        }
    }

    /// The same tensor, recorded from here on: what is computed from it can be differentiated by
    /// it. One that is recorded already stays what it is.
    #[must_use]
    #[track_caller]
    pub fn watch<T: Float>(&self, tensor: &DTensor<T>) -> DTensor<T> {
        match tensor.trace().value_in(&self.recording) {
            Some(_) => tensor.clone(),
            None => self.recording.give(tensor),
        }
    }

    /// The gradients of a target by some sources: tensors that [`watch`](Self::watch) returned, or
    /// that were computed from them. Of a target of several elements it is that of their sum. By a
    /// source on which the target does not depend it is zeros.
    ///
    /// # Errors
    /// [`Error::TargetUnwatched`] and [`Error::NotWatched`] where the tape knows nothing of a
    /// tensor, [`Error::TapeSpent`] for a second call where it is not persistent,
    /// [`Error::NoDerivative`] where something on the way cannot be differentiated, and those of
    /// the ops.
    #[track_caller]
    pub fn gradient<L: Float, T: Float, const N: usize>(
        &self,
        target: &DTensor<L>,
        sources: [&DTensor<T>; N],
    ) -> Result<[DTensor<T>; N], Error> {
        if target.trace().value_in(&self.recording).is_none() {
            return Err(Error::TargetUnwatched);
        }
        let found = self.gradients(target, &sources)?;
        let mut made = Vec::with_capacity(N);
        for (source, gradient) in sources.iter().zip(found) {
            made.push(match gradient {
                Some(gradient) => gradient,
                None => source.zeros_like()?,
            });
        }
        let made = made.try_into();
        Ok(made.expect("there is a gradient for each of N sources"))
    }

    /// The gradients of a target by any number of sources, as [`gradient`](Self::gradient) gives
    /// them, but none where the target does not depend on the source.
    ///
    /// # Errors
    /// Those of [`gradient`](Self::gradient), but for a target that the tape does not know.
    #[track_caller]
    pub fn gradients<L: Float, T: Float>(
        &self,
        target: &DTensor<L>,
        sources: &[&DTensor<T>],
    ) -> Result<Vec<Option<DTensor<T>>>, Error> {
        let one = L::from_f64(1.0);
        let ones = target.untraced().zeros_like()?.add_scalar(one)?;
        self.gradients_from(target, &ones, sources)
    }

    /// The same, of the sum of the products of the target's elements with these: a gradient at the
    /// target that is known from elsewhere is carried back to the sources.
    ///
    /// # Errors
    /// Those of [`gradients`](Self::gradients), and [`Error::TargetShape`].
    #[track_caller]
    #[doc(alias = "output_gradients")]
    pub fn gradients_from<L: Float, T: Float>(
        &self,
        target: &DTensor<L>,
        upstream: &DTensor<L>,
        sources: &[&DTensor<T>],
    ) -> Result<Vec<Option<DTensor<T>>>, Error> {
        if upstream.shape() != target.shape() {
            return Err(Error::TargetShape {
                found: upstream.shape().to_vec(),
                expected: target.shape().to_vec(),
            });
        }
        let mut values = Vec::with_capacity(sources.len());
        for (place, source) in sources.iter().enumerate() {
            let value = source.trace().value_in(&self.recording);
            values.push(value.ok_or(Error::NotWatched { place })?);
        }
        let is_first = match self.lifetime {
            Lifetime::Persistent => true,
            Lifetime::Once => self.recording.close(),
        };
        if !is_first {
            return Err(Error::TapeSpent);
        }
        let Some(target) = target.trace().value_in(&self.recording) else {
            return Ok(vec![None; sources.len()]);
        };
        let way = backward::Way::new(&self.recording, target.node, &values);
        let upstream: AnyTensor = Arc::new(upstream.clone());
        let upstream = BTreeMap::from([(target, upstream)]);
        let found = match self.lifetime {
            Lifetime::Persistent => way.follow(upstream, |_| ())?,
            Lifetime::Once => way.follow(upstream, |node| self.recording.release(node))?,
        };
        let typed = |found: Option<AnyTensor>| {
            // A gradient has the type of elements of what it is by.
            found.and_then(|found| found.typed::<T>().cloned())
        };
        Ok(found.into_iter().map(typed).collect())
    }
}

#[cfg(test)]
pub(crate) mod tests;
