//! Whole numbers and truth values in programs.

use meshwork_layout::ops::{Index, Parts};

use super::*;
use crate::Number;

type Pair<T> = (DTensor<T>, DTensor<T>);

/// What the ops of numbers make of two matrices.
fn computed<T: Number>(pair: &Pair<T>) -> Result<Vec<DTensor<T>>, Error> {
    let (a, b) = pair;
    let (rows, all) = (ReduceAxes::axes([0]), ReduceAxes::axes([0, 1]).keep_dims());
    // Some ops work along axes only that are not cut.
    let (whole, other) = (a.replicate()?, b.replicate()?);
    let last = other.strided_slice(&[Index::At(-1)])?;
    let halves = whole.split(1, &Parts::Equal(2))?;
    let equation = "ij,kj->ik".parse().unwrap();
    Ok(vec![
        a.add(b)?,
        a.sub(b)?,
        a.mul(&last)?,
        a.div(b)?,
        a.neg()?,
        a.sub(b)?.relu()?,
        a.scale(T::from_f64(3.0))?,
        a.add_scalar(T::from_f64(2.0))?,
        a.bias_add(&last)?,
        a.cumsum(1)?,
        a.matmul(&b.transpose(&[1, 0])?)?,
        a.einsum(&equation, &[b])?,
        a.sum(&rows)?,
        a.mean(&rows)?,
        b.product(&all)?,
        a.min(&rows)?,
        a.max(&all)?,
        DTensor::concat(0, &[&whole, &other])?,
        DTensor::stack(1, &[&halves[0], &halves[1]])?,
        whole.unstack(0)?.swap_remove(3),
        whole.tile(&[2, 1])?,
        whole.pad(&[(1, 0), (0, 2)])?,
        last.broadcast_to(&[3, 4])?,
    ])
}

fn agrees<T: Number>() {
    let context = context();
    for layout in layouts(2) {
        let placed = |by: usize| {
            let made = context.from_fn(&[4, 4], &layout, |at| {
                T::from_f64(((at[0] * by + at[1] * 5) % 7 + 1) as f64)
            });
            made.unwrap()
        };
        let given = (placed(3), placed(2));
        let mut step = compile(|(): &mut (), given: &Pair<T>| computed(given));
        let expected = computed(&given).unwrap();
        for _ in 0..2 {
            let found = step.call(&mut (), &given).unwrap();
            for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert_eq!(found.layout(), expected.layout(), "{number}");
                let [found, expected] = [found, expected].map(|own| own.to_host().unwrap());
                assert!(found == expected, "{number}: {found:?}, not {expected:?}");
            }
        }
        assert_eq!(step.traces(), 1);
    }
}

#[test]
fn whole_numbers_have_the_same_values_in_programs() {
    agrees::<i64>();
    agrees::<i32>();
    agrees::<u8>();
}

#[test]
fn means_whose_sums_are_too_large_for_their_elements_are_there_in_programs() {
    let context = context();
    for layout in layouts(2) {
        let pixels = context.full(&[4, 4], &layout, 200_u8).unwrap();
        let mut step = compile(|(): &mut (), x: &DTensor<u8>| x.mean_all());
        for _ in 0..2 {
            let mean = step.call(&mut (), &pixels).unwrap();
            assert_eq!(mean.to_host().unwrap(), ndarray::arr0(200_u8).into_dyn());
            assert_eq!(mean.layout(), pixels.mean_all().unwrap().layout());
        }
    }
}

#[test]
fn truth_values_and_indices_have_the_same_values_in_programs() {
    let (context, layout) = (context(), layouts(2).remove(5));
    let x = context.from_fn(&[4, 4], &layout, |at| at[0] as i64 * 3 - at[1] as i64);
    type Made = (Vec<DTensor<bool>>, Vec<DTensor<i64>>);
    let function = |x: &DTensor<i64>| {
        let (rows, truths) = (ReduceAxes::axes([1]), x.cast::<bool>()?);
        let both = DTensor::concat(0, &[&truths, &truths])?;
        let made = vec![truths.any(&rows)?, truths.all(&rows)?, both];
        Ok::<Made, Error>((made, vec![x.argmax(0)?, x.argmin(1)?]))
    };
    let x = x.unwrap();
    let (truths, indices) = function(&x).unwrap();
    let mut step = compile(|(): &mut (), x: &DTensor<i64>| function(x));
    for _ in 0..2 {
        let (found, places) = step.call(&mut (), &x).unwrap();
        for (found, expected) in found.iter().zip(&truths) {
            assert_eq!(found.to_host().unwrap(), expected.to_host().unwrap());
        }
        for (found, expected) in places.iter().zip(&indices) {
            assert_eq!(found.to_host().unwrap(), expected.to_host().unwrap());
        }
    }
}

#[test]
fn a_number_that_no_float_is_is_refused() {
    let x = context().full(&[3], &layouts(1).remove(0), 1_i64).unwrap();
    let mut step = compile(|(): &mut (), x: &DTensor<i64>| x.add_scalar((1 << 53) + 1));
    let refused = step.call(&mut (), &x).unwrap_err();
    assert!(
        matches!(
            refused,
            Error::NotTraceable {
                op: "add_scalar",
                ..
            }
        ),
        "{refused}"
    );
}
