//! Which mesh dimensions cut each factor, where operands ask for different ones.

use super::rule::{Clashes, Disagreement, Factor, Rule};
use super::{OpError, TensorLayout};
use crate::ShardingSpec;

/// How an operand cuts a factor, and by which of its axes.
#[derive(Clone, Copy)]
struct Claim<'a> {
    spec: &'a ShardingSpec,
    operand: usize,
    axis: usize,
}

/// For each factor what is claimed, if anything.
type Claims<'a> = Vec<Option<Claim<'a>>>;

/// A spec for each factor; a mesh dimension is in one of them at most.
pub(super) fn resolve_conflicts(
    rule: &Rule,
    operands: &[&TensorLayout],
) -> Result<Vec<ShardingSpec>, OpError> {
    let mut settled: Claims<'_> = vec![None; rule.factors.len()];
    let mut given_up = vec![false; rule.factors.len()];
    for operand in visiting_order(operands.len()) {
        let theirs = claims(rule, operand, operands[operand])?;
        for (factor, given_up) in given_up.iter_mut().enumerate() {
            *given_up |= rule.factors[factor].disagreement == Disagreement::Neither
                && differ(settled[factor], theirs[factor]).is_some();
        }
        settled = merge(rule, &settled, &theirs)?;
    }
    let spec = |(claim, given_up): (Option<Claim<'_>>, bool)| match claim {
        Some(claim) if !given_up => claim.spec.clone(),
        _ => ShardingSpec::unsharded(),
    };
    Ok(settled.into_iter().zip(given_up).map(spec).collect())
}

/// The mesh dimensions that one operand claims.
fn claims<'a>(
    rule: &Rule,
    operand: usize,
    placed: &'a TensorLayout,
) -> Result<Claims<'a>, OpError> {
    let mut claims: Claims<'_> = vec![None; rule.factors.len()];
    let specs: Vec<&ShardingSpec> = placed.layout().specs().collect();
    for (axis, factor) in claiming(rule, operand) {
        let spec = specs[axis];
        if spec.is_unsharded() {
            continue;
        }
        let claim = Claim {
            spec,
            operand,
            axis,
        };
        claims[factor] = agree(rule.op, &rule.factors[factor], claims[factor], Some(claim))?;
    }
    Ok(claims)
}

/// The axes of an operand with the factors for which they claim.
fn claiming(rule: &Rule, operand: usize) -> Vec<(usize, usize)> {
    match &rule.claims {
        Some(claims) if operand == 0 => claims.clone(),
        _ => {
            let axes = rule.operands[operand].iter().enumerate();
            axes.filter_map(|(axis, place)| Some((axis, place.as_ref()?.factor)))
                .collect()
        }
    }
}

fn merge<'a>(rule: &Rule, ours: &Claims<'a>, theirs: &Claims<'a>) -> Result<Claims<'a>, OpError> {
    let pairs = ours.iter().zip(theirs).zip(&rule.factors);
    let winners = pairs.map(|((ours, theirs), factor)| agree(rule.op, factor, *ours, *theirs));
    let winners = winners.collect::<Result<Claims<'_>, _>>()?;
    let (ours, theirs) = match rule.clashes {
        Clashes::Claimed => (ours, theirs),
        Clashes::Won => (&winners, &winners),
    };
    let keeps =
        |factor: usize| !loses(rule, factor, ours, theirs) && !loses(rule, factor, theirs, ours);
    let kept = winners.iter().enumerate();
    Ok(kept
        .map(|(factor, winner)| winner.filter(|_| keeps(factor)))
        .collect())
}

/// Whether another factor that does not give way claims on the other side a mesh dimension that
/// this one claims on its own.
fn loses(rule: &Rule, factor: usize, own: &Claims<'_>, other: &Claims<'_>) -> bool {
    let Some(claim) = own[factor] else {
        return false;
    };
    let rivals = other.iter().zip(&rule.factors).enumerate();
    rivals
        .filter(|(rival, (_, rules))| {
            *rival != factor && rules.precedence >= rule.factors[factor].precedence
        })
        .filter_map(|(_, (rival, _))| *rival)
        .any(|rival| shares_a_dim(claim.spec, rival.spec))
}

fn shares_a_dim(a: &ShardingSpec, b: &ShardingSpec) -> bool {
    a.dims().iter().any(|dim| b.dims().contains(dim))
}

/// The claim that holds if two operands, or two axes of one, claim the same factor.
fn agree<'a>(
    op: &'static str,
    factor: &Factor,
    ours: Option<Claim<'a>>,
    theirs: Option<Claim<'a>>,
) -> Result<Option<Claim<'a>>, OpError> {
    match differ(ours, theirs) {
        Some((first, second)) if factor.disagreement == Disagreement::Refused => {
            Err(OpError::SpecsDiffer {
                op,
                first: first.operand,
                first_axis: first.axis,
                first_spec: first.spec.clone(),
                second: second.operand,
                second_axis: second.axis,
                second_spec: second.spec.clone(),
            })
        }
        _ => Ok(ours.or(theirs)),
    }
}

fn differ<'a>(
    ours: Option<Claim<'a>>,
    theirs: Option<Claim<'a>>,
) -> Option<(Claim<'a>, Claim<'a>)> {
    ours.zip(theirs).filter(|(a, b)| a.spec != b.spec)
}

/// The order in which operands have their say: that of TensorFlow, which walks them as a table of
/// hashes holds them. The hash of operand n is 37·n; the table has 64 places, or as many more as
/// keep it less than three quarters full.
fn visiting_order(operands: usize) -> Vec<usize> {
    let mut places: usize = 64;
    while operands >= places / 4 * 3 {
        places *= 2;
    }
    let mut order: Vec<usize> = (0..operands).collect();
    order.sort_by_key(|operand| operand.wrapping_mul(37) % places);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_operand_is_asked_before_the_second() {
        assert_eq!(visiting_order(0), [0; 0]);
        assert_eq!(visiting_order(2), [0, 1]);
        assert_eq!(visiting_order(3), [0, 2, 1]);
        assert_eq!(visiting_order(8), [0, 7, 2, 4, 6, 1, 3, 5]);
    }

    #[test]
    fn every_operand_is_asked_once() {
        for operands in 0..200 {
            let mut order = visiting_order(operands);
            order.sort_unstable();
            assert!(order.into_iter().eq(0..operands));
        }
    }
}
