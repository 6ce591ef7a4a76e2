//! Each operation beside candle's own, forward and backward, over shapes, settings and layouts; and
//! beside finite differences where candle has no gradient, or a wrong one.

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "helpers of tests fail with the first, and round what is computed exactly"
)]

#[path = "like_candle/sgd.rs"]
mod sgd;
#[path = "like_candle/transformer.rs"]
mod transformer;

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{Conv2d, Conv2dConfig, Linear, Module, loss};
use meshwork_candle_ops as ops;
use meshwork_candle_ops::Error;
use proptest::prelude::*;

/// Numbers from -1 to 1 that are all different for up to 10,007 of them.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    let number = |at: usize| ((at + seed) * 4_241 % 10_007) as f32 / 5_003.5 - 1.0;
    (0..count).map(number).collect()
}

fn variable(dims: &[usize], seed: usize) -> Var {
    let values = numbers(dims.iter().product(), seed);
    Var::from_vec(values, dims, &Device::Cpu).unwrap()
}

/// How a tensor lies in memory.
#[derive(Clone, Copy, Debug)]
enum Memory {
    Contiguous,
    /// With the order of its dimensions reversed.
    Reversed,
    /// As a part of a larger one.
    Narrowed,
}

/// A tensor of this shape, and the variable behind it.
fn laid_out(dims: &[usize], memory: Memory, seed: usize) -> (Var, Tensor) {
    let axes: Vec<usize> = (0..dims.len()).rev().collect();
    match memory {
        Memory::Contiguous => {
            let variable = variable(dims, seed);
            (variable.clone(), variable.as_tensor().clone())
        }
        Memory::Reversed => {
            let reversed: Vec<usize> = dims.iter().rev().copied().collect();
            let variable = variable(&reversed, seed);
            let tensor = variable.permute(axes).unwrap();
            (variable, tensor)
        }
        Memory::Narrowed => {
            let mut wider = dims.to_vec();
            wider[dims.len() - 1] += 2;
            let variable = variable(&wider, seed);
            let last = dims.len() - 1;
            let tensor = variable.narrow(last, 1, dims[last]).unwrap();
            (variable, tensor)
        }
    }
}

fn memory() -> impl Strategy<Value = Memory> {
    prop_oneof![
        Just(Memory::Contiguous),
        Just(Memory::Reversed),
        Just(Memory::Narrowed)
    ]
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

/// A weight for each element of `result`.
fn weights(result: &Tensor) -> Tensor {
    Tensor::from_vec(
        numbers(result.elem_count(), 77),
        result.shape(),
        &Device::Cpu,
    )
    .unwrap()
}

/// The same numbers, in another order in memory.
fn reversed(tensor: &Tensor) -> Tensor {
    let axes: Vec<usize> = (0..tensor.rank()).rev().collect();
    let turned = tensor.permute(&axes[..]).unwrap().contiguous().unwrap();
    turned.permute(axes).unwrap()
}

/// The result, and the gradients of a weighted sum of its elements, whose weights lie in memory in
/// another order than the result does.
fn outcome(result: &Tensor, of: &[&Var]) -> Vec<Vec<f32>> {
    let weighted = (result * reversed(&weights(result))).unwrap();
    let gradients = weighted.sum_all().unwrap().backward().unwrap();
    let gradients = of.iter().map(|&var| values(gradients.get(var).unwrap()));
    std::iter::once(values(result)).chain(gradients).collect()
}

#[track_caller]
fn same(ours: &Result<Tensor>, theirs: &Result<Tensor>, of: &[&Var]) {
    let (ours, theirs) = (ours.as_ref().unwrap(), theirs.as_ref().unwrap());
    assert_eq!(ours.dims(), theirs.dims());
    let terms = ours.elem_count();
    let pairs = outcome(ours, of).into_iter().zip(outcome(theirs, of));
    for (which, (ours, theirs)) in pairs.enumerate() {
        close(&ours, &theirs, which, terms);
    }
}

/// A gradient may be a sum of as many terms as the result has elements, which cancel each other and
/// are rounded in another order.
#[track_caller]
fn close(ours: &[f32], theirs: &[f32], which: usize, terms: usize) {
    assert_eq!(ours.len(), theirs.len());
    let largest = |most: f32, value: &f32| most.max(value.abs());
    let near = 1e-5 * theirs.iter().fold(1.0_f32, largest) + 2.0 * f32::EPSILON * terms as f32;
    for (at, (one, other)) in ours.iter().zip(theirs).enumerate() {
        assert!(
            (one - other).abs() <= near,
            "{which}, element {at}: {one} and {other}"
        );
    }
}

type Pool = fn(&Tensor, (usize, usize)) -> Result<Tensor>;

/// The gradient of `sum(f(x) * weights)` in each element of `x`, by central differences.
fn differences(x: &[f32], f: impl Fn(&[f32]) -> Vec<f32>) -> Vec<f32> {
    const STEP: f32 = 0.25;
    let sum = |x: &[f32]| -> f64 {
        let results = f(x);
        let terms = results.iter().zip(numbers(results.len(), 77));
        terms.map(|(&a, b)| f64::from(a) * f64::from(b)).sum()
    };
    (0..x.len())
        .map(|at| {
            let moved = |by: f32| {
                let mut x = x.to_vec();
                x[at] += by;
                sum(&x)
            };
            ((moved(STEP) - moved(-STEP)) / f64::from(2.0 * STEP)) as f32
        })
        .collect()
}

#[derive(Clone, Debug)]
struct Convolution {
    images: Vec<usize>,
    weight: Vec<usize>,
    config: Conv2dConfig,
    biased: bool,
    memory: Memory,
}

prop_compose! {
    fn convolution()(
        images in 1_usize..19,
        (groups, inputs, outputs) in (1_usize..4, 1_usize..4, 1_usize..4),
        (kernel_rows, kernel_columns) in (1_usize..5, 1_usize..5),
        (padding, stride, dilation) in (0_usize..4, 1_usize..4, 1_usize..3),
        (more_rows, more_columns) in (0_usize..7, 0_usize..7),
        biased in any::<bool>(),
        memory in memory(),
    ) -> Convolution {
        let least = |kernel: usize| (dilation * (kernel - 1) + 1).saturating_sub(2 * padding).max(1);
        Convolution {
            images: vec![
                images,
                groups * inputs,
                least(kernel_rows) + more_rows,
                least(kernel_columns) + more_columns,
            ],
            weight: vec![groups * outputs, inputs, kernel_rows, kernel_columns],
            config: Conv2dConfig { padding, stride, dilation, groups, cudnn_fwd_algo: None },
            biased,
            memory,
        }
    }
}

impl Convolution {
    /// A case whose gradients candle has: it takes rows for columns.
    fn square(mut self) -> Self {
        self.images[3] = self.images[2];
        self.weight[3] = self.weight[2];
        self
    }

    /// Whether candle 0.11 computes the gradient of the images: it subtracts the padding from what
    /// the places cover, which may be less.
    fn has_gradient_in_candle(&self) -> bool {
        let Conv2dConfig {
            padding,
            stride,
            dilation,
            ..
        } = self.config;
        let covered = (self.out(2) - 1) * stride + dilation * (self.weight[2] - 1) + 1;
        covered >= 2 * padding
    }

    /// The result as it is defined, and the gradients in images, weight and bias of the sum of its
    /// elements times `slopes`.
    fn defined(&self, x: &[f32], w: &[f32], bias: &[f32], slopes: &[f32]) -> [Vec<f32>; 4] {
        let mut sums = [slopes.len(), x.len(), w.len(), bias.len()].map(|len| vec![0.0_f64; len]);
        for (at, slope) in slopes.iter().enumerate() {
            let output = at / self.places() % self.weight[0];
            if let (Some(bias), Some(sum)) = (bias.get(output), sums[3].get_mut(output)) {
                *sum += f64::from(*slope);
                sums[0][at] = f64::from(*bias);
            }
            for (pixel, tap) in self.terms(at) {
                let (pixel_value, tap_value) = (f64::from(x[pixel]), f64::from(w[tap]));
                sums[0][at] += pixel_value * tap_value;
                sums[1][pixel] += f64::from(*slope) * tap_value;
                sums[2][tap] += f64::from(*slope) * pixel_value;
            }
        }
        sums.map(|sums| sums.into_iter().map(|sum| sum as f32).collect())
    }

    /// The indices of the pixels and elements of the weight whose products are summed.
    fn terms(&self, at: usize) -> Vec<(usize, usize)> {
        let Conv2dConfig {
            padding,
            stride,
            dilation,
            groups,
            ..
        } = self.config;
        let (outputs, inputs) = (self.weight[0], self.weight[1]);
        let (output, image) = (at / self.places() % outputs, at / self.places() / outputs);
        let columns = self.out(3);
        let (row, column) = (at % self.places() / columns, at % columns);
        let mut terms = Vec::new();
        for input in 0..inputs {
            let channel = image * self.images[1] + output / (outputs / groups) * inputs + input;
            for y in 0..self.weight[2] {
                for x in 0..self.weight[3] {
                    let inside = |place: usize, tap: usize, size: usize| {
                        let met = (place * stride + tap * dilation).checked_sub(padding);
                        met.filter(|&met| met < size)
                    };
                    let pixel = (
                        inside(row, y, self.images[2]),
                        inside(column, x, self.images[3]),
                    );
                    let (Some(pixel_row), Some(pixel_column)) = pixel else {
                        continue;
                    };
                    let pixel =
                        (channel * self.images[2] + pixel_row) * self.images[3] + pixel_column;
                    let tap = ((output * inputs + input) * self.weight[2] + y) * self.weight[3] + x;
                    terms.push((pixel, tap));
                }
            }
        }
        terms
    }

    fn out(&self, axis: usize) -> usize {
        let Conv2dConfig {
            padding,
            stride,
            dilation,
            ..
        } = self.config;
        (self.images[axis] + 2 * padding - dilation * (self.weight[axis] - 1) - 1) / stride + 1
    }

    fn places(&self) -> usize {
        self.out(2) * self.out(3)
    }
}

fn layer(case: &Convolution) -> (Vec<Var>, Conv2d, Tensor) {
    let (x, images) = laid_out(&case.images, case.memory, 1);
    let (w, weight) = laid_out(&case.weight, case.memory, 2);
    let bias = variable(&[case.weight[0]], 3);
    let given = case.biased.then(|| bias.as_tensor().clone());
    let mut of = vec![x, w];
    if case.biased {
        of.push(bias);
    }
    (of, Conv2d::new(weight, given, case.config), images)
}

proptest! {
    #[test]
    fn convolutions_are_candles(case in convolution()) {
        let case = case.square();
        prop_assume!(case.has_gradient_in_candle());
        let (of, layer, images) = layer(&case);
        let of: Vec<&Var> = of.iter().collect();
        same(&ops::conv2d(&layer, &images), &layer.forward(&images), &of);
    }

    #[test]
    fn convolutions_are_those_of_the_definition(case in convolution()) {
        let case = Convolution { memory: Memory::Contiguous, ..case };
        let (of, layer, images) = layer(&case);
        let of: Vec<&Var> = of.iter().collect();
        let result = ops::conv2d(&layer, &images).unwrap();
        let bias = layer.bias().map(values).unwrap_or_default();
        let slopes = values(&weights(&result));
        let expected = case.defined(&values(&images), &values(layer.weight()), &bias, &slopes);
        for (which, (ours, theirs)) in outcome(&result, &of).iter().zip(&expected).enumerate() {
            close(ours, theirs, which, result.elem_count());
        }
    }

    #[test]
    fn dense_layers_are_candles(
        dims in prop::collection::vec(1_usize..6, 0..3),
        (inputs, outputs) in (0_usize..20, 0_usize..20),
        biased in any::<bool>(),
        memory in memory(),
    ) {
        // candle's takes no fewer than two dimensions.
        let dims = [&[3], &dims[..], &[inputs]].concat();
        let (x, input) = laid_out(&dims, memory, 1);
        let (w, weight) = laid_out(&[outputs, inputs], memory, 2);
        let bias = variable(&[outputs], 3);
        let layer = Linear::new(weight, biased.then(|| bias.as_tensor().clone()));
        // candle has no gradient of a bias that was added to nothing.
        let of: &[&Var] = if biased && outputs > 0 { &[&x, &w, &bias] } else { &[&x, &w] };
        // candle's own refuses some orders in memory.
        let theirs = layer.forward(&input.contiguous().unwrap());
        same(&ops::linear(&layer, &input), &theirs, of);
    }

    #[test]
    fn activations_are_candles(
        dims in prop::collection::vec(1_usize..9, 1..5),
        scale in 0.1_f64..30.0,
        memory in memory(),
    ) {
        let (x, input) = laid_out(&dims, memory, 1);
        let input = (input * scale).unwrap();
        same(&ops::silu(&input), &input.silu(), &[&x]);
    }

    #[test]
    fn pools_are_candles(
        (images, channels) in (1_usize..4, 1_usize..4),
        (rows, columns) in (1_usize..5, 1_usize..5),
        (out_rows, out_columns) in (1_usize..5, 1_usize..5),
        memory in memory(),
    ) {
        let dims = [images, channels, rows * out_rows, columns * out_columns];
        let (x, input) = laid_out(&dims, memory, 1);
        let size = (rows, columns);
        same(&ops::avg_pool2d(&input, size), &input.avg_pool2d(size), &[&x]);
        // candle divides the gradients of maxima by the size of a window.
        let (ours, theirs) = (ops::max_pool2d(&input, size), input.max_pool2d(size));
        prop_assert_eq!(values(&ours.unwrap()), values(&theirs.unwrap()));
    }

    #[test]
    fn losses_are_candles(
        (samples, classes) in (1_usize..20, 1_usize..20),
        scale in 0.1_f64..50.0,
        memory in memory(),
    ) {
        let (x, scores) = laid_out(&[samples, classes], memory, 1);
        let scores = (scores * scale).unwrap();
        let labels = (0..samples).map(|at| (at * 7 % classes) as u32).collect::<Vec<_>>();
        let labels = Tensor::new(labels, &Device::Cpu).unwrap();
        let ours = ops::cross_entropy(&scores, &labels);
        same(&ours, &loss::cross_entropy(&scores, &labels), &[&x]);
    }

    #[test]
    fn rows_and_columns_that_fill_no_window_are_left_out(
        ((height, rows), (width, columns)) in (size_and_window(), size_and_window()),
    ) {
        let dims = [2, 1, height, width];
        // Whole numbers that are all different: half of one changes no maximum.
        let whole: Vec<f32> = (0..2 * height * width).map(|at| (at * 89 % 151) as f32).collect();
        for pool in [ops::avg_pool2d as Pool, ops::max_pool2d] {
            let pooled = |x: &[f32]| {
                let images = Tensor::from_vec(x.to_vec(), &dims, &Device::Cpu).unwrap();
                values(&pool(&images, (rows, columns)).unwrap())
            };
            let x = Var::from_vec(whole.clone(), &dims, &Device::Cpu).unwrap();
            let result = pool(&x, (rows, columns)).unwrap();
            prop_assert_eq!(result.dims(), [2, 1, height / rows, width / columns]);
            let weights = weights(&result);
            let sum = (result * weights).unwrap().sum_all().unwrap();
            let gradients = sum.backward().unwrap();
            let ours = values(gradients.get(&x).unwrap());
            for (one, other) in ours.iter().zip(differences(&whole, pooled)) {
                prop_assert!((one - other).abs() < 1e-3, "{one} {other}");
            }
        }
    }
}

/// Up to 8 rows, or columns, and as many of a window or fewer.
fn size_and_window() -> impl Strategy<Value = (usize, usize)> {
    (1_usize..9).prop_flat_map(|size| (Just(size), 1..=size))
}

#[test]
fn inputs_that_need_no_gradient_get_none() {
    let images = Tensor::ones((2, 1, 4, 4), DType::F32, &Device::Cpu).unwrap();
    let weight = variable(&[2, 1, 3, 3], 1);
    let layer = Conv2d::new(weight.as_tensor().clone(), None, Conv2dConfig::default());
    let result = ops::conv2d(&layer, &images).unwrap();
    let gradients = result.sum_all().unwrap().backward().unwrap();
    assert!(gradients.get(&images).is_none() && gradients.get(&weight).is_some());
    let weight = variable(&[3, 16], 1);
    let layer = Linear::new(weight.as_tensor().clone(), None);
    let result = ops::linear(&layer, &images.flatten_from(1).unwrap()).unwrap();
    let gradients = result.sum_all().unwrap().backward().unwrap();
    assert_eq!(gradients.get_ids().count(), 1);
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let case = Convolution {
        images: vec![37, 2, 9, 9],
        weight: vec![6, 2, 3, 3],
        config: Conv2dConfig::default(),
        biased: true,
        memory: Memory::Contiguous,
    };
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build().unwrap().install(|| {
            let (of, layer, images) = layer(&case);
            let of: Vec<&Var> = of.iter().collect();
            let result = ops::conv2d(&layer, &images).unwrap();
            outcome(&ops::silu(&result).unwrap(), &of)
        })
    };
    let alone = run(1);
    for threads in [2, 3, 8] {
        assert_eq!(run(threads), alone);
    }
}

#[test]
fn other_types_are_left_to_candle() {
    let x = Tensor::from_vec(vec![1.0_f64; 32], (2, 1, 4, 4), &Device::Cpu).unwrap();
    let weight = Tensor::ones((3, 1, 3, 3), DType::F64, &Device::Cpu).unwrap();
    let layer = Conv2d::new(weight, None, Conv2dConfig::default());
    let convolved = ops::conv2d(&layer, &x).unwrap();
    assert_eq!(
        (convolved.dtype(), convolved.dims()),
        (DType::F64, &[2, 3, 2, 2][..])
    );
    let weight = Tensor::ones((3, 4), DType::F64, &Device::Cpu).unwrap();
    let flat = x.flatten_to(2).unwrap();
    for result in [
        ops::silu(&x),
        ops::avg_pool2d(&x, 2),
        ops::max_pool2d(&x, 2),
        ops::linear(&Linear::new(weight, None), &flat),
        ops::cross_entropy(&flat, &Tensor::zeros(8, DType::U32, &Device::Cpu).unwrap()),
        ops::cross_entropy(&flat, &Tensor::zeros(8, DType::I64, &Device::Cpu).unwrap()),
    ] {
        assert_eq!(result.unwrap().dtype(), DType::F64);
    }
}

#[test]
fn what_is_left_to_candle_has_the_same_gradients() {
    type Op = fn(&[Tensor]) -> Result<Tensor>;
    let cases: [(&str, &[&[usize]], Op); 9] = [
        ("conv2d", &[&[2, 1, 4, 4], &[3, 1, 3, 3], &[3]], |of| {
            let layer = Conv2d::new(of[1].clone(), Some(of[2].clone()), Conv2dConfig::default());
            ops::conv2d(&layer, &of[0])
        }),
        ("max_pool2d", &[&[1, 2, 5, 4]], |of| {
            ops::max_pool2d(&of[0], 2)
        }),
        ("silu", &[&[3, 4]], |of| ops::silu(&of[0])),
        ("gelu_erf", &[&[3, 4]], |of| ops::gelu_erf(&of[0])),
        ("layer_norm", &[&[3, 4], &[4], &[4]], |of| {
            ops::layer_norm(&of[0], &of[1], &of[2], 1e-5)
        }),
        ("linear", &[&[3, 4], &[2, 4], &[2]], |of| {
            ops::linear(&Linear::new(of[1].clone(), Some(of[2].clone())), &of[0])
        }),
        ("causal_attention", &[&[2, 5, 12]], |of| {
            ops::causal_attention(&of[0], 2)
        }),
        ("avg_pool2d", &[&[1, 2, 5, 5]], |of| {
            ops::avg_pool2d(&of[0], 2)
        }),
        ("cross_entropy", &[&[3, 4]], |of| {
            ops::cross_entropy(&of[0], &Tensor::new(&[1_u32, 0, 3], &Device::Cpu)?)
        }),
    ];
    for (name, shapes, op) in cases {
        let gradients = |dtype: DType| -> Vec<Vec<f64>> {
            let vars: Vec<Var> = shapes
                .iter()
                .enumerate()
                .map(|(at, shape)| {
                    let count = shape.iter().product::<usize>();
                    let values = (0..count).map(|i| ((i * 7 + at * 3) as f64).sin());
                    let values = Tensor::from_iter(values, &Device::Cpu).unwrap();
                    let values = values.reshape(*shape).unwrap().to_dtype(dtype).unwrap();
                    Var::from_tensor(&values).unwrap()
                })
                .collect();
            let tensors: Vec<Tensor> = vars.iter().map(|var| var.as_tensor().clone()).collect();
            let loss = op(&tensors).unwrap().powf(3.0).unwrap().sum_all().unwrap();
            let found = loss.backward().unwrap();
            let gradient = |var: &Var| {
                let found = found
                    .get(var)
                    .unwrap_or_else(|| panic!("{name} of {dtype:?}"));
                let found = found.flatten_all().unwrap().to_dtype(DType::F64).unwrap();
                found.to_vec1().unwrap()
            };
            vars.iter().map(gradient).collect()
        };
        let (ours, theirs) = (gradients(DType::F32), gradients(DType::F64));
        for (one, other) in ours.iter().flatten().zip(theirs.iter().flatten()) {
            assert!(
                (one - other).abs() < 1e-4 * (1.0 + other.abs()),
                "{name}: {one}, {other}"
            );
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let tensor = |dims: &[usize]| Tensor::ones(dims, DType::F32, &Device::Cpu).unwrap();
    let wide = |dims: &[usize]| Tensor::ones(dims, DType::F64, &Device::Cpu).unwrap();
    let labels = |labels: &[u32]| Tensor::new(labels, &Device::Cpu).unwrap();
    let convolved = |images: &[usize], weight: &[usize], bias: &[usize]| {
        let layer = Conv2d::new(tensor(weight), Some(tensor(bias)), Conv2dConfig::default());
        ops::conv2d(&layer, &tensor(images))
    };
    let dense = |inputs: &[usize], bias: &[usize]| {
        ops::linear(
            &Linear::new(tensor(&[4, 3]), Some(tensor(bias))),
            &tensor(inputs),
        )
    };
    for (refused, parts) in [
        (
            convolved(&[1, 1, 2, 2], &[1, 1, 3, 3], &[1]),
            ["[1, 1, 2, 2]", "larger than the image"],
        ),
        (
            convolved(&[1, 1, 3, 3], &[2, 1, 3, 3], &[3]),
            ["a bias [3]", "2 outputs"],
        ),
        (dense(&[2, 4], &[4]), ["inputs [2, 4]", "weight [4, 3]"]),
        (dense(&[2, 3], &[3]), ["a bias [3]", "4 outputs"]),
        (
            ops::avg_pool2d(&tensor(&[1, 1, 3, 3]), (4, 1)),
            ["[1, 1, 3, 3]", "4x1"],
        ),
        (
            ops::avg_pool2d(&wide(&[1, 1, 3, 3]), (4, 1)),
            ["[1, 1, 3, 3]", "4x1"],
        ),
        (
            ops::max_pool2d(&tensor(&[1, 1, 3, 3]), 0),
            ["[1, 1, 3, 3]", "0x0"],
        ),
        (
            ops::cross_entropy(&tensor(&[2, 3]), &labels(&[0])),
            ["labels [1]", "scores [2, 3]"],
        ),
        (
            ops::cross_entropy(&tensor(&[0, 3]), &labels(&[])),
            ["labels [0]", "one row at least"],
        ),
        (
            ops::cross_entropy(&tensor(&[2, 3]), &labels(&[2, 3])),
            ["label 3 of sample 1", "3 classes"],
        ),
    ] {
        let error = refused.unwrap_err();
        let text = error.to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
    let text = Error::Bias {
        bias: vec![3],
        outputs: 2,
    }
    .to_string();
    assert!(text.contains("give one number for each"), "{text}");
}

#[test]
fn dense_layers_of_nothing_are_candles() {
    for (inputs, outputs) in [(0, 4), (4, 0), (0, 0)] {
        let [x, w, bias] = [&[3, inputs][..], &[outputs, inputs], &[outputs]]
            .map(|dims| variable(dims, dims.len()));
        let layer = Linear::new(w.as_tensor().clone(), Some(bias.as_tensor().clone()));
        same(&ops::linear(&layer, &x), &layer.forward(&x), &[&x, &w]);
    }
}

#[test]
fn infinite_and_missing_numbers_stay_visible() {
    let x = Tensor::new(&[f32::NAN, f32::INFINITY, -1000.0, 1000.0], &Device::Cpu).unwrap();
    let result = values(&ops::silu(&x).unwrap());
    assert!(result[0].is_nan());
    assert_eq!(result[1..], [f32::INFINITY, result[2], 1000.0]);
    assert!(result[2].abs() < 1e-30);
    let far = Var::new(&[-1e38_f32, -88.5, f32::NEG_INFINITY], &Device::Cpu).unwrap();
    for sigmoids in [ops::silu(&far), far.silu()] {
        for of in outcome(&sigmoids.unwrap(), &[&far]) {
            assert!(
                of[0] == 0.0 && of[1].abs() < 1e-30 && of[2].is_nan(),
                "{of:?}"
            );
        }
    }
    let image = x.reshape((1, 1, 2, 2)).unwrap();
    let later = Tensor::new(&[1.0_f32, f32::NAN, 0.0, 2.0], &Device::Cpu).unwrap();
    for image in [image, later.reshape((1, 1, 2, 2)).unwrap()] {
        for dtype in [DType::F32, DType::F64] {
            let pooled = ops::max_pool2d(&image.to_dtype(dtype).unwrap(), 2).unwrap();
            assert!(values(&pooled.to_dtype(DType::F32).unwrap())[0].is_nan());
        }
    }
    let scores = x.reshape((2, 2)).unwrap();
    let labels = Tensor::new(&[1_u32, 0], &Device::Cpu).unwrap();
    assert!(
        !ops::cross_entropy(&scores, &labels)
            .unwrap()
            .to_scalar::<f32>()
            .unwrap()
            .is_finite()
    );
}
