//! Windows: convolutions and pooling, and their gradients.
//!
//! ```text
//!                      batch     spatial              channels        outputs
//!   convolution        apart     gathered, cut again  summed          apart
//!   by the input       apart     gathered, cut again  apart           summed
//!   by the filter      summed    gathered             apart           apart
//!   pool               apart     gathered, cut again  apart
//! ```
//!
//! Of several groups channels and outputs are cut together, between groups. A mesh dimension that
//! would cut two of these cuts the batch, else the outputs of operand and result, else the spatial
//! axes, else what is summed.

use super::super::rule::{Axis, Disagreement, Kind, Place, Rule, along, coarsely};
use super::super::{Convolution, OpError, Pool, WindowAxis};
use super::{check_entries, check_rank, check_shape, check_size};
use crate::PartialReduction;

const SUM: Kind = Kind::Reduced(PartialReduction::Sum);

/// The shapes of a convolution.
struct Sizes<'a> {
    input: &'a [usize],
    filter: &'a [usize],
    output: Vec<usize>,
    groups: usize,
}

/// Factors that the axes of a convolution have.
struct Factors {
    batch: usize,
    spatial: Vec<usize>,
    channels: Axis,
    outputs: Axis,
}

pub(super) fn convolution(
    op: &'static str,
    [input, filter]: [&[usize]; 2],
    of: &Convolution,
) -> Result<Rule, OpError> {
    let sizes = Sizes::of(op, [input, filter], of)?;
    let mut rule = Rule::new(op);
    let factors = sizes.factors(&mut rule, [Kind::Apart, SUM, Kind::Apart])?;
    rule.operand(factors.image(factors.channels, &factors.spatial));
    rule.operand(factors.filter(of));
    rule.result(
        sizes.output,
        factors.image(factors.outputs, &factors.spatial),
    );
    Ok(rule)
}

pub(super) fn input_gradient(
    op: &'static str,
    [upstream, filter]: [&[usize]; 2],
    of: &Convolution,
    spatial: &[usize],
) -> Result<Rule, OpError> {
    check_rank(op, 1, filter, of.windows.axes() + 2)?;
    check_rank(op, 0, upstream, of.windows.axes() + 2)?;
    let channels = filter[of.windows.axes()].checked_mul(of.groups);
    let channels = channels.ok_or(OpError::TooLarge { op })?;
    let input = [&upstream[..1], spatial, &[channels]].concat();
    let sizes = Sizes::of(op, [&input, filter], of)?;
    check_shape(op, 0, upstream, &sizes.output)?;
    let mut rule = Rule::new(op);
    let factors = sizes.factors(&mut rule, [Kind::Apart, Kind::Apart, SUM])?;
    rule.operand(factors.image(factors.outputs, &factors.spatial));
    rule.operand(factors.filter(of));
    let axes = factors.image(factors.channels, &factors.spatial);
    rule.result(input.iter().copied(), axes);
    Ok(rule)
}

pub(super) fn filter_gradient(
    op: &'static str,
    [input, upstream]: [&[usize]; 2],
    of: &Convolution,
    window: &[usize],
) -> Result<Rule, OpError> {
    check_rank(op, 0, input, of.windows.axes() + 2)?;
    check_rank(op, 1, upstream, of.windows.axes() + 2)?;
    let (channels, outputs) = (input[input.len() - 1], upstream[upstream.len() - 1]);
    let each = equal_groups(op, channels, of.groups)?;
    let filter = [window, &[each, outputs]].concat();
    let sizes = Sizes::of(op, [input, &filter], of)?;
    check_shape(op, 1, upstream, &sizes.output)?;
    let mut rule = Rule::new(op);
    let factors = sizes.factors(&mut rule, [SUM, Kind::Apart, Kind::Apart])?;
    rule.operand(factors.image(factors.channels, &[]));
    rule.operand(factors.image(factors.outputs, &[]));
    rule.result(filter.iter().copied(), factors.filter(of));
    Ok(rule)
}

pub(super) fn pool(op: &'static str, input: &[usize], of: &Pool) -> Result<Rule, OpError> {
    let output = pooled(op, input, of)?;
    let mut rule = Rule::new(op);
    let axes = pool_axes(&mut rule, of.windows.axes());
    rule.operand(axes.iter().copied());
    rule.result(output, axes);
    Ok(rule)
}

pub(super) fn pool_gradient(
    op: &'static str,
    [input, upstream]: [&[usize]; 2],
    of: &Pool,
) -> Result<Rule, OpError> {
    let output = pooled(op, input, of)?;
    check_shape(op, 1, upstream, &output)?;
    let mut rule = Rule::new(op);
    let axes = pool_axes(&mut rule, of.windows.axes());
    rule.operand(axes.iter().copied());
    rule.operand(axes.iter().copied());
    rule.result(input.iter().copied(), axes);
    Ok(rule)
}

/// The axes of a batch of images.
fn pool_axes(rule: &mut Rule, spatial: usize) -> Vec<Axis> {
    let batch = rule.ranked_factor(Kind::Apart, Disagreement::First, 3);
    let spatial: Vec<usize> = (0..spatial)
        .map(|_| rule.ranked_factor(Kind::Recut, Disagreement::First, 1))
        .collect();
    let channels = rule.ranked_factor(Kind::Apart, Disagreement::First, 2);
    let all = [batch].into_iter().chain(spatial).chain([channels]);
    all.map(along).collect()
}

/// The shape of what a pooling makes.
fn pooled(op: &'static str, input: &[usize], of: &Pool) -> Result<Vec<usize>, OpError> {
    check_rank(op, 0, input, of.windows.axes() + 2)?;
    check_entries(op, &of.window, of.windows.axes())?;
    let mut window = of.window.iter();
    let places = window.try_fold(1_usize, |places, size| places.checked_mul(*size));
    if places.is_none() {
        return Err(OpError::TooLarge { op });
    }
    let last = input.len() - 1;
    let mut output = vec![input[0]];
    for (axis, along) in of
        .windows
        .along(op, &input[1..last], &of.window)?
        .iter()
        .enumerate()
    {
        if let Some(window) = on_padding(along) {
            let axis = axis + 1;
            return Err(OpError::WindowOfPadding { op, axis, window });
        }
        output.push(along.count());
    }
    output.push(input[last]);
    Ok(output)
}

/// The first window that lies on padding only.
fn on_padding(along: &WindowAxis) -> Option<usize> {
    // If any window ends before the axis, window 0 does.
    let behind = (along.size() + along.before()).div_ceil(along.stride());
    let window = match along.inside(0).0.is_empty() {
        true => 0,
        false => jumping(along).map_or(behind, |window| window.min(behind)),
    };
    (window < along.count()).then_some(window)
}

/// The first window that begins before the axis and ends behind it with no index on it, or a later
/// one behind it. Window 0 has an index on it. There may be too many windows to look at each.
fn jumping(along: &WindowAxis) -> Option<usize> {
    let [size, before] = [along.size(), along.before()].map(|number| number as u128);
    let [stride, dilation] = [along.stride(), along.dilation()].map(|number| number as u128);
    if dilation <= size {
        return None;
    }
    // From the start of the axis to the first index of window 0 on it. Window `n` has one unless
    // `first + n * stride` is `size` or more beyond a multiple of the dilation.
    let first = (dilation - before % dilation) % dilation;
    let range = [size - first, dilation - 1 - first];
    let window = first_multiple(stride % dilation, dilation, range)?;
    usize::try_from(window).ok()
}

/// The least number whose product with `step` is in a range modulo `modulus`, by Euclid's
/// algorithm. The range, with its end, starts above 0; the step is below the modulus.
fn first_multiple(step: u128, modulus: u128, [low, high]: [u128; 2]) -> Option<u128> {
    if step == 0 {
        return None;
    }
    let number = low.div_ceil(step);
    if number * step <= high {
        return Some(number);
    }
    // No multiple is in the range itself: what is missing to one after so many times the modulus?
    let range = [high, low].map(|end| step - end % step);
    let times = first_multiple(modulus % step, step, range)?;
    Some((times * modulus + low).div_ceil(step))
}

impl<'a> Sizes<'a> {
    fn of(
        op: &'static str,
        [input, filter]: [&'a [usize]; 2],
        of: &Convolution,
    ) -> Result<Self, OpError> {
        let spatial = of.windows.axes();
        check_rank(op, 0, input, spatial + 2)?;
        check_rank(op, 1, filter, spatial + 2)?;
        let each = equal_groups(op, input[spatial + 1], of.groups)?;
        equal_groups(op, filter[spatial + 1], of.groups)?;
        check_size(op, 1, spatial, filter[spatial], each)?;
        let along = of
            .windows
            .along(op, &input[1..=spatial], &filter[..spatial])?;
        let counts = along.iter().map(|along| along.count());
        let output = [input[0]].into_iter().chain(counts);
        Ok(Self {
            input,
            filter,
            output: output.chain([filter[spatial + 1]]).collect(),
            groups: of.groups,
        })
    }

    /// Factors of these kinds for the batch, the channels and the outputs.
    fn factors(
        &self,
        rule: &mut Rule,
        [batch, channels, outputs]: [Kind; 3],
    ) -> Result<Factors, OpError> {
        let rank = |kind: Kind, otherwise| if kind == SUM { 0 } else { otherwise };
        // Of the gradient by the filter, what is summed is the batch, which comes first even so.
        let batch = rule.ranked_factor(batch, Disagreement::First, 4);
        let spatial = 0..self.input.len() - 2;
        let spatial = spatial
            .map(|_| rule.ranked_factor(Kind::Recut, Disagreement::First, 1))
            .collect();
        let (channels, outputs) = if self.groups == 1 {
            let inputs = rule.ranked_factor(channels, Disagreement::First, rank(channels, 2));
            let results = rule.ranked_factor(outputs, Disagreement::First, rank(outputs, 3));
            (along(inputs), along(results))
        } else {
            self.grouped(rule)?
        };
        Ok(Factors {
            batch,
            spatial,
            channels,
            outputs,
        })
    }

    /// One factor for channels and outputs, whose indices are pairs of them within a group.
    fn grouped(&self, rule: &mut Rule) -> Result<(Axis, Axis), OpError> {
        let inputs = self.filter[self.filter.len() - 2];
        let results = self.filter[self.filter.len() - 1] / self.groups;
        let pairs = self.input[self.input.len() - 1].checked_mul(results);
        if pairs.is_none() {
            return Err(OpError::TooLarge { op: rule.op });
        }
        let factor = rule.ranked_factor(Kind::Apart, Disagreement::First, 2);
        let grain = inputs * results;
        rule.units.push((self.groups, Place { factor, grain }));
        Ok((coarsely(factor, results), coarsely(factor, inputs)))
    }
}

impl Factors {
    /// The axes of images with these channels.
    fn image(&self, channels: Axis, spatial: &[usize]) -> Vec<Axis> {
        let whole = self.spatial.iter().enumerate();
        let spatial = whole.map(|(axis, _)| spatial.get(axis).copied().and_then(along));
        let batch = [along(self.batch)].into_iter();
        batch.chain(spatial).chain([channels]).collect()
    }

    /// The axes of a filter.
    fn filter(&self, of: &Convolution) -> Vec<Axis> {
        let window = vec![None; self.spatial.len()];
        // A group needs all channels of its own.
        let channels = self.channels.filter(|_| of.groups == 1);
        [window, vec![channels, self.outputs]].concat()
    }
}

/// How many channels each group has.
fn equal_groups(op: &'static str, channels: usize, groups: usize) -> Result<usize, OpError> {
    match channels.checked_rem(groups) {
        Some(0) => Ok(channels / groups),
        _ => Err(OpError::UnequalGroups {
            op,
            channels,
            groups,
        }),
    }
}
