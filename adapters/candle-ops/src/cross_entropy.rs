//! The loss of a classifier.

use candle_core::{CpuStorage, CustomOp1, DType, Device, Layout, Result, Shape, Tensor};

use crate::Error;
use crate::exp::exp;
use crate::storage::{is_ours, read, values};

/// The mean over all samples of minus the logarithm of the label's probability, which is the
/// softmax of the sample's scores, as [`candle_nn::loss::cross_entropy`].
///
/// # Shapes
/// Scores `[samples, classes]`, labels `[samples]`, which are `u32`; others are left to candle.
///
/// # Errors
/// [`Error::Labels`], [`Error::Label`], and those of candle.
pub fn cross_entropy(scores: &Tensor, labels: &Tensor) -> Result<Tensor> {
    if !is_ours(scores) || labels.dtype() != DType::U32 || !labels.device().is_cpu() {
        return candle_nn::loss::cross_entropy(scores, labels);
    }
    let (samples, classes) = scores.dims2()?;
    if labels.dims() != [samples] || samples == 0 || classes == 0 {
        return Err(Error::Labels {
            labels: labels.dims().to_vec(),
            scores: scores.dims().to_vec(),
        }
        .into());
    }
    let labels = labels.to_vec1::<u32>()?;
    let mut places = Vec::with_capacity(samples);
    for (sample, &label) in labels.iter().enumerate() {
        let place = usize::try_from(label).ok().filter(|&place| place < classes);
        places.push(place.ok_or(Error::Label {
            label,
            sample,
            classes,
        })?);
    }
    let op = CrossEntropy { places, classes };
    scores.contiguous()?.apply_op1(op)
}

struct CrossEntropy {
    /// The label of each sample: at least one, all below `classes`.
    places: Vec<usize>,
    classes: usize,
}

impl CustomOp1 for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let rows = values(storage, layout)?.chunks_exact(self.classes);
        let losses = rows.zip(&self.places).map(|(row, &place)| {
            let highest = highest(row);
            let sum: f32 = row.iter().map(|score| exp(score - highest)).sum();
            sum.ln() + (highest - row[place])
        });
        let mean = losses.sum::<f32>() / self.places.len() as f32;
        Ok((CpuStorage::F32(vec![mean]), Shape::from(())))
    }

    fn bwd(&self, scores: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let slope = gradient.to_scalar::<f32>()? / self.places.len() as f32;
        let mut into = read(scores).values()?.to_vec();
        for (row, &place) in into.chunks_exact_mut(self.classes).zip(&self.places) {
            let highest = highest(row);
            row.iter_mut()
                .for_each(|score| *score = exp(*score - highest));
            let scale = slope / row.iter().sum::<f32>();
            row.iter_mut().for_each(|probability| *probability *= scale);
            row[place] -= slope;
        }
        Ok(Some(Tensor::from_vec(into, scores.shape(), &Device::Cpu)?))
    }
}

fn highest(row: &[f32]) -> f32 {
    row.iter().copied().fold(f32::NEG_INFINITY, f32::max)
}
