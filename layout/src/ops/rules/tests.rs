//! Shapes of results, and what is refused.

use std::num::NonZeroIsize;

use meshwork_core::Mesh;
use proptest::prelude::*;

use super::super::*;
use crate::{Layout, ShardingSpec, UNSHARDED};

fn mesh() -> Mesh {
    Mesh::new([("x", 2), ("y", 4)]).unwrap()
}

fn whole(shape: &[usize]) -> TensorLayout {
    let layout = Layout::replicated(&mesh(), shape.len());
    TensorLayout::new(shape.to_vec(), layout).unwrap()
}

fn cut(shape: &[usize], names: &[&str]) -> TensorLayout {
    let layout = Layout::from_names(names, &mesh()).unwrap();
    TensorLayout::new(shape.to_vec(), layout).unwrap()
}

fn inferred(op: &Op, shapes: &[&[usize]]) -> Result<Inferred, OpError> {
    infer(
        op,
        &shapes.iter().map(|shape| whole(shape)).collect::<Vec<_>>(),
    )
}

#[track_caller]
fn gives(op: &Op, shapes: &[&[usize]], expected: &[&[usize]]) {
    let inferred = inferred(op, shapes).unwrap();
    let results = inferred.results().iter();
    let found: Vec<&[usize]> = results.map(|result| result.placement().shape()).collect();
    assert_eq!(found, expected, "{op:?}");
}

#[track_caller]
fn refuses(op: &Op, shapes: &[&[usize]], expected: OpError) {
    assert_eq!(inferred(op, shapes), Err(expected), "{op:?}");
}

/// The specs of the only result.
fn specs(op: &Op, placed: TensorLayout) -> Vec<String> {
    let inferred = infer(op, &[placed]).unwrap();
    let layout = inferred.results()[0].layout();
    layout.specs().map(ToString::to_string).collect()
}

const PLAIN: Op = Op::MatMul {
    lhs: Orientation::Plain,
    rhs: Orientation::Plain,
};

fn range(begin: Option<isize>, end: Option<isize>, step: isize) -> Index {
    let step = NonZeroIsize::new(step).unwrap();
    Index::Range { begin, end, step }
}

#[test]
fn shapes_are_broadcast_from_the_last_axis() {
    gives(&Op::Elementwise, &[&[2, 1, 3], &[4, 1], &[]], &[&[2, 4, 3]]);
    gives(&Op::Elementwise, &[&[1], &[0]], &[&[0]]);
    let sizes = OpError::SizesDiffer {
        op: "elementwise",
        operand: 1,
        axis: 0,
        found: 3,
        expected: 2,
    };
    refuses(&Op::Elementwise, &[&[2, 4], &[3, 1]], sizes);
    gives(&PLAIN, &[&[5, 1, 2, 3], &[4, 3, 6]], &[&[5, 4, 2, 6]]);
}

#[test]
fn sizes_that_are_summed_over_must_be_equal() {
    let differ = |op, axis| OpError::SizesDiffer {
        op,
        operand: 1,
        axis,
        found: 5,
        expected: 3,
    };
    refuses(&PLAIN, &[&[2, 3], &[5, 6]], differ("matmul", 0));
    let turned = Op::MatMul {
        lhs: Orientation::Plain,
        rhs: Orientation::Transposed,
    };
    refuses(&turned, &[&[2, 3], &[1, 6, 5]], differ("matmul", 2));
    let einsum = Op::Einsum("ij,jk->ik".parse().unwrap());
    refuses(&einsum, &[&[2, 3], &[5, 6]], differ("einsum", 0));
    gives(&einsum, &[&[2, 3], &[3, 0]], &[&[2, 0]]);
}

#[test]
fn a_shape_is_completed_if_it_can_be() {
    let reshape = |shape: &[Option<usize>]| Op::Reshape {
        shape: shape.to_vec(),
    };
    gives(&reshape(&[None, Some(4)]), &[&[2, 6]], &[&[3, 4]]);
    gives(&reshape(&[]), &[&[1, 1]], &[&[]]);
    gives(&reshape(&[Some(0), Some(7)]), &[&[3, 0]], &[&[0, 7]]);
    let mismatch = |from: &[usize], to: &[Option<usize>]| OpError::ReshapeSize {
        from: from.into(),
        to: to.to_vec(),
    };
    for to in [
        [None, Some(5)],
        [None, None],
        [Some(2), Some(5)],
        [None, Some(0)],
    ] {
        refuses(&reshape(&to), &[&[2, 6]], mismatch(&[2, 6], &to));
    }
    refuses(
        &reshape(&[None, Some(0)]),
        &[&[0]],
        mismatch(&[0], &[None, Some(0)]),
    );
}

#[test]
fn sizes_that_cannot_be_counted_are_refused() {
    let half = usize::MAX / 2 + 1;
    let too_large = |op| OpError::TooLarge { op };
    refuses(
        &Op::Concat { axis: 0 },
        &[&[half], &[half]],
        too_large("concat"),
    );
    let tile = Op::Tile { multiples: vec![2] };
    refuses(&tile, &[&[half]], too_large("tile"));
    let pad = Op::Pad {
        paddings: vec![(half, half)],
    };
    refuses(&pad, &[&[half]], too_large("pad"));
    let reshape = Op::Reshape { shape: vec![None] };
    refuses(&reshape, &[&[half, 2]], too_large("reshape"));
    let slice = Op::StridedSlice(vec![range(None, None, -1)]);
    refuses(&slice, &[&[half]], too_large("strided_slice"));
}

#[test]
fn results_that_no_memory_holds_are_refused() {
    let (large, most) = (1 << 40, isize::MAX.unsigned_abs() / 8);
    let too_large = |op| OpError::TooLarge { op };
    let broadcast = |shape: &[usize]| Op::BroadcastTo {
        shape: shape.to_vec(),
    };
    refuses(
        &broadcast(&[large, large]),
        &[&[1, 1]],
        too_large("broadcast_to"),
    );
    // Sizes are multiplied even where there is nothing.
    refuses(
        &broadcast(&[large, 0, large]),
        &[&[0, 1]],
        too_large("broadcast_to"),
    );
    let tile = Op::Tile {
        multiples: vec![large, large],
    };
    refuses(&tile, &[&[1, 1]], too_large("tile"));
    let pad = Op::Pad {
        paddings: vec![(large, 0), (large, 0)],
    };
    refuses(&pad, &[&[1, 1]], too_large("pad"));
    let one_hot = |depth| Op::OneHot { depth };
    refuses(&one_hot(usize::MAX), &[&[2]], too_large("one_hot"));
    refuses(&one_hot(most + 1), &[&[1]], too_large("one_hot"));
    gives(&one_hot(most), &[&[1]], &[&[1, most]]);
}

#[test]
fn no_element_of_none_is_the_largest() {
    let largest = |axis| Op::ArgReduce { axis };
    let outside = OpError::IndexOutside {
        op: "arg_reduce",
        axis: 0,
        index: 0,
        size: 0,
    };
    refuses(&largest(0), &[&[0, 3]], outside);
    gives(&largest(1), &[&[0, 3]], &[&[0]]);
    gives(&largest(0), &[&[0, 0]], &[&[0]]);
}

#[test]
fn brackets_mean_what_they_mean_in_python() {
    let gives = |indices: &[Index], shape: &[usize], expected: &[usize]| {
        gives(&Op::StridedSlice(indices.to_vec()), &[shape], &[expected]);
    };
    gives(&[range(Some(1), Some(-1), 2)], &[7], &[3]);
    gives(&[range(Some(-100), Some(100), 3)], &[7], &[3]);
    gives(&[range(Some(5), Some(2), 1)], &[7], &[0]);
    gives(&[range(Some(5), Some(2), -2)], &[7], &[2]);
    gives(&[range(None, None, -3)], &[7], &[3]);
    gives(&[range(Some(100), Some(-100), -1)], &[7], &[7]);
    gives(&[range(None, None, isize::MIN)], &[7], &[1]);
    gives(&[range(None, None, isize::MAX)], &[7], &[1]);
    gives(&[range(None, None, -1)], &[0], &[0]);
    gives(&[Index::At(-1)], &[7, 2], &[2]);
    gives(
        &[Index::NewAxis, Index::Ellipsis, Index::At(0)],
        &[7, 2, 3],
        &[1, 7, 2],
    );
    gives(&[Index::Ellipsis], &[], &[]);
}

#[test]
fn brackets_that_reach_past_an_end_are_refused() {
    let slice = |indices: &[Index]| Op::StridedSlice(indices.to_vec());
    for index in [7, -8] {
        let outside = OpError::IndexOutside {
            op: "strided_slice",
            axis: 1,
            index,
            size: 7,
        };
        refuses(
            &slice(&[Index::FULL, Index::At(index)]),
            &[&[2, 7]],
            outside,
        );
    }
    let ellipses = slice(&[Index::Ellipsis, Index::Ellipsis]);
    refuses(&ellipses, &[&[2]], OpError::TwoEllipses);
    let rank = OpError::RankMismatch {
        op: "strided_slice",
        operand: 0,
        found: 1,
        expected: 2,
    };
    refuses(&slice(&[Index::At(0), Index::FULL]), &[&[2]], rank);
    let outside = OpError::IndexOutside {
        op: "slice",
        axis: 0,
        index: 4,
        size: 4,
    };
    let slice = Op::Slice {
        begin: vec![2],
        size: vec![Some(3)],
    };
    refuses(&slice, &[&[4]], outside);
}

#[test]
fn axes_are_inside_the_tensor_and_given_once() {
    let outside = |op, axis, rank| OpError::AxisOutside { op, axis, rank };
    refuses(
        &Op::Softmax { axis: 2 },
        &[&[2, 2]],
        outside("softmax", 2, 2),
    );
    refuses(&Op::Scan { axis: -3 }, &[&[2, 2]], outside("scan", -3, 2));
    refuses(
        &Op::ExpandDims { axis: -2 },
        &[&[]],
        outside("expand_dims", -2, 1),
    );
    refuses(
        &Op::Concat { axis: 0 },
        &[&[], &[]],
        outside("concat", 0, 0),
    );
    let transpose = Op::Transpose { perm: vec![1, 1] };
    let repeated = |op| OpError::RepeatedAxis { op, axis: 1 };
    refuses(&transpose, &[&[2, 2]], repeated("transpose"));
    let squeeze = Op::Squeeze { axes: vec![1, -1] };
    refuses(&squeeze, &[&[1, 1]], repeated("squeeze"));
    let squeeze = Op::Squeeze { axes: vec![0] };
    refuses(
        &squeeze,
        &[&[2, 1]],
        OpError::SqueezeSize { axis: 0, size: 2 },
    );
}

#[test]
fn operands_are_counted_and_share_a_mesh() {
    let count = OpError::OperandCount {
        op: "matmul",
        found: 3,
        expected: 2,
    };
    refuses(&PLAIN, &[&[2, 2], &[2, 2], &[2, 2]], count);
    let einsum = Op::Einsum("i,i->i".parse().unwrap());
    let count = OpError::OperandCount {
        op: "einsum",
        found: 1,
        expected: 2,
    };
    refuses(&einsum, &[&[2]], count);
    refuses(
        &Op::Elementwise,
        &[],
        OpError::NoOperands { op: "elementwise" },
    );
    let other = Mesh::new([("x", 2)]).unwrap();
    let elsewhere = TensorLayout::new([2], Layout::replicated(&other, 1)).unwrap();
    let differ = OpError::MeshesDiffer {
        op: "elementwise",
        operand: 2,
    };
    let operands = [whole(&[2]), whole(&[2]), elsewhere];
    assert_eq!(infer(&Op::Elementwise, &operands), Err(differ));
}

#[test]
fn parts_make_up_the_axis() {
    let split = |parts: &Parts| Op::Split {
        axis: 1,
        parts: parts.clone(),
    };
    gives(
        &split(&Parts::Sizes(vec![1, 0, 4])),
        &[&[2, 5]],
        &[&[2, 1], &[2, 0], &[2, 4]],
    );
    gives(
        &split(&Parts::Equal(5)),
        &[&[2, 5]],
        &[[2, 1].as_slice(); 5],
    );
    for parts in [Parts::Equal(2), Parts::Equal(0), Parts::Sizes(vec![1, 3])] {
        let sizes = OpError::SplitSizes {
            axis: 1,
            size: 5,
            parts: parts.clone(),
        };
        refuses(&split(&parts), &[&[2, 5]], sizes);
    }
    gives(
        &split(&Parts::Equal(3)),
        &[&[2, 0]],
        &[[2, 0].as_slice(); 3],
    );
    let parts = Parts::Equal(usize::MAX);
    let too_many = OpError::SplitSizes {
        axis: 1,
        size: 0,
        parts: parts.clone(),
    };
    refuses(&split(&parts), &[&[2, 0]], too_many);
    gives(&Op::Unstack { axis: 0 }, &[&[0, 5]], &[]);
}

#[test]
fn a_tensor_without_elements_has_not_parts_without_end() {
    let (most, large) = (1 << 16, 1 << 40);
    let split = |count| Op::Split {
        axis: 0,
        parts: Parts::Equal(count),
    };
    let too_many = OpError::SplitSizes {
        axis: 0,
        size: large,
        parts: Parts::Equal(large),
    };
    refuses(&split(large), &[&[large, 0]], too_many.clone());
    let unstack = Op::Unstack { axis: 0 };
    refuses(&unstack, &[&[large, 0]], too_many);
    for (op, part) in [(split(most), &[1, 0][..]), (unstack, &[0][..])] {
        gives(&op, &[&[most, 0]], &vec![part; most]);
    }
}

#[test]
fn what_must_not_be_cut_is_refused_with_the_remedy() {
    let cut_axis = OpError::AxisCut {
        op: "tile",
        axis: 1,
        spec: ShardingSpec::from_name("y").unwrap(),
    };
    let tile = Op::Tile {
        multiples: vec![1, 2],
    };
    let message = "tile cannot work along axis 1, which is cut by y: unshard it first";
    assert_eq!(cut_axis.to_string(), message);
    assert_eq!(infer(&tile, &[cut(&[4, 8], &["x", "y"])]), Err(cut_axis));
    let every_second = Op::StridedSlice(vec![range(None, None, 2)]);
    let refused = infer(&every_second, &[cut(&[4], &["y"])]).unwrap_err();
    let message = "strided_slice takes indices 2 apart of axis 0, of size 4 and cut by y, but its \
                   shards are not whole steps: unshard it first, or write the bounds";
    assert_eq!(refused.to_string(), message);
}

#[test]
fn steps_between_written_bounds_gather_the_axis_where_they_must() {
    let layout =
        |begin, end, step, placed| specs(&Op::StridedSlice(vec![range(begin, end, step)]), placed);
    let (halves, quarters) = (|| cut(&[8], &["x"]), || cut(&[8], &["y"]));
    let (kept, gathered) = (["x"], [UNSHARDED]);
    assert_eq!(layout(None, None, 2, halves()), kept);
    assert_eq!(layout(Some(1), None, 2, halves()), kept);
    assert_eq!(layout(Some(0), Some(8), 4, halves()), kept);
    assert_eq!(layout(Some(0), None, 4, quarters()), gathered);
    assert_eq!(layout(Some(2), None, 2, halves()), gathered);
    assert_eq!(layout(None, Some(6), 2, halves()), gathered);
    assert_eq!(layout(None, None, -2, halves()), kept);
    assert_eq!(layout(Some(7), None, -1, halves()), gathered);
}

#[test]
fn operands_that_are_summed_together_are_cut_alike() {
    let operands = [
        cut(&[4, 8], &[UNSHARDED, "x"]),
        cut(&[8, 4], &["y", UNSHARDED]),
    ];
    let message = "matmul takes axis 1 of operand 0, cut by x, together with axis 0 of operand 1, cut \
                   by y: relayout one like the other";
    assert_eq!(infer(&PLAIN, &operands).unwrap_err().to_string(), message);
}

#[test]
fn mesh_dimensions_that_make_one_shard_cut_nothing_off() {
    let mesh = Mesh::new([("x", 1)]).unwrap();
    let layout = Layout::batch_sharded(&mesh, "x", 1).unwrap();
    let operand = TensorLayout::new([5], layout).unwrap();
    let tile = Op::Tile { multiples: vec![2] };
    assert!(infer(&tile, std::slice::from_ref(&operand)).is_ok());
    let steps = Op::StridedSlice(vec![range(None, None, 2)]);
    let kept = infer(&steps, &[operand]).unwrap();
    assert_eq!(kept.results()[0].placement().shape(), [3]);
}

#[test]
fn a_softmax_along_a_cut_axis_talks_twice() {
    let softmax = Op::Softmax { axis: -1 };
    let along_rows = infer(&softmax, &[cut(&[4, 8], &["x", UNSHARDED])]).unwrap();
    assert_eq!(along_rows.within(), []);
    let inferred = infer(&softmax, &[cut(&[4, 8], &["x", "y"])]).unwrap();
    let within: Vec<String> = inferred
        .collectives()
        .map(|collective| format!("{} over {}", collective.reduction(), collective.dims()[0]))
        .collect();
    assert_eq!(within, ["max over y", "sum over y"]);
}

#[test]
fn merged_axes_stay_cut_by_what_cuts_all_of_them_at_the_same_places() {
    let nested = ShardingSpec::nested(["x", "y"]).unwrap();
    let of = |spec: &ShardingSpec, size| {
        let layout = Layout::new([spec.clone()], &mesh()).unwrap();
        TensorLayout::new([size], layout).unwrap()
    };
    let halves = |rows| Op::Reshape {
        shape: vec![Some(rows), None],
    };
    let rows = |size, rows| specs(&halves(rows), of(&nested, size));
    assert_eq!(rows(64, 8), ["x|y", UNSHARDED]);
    assert_eq!(rows(64, 4), ["x", UNSHARDED]);
    assert_eq!(rows(63, 9), [UNSHARDED, UNSHARDED]);
}

#[track_caller]
fn refuses_padding(windows: Windows, [size, window]: [usize; 2], expected: usize) {
    let pool = Pool {
        windows,
        ..Pool::new(Pooling::Max, [window])
    };
    let padding = OpError::WindowOfPadding {
        op: "pool",
        axis: 1,
        window: expected,
    };
    refuses(&Op::Pool(pool), &[&[1, size, 1]], padding);
}

#[test]
fn more_windows_than_can_be_counted_through_are_judged_at_once() {
    let most = isize::MAX.unsigned_abs() / 8;
    let pool = || Pool::new(Pooling::Mean, [1]);
    gives(&Op::Pool(pool()), &[&[1, most, 1]], &[&[1, most, 1]]);
    for shape in [[1, most + 1, 1], [0, most + 1, 1], [1, usize::MAX, 1]] {
        let too_large = |op| OpError::TooLarge { op };
        refuses(&Op::Pool(pool()), &[&shape], too_large("pool"));
        let gradient = Op::PoolGradient(pool());
        refuses(&gradient, &[&shape, &shape], too_large("pool_gradient"));
    }
    let padded = |padding| Windows::strides([1]).padded(Padding::Explicit(vec![padding]));
    let large = 1 << 40;
    refuses_padding(padded((0, 1)), [large, 1], large);
    // Only the window that begins right before the axis jumps over all of it.
    let jumping = padded((large - 1, 9)).dilated([large]);
    refuses_padding(jumping, [large - 1, 2], large - 2);
}

proptest! {
    #[test]
    fn the_first_window_on_padding_only_is_named(
        size in 0_usize..12, window in 1_usize..6, stride in 1_usize..9, dilation in 1_usize..16,
        before in 0_usize..40, after in 0_usize..40,
    ) {
        // Mostly windows of which the first is not the one.
        let padding = (before % ((window - 1) * dilation + 1), after);
        let windows = Windows::strides([stride]).dilated([dilation]);
        let windows = windows.padded(Padding::Explicit(vec![padding]));
        let Ok(along) = windows.along("pool", &[size], &[window]) else { return Ok(()) };
        let is_padding = |window: &usize| along[0].inside(*window).0.is_empty();
        match (0..along[0].count()).find(is_padding) {
            Some(first) => refuses_padding(windows, [size, window], first),
            None => {
                let pool = Pool { windows, ..Pool::new(Pooling::Max, [window]) };
                gives(&Op::Pool(pool), &[&[1, size, 1]], &[&[1, along[0].count(), 1]]);
            }
        }
    }
}
