//! Rows of a table, which may be cut by rows and by features.

use meshwork_layout::PartialReduction;
use meshwork_layout::ops::Op;

use super::kernel::{self, flat};
use super::local::Local;
use super::{Call, is_short};
use crate::{DTensor, Error, Number, Scalar};

impl<T: Number> DTensor<T> {
    /// The rows of this table at these indices. Unlike with [`gather`](Self::gather) the table
    /// stays cut by rows where the indices are not: each device looks up what it has, and the rows
    /// are summed over devices.
    ///
    /// ```
    /// use meshwork_core::{Client, Mesh};
    /// use meshwork_dtensor::{Context, Error};
    /// use meshwork_layout::Layout;
    /// use ndarray::array;
    ///
    /// let context = Context::alone(Client::new("localhost", 0, 1)?);
    /// let mesh = Mesh::new([("model", 2)])?;
    /// let rows = Layout::batch_sharded(&mesh, "model", 2)?;
    /// let table = context.copy_to_mesh(array![[1.0], [2.0], [3.0], [4.0]], &rows)?;
    /// let words = context.copy_to_mesh(array![3, 0], &Layout::replicated(&mesh, 1))?;
    /// assert_eq!(table.embedding(&words)?.to_host()?, array![[4.0], [1.0]].into_dyn());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Shapes
    /// `[rows, features]` and indices of any shape give that shape with an axis of features behind.
    ///
    /// # Errors
    /// [`Error::Op`] for a table that is no matrix, [`Error::IndexOutside`] (which ends the process
    /// group of all clients), [`Error::OtherContext`], and those of [`relayout`](Self::relayout).
    #[track_caller]
    #[doc(alias = "embedding_lookup")]
    pub fn embedding<I: Scalar>(&self, indices: &DTensor<I>) -> Result<Self, Error> {
        let placements = [self.placement(), indices.placement()];
        let call = Call::of(&Op::Embedding, self.context(), &placements)?;
        let (table, indices) = (call.operand(0, self)?, call.operand(1, indices)?);
        table.check_indices(&indices, 0)?;
        let starts = table.first_rows()?;
        let (rows, chosen) = (Local::of(&table), Local::of(&indices));
        if rows
            .sizes()
            .iter()
            .all(|sizes| sizes[0] == table.shape()[0])
        {
            return call.finish(0, rows.taken(0, &chosen, &call.sizes(0)?)?);
        }
        if let Some(found) = rows.rows_taken(&chosen, &starts, &call.sizes(0)?)? {
            return call.finish(0, found);
        }
        call.result(0, |place, sizes| {
            let (table, chosen) = (table.unpack()?[place].view(), &indices.unpack()?[place]);
            let [rows, features] = [table.shape()[0], table.shape()[1]];
            let table = flat(&table);
            // Rows that others have: 0.0 would make 0.0 of their -0.0.
            let none = T::neutral(PartialReduction::Sum);
            let mut found = vec![none; sizes.iter().product()];
            for (number, index) in chosen.iter().enumerate() {
                if let Some(row) = row_here(*index, starts[place], rows) {
                    let into = &mut found[number * features..][..features];
                    into.copy_from_slice(&table[row * features..][..features]);
                }
            }
            Ok(kernel::filled(sizes, found))
        })
    }

    /// The gradient of [`embedding`](Self::embedding) by this table, of which only the layout
    /// counts: for each row the sum of what `upstream`, the gradient by the result, has where the
    /// row was looked up.
    ///
    /// # Errors
    /// Those of [`embedding`](Self::embedding).
    #[track_caller]
    pub fn embedding_gradient<I: Scalar>(
        &self,
        indices: &DTensor<I>,
        upstream: &Self,
    ) -> Result<Self, Error> {
        let placements = [self.placement(), indices.placement(), upstream.placement()];
        let call = Call::of(&Op::EmbeddingGradient, self.context(), &placements)?;
        let layout = &call.inferred.operands()[0];
        call.record.note(self);
        let (indices, upstream) = (call.operand(1, indices)?, call.operand(2, upstream)?);
        self.check_indices(&indices, 0)?;
        let mut starts = Vec::new();
        for rank in self.local_ranks() {
            starts.push(layout.shard(*rank, self.shape())?[0].start);
        }
        let (indexed, rows) = (Local::of(&indices), Local::of(&upstream));
        if let Some(sums) = indexed.rows_added(&rows, &starts, &call.sizes(0)?)? {
            return call.finish(0, sums);
        }
        call.result(0, |place, sizes| {
            let (chosen, upstream) = (&indices.unpack()?[place], &upstream.unpack()?[place].view());
            let rows = chosen.iter();
            let rows = rows.map(|index| row_here(*index, starts[place], sizes[0]));
            let slopes = flat(upstream);
            Ok(match is_short::<T>() {
                true => {
                    let wide = slopes.iter().map(|slope| f32::from_f64(slope.to_f64()));
                    let sums = added(rows, &wide.collect::<Vec<_>>(), sizes).into_iter();
                    kernel::filled(sizes, sums.map(|sum| T::from_f64(sum.into())))
                }
                false => kernel::filled(sizes, added(rows, &slopes, sizes)),
            })
        })
    }
}

/// For each row of a block of these sizes the sum of those that go to it.
fn added<T: Number>(
    rows: impl Iterator<Item = Option<usize>>,
    slopes: &[T],
    sizes: &[usize],
) -> Vec<T> {
    let features = sizes[1];
    let mut sums = vec![T::default(); sizes[0] * features];
    for (number, row) in rows.enumerate() {
        if let Some(row) = row {
            let sums = sums[row * features..][..features].iter_mut();
            let slopes = &slopes[number * features..][..features];
            sums.zip(slopes)
                .for_each(|(sum, slope)| *sum = sum.plus(*slope));
        }
    }
    sums
}

/// The row of a block that an index of the whole table stands for; none if it is elsewhere.
fn row_here<I: Scalar>(index: I, start: usize, rows: usize) -> Option<usize> {
    let row = index.to_index()?.checked_sub(start)?;
    (row < rows).then_some(row)
}

#[cfg(test)]
mod tests {
    use meshwork_layout::Layout;
    use ndarray::array;

    use crate::testing::{context, layouts, mesh};
    use crate::{Float, Tape, bf16, f16};

    #[test]
    fn rows_of_negative_zeros_keep_their_sign_however_the_table_is_cut() {
        let words = Layout::replicated(&mesh(), 1);
        for layout in layouts(2) {
            let context = context();
            let words = context.copy_to_mesh(array![3_i64, 0], &words).unwrap();
            let table = context.full(&[4, 2], &layout, -0.0_f32).unwrap();
            let rows = table.embedding(&words).unwrap().to_host().unwrap();
            let all_negative = rows.iter().all(|element| element.is_sign_negative());
            assert!(all_negative, "{layout}: {rows}");
        }
    }

    #[test]
    fn gradients_of_short_floats_are_rounded_once_however_often_a_row_is_looked_up() {
        // Counts that such floats have, and do not come to one by one.
        fn check<T: Float>(count: usize) {
            let words = Layout::replicated(&mesh(), 1);
            for layout in layouts(2) {
                let context = context();
                let words = context.full(&[count], &words, 0_i64).unwrap();
                let table = context.full(&[4, 2], &layout, T::from_f64(1.0)).unwrap();
                let tape = Tape::new();
                let table = tape.watch(&table);
                let sum = table.embedding(&words).unwrap().sum_all().unwrap();
                let [slopes] = tape.gradient(&sum, [&table]).unwrap();
                let slopes = slopes.to_host().unwrap().mapv(T::to_f64);
                assert_eq!([slopes[[0, 1]], slopes[[1, 1]]], [count as f64, 0.0]);
            }
        }
        check::<bf16>(1000);
        check::<f16>(4000);
    }
}
