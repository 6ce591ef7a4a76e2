use ndarray::ArrayD;

use super::arrays::joined;
use super::cross::refuse_integer_mean;
use super::rendezvous::Detail;
use super::{ReplicaContext, ReplicaReduceOp};
use crate::distributed::PerReplica;
use crate::{Error, Value};

/// Some rows of an array, such as the gradient of the embeddings that a batch used.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexedSlices<T> {
    indices: Vec<i64>,
    values: ArrayD<T>,
}

impl<T: Value> IndexedSlices<T> {
    /// Row `i` of `values` is row `indices[i]` of the whole. A row may be named more than once:
    /// its values are to be added up.
    ///
    /// # Errors
    /// [`Error::RowCount`] when there are not as many rows as indices.
    pub fn new(indices: Vec<i64>, values: ArrayD<T>) -> Result<Self, Error> {
        let rows = values.shape().first().copied().unwrap_or(0);
        if rows != indices.len() {
            return Err(Error::RowCount {
                rows,
                indices: indices.len(),
            });
        }
        Ok(Self { indices, values })
    }

    /// Which row of the whole each row is.
    #[must_use]
    pub fn indices(&self) -> &[i64] {
        &self.indices
    }

    /// The rows.
    #[must_use]
    pub fn values(&self) -> &ArrayD<T> {
        &self.values
    }
}

impl ReplicaContext<'_> {
    /// The rows of all replicas, in their order; rows that several have named are not added up.
    ///
    /// # Shapes
    /// The rows of all replicas have one shape; their number may differ.
    ///
    /// # Errors
    /// Those of [`all_gather`](Self::all_gather), and [`Error::IntegerMean`].
    #[track_caller]
    pub fn all_reduce_slices<T: Value>(
        &mut self,
        op: ReplicaReduceOp,
        slices: IndexedSlices<T>,
    ) -> Result<IndexedSlices<T>, Error> {
        refuse_integer_mean::<T>(op)?;
        let detail = Some(Detail::Op(op));
        self.together_as("all_reduce_slices", detail, slices, |cross, slices| {
            let locals = slices.len();
            let (mut indices, mut values) = (Vec::new(), Vec::new());
            for slice in slices {
                indices.push(ArrayD::from(
                    ndarray::Array1::from(slice.indices).into_dyn(),
                ));
                values.push(slice.values);
            }
            let indices = cross.gather(&PerReplica::new(indices), 0)?;
            let mut values = joined(&cross.arrays_of_all(&PerReplica::new(values))?, 0)?;
            if op == ReplicaReduceOp::Mean {
                let replicas = cross.num_replicas_in_sync();
                values.mapv_inplace(|value| value.divided(replicas));
            }
            let indices = indices.into_iter().collect();
            let all = IndexedSlices { indices, values };
            Ok(vec![all; locals])
        })
    }
}
