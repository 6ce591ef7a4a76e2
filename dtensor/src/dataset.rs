//! `DTensorDataset`: stacks samples into global batches and gives each device its shard. Every
//! client has to read the same samples; splitting input files among workers is in the strategy
//! crate (`input`).

use meshwork_core::{DimName, Mesh};
use meshwork_layout::{Layout, Ranges};
use ndarray::{Array, ArrayD, Axis, Dimension};

use crate::{Context, DTensor, Error, Scalar};

/// Samples as batches of tensors on a mesh.
///
/// Every client iterates over the same samples in the same order and keeps what its devices hold:
/// of each global batch, the replica with the coordinate r along the batch dimension gets slice r.
/// A remainder smaller than a batch is dropped.
///
/// ```
/// use meshwork_core::{Client, Mesh};
/// use meshwork_dtensor::{Context, DTensorDataset, Error};
/// use meshwork_layout::Layout;
///
/// let context = Context::alone(Client::new("localhost", 0, 1)?);
/// let mesh = Mesh::new([("batch", 2)])?;
/// let layout = Layout::batch_sharded(&mesh, "batch", 1)?;
/// let samples = (0..10).map(ndarray::arr0);
/// let mut batches = DTensorDataset::new(&context, &layout, &[], 4)?
///     .batch_dim("batch")?
///     .iterate(samples);
/// let first = batches.next().expect("a batch")?;
/// assert_eq!(first.unpack()?[1], ndarray::array![2, 3].into_dyn());
/// assert_eq!(batches.count(), 1);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct DTensorDataset {
    context: Context,
    layout: Layout,
    sample: Vec<usize>,
    global_batch: usize,
    replicas: usize,
}

impl DTensorDataset {
    /// Batches of `global_batch` samples of this shape in this layout, whose first axis is that of
    /// the batch.
    ///
    /// # Errors
    /// [`Error::BatchRank`] for a layout of another rank than a batch of samples has,
    /// [`Error::EmptyBatch`].
    pub fn new(
        context: &Context,
        layout: &Layout,
        sample: &[usize],
        global_batch: usize,
    ) -> Result<Self, Error> {
        if layout.rank() != sample.len() + 1 {
            return Err(Error::BatchRank {
                found: layout.rank(),
                sample: sample.len(),
            });
        }
        if global_batch == 0 {
            return Err(Error::EmptyBatch);
        }
        Ok(Self {
            context: context.clone(),
            layout: layout.clone(),
            sample: sample.to_vec(),
            global_batch,
            replicas: 1,
        })
    }

    /// With the replicas along this mesh dimension, which the layout has to cut batches by, and
    /// evenly.
    ///
    /// # Errors
    /// [`Error::Mesh`] for a dimension that the mesh does not have, [`Error::BatchDim`] where
    /// the layout does not cut batches by it, [`Error::UnevenBatch`].
    pub fn batch_dim(self, dim: &str) -> Result<Self, Error> {
        let replicas = self.mesh().dim_size(dim)?;
        let cuts = |cut: &DimName| cut.as_str() == dim;
        let batch = self.layout.specs().next();
        if !batch.is_some_and(|spec| spec.dims().iter().any(cuts)) {
            return Err(Error::BatchDim {
                dim: dim.to_owned(),
                layout: Box::new(self.layout.clone()),
            });
        }
        if !self.global_batch.is_multiple_of(replicas) {
            return Err(Error::UnevenBatch {
                global_batch: self.global_batch,
                replicas,
            });
        }
        Ok(Self { replicas, ..self })
    }

    /// The shape of each batch.
    #[must_use]
    #[doc(alias = "element_spec")]
    pub fn batch_shape(&self) -> Vec<usize> {
        [&[self.global_batch], self.sample.as_slice()].concat()
    }

    /// The layout of batches.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The batches of these samples.
    pub fn iterate<T: Scalar, D: Dimension, I: IntoIterator<Item = Array<T, D>>>(
        &self,
        samples: I,
    ) -> impl Iterator<Item = Result<DTensor<T>, Error>> + use<T, D, I> {
        let mut samples = samples.into_iter();
        let dataset = self.clone();
        std::iter::from_fn(move || {
            let batch = samples.by_ref().take(dataset.global_batch);
            let batch: Vec<ArrayD<T>> = batch.map(Array::into_dyn).collect();
            (batch.len() == dataset.global_batch).then(|| dataset.batch(&batch))
        })
    }

    /// The batches of samples that come as batches already, each of as many as one replica takes,
    /// or of the whole batch where there is one replica.
    ///
    /// # Errors
    /// Each batch is [`Error::SampleShape`] where it has not that many samples, or samples of
    /// another shape.
    #[doc(alias = "dataset_already_batched")]
    pub fn iterate_batched<T: Scalar, D: Dimension, I: IntoIterator<Item = Array<T, D>>>(
        &self,
        batches: I,
    ) -> impl Iterator<Item = Result<DTensor<T>, Error>> + use<T, D, I> {
        let replicas = self.replicas;
        let mut batches = batches.into_iter();
        let dataset = self.clone();
        let expected = [
            &[dataset.global_batch / replicas],
            dataset.sample.as_slice(),
        ]
        .concat();
        std::iter::from_fn(move || {
            let parts = batches.by_ref().take(replicas);
            let parts: Vec<ArrayD<T>> = parts.map(Array::into_dyn).collect();
            if parts.is_empty() {
                return None;
            }
            if let Some(wrong) = parts.iter().find(|part| part.shape() != expected) {
                return Some(Err(Error::SampleShape {
                    found: wrong.shape().to_vec(),
                    expected: expected.clone(),
                }));
            }
            let samples = parts.iter().flat_map(|part| part.axis_iter(Axis(0)));
            let samples: Vec<ArrayD<T>> = samples.map(|sample| sample.to_owned()).collect();
            (samples.len() == dataset.global_batch).then(|| dataset.batch(&samples))
        })
    }

    /// A batch of as many samples as it has.
    fn batch<T: Scalar>(&self, samples: &[ArrayD<T>]) -> Result<DTensor<T>, Error> {
        if let Some(wrong) = samples.iter().find(|sample| sample.shape() != self.sample) {
            return Err(Error::SampleShape {
                found: wrong.shape().to_vec(),
                expected: self.sample.clone(),
            });
        }
        self.context
            .made_of(&self.batch_shape(), &self.layout, |held| {
                taken(samples, held)
            })
    }

    fn mesh(&self) -> &Mesh {
        self.layout.mesh()
    }
}

/// The shard of a batch that one device holds.
fn taken<T: Scalar>(samples: &[ArrayD<T>], held: &Ranges) -> ArrayD<T> {
    let sizes: Vec<usize> = held.iter().map(ExactSizeIterator::len).collect();
    let mut block = ArrayD::from_elem(sizes, T::default());
    let chosen = &samples[held[0].clone()];
    for (mut row, sample) in block.axis_iter_mut(Axis(0)).zip(chosen) {
        let part = sample.slice_each_axis(|axis| held[axis.axis.index() + 1].clone().into());
        row.assign(&part);
    }
    block
}

#[cfg(test)]
mod tests {
    use meshwork_core::Client;
    use ndarray::{arr0, arr1, array};

    use super::*;

    fn dataset(names: [&str; 2], batch: usize) -> Result<DTensorDataset, Error> {
        let context = Context::alone(Client::new("localhost", 0, 1)?);
        let mesh = Mesh::new([("x", 2), ("y", 2)])?;
        DTensorDataset::new(&context, &Layout::from_names(names, &mesh)?, &[2], batch)
    }

    #[test]
    fn replicas_get_slices_in_order_and_the_rest_is_dropped() {
        let dataset = dataset(["y", "x"], 4).unwrap().batch_dim("y").unwrap();
        let samples = (0..10).map(|i| arr1(&[2 * i, 2 * i + 1]));
        let batches: Vec<DTensor<i32>> = dataset.iterate(samples).map(Result::unwrap).collect();
        assert_eq!(batches.len(), 2);
        assert_eq!(batches[1].shape(), [4, 2]);
        // Of the second batch: y=1, x=0 is the later half of the samples and their first element.
        assert_eq!(
            batches[1].unpack().unwrap()[1],
            array![[12], [14]].into_dyn()
        );
    }

    #[test]
    fn batches_of_replicas_make_up_a_global_batch() {
        let dataset = dataset(["x", "unsharded"], 4)
            .unwrap()
            .batch_dim("x")
            .unwrap();
        let parts = (0..5).map(|i| array![[4 * i, 4 * i + 1], [4 * i + 2, 4 * i + 3]]);
        let batches: Vec<_> = dataset.iterate_batched(parts).map(Result::unwrap).collect();
        assert_eq!(batches.len(), 2);
        assert_eq!(
            batches[1].unpack().unwrap()[3],
            array![[12, 13], [14, 15]].into_dyn()
        );
        let wrong = dataset.iterate_batched([array![[1, 2]]]).next().unwrap();
        assert!(matches!(wrong, Err(Error::SampleShape { .. })));
    }

    #[test]
    fn a_layout_cuts_all_samples_also_without_a_batch_dimension() {
        let dataset = dataset(["x", "unsharded"], 3).unwrap();
        let samples = (0..3).map(|i| arr1(&[i, i]));
        let batch: DTensor<i32> = dataset.iterate(samples).next().unwrap().unwrap();
        assert_eq!(
            batch.to_host().unwrap(),
            array![[0, 0], [1, 1], [2, 2]].into_dyn()
        );
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let context = Context::alone(Client::new("localhost", 0, 1).unwrap());
        let mesh = Mesh::new([("x", 2), ("y", 2)]).unwrap();
        let layout = Layout::from_names(["x", "y"], &mesh).unwrap();
        let (found, sample) = (2, 0);
        assert_eq!(
            DTensorDataset::new(&context, &layout, &[], 4).unwrap_err(),
            Error::BatchRank { found, sample }
        );
        assert_eq!(dataset(["x", "y"], 0).unwrap_err(), Error::EmptyBatch);
        let uneven = dataset(["x", "y"], 3).unwrap().batch_dim("x").unwrap_err();
        let (global_batch, replicas) = (3, 2);
        assert_eq!(
            uneven,
            Error::UnevenBatch {
                global_batch,
                replicas
            }
        );
        let other = dataset(["x", "y"], 4).unwrap().batch_dim("y");
        assert!(matches!(other, Err(Error::BatchDim { .. })));
        let unknown = dataset(["x", "y"], 4).unwrap().batch_dim("z");
        assert!(matches!(unknown, Err(Error::Mesh(_))));
        let samples = [arr0(1), arr0(2)];
        let wrong = dataset(["x", "y"], 2)
            .unwrap()
            .iterate(samples)
            .next()
            .unwrap();
        assert!(matches!(wrong, Err(Error::SampleShape { .. })));
    }
}
