//! What transformers need, beside compositions of candle's operations.

use candle_core::{D, DType, Device, Result, Tensor, Var};
use meshwork_candle_ops as ops;
use proptest::prelude::*;

use super::{Memory, laid_out, memory, same, variable};

/// With a gradient, which candle's own does not have.
fn gelu(x: &Tensor) -> Result<Tensor> {
    let normal = ((x / 2_f64.sqrt())?.erf()? + 1.0)? * 0.5;
    x * normal?
}

/// With gradients, which candle's own does not have.
fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, epsilon: f64) -> Result<Tensor> {
    let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
    let variance = (centred.sqr()?.mean_keepdim(D::Minus1)? + epsilon)?;
    let unit = centred.broadcast_div(&variance.sqrt()?)?;
    unit.broadcast_mul(weight)?.broadcast_add(bias)
}

/// Heads, and places of each sequence.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    batch: usize,
    places: usize,
    heads: usize,
    size: usize,
}

impl Sizes {
    fn columns(self) -> usize {
        3 * self.heads * self.size
    }

    fn attention(self, projected: &Tensor) -> Result<Tensor> {
        let Self {
            batch,
            places,
            heads,
            size,
        } = self;
        let split = projected.reshape((batch, places, 3, heads, size))?;
        let split = split.permute((2, 0, 3, 1, 4))?.contiguous()?;
        let (query, key, value) = (split.get(0)?, split.get(1)?, split.get(2)?);
        let scores = (query.matmul(&key.transpose(2, 3)?.contiguous()?)? / (size as f64).sqrt())?;
        let allowed = Tensor::tril2(places, projected.dtype(), &Device::Cpu)?;
        let hidden = ((allowed - 1.0)? * 1e9)?;
        let weights = candle_nn::ops::softmax(&scores.broadcast_add(&hidden)?, D::Minus1)?;
        let seen = weights.matmul(&value)?.transpose(1, 2)?;
        seen.reshape((batch, places, heads * size))
    }
}

fn sizes() -> impl Strategy<Value = Sizes> {
    let all = (1_usize..4, 1_usize..40, 1_usize..4, 1_usize..9);
    all.prop_map(|(batch, places, heads, size)| Sizes {
        batch,
        places,
        heads,
        size,
    })
}

proptest! {
    #[test]
    fn gelu_is_the_definitions(dims in prop::collection::vec(1_usize..20, 1..4), memory in memory()) {
        let (x, input) = laid_out(&dims, memory, 1);
        same(&ops::gelu_erf(&input), &gelu(&input), &[&x]);
    }

    #[test]
    fn layer_norm_is_the_definitions(
        dims in prop::collection::vec(1_usize..12, 0..3),
        columns in 2_usize..70,
        memory in memory(),
    ) {
        let dims = [&dims[..], &[columns]].concat();
        let (x, input) = laid_out(&dims, memory, 1);
        let (w, b) = (variable(&[columns], 2), variable(&[columns], 3));
        let ours = ops::layer_norm(&input, &w, &b, 0.1);
        same(&ours, &layer_norm(&input, &w, &b, 0.1), &[&x, &w, &b]);
    }

    #[test]
    fn causal_attention_is_the_definitions(of in sizes(), memory in memory()) {
        let (x, projected) = laid_out(&[of.batch, of.places, of.columns()], memory, 1);
        // candle's own reshapes no tensor that lies in another order.
        let theirs = of.attention(&projected.contiguous().unwrap());
        same(&ops::causal_attention(&projected, of.heads), &theirs, &[&x]);
    }
}

#[test]
fn rows_are_split_over_threads_with_equal_bits() {
    let (x, input) = laid_out(&[3, 150, 48], Memory::Contiguous, 1);
    let (w, b) = (variable(&[48], 2), variable(&[48], 3));
    let gradients = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.unwrap().install(|| {
            let normal = ops::layer_norm(&input, &w, &b, 1e-5).unwrap();
            let result = ops::causal_attention(&ops::gelu_erf(&normal).unwrap(), 4).unwrap();
            super::outcome(&result, &[&x, &w, &b])
        })
    };
    assert_eq!(gradients(1), gradients(3));
}

#[test]
fn other_types_of_elements_mean_the_same() {
    let of = Sizes {
        batch: 2,
        places: 5,
        heads: 2,
        size: 3,
    };
    let (_, x) = laid_out(&[of.batch, of.places, of.columns()], Memory::Contiguous, 1);
    let wide = x.to_dtype(DType::F64).unwrap();
    let near = |ours: Result<Tensor>, wide: Result<Tensor>| {
        let wide = wide.unwrap().to_dtype(DType::F32).unwrap();
        same(&ours, &Ok(wide), &[]);
    };
    near(
        ops::causal_attention(&x, of.heads),
        ops::causal_attention(&wide, of.heads),
    );
    near(ops::gelu_erf(&x), ops::gelu_erf(&wide));
}

#[test]
fn shapes_that_do_not_fit_are_refused_by_their_sizes() {
    let refused = |result: Result<Tensor>| result.unwrap_err().to_string();
    let projected = variable(&[1, 2, 12], 1);
    for heads in [0, 3, 5] {
        let told = refused(ops::causal_attention(&projected, heads));
        assert!(told.contains(&format!(
            "12 columns are no queries, keys and values of {heads} heads"
        )));
    }
    // Three times as many would be counted as two.
    let (columns, heads) = (6, usize::MAX / 3 + 1);
    let told = refused(ops::causal_attention(&variable(&[1, 1, columns], 1), heads));
    let expected = ops::Error::Heads { columns, heads }.to_string();
    assert!(told.contains(&expected), "{told}");
    let (w, b) = (variable(&[11], 2), variable(&[12], 3));
    let told = refused(ops::layer_norm(&projected, &w, &b, 1e-5));
    assert!(
        told.contains("[1, 2, 12]") && told.contains("[11]"),
        "{told}"
    );
    let scalar = Var::new(1.0_f32, &Device::Cpu).unwrap();
    assert!(ops::layer_norm(&scalar, &scalar, &scalar, 1e-5).is_err());
}
