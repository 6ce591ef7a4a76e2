//! Rows of a table, which may be cut by rows and by features.

use meshwork_layout::PartialReduction;
use meshwork_layout::ops::{Op, TensorLayout};

use super::kernel::{self, flat};
use super::local::Local;
use super::{Call, is_short};
use crate::record::Primitive;
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
        indices.check_bounded(0, table.shape()[0])?;
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
        match upstream.context().is_same(self.context()) {
            true => upstream.added_to_rows(self.placement(), indices),
            false => Err(Error::OtherContext),
        }
    }

    /// The same of this gradient, by a table that lies so.
    #[track_caller]
    pub(crate) fn added_to_rows<I: Scalar>(
        &self,
        table: &TensorLayout,
        indices: &DTensor<I>,
    ) -> Result<Self, Error> {
        let placements = [table, indices.placement(), self.placement()];
        let call = Call::of(&Op::EmbeddingGradient, self.context(), &placements)?;
        let call = call.named(Primitive::RowsAdded(Box::new(table.clone())));
        let (indices, upstream) = (call.operand(1, indices)?, call.operand(2, self)?);
        indices.check_bounded(0, table.shape()[0])?;
        let layout = &call.inferred.operands()[0];
        let mut starts = Vec::new();
        for rank in self.local_ranks() {
            starts.push(layout.shard(*rank, table.shape())?[0].start);
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
    use meshwork_layout::{Layout, UNSHARDED};
    use ndarray::{Array2, array};

    use crate::testing::{context, layouts, mesh};
    use crate::{DTensor, Error, Float, Tape, bf16, compile, f16};

    /// Two tables, words that are looked up in both, and a gradient by the sum of the rows.
    type Given = (Vec<DTensor<f64>>, DTensor<i64>, DTensor<f64>);

    fn by_tables(given: &Given) -> Result<Vec<DTensor<f64>>, Error> {
        let (tables, words, upstream) = given;
        let tape = Tape::new();
        let [first, second] = [0, 1].map(|number| tape.watch(&tables[number]));
        let rows = first.embedding(words)?.add(&second.embedding(words)?)?;
        let found = tape.gradients_from(&rows, upstream, &[&first, &second])?;
        Ok(found.into_iter().flatten().collect())
    }

    /// What is looked up in both is brought into the layout that they ask for once.
    #[test]
    fn gradients_of_tables_are_the_same_however_they_and_the_words_are_cut() {
        let sums = |rows: usize| {
            let mut sums = Array2::<f64>::zeros((rows, 2));
            sums.row_mut(0).assign(&array![3.0, 4.0]);
            sums.row_mut(3).assign(&array![13.0, 16.0]);
            sums.into_dyn()
        };
        for layout in layouts(2) {
            for name in [UNSHARDED, "x", "y"] {
                let context = context();
                let placed = |rows: usize| context.zeros::<f64>(&[rows, 2], &layout).unwrap();
                let words = Layout::from_names([name], &mesh()).unwrap();
                let rows = Layout::from_names([name, UNSHARDED], &mesh()).unwrap();
                let upstream = array![[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]];
                let given: Given = (
                    vec![placed(4), placed(6)],
                    context
                        .copy_to_mesh(array![3_i64, 0, 3, 3], &words)
                        .unwrap(),
                    context.copy_to_mesh(upstream, &rows).unwrap(),
                );
                let mut step = compile(|(): &mut (), given: &Given| by_tables(given));
                let all = [
                    by_tables(&given),
                    step.call(&mut (), &given),
                    step.call(&mut (), &given),
                ];
                for found in all {
                    let found = found.unwrap();
                    let found: Vec<_> = found.iter().map(|own| own.to_host().unwrap()).collect();
                    assert_eq!(found, [sums(4), sums(6)], "{layout} {name}");
                }
                let specs: Vec<String> = layout.specs().map(ToString::to_string).collect();
                let expected = match name != UNSHARDED && specs.iter().any(|own| own == name) {
                    true => 2,
                    false => usize::from(specs[1] != UNSHARDED),
                };
                let program = step.program().unwrap();
                assert_eq!(program.relayouts(), expected, "{layout} {name}: {program}");
            }
        }
    }

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
