//! Ops of neural networks as data: carried out, and their gradients.

use meshwork_layout::ops::{Op, Pooling, Turn};

use super::gradient::check_upstream;
use crate::{DTensor, Error, Float};

impl<T: Float> DTensor<T> {
    /// The result of an op of networks on as many operands as it takes; none for any other.
    #[track_caller]
    pub(super) fn apply_network(op: &Op, operands: &[&Self]) -> Result<Option<Self>, Error> {
        let made = match (op, operands) {
            (Op::Convolution(of), [images, filter]) => images.convolution(filter, of)?,
            (Op::ConvolutionInputGradient { of, spatial }, [upstream, filter]) => {
                upstream.convolution_input_gradient(filter, of, spatial)?
            }
            (Op::ConvolutionFilterGradient { of, window }, [images, upstream]) => {
                images.convolution_filter_gradient(upstream, of, window)?
            }
            (Op::Pool(of), [images]) => images.pool(of)?,
            (Op::PoolGradient(of), [images, upstream]) => images.pool_gradient(upstream, of)?,
            (Op::Normalize(by), [operand]) => operand.normalize(by)?,
            (Op::Standardize { epsilon }, [operand, mean, variance]) => {
                operand.standardize(mean, variance, epsilon.get())?
            }
            (Op::Embedding, [table, indices]) => table.embedding(indices)?,
            (Op::EmbeddingGradient, [table, indices, upstream]) => {
                table.embedding_gradient(indices, upstream)?
            }
            (Op::Attention(mask), [query, key, value]) => query.attention(key, value, *mask)?,
            (Op::Activation(by), [operand]) => operand.activation(*by)?,
            (Op::Rotary { base, turn }, [operand]) => operand.rotary(base.get(), *turn)?,
            _ => return Ok(None),
        };
        Ok(Some(made))
    }

    /// The gradients by all operands of such an op, from that by its result; none for any other.
    /// Indices have zeros, and so has what only lends its layout.
    ///
    /// A convolution and the gradients of one are each linear in both operands, so that the
    /// gradients of any of the three are the two others.
    #[track_caller]
    pub(super) fn through_network(
        op: &Op,
        operands: &[&Self],
        upstream: &Self,
    ) -> Result<Option<Vec<Self>>, Error> {
        if !has_gradient(op) {
            return Ok(None);
        }
        check_upstream(op, operands, upstream)?;
        let slope = upstream.reduce_partial()?;
        Ok(Some(match (op, operands) {
            (Op::Convolution(of), [images, filter]) => vec![
                slope.convolution_input_gradient(filter, of, spatial(images.shape()))?,
                images.convolution_filter_gradient(&slope, of, window(filter.shape()))?,
            ],
            (Op::ConvolutionInputGradient { of, .. }, [slopes, filter]) => vec![
                slope.convolution(filter, of)?,
                slope.convolution_filter_gradient(slopes, of, window(filter.shape()))?,
            ],
            (Op::ConvolutionFilterGradient { of, .. }, [images, slopes]) => vec![
                slopes.convolution_input_gradient(&slope, of, spatial(images.shape()))?,
                images.convolution(&slope, of)?,
            ],
            (Op::Pool(of), [images]) => vec![images.pool_gradient(&slope, of)?],
            (Op::PoolGradient(of), [images, _]) => vec![images.zeros_like()?, slope.pool(of)?],
            (Op::Normalize(by), [operand]) => vec![operand.through_normalize(by, &slope)?],
            (Op::Standardize { epsilon }, [operand, mean, variance]) => {
                slope.through_standardize([operand, mean, variance], epsilon.get())?
            }
            (Op::Embedding, [table, indices]) => vec![
                table.embedding_gradient(indices, &slope)?,
                indices.zeros_like()?,
            ],
            (Op::EmbeddingGradient, [table, indices, _]) => vec![
                table.zeros_like()?,
                indices.zeros_like()?,
                slope.embedding(indices)?,
            ],
            (Op::Attention(mask), [query, key, value]) => {
                slope.through_attention([query, key, value], *mask)?
            }
            (Op::Activation(by), [operand]) => vec![operand.activation_gradient(&slope, *by)?],
            (Op::Rotary { base, turn }, [_]) => {
                let back = match turn {
                    Turn::Forward => Turn::Back,
                    Turn::Back => Turn::Forward,
                };
                vec![slope.rotary(base.get(), back)?]
            }
            _ => return Ok(None),
        }))
    }
}

/// Whether there is a gradient of an op here. That of a largest element's has none.
fn has_gradient(op: &Op) -> bool {
    matches!(op, Op::PoolGradient(of) if of.pooling == Pooling::Mean)
        || matches!(
            op,
            Op::Convolution(_)
                | Op::ConvolutionInputGradient { .. }
                | Op::ConvolutionFilterGradient { .. }
                | Op::Pool(_)
                | Op::Normalize(_)
                | Op::Standardize { .. }
                | Op::Embedding
                | Op::EmbeddingGradient
                | Op::Attention(_)
                | Op::Activation(_)
                | Op::Rotary { .. }
        )
}

/// The sizes of the spatial axes of images.
fn spatial(images: &[usize]) -> &[usize] {
    &images[1..images.len() - 1]
}

/// The sizes of the windows of a filter.
fn window(filter: &[usize]) -> &[usize] {
    &filter[..filter.len() - 2]
}
