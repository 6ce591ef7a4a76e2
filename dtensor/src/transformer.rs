//! A decoder of text, cut over data and model: the step that whole programs are held to, and that
//! `meshwork tpu compile` compiles for slices that are not there.

use meshwork_core::Mesh;
use meshwork_layout::ops::{Activation, AttentionMask, Normalization};
use meshwork_layout::{Layout, UNSHARDED};

use crate::{AdamW, Context, DTensor, DVariable, Error, Tape, Variable, VariableSet};

/// The sizes of a [`Transformer`], and of the batches that it learns from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TransformerSizes {
    /// Sequences in a batch.
    pub batch: usize,
    /// Tokens in a sequence.
    pub length: usize,
    /// Different tokens.
    pub tokens: usize,
    /// Numbers for each token between layers.
    pub width: usize,
    /// Heads of attention, each of which has its part of the width.
    pub heads: usize,
    /// Layers.
    pub layers: usize,
}

/// A decoder with its optimizer, on a mesh of `data` and `model`: batches are cut along `data`;
/// heads, and the inner width of what follows them, along `model`.
///
/// ```
/// use meshwork_core::{Client, CreateMesh};
/// use meshwork_dtensor::{Context, Error, Transformer, TransformerSizes, compile};
///
/// let context = Context::alone(Client::new("localhost", 0, 1)?.with_devices("CPU", 4)?);
/// let mesh = context.create_mesh(CreateMesh::new().dims([("data", 2), ("model", 2)]))?;
/// let sizes = TransformerSizes { batch: 2, length: 4, tokens: 8, width: 8, heads: 2, layers: 1 };
/// let mut model = Transformer::new(&context, &mesh, sizes)?;
/// let batch = sizes.batch_of(&context, &mesh, |at| at as i64 * 3 % 8)?;
/// let mut step = compile(Transformer::step);
/// let first = step.call(&mut model, &batch)?.to_host()?.sum();
/// let second = step.call(&mut model, &batch)?.to_host()?.sum();
/// assert!(second < first);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Transformer {
    sizes: TransformerSizes,
    table: DVariable<f32>,
    layers: Vec<Layer>,
    scores: DVariable<f32>,
    adam: AdamW<f32>,
}

#[derive(Debug)]
struct Layer {
    /// What queries, keys and values are made by, and what their outcome is.
    attention: [DVariable<f32>; 4],
    /// Out to the inner width, and back.
    inner: [DVariable<f32>; 2],
}

/// Tokens, and those that follow each.
pub type TokenBatch = (DTensor<i64>, DTensor<i64>);

impl TransformerSizes {
    /// A batch of tokens by their number in it; what follows the last one is the first again.
    ///
    /// # Errors
    /// Those of [`Context::from_fn`].
    #[track_caller]
    pub fn batch_of(
        &self,
        context: &Context,
        mesh: &Mesh,
        token: impl Fn(usize) -> i64,
    ) -> Result<TokenBatch, Error> {
        let rows = Layout::from_names(["data"], mesh)?;
        let count = self.batch * self.length;
        let tokens = context.from_fn(&[count], &rows, |at| token(at[0]))?;
        let next = context.from_fn(&[count], &rows, |at| token((at[0] + 1) % count))?;
        Ok((tokens, next))
    }
}

impl Transformer {
    /// Weights that depend on the sizes only, however they are cut.
    ///
    /// # Errors
    /// [`Error::Layout`] for a mesh without `data` or `model`, and where these do not divide the
    /// batch and the heads. Heads that do not divide the width are refused by the first step.
    #[track_caller]
    pub fn new(context: &Context, mesh: &Mesh, sizes: TransformerSizes) -> Result<Self, Error> {
        let cut = Layout::from_names(["data", "model"], mesh)?;
        cut.even_local_shape(&[sizes.batch, sizes.heads])?;
        let whole = [UNSHARDED, UNSHARDED];
        let out = [UNSHARDED, "model"];
        let back = ["model", UNSHARDED];
        let mut seed = 0;
        let mut weights = |shape: [usize; 2], names: [&str; 2]| {
            seed += 1;
            let layout = Layout::from_names(names, mesh)?;
            let made = context.random_normal::<f32>(seed, &shape, &layout)?;
            Ok::<_, Error>(DVariable::new(made.scale(SPREAD)?))
        };
        let TransformerSizes { width, tokens, .. } = sizes;
        let table = weights([tokens, width], whole)?;
        let mut layers = Vec::with_capacity(sizes.layers);
        for _ in 0..sizes.layers {
            let square = [width, width];
            let [query, key] = [weights(square, out)?, weights(square, out)?];
            let [value, outcome] = [weights(square, out)?, weights(square, back)?];
            let inner = [4 * width, width];
            layers.push(Layer {
                attention: [query, key, value, outcome],
                inner: [weights([width, inner[0]], out)?, weights(inner, back)?],
            });
        }
        let scores = weights([width, tokens], whole)?;
        let adam = AdamW::new(RATE, &variables(&table, &layers, &scores))?;
        Ok(Self {
            sizes,
            table,
            layers,
            scores,
            adam,
        })
    }

    /// The mean loss, and nothing learnt.
    ///
    /// # Errors
    /// Those of the ops.
    #[track_caller]
    pub fn loss_of(&self, batch: &TokenBatch) -> Result<DTensor<f32>, Error> {
        let own = variables(&self.table, &self.layers, &self.scores);
        let own: Vec<DTensor<f32>> = own.into_iter().map(|own| own.value().clone()).collect();
        self.loss(&own, batch)
    }

    /// One step of training, and the mean loss before it.
    ///
    /// # Errors
    /// Those of the ops.
    #[track_caller]
    pub fn step(&mut self, batch: &TokenBatch) -> Result<DTensor<f32>, Error> {
        let tape = Tape::new();
        let watched = variables(&self.table, &self.layers, &self.scores);
        let watched = watched.into_iter().map(|own| tape.watch(own.value()));
        let watched: Vec<DTensor<f32>> = watched.collect();
        let loss = self.loss(&watched, batch)?;
        let all: Vec<&DTensor<f32>> = watched.iter().collect();
        let slopes = tape.gradients(&loss, &all)?.into_iter();
        let slopes: Option<Vec<DTensor<f32>>> = slopes.collect();
        let slopes = slopes.ok_or(Error::NotKept)?;
        let mut own = vec![&mut self.table];
        for layer in &mut self.layers {
            own.extend(layer.attention.iter_mut().chain(&mut layer.inner));
        }
        own.push(&mut self.scores);
        self.adam.step(own.into_iter().zip(&slopes))?;
        Ok(loss)
    }

    /// The mean loss of weights in the order of the variables.
    fn loss(&self, weights: &[DTensor<f32>], batch: &TokenBatch) -> Result<DTensor<f32>, Error> {
        let (tokens, next) = batch;
        let mut weights = weights.iter();
        let mut take = || weights.next().ok_or(Error::NotKept);
        let mut hidden = take()?.embedding(tokens)?;
        for _ in 0..self.sizes.layers {
            let own = [take()?, take()?, take()?, take()?];
            hidden = hidden.add(&self.attended(&hidden, own)?)?;
            let inner = normal(&hidden)?
                .matmul(take()?)?
                .activation(Activation::GeluTanh)?;
            hidden = hidden.add(&inner.matmul(take()?)?.relayout(hidden.layout())?)?;
        }
        let scores = normal(&hidden)?.matmul(take()?)?;
        let (losses, _) = scores.sparse_cross_entropy(next)?;
        losses.mean_all()
    }

    /// What each token takes from those before it.
    fn attended(
        &self,
        hidden: &DTensor<f32>,
        [query, key, value, outcome]: [&DTensor<f32>; 4],
    ) -> Result<DTensor<f32>, Error> {
        let TransformerSizes {
            batch,
            length,
            width,
            heads,
            ..
        } = self.sizes;
        let normal = normal(hidden)?;
        let by_head = |weights: &DTensor<f32>| {
            let rows = normal.matmul(weights)?;
            let depth = width.checked_div(heads).unwrap_or_default();
            let cut = rows.reshape(&[batch, length, heads, depth].map(Some))?;
            cut.transpose(&[0, 2, 1, 3])
        };
        let (query, key, value) = (by_head(query)?, by_head(key)?, by_head(value)?);
        let seen = query.attention(&key, &value, AttentionMask::Causal)?;
        let rows = seen.transpose(&[0, 2, 1, 3])?;
        let rows = rows.reshape(&[batch * length, width].map(Some))?;
        rows.matmul(outcome)?.relayout(hidden.layout())
    }
}

fn variables<'a>(
    table: &'a DVariable<f32>,
    layers: &'a [Layer],
    scores: &'a DVariable<f32>,
) -> Vec<&'a DVariable<f32>> {
    let layers = layers.iter();
    let layers = layers.flat_map(|layer| layer.attention.iter().chain(&layer.inner));
    [table].into_iter().chain(layers).chain([scores]).collect()
}

fn normal(hidden: &DTensor<f32>) -> Result<DTensor<f32>, Error> {
    hidden.normalize(&Normalization::new([-1], 1e-5))
}

impl VariableSet for Transformer {
    fn visit(&mut self, visit: &mut dyn FnMut(&mut dyn Variable)) {
        self.table.visit(visit);
        for layer in &mut self.layers {
            let own = layer.attention.iter_mut().chain(&mut layer.inner);
            own.for_each(|own| own.visit(visit));
        }
        (&mut self.scores, &mut self.adam).visit(visit);
    }
}

/// How far weights spread at first, and how fast they learn.
const SPREAD: f32 = 0.1;
const RATE: f32 = 0.01;

#[cfg(test)]
mod tests {
    use meshwork_core::{Client, CreateMesh};
    use meshwork_layout::Error as LayoutError;
    use meshwork_layout::ops::OpError;

    use super::*;

    const SIZES: TransformerSizes = TransformerSizes {
        batch: 4,
        length: 2,
        tokens: 8,
        width: 8,
        heads: 2,
        layers: 1,
    };

    /// Of four devices.
    fn of(dims: [(&str, usize); 2], sizes: TransformerSizes) -> Result<Transformer, Error> {
        let client = Client::new("localhost", 0, 1)?.with_devices("CPU", 4)?;
        let context = Context::alone(client);
        let mesh = context.create_mesh(CreateMesh::new().dims(dims))?;
        Transformer::new(&context, &mesh, sizes)
    }

    #[test]
    fn a_mesh_without_one_of_both_dimensions_is_refused() {
        for dims in [["x", "model"], ["data", "x"]] {
            let error = of(dims.map(|name| (name, 2)), SIZES).unwrap_err();
            let is_named = matches!(error, Error::Layout(LayoutError::Mesh(_)));
            assert!(is_named, "{error}");
        }
    }

    #[test]
    fn sizes_that_the_mesh_does_not_divide_are_refused() {
        for (dims, (axis, size)) in [((4, 1), (0, 6)), ((1, 4), (1, 2))] {
            let sizes = TransformerSizes { batch: 6, ..SIZES };
            let error = of([("data", dims.0), ("model", dims.1)], sizes).unwrap_err();
            let uneven = LayoutError::Uneven {
                axis,
                size,
                shards: 4,
            };
            assert_eq!(error, Error::Layout(uneven));
        }
    }

    #[test]
    fn heads_that_do_not_divide_the_width_are_refused_by_the_first_step() {
        for heads in [3, 0] {
            let client = Client::new("localhost", 0, 1).unwrap();
            let context = Context::alone(client.with_devices("CPU", 1).unwrap());
            let mesh = CreateMesh::new().dims([("data", 1), ("model", 1)]);
            let mesh = context.create_mesh(mesh).unwrap();
            let sizes = TransformerSizes { heads, ..SIZES };
            let batch = sizes.batch_of(&context, &mesh, |_| 1).unwrap();
            let model = Transformer::new(&context, &mesh, sizes).unwrap();
            let error = model.loss_of(&batch).unwrap_err();
            let is_named = matches!(error, Error::Op(OpError::ReshapeSize { .. }));
            assert!(is_named, "{error}");
        }
    }
}
