//! Gradients of ops that have parameters.

use meshwork_accel::ElementType;
use meshwork_layout::ops::{Op, OpError, Reducer};

use super::strided::turned;
use super::{Gradients, Rule, only, some, zero};
use crate::ops::{ReduceAxes, all, place};
use crate::record::with_indices;
use crate::{DTensor, Error, Float};

impl Rule<'_> {
    #[track_caller]
    pub(super) fn op<T: Float>(&self, op: &Op, upstream: &DTensor<T>) -> Result<Gradients, Error> {
        match op {
            Op::Softmax { axis } => only(upstream.through_softmax(&self.result(0)?, *axis)),
            Op::Reduce {
                reducer: Reducer::Min | Reducer::Max,
                axes,
                ..
            } => only(self.extreme(axes, upstream)),
            Op::Scan { axis } => {
                let along = place(*axis, upstream.rank());
                let whole = upstream.whole_along(|other| other == along)?;
                only(turned(&turned(&whole, along)?.cumsum(*axis)?, along))
            }
            Op::Select => self.select(upstream),
            Op::Gather { axis } => {
                let shape = self.shape(0)?;
                let by_params = with_indices!(self.given(1)?, |indices| {
                    upstream.through_gather(shape, indices, *axis)?
                });
                Ok(vec![some(by_params), None])
            }
            // Floats of the gradient's type may not have all indices.
            Op::Embedding => {
                let table = self.given(0)?.placement();
                let by_table = with_indices!(self.given(1)?, |indices| {
                    upstream.added_to_rows(table, indices)?
                });
                Ok(vec![some(by_table), None])
            }
            Op::Stack { axis } => Ok(upstream.unstack(*axis)?.into_iter().map(some).collect()),
            Op::Tile { multiples } => only(self.tile(multiples, upstream)),
            Op::StridedSlice(indices) => only(self.strided_slice(indices, upstream)),
            // Whole numbers chose what they are made of.
            Op::OneHot { .. } | Op::ArgReduce { .. } | Op::ShapeOf => Ok(vec![None]),
            op => self.by_rule_of_layouts(op, upstream),
        }
    }

    #[track_caller]
    fn by_rule_of_layouts<T: Float>(
        &self,
        op: &Op,
        upstream: &DTensor<T>,
    ) -> Result<Gradients, Error> {
        let mut operands = Vec::new();
        for operand in &self.node.operands {
            let typed = operand.tensor.typed::<T>().cloned();
            operands.push(match typed {
                Some(typed) => typed,
                None => self.converted(&operand.tensor)?,
            });
        }
        let operands: Vec<&DTensor<T>> = operands.iter().collect();
        match DTensor::gradients(op, &operands, upstream, &|_, _| T::default()) {
            Ok(found) => Ok(found.into_iter().map(some).collect()),
            Err(Error::Op(OpError::NoGradient { .. })) => Err(self.unknown()),
            Err(error) => Err(error),
        }
    }

    #[track_caller]
    fn extreme<T: Float>(
        &self,
        axes: &[isize],
        upstream: &DTensor<T>,
    ) -> Result<DTensor<T>, Error> {
        let (elements, extreme) = (self.operand::<T>(0)?, self.result::<T>(0)?);
        // Those that share it may be more than 65,504.
        if T::TYPE == ElementType::F16 {
            let wide = [elements.cast::<f32>()?, extreme.cast()?, upstream.cast()?];
            return shared(axes, wide.each_ref())?.cast();
        }
        shared(axes, [&elements, &extreme, upstream])
    }

    #[track_caller]
    fn tile<T: Float>(
        &self,
        multiples: &[usize],
        upstream: &DTensor<T>,
    ) -> Result<DTensor<T>, Error> {
        let shape = self.shape(0)?;
        let both = multiples.iter().zip(shape);
        let apart: Vec<usize> = both.flat_map(|(times, size)| [*times, *size]).collect();
        let copies = (0..shape.len()).map(|axis| (2 * axis).cast_signed());
        upstream
            .reshape(&all(&apart))?
            .sum(&ReduceAxes::axes(copies))
    }
}

/// Each of the largest elements, or of the smallest, has an equal share of what is upstream. Where
/// that is no number, no gradient is one.
#[track_caller]
fn shared<T: Float>(
    axes: &[isize],
    [elements, extreme, upstream]: [&DTensor<T>; 3],
) -> Result<DTensor<T>, Error> {
    let mut kept = elements.shape().to_vec();
    for axis in axes {
        kept[place(*axis, elements.rank())] = 1;
    }
    let extreme = extreme.reshape(&all(&kept))?;
    let upstream = upstream.reshape(&all(&kept))?;
    let (none, one) = (zero(elements)?, super::number(elements, 1.0)?);
    // No number where both are equal, infinities too, which have no difference; else 0.
    let equal = none.div(&elements.sub(&extreme)?)?;
    let along = ReduceAxes::axes(axes.iter().copied()).keep_dims();
    let sharers = equal.select(&one, &none)?.sum(&along)?;
    // 0, but for an extreme that is no number.
    let doubt = none.div(&extreme.stop_gradient().relu()?.add(&one)?)?;
    equal.select(&upstream.div(&sharers)?.add(&doubt)?, &none)
}

#[cfg(test)]
mod tests {
    use meshwork_layout::Layout;

    use crate::testing::{context, layouts};
    use crate::{DTensor, Error, ReduceAxes, Tape, compile, f16};

    /// The slopes of the sum of what is made of some numbers are these, in all layouts, in programs
    /// too.
    #[track_caller]
    fn check(
        numbers: &[f32],
        function: impl Fn(&DTensor<f32>) -> Result<DTensor<f32>, Error>,
        expected: &[f32],
    ) {
        let step = |x: &DTensor<f32>| {
            let tape = Tape::new();
            let x = tape.watch(x);
            let [slopes] = tape.gradient(&function(&x)?.sum_all()?, [&x])?;
            Ok::<_, Error>(slopes)
        };
        for layout in layouts(1) {
            let x = context().copy_to_mesh(ndarray::arr1(numbers), &layout);
            let x = x.unwrap();
            let mut compiled = compile(|(): &mut (), x: &DTensor<f32>| step(x));
            let all = [
                step(&x),
                compiled.call(&mut (), &x),
                compiled.call(&mut (), &x),
            ];
            for found in all {
                let found = found.unwrap().to_host().unwrap();
                let is_right =
                    |(own, right): (&f32, &f32)| own == right || own.is_nan() && right.is_nan();
                assert!(
                    found.iter().zip(expected).all(is_right),
                    "{layout}: {found}"
                );
            }
            assert_eq!(compiled.traces(), 1);
        }
    }

    fn row<T: crate::Scalar>(x: &DTensor<f32>, of: &[T]) -> Result<DTensor<T>, Error> {
        let layout = Layout::replicated(x.layout().mesh(), 1);
        x.context().copy_to_mesh(ndarray::arr1(of), &layout)
    }

    #[test]
    fn what_a_sum_counts_behind_an_element_is_not_a_difference_of_large_numbers() {
        let weighted = |by: [f32; 2]| move |x: &DTensor<f32>| x.cumsum(0)?.mul(&row(x, &by)?);
        check(&[1.0, 2.0], weighted([1e9, 1.0]), &[1e9, 1.0]);
        let far = f32::INFINITY;
        check(&[1.0, 2.0], weighted([far, 1.0]), &[far, 1.0]);
        check(&[1.0, 2.0], weighted([1.0, far]), &[far, far]);
    }

    #[test]
    fn what_was_not_gathered_has_nothing_of_an_infinite_gradient() {
        let logarithms = |x: &DTensor<f32>| x.gather(&row(x, &[0_i64, 1])?, 0)?.ln();
        check(&[0.0, 1.0, 2.0], logarithms, &[f32::INFINITY, 1.0, 0.0]);
        let by_floats = |x: &DTensor<f32>| x.gather(&row(x, &[2.0_f64, 1.0, 2.0])?, 0);
        check(&[0.0, 1.0, 2.0], by_floats, &[0.0, 1.0, 2.0]);
    }

    #[test]
    fn what_was_gathered_has_gradients_of_gradients() {
        let slopes = |x: &DTensor<f32>| {
            let tape = Tape::new();
            let x = tape.watch(x);
            let chosen = x.gather(&row(&x, &[0_i64, 2, 2])?, 0)?;
            let cubes = chosen.mul(&chosen)?.mul(&chosen)?;
            let [slopes] = tape.gradient(&cubes.sum_all()?, [&x])?;
            slopes.mul(&slopes)
        };
        // Of 9a⁴ and 36c⁴.
        check(&[1.0, 2.0, 3.0], slopes, &[36.0, 0.0, 3888.0]);
    }

    #[test]
    fn extremes_that_are_infinite_or_no_numbers_have_gradients() {
        let along = ReduceAxes::axes([0]);
        let (far, none) = (f32::INFINITY, f32::NAN);
        for (numbers, expected) in [
            ([far, 1.0], [1.0, 0.0]),
            ([-far, 1.0], [0.0, 1.0]),
            ([-far, -far], [0.5, 0.5]),
            ([far, far], [0.5, 0.5]),
            ([none, 1.0], [none, none]),
            ([3.0, none], [none, none]),
            ([0.0, -0.0], [0.5, 0.5]),
        ] {
            check(&numbers, |x| x.max(&along), &expected);
            check(&numbers.map(|x| -x), |x| x.min(&along), &expected);
        }
    }

    #[test]
    fn more_extremes_than_short_floats_count_have_gradients() {
        let along = ReduceAxes::axes([0]);
        for layout in layouts(1) {
            let zeros = context().zeros::<f16>(&[70_000], &layout).unwrap();
            for extreme in [DTensor::<f16>::max, DTensor::<f16>::min] {
                let tape = Tape::new();
                let x = tape.watch(&zeros);
                let made = extreme(&x, &along).unwrap();
                let [slopes] = tape.gradient(&made, [&x]).unwrap();
                let slopes = slopes.to_host().unwrap();
                let share = f16::from_f32(1.0 / 70_000.0);
                let is_share = |slope: &f16| *slope == share;
                assert!(slopes.iter().all(is_share), "{layout}: {slopes}");
            }
        }
    }
}
