//! Lays out operands and results by a rule.

use meshwork_core::{DimName, Mesh};

use super::conflicts::resolve_conflicts;
use super::rule::{Axis, Factor, Kind, ResultRule, Rule};
use super::{Inferred, OpError, Outcome, PartialAllReduce, TensorLayout};
use crate::{Layout, PartialReduction, ShardingSpec};

/// Applies a rule to operands of these layouts. There is one operand at least, all are on one mesh,
/// and they have the ranks for which the rule was made.
pub(super) fn apply(rule: &Rule, operands: &[&TensorLayout]) -> Result<Inferred, OpError> {
    let engine = Engine {
        rule,
        operands,
        mesh: operands[0].layout().mesh(),
    };
    let cuts = resolve_conflicts(rule, operands)?;
    let cuts = cuts.into_iter().enumerate();
    let cuts = cuts
        .map(|(factor, spec)| engine.allowed(factor, spec))
        .collect::<Result<Vec<_>, _>>()?;
    let layouts = rule.operands.iter();
    let results = rule.results.iter();
    Ok(Inferred {
        operands: layouts
            .map(|axes| engine.layout(axes, &cuts, Factor::is_cut_meanwhile))
            .collect::<Result<_, _>>()?,
        within: engine.within(&cuts),
        results: results
            .map(|result| engine.outcome(result, &cuts))
            .collect::<Result<_, _>>()?,
    })
}

struct Engine<'a> {
    rule: &'a Rule,
    operands: &'a [&'a TensorLayout],
    mesh: &'a Mesh,
}

impl Engine<'_> {
    /// The part of a spec by which the factor can be cut.
    fn allowed(&self, factor: usize, spec: ShardingSpec) -> Result<ShardingSpec, OpError> {
        let op = self.rule.op;
        let kind = self.rule.factors[factor].kind;
        if kind == Kind::Uncut && self.shards(&spec)? > 1 {
            let (axis, _) = self.first_place(factor);
            return Err(OpError::AxisCut { op, axis, spec });
        }
        if !matches!(kind, Kind::Apart | Kind::Stepped) {
            return Ok(spec);
        }
        let fitting = self.fitting(factor, &spec)?;
        if kind == Kind::Stepped && fitting != spec {
            let (axis, size) = self.first_place(factor);
            let grains = self.places(factor).into_iter().map(|(_, grain)| grain);
            return Err(OpError::StepAcrossShards {
                op,
                axis,
                size,
                step: grains.max().expect("a factor has a place"),
                spec,
            });
        }
        Ok(fitting)
    }

    /// The leading mesh dimensions of a spec that cut every axis of the factor at the same places.
    fn fitting(&self, factor: usize, spec: &ShardingSpec) -> Result<ShardingSpec, OpError> {
        let mut places = self.places(factor);
        if places.windows(2).all(|pair| pair[0] == pair[1]) {
            return Ok(spec.clone());
        }
        let mut fitting: Vec<&DimName> = Vec::new();
        for dim in spec.dims() {
            let parts = self
                .mesh
                .dim_size(dim.as_str())
                .map_err(crate::Error::from)?;
            let even = places.iter().all(|(size, _)| size % parts == 0);
            for (size, _) in &mut places {
                *size = size.div_ceil(parts);
            }
            // The elements of a run of axes, or the indices that steps pass: both can be counted.
            let mut shards = places.iter().map(|(size, grain)| size * grain);
            let first = shards.next();
            if parts > 1 && !shards.all(|shard| Some(shard) == first) {
                break;
            }
            fitting.push(dim);
            if !even {
                break;
            }
        }
        Ok(ShardingSpec::nested(fitting)?)
    }

    /// The sizes and grains of all axes and units that have the factor.
    fn places(&self, factor: usize) -> Vec<(usize, usize)> {
        let operands = self.rule.operands.iter().zip(self.operands);
        let operands = operands.flat_map(|(axes, placed)| axes.iter().zip(placed.shape()));
        let results = self.rule.results.iter();
        let results = results.flat_map(|result| result.axes.iter().zip(&result.shape));
        operands
            .chain(results)
            .filter_map(|(axis, &size)| Some((*axis, size)).zip(*axis))
            .map(|((_, size), place)| (size, place))
            .chain(self.rule.units.iter().copied())
            .filter(|(_, place)| place.factor == factor)
            .map(|(size, place)| (size, place.grain))
            .collect()
    }

    /// The first axis that has the factor, of the operands before the results, and its size.
    fn first_place(&self, factor: usize) -> (usize, usize) {
        let has_it = |axis: &Axis| axis.is_some_and(|place| place.factor == factor);
        let operands = self.rule.operands.iter().zip(self.operands);
        let operands = operands.map(|(axes, placed)| (axes, placed.shape()));
        let results = self.rule.results.iter();
        let results = results.map(|result| (&result.axes, &result.shape[..]));
        operands
            .chain(results)
            .find_map(|(axes, shape)| {
                let axis = axes.iter().position(has_it)?;
                Some((axis, shape[axis]))
            })
            .expect("a factor is that of an axis")
    }

    fn shards(&self, spec: &ShardingSpec) -> Result<usize, OpError> {
        let layout = Layout::new([spec.clone()], self.mesh)?;
        Ok(layout.num_shards(0)?)
    }

    /// The layout of axes of which those factors are cut that `cut` says.
    fn layout(
        &self,
        axes: &[Axis],
        cuts: &[ShardingSpec],
        cut: fn(&Factor) -> bool,
    ) -> Result<Layout, OpError> {
        let spec = |axis: &Axis| match axis {
            Some(place) if cut(&self.rule.factors[place.factor]) => cuts[place.factor].clone(),
            _ => ShardingSpec::unsharded(),
        };
        Ok(Layout::new(axes.iter().map(spec), self.mesh)?)
    }

    fn outcome(&self, result: &ResultRule, cuts: &[ShardingSpec]) -> Result<Outcome, OpError> {
        let produced = self.layout(&result.axes, cuts, Factor::is_cut_meanwhile)?;
        let finished = self.layout(&result.axes, cuts, Factor::is_cut_at_last)?;
        let produced = match self.reduction() {
            Some(reduction) => {
                let is_reduced = |kind: Kind| matches!(kind, Kind::Reduced(_));
                produced.with_partial(self.dims(cuts, is_reduced), reduction)?
            }
            None => produced,
        };
        let placement = TensorLayout::new(result.shape.iter().copied(), finished)?;
        Ok(Outcome {
            produced,
            placement,
        })
    }

    fn reduction(&self) -> Option<PartialReduction> {
        self.rule
            .factors
            .iter()
            .find_map(|factor| match factor.kind {
                Kind::Reduced(reduction) => Some(reduction),
                _ => None,
            })
    }

    fn within(&self, cuts: &[ShardingSpec]) -> Vec<PartialAllReduce> {
        let dims = self.dims(cuts, |kind| kind == Kind::Joint);
        if dims.is_empty() {
            return Vec::new();
        }
        let reductions = self.rule.within.iter();
        reductions
            .map(|&reduction| PartialAllReduce {
                dims: dims.clone(),
                reduction,
            })
            .collect()
    }

    /// The mesh dimensions that cut factors of a kind, major to minor.
    fn dims(&self, cuts: &[ShardingSpec], kind: fn(Kind) -> bool) -> Vec<DimName> {
        let of_kind = |dim: &&DimName| {
            let mut factors = self.rule.factors.iter().zip(cuts);
            factors.any(|(factor, spec)| kind(factor.kind) && spec.dims().contains(dim))
        };
        self.mesh.dim_names().filter(of_kind).cloned().collect()
    }
}

impl Factor {
    /// Whether ranks work on parts of it.
    fn is_cut_meanwhile(&self) -> bool {
        !matches!(self.kind, Kind::Whole | Kind::Recut | Kind::Uncut)
    }

    /// Whether the result is cut along it.
    fn is_cut_at_last(&self) -> bool {
        self.is_cut_meanwhile() || self.kind == Kind::Recut
    }
}
