//! Ops of neural networks on shards, held against the same on whole tensors; which layouts their
//! results have, and what is refused.

use super::*;

/// A number for each element, with equal ones among them.
fn values(shape: &[usize]) -> Tensor {
    let values = (0_u32..).map(|i| f64::from((i * 7 + 3) % 11) - 4.5);
    Tensor::new(shape.to_vec(), values)
}

impl World {
    fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.choose(high - low + 1)
    }

    fn windows(&mut self, axes: usize) -> Windows {
        let padding = match self.choose(3) {
            0 => Padding::Valid,
            1 => Padding::Same,
            _ => Padding::Explicit(
                (0..axes)
                    .map(|_| (self.choose(3), self.choose(2)))
                    .collect(),
            ),
        };
        let strides: Vec<usize> = (0..axes).map(|_| self.between(1, 2)).collect();
        let dilations: Vec<usize> = (0..axes).map(|_| self.between(1, 2)).collect();
        Windows::strides(strides).dilated(dilations).padded(padding)
    }

    /// Lays operands of these shapes out, and compares.
    fn check_values(&mut self, op: &Op, operands: &[Tensor]) {
        let shapes = operands.iter().map(|operand| operand.shape().to_vec());
        let placed = self.placed(&shapes.collect::<Vec<_>>());
        check(op, &placed, operands);
    }
}

/// The shape of the only result; none if windows do not fit.
fn shape_of(op: &Op, shapes: &[&[usize]]) -> Option<Vec<usize>> {
    let mesh = Mesh::new([("x", 1)]).unwrap();
    let placed = shapes.iter().map(|shape| {
        let layout = Layout::replicated(&mesh, shape.len());
        TensorLayout::new(shape.to_vec(), layout).unwrap()
    });
    match infer(op, &placed.collect::<Vec<_>>()) {
        Ok(inferred) => Some(inferred.results()[0].placement().shape().to_vec()),
        Err(OpError::WindowTooLarge { .. } | OpError::WindowOfPadding { .. }) => None,
        Err(error) => panic!("{op:?} of {shapes:?}: {error}"),
    }
}

proptest! {
    #[test]
    fn convolutions_and_their_gradients_sum_products(mut world in world()) {
        let axes = world.between(1, 2);
        let of = Convolution { windows: world.windows(axes), groups: world.between(1, 3) };
        let (each, outputs) = (world.between(1, 2), of.groups * world.between(1, 2));
        let spatial: Vec<usize> = (0..axes).map(|_| world.between(1, 5)).collect();
        let window: Vec<usize> = (0..axes).map(|_| world.between(1, 3)).collect();
        let batch = world.choose(4);
        let input = values(&[&[batch], &spatial[..], &[of.groups * each]].concat());
        let filter = values(&[&window[..], &[each, outputs]].concat());
        let op = Op::Convolution(of.clone());
        let Some(output) = shape_of(&op, &[input.shape(), filter.shape()]) else { return Ok(()) };
        let output = values(&output);
        world.check_values(&op, &[input.clone(), filter.clone()]);
        let op = Op::ConvolutionInputGradient { of: of.clone(), spatial };
        world.check_values(&op, &[output.clone(), filter]);
        let op = Op::ConvolutionFilterGradient { of, window };
        world.check_values(&op, &[input, output]);
    }

    #[test]
    fn windows_are_pooled(mut world in world()) {
        let axes = world.between(1, 2);
        let pooling = if world.flip() { Pooling::Max } else { Pooling::Mean };
        let window: Vec<usize> = (0..axes).map(|_| world.between(1, 3)).collect();
        let of = Pool { pooling, window, windows: world.windows(axes) };
        let spatial: Vec<usize> = (0..axes).map(|_| world.between(1, 5)).collect();
        let (batch, channels) = (world.choose(4), world.choose(4));
        let input = values(&[&[batch], &spatial[..], &[channels]].concat());
        let op = Op::Pool(of.clone());
        let Some(output) = shape_of(&op, &[input.shape()]) else { return Ok(()) };
        world.check_values(&op, std::slice::from_ref(&input));
        world.check_values(&Op::PoolGradient(of), &[input, values(&output)]);
    }

    #[test]
    fn moments_are_those_of_all_shards(mut world in world()) {
        let rank = world.between(1, 3);
        let shape: Vec<usize> = (0..rank).map(|_| world.between(1, 6)).collect();
        let axes: Vec<isize> = (0..rank.cast_signed()).filter(|_| world.flip()).collect();
        let moments = if world.flip() { Moments::MeanAndVariance } else { Moments::MeanSquare };
        let by = Normalization { moments, ..Normalization::new(axes, 0.25) };
        world.check_values(&Op::Normalize(by), &[values(&shape)]);
        let positive = Tensor::new(shape[rank - 1..].to_vec(), (1..10).map(f64::from));
        let op = Op::Standardize { epsilon: 0.25.into() };
        world.check_values(&op, &[values(&shape), positive.clone(), positive]);
    }

    #[test]
    fn rows_are_looked_up_wherever_they_are(mut world in world()) {
        let (rows, features, rank) = (world.between(1, 6), world.choose(5), world.choose(3));
        let at: Vec<usize> = world.shape(rank).into_iter().map(|size| size.min(4)).collect();
        let indices = world.numbers(&at, rows);
        let table = values(&[rows, features]);
        world.check_values(&Op::Embedding, &[table.clone(), indices.clone()]);
        let upstream = values(&[&at[..], &[features]].concat());
        world.check_values(&Op::EmbeddingGradient, &[table, indices, upstream]);
    }

    #[test]
    fn queries_see_keys(mut world in world()) {
        let mask = if world.flip() { AttentionMask::Causal } else { AttentionMask::Full };
        let [queries, keys, depth, features] = [5, 5, 3, 3].map(|high| world.between(1, high));
        let stack: Vec<usize> = (0..world.choose(3)).map(|_| world.between(1, 3)).collect();
        let mut of = |matrix: [usize; 2]| {
            let kept = stack.iter().map(|&size| if world.choose(4) == 0 { 1 } else { size });
            values(&[&kept.collect::<Vec<_>>()[..], &matrix].concat())
        };
        let operands = [of([queries, depth]), of([keys, depth]), of([keys, features])];
        world.check_values(&Op::Attention(mask), &operands);
    }

    #[test]
    fn pairs_are_turned_by_their_positions(mut world in world()) {
        let turn = if world.flip() { Turn::Forward } else { Turn::Back };
        let shape = [world.choose(4), world.size(), 2 * world.choose(4)];
        world.check_values(&Op::Rotary { base: 100.0.into(), turn }, &[values(&shape)]);
        for by in [Activation::Sigmoid, Activation::Tanh, Activation::Silu, Activation::Gelu, Activation::GeluTanh] {
            world.check_values(&Op::Activation(by), &[values(&shape)]);
        }
    }
}

#[test]
fn windows_of_all_layouts_are_summed_right() {
    let of = Convolution::new(Windows::strides([2]).padded(Padding::Same));
    check_all_pairs(&Op::Convolution(of.clone()), [&[3, 5, 4], &[3, 4, 3]]);
    let spatial = vec![5];
    let op = Op::ConvolutionInputGradient {
        of: of.clone(),
        spatial,
    };
    check_all_pairs(&op, [&[3, 3, 3], &[3, 4, 3]]);
    let window = vec![3];
    let op = Op::ConvolutionFilterGradient { of, window };
    check_all_pairs(&op, [&[3, 5, 4], &[3, 3, 3]]);
}

/// What a convolution makes of specs: of the batch those of the input, of the outputs those of the
/// filter, unless the batch has them; spatial axes keep theirs, unless batch or outputs have them.
fn convolution_specs(input: &Layout, filter: &Layout) -> Vec<String> {
    let shown = |layout: &Layout| layout.specs().map(ToString::to_string).collect();
    let (input, filter): (Vec<String>, Vec<String>) = (shown(input), shown(filter));
    let mut specs = vec![input[0].clone(), input[1].clone(), filter[2].clone()];
    if specs[2] == specs[0] {
        specs[2] = UNSHARDED.into();
    }
    if specs[1] == filter[2] {
        specs[1] = UNSHARDED.into();
    }
    specs
}

#[test]
fn results_of_convolutions_lie_as_the_batch_and_the_outputs_do() {
    let mesh = Mesh::new([("x", 2), ("y", 2), ("z", 2)]).unwrap();
    let op = Op::Convolution(Convolution::new(Windows::strides([1])));
    let all = layouts(&mesh, 3);
    for input in &all {
        for filter in &all {
            let placed = [input, filter].map(|layout| TensorLayout::new([4; 3], layout.clone()));
            let inferred = infer(&op, &placed.map(Result::unwrap)).unwrap();
            let expected = Layout::from_names(convolution_specs(input, filter), &mesh).unwrap();
            assert_eq!(
                inferred.results()[0].layout(),
                &expected,
                "{input} {filter}"
            );
        }
    }
}

#[track_caller]
fn lies(op: &Op, operands: &[(&[usize], &[&str])], expected: &[&str], reduced: &[&str]) {
    let mesh = Mesh::new([("x", 2), ("y", 2)]).unwrap();
    let placed = operands.iter().map(|(shape, names)| {
        let layout = Layout::from_names(*names, &mesh).unwrap();
        TensorLayout::new(shape.to_vec(), layout).unwrap()
    });
    let inferred = infer(op, &placed.collect::<Vec<_>>()).unwrap();
    let expected = Layout::from_names(expected, &mesh).unwrap();
    assert_eq!(inferred.results()[0].layout(), &expected, "{op:?}");
    let dims: Vec<String> = inferred
        .collectives()
        .flat_map(|collective| collective.dims().to_vec())
        .map(|dim| dim.to_string())
        .collect();
    assert_eq!(dims, reduced, "{op:?}");
}

#[test]
fn groups_are_cut_between_and_never_within() {
    let grouped = |groups| {
        let windows = Windows::strides([1]);
        Op::Convolution(Convolution { windows, groups })
    };
    let (cut, whole) = (["-", "-", "x"], ["-", "-", "-"].map(|_| UNSHARDED));
    let cut = cut.map(|name| if name == "-" { UNSHARDED } else { name });
    let of = |groups, input: &[usize], filter: &[usize], expected: &[&str]| {
        lies(
            &grouped(groups),
            &[(input, &cut), (filter, &whole)],
            expected,
            &[],
        );
    };
    of(4, &[2, 3, 8], &[1, 2, 12], &cut);
    of(8, &[2, 3, 8], &[1, 1, 8], &cut);
    of(3, &[2, 3, 6], &[1, 2, 6], &whole);
    of(2, &[2, 3, 4], &[1, 2, 2], &cut);
}

#[test]
fn what_is_cut_along_what_is_summed_is_reduced() {
    let of = Convolution::new(Windows::strides([1]));
    let (input, filter): (&[usize], &[usize]) = (&[4, 5, 4], &[2, 4, 4]);
    let operands: [(&[usize], &[&str]); 2] =
        [(input, &["x", UNSHARDED, "y"]), (filter, &[UNSHARDED; 3])];
    let kept = ["x", UNSHARDED, UNSHARDED];
    lies(&Op::Convolution(of.clone()), &operands, &kept, &["y"]);
    let op = Op::ConvolutionFilterGradient {
        of,
        window: vec![2],
    };
    let upstream: (&[usize], &[&str]) = (&[4, 4, 4], &["x", UNSHARDED, UNSHARDED]);
    lies(
        &op,
        &[operands[0], upstream],
        &[UNSHARDED, "y", UNSHARDED],
        &["x"],
    );
    let rows: [(&[usize], &[&str]); 2] = [(&[6, 4], &["y", UNSHARDED]), (&[4], &["x"])];
    lies(&Op::Embedding, &rows, &["x", UNSHARDED], &["y"]);
    let both: [(&[usize], &[&str]); 2] = [(&[6, 4], &["x", UNSHARDED]), (&[4], &["x"])];
    lies(&Op::Embedding, &both, &["x", UNSHARDED], &[]);
    let by = Normalization::new([0, 1], 1e-3);
    let cut = ["x", "y", UNSHARDED];
    let images: [(&[usize], &[&str]); 1] = [(&[4, 5, 4], &cut)];
    lies(&Op::Normalize(by), &images, &cut, &["x", "y", "x", "y"]);
}

#[test]
fn heads_batch_and_queries_stay_cut_and_keys_are_gathered() {
    let shape: &[usize] = &[2, 4, 6, 8];
    let op = Op::Attention(AttentionMask::Causal);
    let all = |names: &'static [&'static str]| [(shape, names); 3];
    let heads = &["x", "y", UNSHARDED, UNSHARDED];
    lies(&op, &all(heads), heads, &[]);
    let queries = &["x", UNSHARDED, "y", UNSHARDED];
    lies(&op, &all(queries), queries, &[]);
    let features = &[UNSHARDED, "x", UNSHARDED, "y"];
    lies(&op, &all(features), features, &[]);
}

#[track_caller]
fn refuses(op: &Op, shapes: &[&[usize]], expected: &str) {
    let mesh = Mesh::new([("x", 2)]).unwrap();
    let placed = shapes.iter().map(|shape| {
        let layout = Layout::replicated(&mesh, shape.len());
        TensorLayout::new(shape.to_vec(), layout).unwrap()
    });
    let refused = infer(op, &placed.collect::<Vec<_>>()).unwrap_err();
    assert_eq!(refused.to_string(), expected);
}

#[test]
fn shapes_and_numbers_that_do_not_fit_are_refused() {
    let of = |groups| {
        let windows = Windows::strides([1]);
        Convolution { windows, groups }
    };
    let op = |groups| Op::Convolution(of(groups));
    refuses(
        &op(1),
        &[&[2, 8], &[3, 4, 4]],
        "operand 0 of convolution has rank 2, but 3 is needed",
    );
    let sizes = "convolution takes axis 1 of operand 1, of size 4, together with an axis of size 5: \
                 their sizes must be equal";
    refuses(&op(1), &[&[2, 8, 5], &[3, 4, 4]], sizes);
    let groups = "convolution cannot part 5 channels into 2 equal groups";
    refuses(&op(2), &[&[2, 8, 5], &[3, 4, 4]], groups);
    let groups = "convolution cannot part 3 channels into 2 equal groups";
    refuses(&op(2), &[&[2, 8, 4], &[3, 2, 3]], groups);
    let groups = "convolution cannot part 4 channels into 0 equal groups";
    refuses(&op(0), &[&[2, 8, 4], &[3, 2, 3]], groups);
    let large = "the window of convolution reaches over 9 indices of axis 1, which has 8 with its \
                 padding: take a smaller window, or pad";
    refuses(&op(1), &[&[2, 8, 4], &[9, 4, 4]], large);
    let gradient = Op::ConvolutionInputGradient {
        of: of(1),
        spatial: vec![8],
    };
    let sizes = "convolution_input_gradient takes axis 1 of operand 0, of size 5, together with an \
                 axis of size 6: their sizes must be equal";
    refuses(&gradient, &[&[2, 5, 4], &[3, 4, 4]], sizes);
}

#[test]
fn windows_and_parameters_that_make_no_sense_are_refused() {
    let mut pool = Pool::new(Pooling::Max, [2]);
    pool.windows = pool.windows.padded(Padding::Explicit(vec![(2, 0)]));
    let padding = "window 0 of pool along axis 1 lies on padding only: pad by less than a window";
    refuses(&Op::Pool(pool), &[&[2, 8, 4]], padding);
    let zero = "pool has the window 0 along axis 1: it must be 1 at least";
    let mut pool = Pool::new(Pooling::Mean, [0]);
    pool.windows = Windows::strides([1]);
    refuses(&Op::Pool(pool), &[&[2, 8, 4]], zero);
    let half = usize::MAX / 2 + 1;
    let mut pool = Pool::new(Pooling::Max, [half, half]);
    pool.windows = Windows::strides([1, 1]).padded(Padding::Same);
    let large = |op: &str| format!("the result of {op} has more elements than can be counted");
    refuses(&Op::Pool(pool), &[&[1, 1, 1, 1]], &large("pool"));
    let (windows, groups) = (Windows::strides([1]), 2);
    let op = Op::Convolution(Convolution { windows, groups });
    refuses(
        &op,
        &[&[2, 8, half], &[3, half / 2, half]],
        &large("convolution"),
    );
    let epsilon = "normalize has the epsilon 0: it must be positive and finite";
    refuses(
        &Op::Normalize(Normalization::new([0], 0.0)),
        &[&[4]],
        epsilon,
    );
    let rotary = Op::Rotary {
        base: 100.0.into(),
        turn: Turn::Forward,
    };
    let odd = "rotary turns pairs of elements, but axis 1 has 5: an even size is needed";
    refuses(&rotary, &[&[4, 5]], odd);
    let depth = "attention takes axis 1 of operand 1, of size 3, together with an axis of size 4: \
                 their sizes must be equal";
    refuses(
        &Op::Attention(AttentionMask::Full),
        &[&[2, 4], &[2, 3], &[2, 4]],
        depth,
    );
}

#[test]
fn the_book_has_the_rule_of_every_op() {
    let chapter = include_str!("../../../../docs/book/src/meshes-layouts-plans.md");
    let names = include_str!("../op.rs").lines().filter_map(|line| {
        let (_, name) = line.split_once(" => \"")?;
        name.split_once('"').map(|(name, _)| name)
    });
    let names: Vec<&str> = names.collect();
    assert!(names.len() >= 39, "{names:?}");
    for name in names {
        let is_there = chapter
            .lines()
            .any(|line| line.starts_with('|') && line.contains(&format!("`{name}`")));
        assert!(is_there, "{name}");
    }
}
