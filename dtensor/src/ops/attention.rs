//! Scaled dot-product attention: on the host a few queries at a time, on devices by products and a
//! softmax.

use meshwork_layout::ops::{AttentionMask, Op, Orientation, TensorLayout};
use meshwork_layout::{Layout, PartialReduction, ShardingSpec};

use super::convolution::is_short;
use super::kernel::AttentionBlocks;
use super::local::computes;
use super::{Call, standard};
use crate::{DTensor, Error, Float, Scalar};

impl<T: Float> DTensor<T> {
    /// softmax(query · keyᵀ / √depth) · value, of this query. A causal mask lets query i see the
    /// keys 0 to i.
    ///
    /// Axes before the last two are broadcast, so that several heads can share keys and values.
    ///
    /// ```
    /// use meshwork_core::{Client, Mesh};
    /// use meshwork_dtensor::{Context, Error};
    /// use meshwork_layout::{Layout, UNSHARDED, ops::AttentionMask};
    ///
    /// let context = Context::alone(Client::new("localhost", 0, 1)?);
    /// let mesh = Mesh::new([("model", 2)])?;
    /// let heads = Layout::from_names([UNSHARDED, "model", UNSHARDED, UNSHARDED], &mesh)?;
    /// let values = context.from_fn(&[1, 4, 8, 16], &heads, |at| at[2] as f32)?;
    /// let seen = values.attention(&values, &values, AttentionMask::Causal)?;
    /// assert_eq!(seen.layout(), &heads);
    /// assert_eq!(seen.to_host()?[[0, 0, 0, 0]], 0.0); // the first sees itself only
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Shapes
    /// `[.., queries, depth]`, `[.., keys, depth]` and `[.., keys, features]` give
    /// `[.., queries, features]`.
    ///
    /// # Errors
    /// [`Error::Op`] for shapes that do not fit, [`Error::OtherContext`], and those of
    /// [`relayout`](Self::relayout).
    #[track_caller]
    #[doc(alias = "scaled_dot_product_attention")]
    pub fn attention(&self, key: &Self, value: &Self, mask: AttentionMask) -> Result<Self, Error> {
        if is_short::<T>() {
            let [query, key, value] = [self.cast::<f32>()?, key.cast()?, value.cast()?];
            return query.attention(&key, &value, mask)?.cast();
        }
        let placements = [self.placement(), key.placement(), value.placement()];
        let call = Call::of(&Op::Attention(mask), self.context(), &placements)?;
        let query = call.operand(0, self)?;
        let (key, value) = (call.operand(1, key)?, call.operand(2, value)?);
        if computes(&query) {
            let weights = query.attention_weights(&key, mask)?;
            return call.composed(0, &weights.matmul(&value)?);
        }
        let starts = query.first_rows()?;
        call.result(0, |place, sizes| {
            let blocks = AttentionBlocks {
                query: query.unpack()?[place].view(),
                key: key.unpack()?[place].view(),
                value: value.unpack()?[place].view(),
                mask,
                start: starts[place],
            };
            Ok(blocks.forward(sizes))
        })
    }

    /// The gradients of [`attention`](Self::attention) by its operands; this is that by its result.
    #[track_caller]
    pub(super) fn through_attention(
        &self,
        operands: [&Self; 3],
        mask: AttentionMask,
    ) -> Result<Vec<Self>, Error> {
        if is_short::<T>() {
            let [query, key, value] = operands.map(Self::cast::<f32>);
            let made = self
                .cast::<f32>()?
                .through_attention([&query?, &key?, &value?], mask)?;
            return made.iter().map(DTensor::cast).collect();
        }
        let placements = operands.map(Self::placement);
        let call = Call::of(&Op::Attention(mask), self.context(), &placements)?;
        // Features are needed whole too: the gradient by the weights is a sum along them.
        let whole = |tensor: &Self, layout: &Layout| tensor.relayout(&last_whole(layout)?);
        let layouts = call.inferred.operands();
        let query = operands[0].relayout(&layouts[0])?;
        let key = operands[1].relayout(&layouts[1])?;
        let value = whole(operands[2], &layouts[2])?;
        let upstream = whole(self, call.inferred.results()[0].layout())?;
        // What is recorded is made of ops that are known to tapes and programs.
        let all = [&query, &key, &value, &upstream];
        let is_recorded = all.iter().any(|tensor| tensor.trace().is_recorded());
        let made = if is_recorded || computes(&query) {
            upstream.attention_composed([&query, &key, &value], mask)?
        } else {
            upstream.attention_gradients([&query, &key, &value], mask)?
        };
        let both = made.into_iter().zip(operands);
        both.map(|(made, operand)| made.reduce_partial()?.summed_to(operand.shape()))
            .collect()
    }

    /// The gradients by operands that lie as the op needs them, of which those by key and value are
    /// terms where queries are cut.
    fn attention_gradients(
        &self,
        [query, key, value]: [&Self; 3],
        mask: AttentionMask,
    ) -> Result<Vec<Self>, Error> {
        let starts = query.first_rows()?;
        let mut blocks = [Vec::new(), Vec::new(), Vec::new()];
        for (place, upstream) in self.unpack()?.iter().enumerate() {
            let attention = AttentionBlocks {
                query: query.unpack()?[place].view(),
                key: key.unpack()?[place].view(),
                value: value.unpack()?[place].view(),
                mask,
                start: starts[place],
            };
            let made = attention.backward(&upstream.view());
            for (blocks, made) in blocks.iter_mut().zip(made) {
                blocks.push(standard(made));
            }
        }
        let rows = [
            (query, Rows::Own),
            (key, Rows::Summed),
            (value, Rows::Summed),
        ];
        let both = rows.into_iter().zip(blocks);
        both.map(|((operand, rows), blocks)| {
            let placement = self.stacked_like(operand, rows)?;
            Self::of(self.context(), placement, blocks)
        })
        .collect()
    }

    /// A matrix of an operand's sizes for each place of this stack.
    fn stacked_like(&self, operand: &Self, rows: Rows) -> Result<TensorLayout, Error> {
        let (stack, sizes) = (self.rank() - 2, &operand.shape()[operand.rank() - 2..]);
        let shape = [&self.shape()[..stack], sizes].concat();
        let mut specs: Vec<ShardingSpec> = self.layout().specs().cloned().collect();
        let summed = match rows {
            Rows::Own => None,
            Rows::Summed => Some(std::mem::replace(
                &mut specs[stack],
                ShardingSpec::unsharded(),
            )),
        };
        let layout = Layout::new(specs, self.layout().mesh())?;
        let layout = match summed {
            Some(spec) if !spec.is_unsharded() => {
                layout.with_partial(spec.dims(), PartialReduction::Sum)?
            }
            _ => layout,
        };
        Ok(TensorLayout::new(shape, layout)?)
    }

    /// The same by ops that devices have.
    fn attention_composed(
        &self,
        [query, key, value]: [&Self; 3],
        mask: AttentionMask,
    ) -> Result<Vec<Self>, Error> {
        let (plain, turned) = (Orientation::Plain, Orientation::Transposed);
        let weights = query.attention_weights(key, mask)?;
        let by_value = weights.matmul_stored(self, [turned, plain])?;
        let by_weights = self.matmul_stored(value, [plain, turned])?;
        let along = super::ReduceAxes::axes([-1]).keep_dims();
        let mean = weights.mul(&by_weights)?.sum(&along)?;
        let scale = T::from_f64(1.0 / (query.depth() as f64).sqrt());
        let scores = weights.mul(&by_weights.sub(&mean)?)?.scale(scale)?;
        Ok(vec![
            scores.matmul(key)?,
            scores.matmul_stored(query, [turned, plain])?,
            by_value,
        ])
    }

    /// The weight of each key for each query.
    fn attention_weights(&self, key: &Self, mask: AttentionMask) -> Result<Self, Error> {
        let products = self.matmul_stored(key, [Orientation::Plain, Orientation::Transposed])?;
        let scores = products.scale(T::from_f64(1.0 / (self.depth() as f64).sqrt()))?;
        if mask == AttentionMask::Full {
            return scores.softmax(-1);
        }
        let matrix = scores.rank() - 2;
        let specs = scores.layout().specs().skip(matrix).cloned();
        let layout = Layout::new(specs, scores.layout().mesh())?;
        let hidden = self
            .context()
            .from_fn(&scores.shape()[matrix..], &layout, |at| {
                match at[1] > at[0] {
                    true => T::neutral(PartialReduction::Max),
                    false => T::default(),
                }
            })?;
        scores.add(&hidden)?.softmax(-1)
    }

    /// The size of the last axis.
    fn depth(&self) -> usize {
        self.shape()[self.rank() - 1]
    }
}

impl<T: Scalar> DTensor<T> {
    /// The index of the first row of each block of this client, counted along the axis before the
    /// last.
    pub(super) fn first_rows(&self) -> Result<Vec<usize>, Error> {
        let rows = self.rank() - 2;
        let first = |rank: &meshwork_core::MeshRank| {
            let held = self.layout().shard(*rank, self.shape())?;
            Ok(held[rows].start)
        };
        self.local_ranks().iter().map(first).collect()
    }
}

/// What becomes of the rows of the gradient by the result in that by an operand.
enum Rows {
    /// They are its own.
    Own,
    /// They are summed up.
    Summed,
}

/// The same layout with the last axis whole.
fn last_whole(layout: &Layout) -> Result<Layout, Error> {
    let rank = layout.rank();
    let specs = layout.specs().take(rank.saturating_sub(1)).cloned();
    let specs = specs.chain([ShardingSpec::unsharded()]);
    Ok(Layout::new(specs, layout.mesh())?)
}
