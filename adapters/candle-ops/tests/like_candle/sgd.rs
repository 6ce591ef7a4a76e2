//! Steps of gradient descent have the bits of candle's operations.

use candle_core::{DType, Error, Tensor, Var};
use meshwork_candle_ops as ops;
use proptest::prelude::*;

use super::{laid_out, memory, values, variable};

const MOMENTUM: f64 = 0.8;
const RATE: f64 = 0.3;

fn typed(dims: &[usize], seed: usize, dtype: DType) -> Var {
    let values = variable(dims, seed).to_dtype(dtype).unwrap();
    Var::from_tensor(&values).unwrap()
}

fn bits(tensor: &Tensor) -> Vec<u64> {
    let wide = tensor.to_dtype(DType::F64).unwrap().flatten_all().unwrap();
    let bits = |value: &f64| value.to_bits();
    wide.to_vec1().unwrap().iter().map(bits).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn steps_have_the_bits_of_candles_operations(
        rows in 1_usize..300, columns in 1_usize..90, memory in memory(), has_gradient: bool,
        dtype in prop::sample::select(vec![DType::F32, DType::F64]),
    ) {
        let dims = [rows, columns];
        let (var, velocity) = (typed(&dims, 1, dtype), typed(&dims, 2, dtype));
        let gradient = laid_out(&dims, memory, 3).1.to_dtype(dtype).unwrap();
        let gradient = has_gradient.then_some(&gradient);
        let (mut point, mut speed) = (var.copy().unwrap(), velocity.copy().unwrap());
        for _ in 0..2 {
            ops::sgd_step(&var, &velocity, gradient, MOMENTUM, RATE).unwrap();
            speed = (speed * MOMENTUM).unwrap();
            if let Some(gradient) = gradient {
                speed = (speed + gradient).unwrap();
            }
            point = (point - (&speed * RATE).unwrap()).unwrap();
            prop_assert_eq!(bits(&velocity), bits(&speed));
            prop_assert_eq!(bits(&var), bits(&point));
        }
    }
}

#[test]
fn tensors_of_other_shapes_are_refused_before_anything_moves() {
    let (var, velocity, other) = (variable(&[4], 1), variable(&[4], 3), variable(&[2, 2], 2));
    let before = values(&var);
    for (velocity, gradient) in [(&other, &var), (&velocity, &other)] {
        let error = ops::sgd_step(&var, velocity, Some(gradient), MOMENTUM, RATE).unwrap_err();
        let Error::ShapeMismatchBinaryOp { lhs, rhs, op } = error else {
            panic!("{error}");
        };
        assert_eq!(
            (lhs.dims(), rhs.dims(), op),
            (&[4][..], &[2, 2][..], "sgd_step")
        );
    }
    assert_eq!(values(&var), before);
}
