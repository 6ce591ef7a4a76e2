//! Outputs of steps, as tensors that those of all workers are put together from.

use burn_core::tensor::{Device, Int, Shape, Tensor, TensorData, TensorReadError};
use meshwork_strategy::Rank;

use super::wire::Told;
use crate::Error;

/// The output of a step, which the chief puts together from those of all workers, as if one process
/// had had the whole batch: so metrics are those of all samples. Shapes are equal on all workers,
/// up to the number of rows: a batcher pads sequences to a fixed length, not to the longest of its
/// batch.
///
/// ```
/// use burn_core::tensor::{Int, Tensor};
/// use meshwork_burn::{Error, Field, Fields, GatherOutput};
///
/// struct Segmented { loss: Tensor<1>, scores: Tensor<4>, classes: Tensor<3, Int> }
///
/// impl GatherOutput for Segmented {
///     fn into_fields(self) -> Result<Vec<Field>, Error> {
///         let Self { loss, scores, classes } = self;
///         Ok(vec![Field::mean(loss)?, Field::rows(scores)?, Field::int_rows(classes)?])
///     }
///
///     fn from_fields(fields: &mut Fields) -> Result<Self, Error> {
///         Ok(Self { loss: fields.float()?, scores: fields.float()?, classes: fields.int()? })
///     }
/// }
/// ```
pub trait GatherOutput: Sized {
    /// The tensors of this worker's output, always as many and in the same order.
    ///
    /// # Errors
    /// Those of making a [`Field`].
    fn into_fields(self) -> Result<Vec<Field>, Error>;

    /// The output that has these tensors, in the same order.
    ///
    /// # Errors
    /// Those of reading [`Fields`].
    fn from_fields(fields: &mut Fields) -> Result<Self, Error>;
}

/// A tensor of an output, and how those of several workers become one. Floats travel as `f32`.
#[derive(Clone, Debug)]
pub struct Field {
    pub(super) join: Join,
    pub(super) element: Element,
    pub(super) shape: Vec<usize>,
    /// Row-major, as this machine has them: workers of a job have the same order of bytes.
    pub(super) bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Join {
    Mean,
    Rows,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Element {
    Float,
    Int,
}

impl Element {
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Float => size_of::<f32>(),
            Self::Int => size_of::<i64>(),
        }
    }
}

impl Field {
    /// A mean over the samples of the batch, such as a loss: the mean over those of all workers.
    /// One that is not finite [ends the training](crate::Distributed::without_error_if_nonfinite)
    /// of several.
    ///
    /// # Errors
    /// [`Error::ReadOutput`]
    pub fn mean<const D: usize>(tensor: Tensor<D>) -> Result<Self, Error> {
        Self::float(Join::Mean, tensor)
    }

    /// A row for each sample: those of all workers, one below the other.
    ///
    /// # Errors
    /// [`Error::ReadOutput`]
    pub fn rows<const D: usize>(tensor: Tensor<D>) -> Result<Self, Error> {
        Self::float(Join::Rows, tensor)
    }

    /// The same of integers.
    ///
    /// # Errors
    /// [`Error::ReadOutput`]
    pub fn int_rows<const D: usize>(tensor: Tensor<D, Int>) -> Result<Self, Error> {
        let data = tensor
            .try_into_data()
            .map_err(|source| Error::ReadOutput(source.into()))?;
        let shape = data.shape().to_vec();
        let values = data.convert::<i64>().try_into_vec::<i64>();
        let values = values.map_err(|source| Error::ReadOutput(TensorReadError::Data(source)))?;
        Ok(Self {
            join: Join::Rows,
            element: Element::Int,
            shape,
            bytes: values
                .iter()
                .flat_map(|value| value.to_ne_bytes())
                .collect(),
        })
    }

    fn float<const D: usize>(join: Join, tensor: Tensor<D>) -> Result<Self, Error> {
        let data = tensor.without_autodiff().try_into_data();
        let data = data.map_err(|source| Error::ReadOutput(source.into()))?;
        let shape = data.shape().to_vec();
        let values = data.convert::<f32>().try_into_vec::<f32>();
        let values = values.map_err(|source| Error::ReadOutput(TensorReadError::Data(source)))?;
        Ok(Self {
            join,
            element: Element::Float,
            shape,
            bytes: values
                .iter()
                .flat_map(|value| value.to_ne_bytes())
                .collect(),
        })
    }
}

/// The tensors of an output that was put together, one after the other.
#[derive(Debug)]
pub struct Fields {
    rest: std::vec::IntoIter<Field>,
    device: Device,
}

impl Fields {
    /// Puts together what workers have told, those without samples aside.
    pub(super) fn join(all: Vec<Told>, device: &Device) -> Result<Self, Error> {
        let ranks = (0..).map(Rank::new);
        let mut workers = ranks.zip(all).filter(|(_, told)| told.samples > 0);
        let (_, first) = workers.next().ok_or(Error::OutputEnded)?;
        let mut joined: Vec<Joined> = first
            .fields
            .into_iter()
            .map(|field| Joined::new(field, first.samples))
            .collect();
        for (rank, told) in workers {
            let (found, needed) = (told.fields.len(), joined.len());
            if found != needed {
                return Err(Error::OutputFields {
                    rank,
                    found,
                    needed,
                });
            }
            for (joined, field) in joined.iter_mut().zip(told.fields) {
                joined.add(field, told.samples, rank)?;
            }
        }
        let fields: Vec<Field> = joined.into_iter().map(Joined::finish).collect();
        Ok(Self {
            rest: fields.into_iter(),
            device: device.clone(),
        })
    }

    /// Whether there are no more, for outputs that have some of their tensors at times.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.len() == 0
    }

    /// The next tensor, of floats.
    ///
    /// # Errors
    /// [`Error::OutputEnded`], [`Error::OutputShape`] where it is not one of `D` dimensions.
    pub fn float<const D: usize>(&mut self) -> Result<Tensor<D>, Error> {
        let field = self.next::<D>(Element::Float)?;
        let values = field.floats().collect();
        let data = TensorData::new(values, Shape::from(field.shape));
        Ok(Tensor::from_data(data, &self.device))
    }

    /// The next tensor, of integers.
    ///
    /// # Errors
    /// [`Error::OutputEnded`], [`Error::OutputShape`] where it is not one of `D` dimensions.
    pub fn int<const D: usize>(&mut self) -> Result<Tensor<D, Int>, Error> {
        let field = self.next::<D>(Element::Int)?;
        let (values, _) = field.bytes.as_chunks();
        let values = values
            .iter()
            .map(|bytes| i64::from_ne_bytes(*bytes))
            .collect();
        let data = TensorData::new(values, Shape::from(field.shape));
        Ok(Tensor::from_data(data, &self.device))
    }

    fn next<const D: usize>(&mut self, element: Element) -> Result<Field, Error> {
        let field = self.rest.next().ok_or(Error::OutputEnded)?;
        match field.element == element && field.shape.len() == D {
            true => Ok(field),
            false => Err(Error::OutputShape {
                found: field.shape,
                needed: D,
            }),
        }
    }
}

impl Field {
    /// Whether it is no mean with a NaN or an infinity.
    pub(super) fn is_sound(&self) -> bool {
        self.join == Join::Rows || self.floats().all(f32::is_finite)
    }

    fn floats(&self) -> impl Iterator<Item = f32> + '_ {
        let (values, _) = self.bytes.as_chunks();
        values.iter().map(|bytes| f32::from_ne_bytes(*bytes))
    }
}

/// A field in the making.
struct Joined {
    field: Field,
    /// Of a mean: values times samples, and samples.
    sums: Vec<f64>,
    samples: u64,
}

impl Joined {
    fn new(field: Field, samples: u32) -> Self {
        let sums = match field.join {
            Join::Mean => field
                .floats()
                .map(|value| weighted(value, samples))
                .collect(),
            Join::Rows => Vec::new(),
        };
        Self {
            field,
            sums,
            samples: samples.into(),
        }
    }

    fn add(&mut self, other: Field, samples: u32, rank: Rank) -> Result<(), Error> {
        let own = &mut self.field;
        let is_same = match own.join {
            Join::Mean => own.shape == other.shape,
            Join::Rows => {
                own.shape.len() == other.shape.len() && own.shape[1..] == other.shape[1..]
            }
        };
        if !is_same || (own.join, own.element) != (other.join, other.element) {
            let (found, others) = (other.shape, own.shape.clone());
            return Err(Error::OutputsDiffer {
                rank,
                found,
                others,
            });
        }
        match own.join {
            Join::Mean => {
                for (sum, value) in self.sums.iter_mut().zip(other.floats()) {
                    *sum += weighted(value, samples);
                }
                self.samples += u64::from(samples);
            }
            Join::Rows => {
                let rows = own.shape[0].checked_add(other.shape[0]);
                own.shape[0] = rows.ok_or(Error::OutputForm { rank })?;
                own.bytes.extend(other.bytes);
            }
        }
        Ok(())
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a mean of f32 is rounded to f32"
    )]
    fn finish(mut self) -> Field {
        if self.field.join == Join::Mean {
            let mean = |sum: f64| (sum / self.samples as f64) as f32;
            let means = self.sums.into_iter().map(mean);
            self.field.bytes = means.flat_map(f32::to_ne_bytes).collect();
        }
        self.field
    }
}

fn weighted(value: f32, samples: u32) -> f64 {
    f64::from(value) * f64::from(samples)
}
