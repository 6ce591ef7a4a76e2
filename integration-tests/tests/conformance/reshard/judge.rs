//! Holds plans against everything that a record says about a pair of layouts.
//!
//! Not compared are the recorded plans themselves (`oracle_plan`, `expected`, a planner's `steps`),
//! because optima tie; what torch said when it was run (`torch_ran`); and `lower_bound` where
//! blocks are cut otherwise, or where elements are terms, some of which may be left to be nothing.

use std::time::Duration;

use meshwork_layout::{Error, Layout, Link, Links, Plan, Relayout};
use serde_json::Value;

use super::read::{bytes, list, told};

/// What a record asks for.
pub(super) struct Asked {
    pub(super) from: Layout,
    pub(super) to: Layout,
    pub(super) shape: Vec<usize>,
    pub(super) element_size: usize,
}

/// Judges plans for no latency and for each that the record has figures for.
pub(super) fn judge(asked: &Asked, case: &Value) -> Result<(), String> {
    let free = match asked.plan(0, None) {
        Err(Failure::Plan(Error::OtherDevices { .. })) if is_left_undone(case) => return Ok(()),
        // Nothing is recorded for layouts of tensors of another rank.
        Err(Failure::Plan(Error::RankMismatch { .. })) if asked.has_other_rank() => return Ok(()),
        plan => plan.map_err(told)?,
    };
    at_most(&free, 0, &optimum(case), "the optimum")?;
    if Some(free.bytes()) == case["oracle_bytes"].as_u64() {
        at_most(&free, 1, &optimum(case), "the optimum's steps")?;
    }
    for key in ["oracle_bytes_torch_moves", "oracle_bytes_whole_axes"] {
        at_most(&free, 0, &Figures::of_bytes(&case[key]), key)?;
    }
    let final_values = asked.from.terms() == 1 && asked.to.terms() == 1;
    let least = case["lower_bound"]
        .as_u64()
        .filter(|_| final_values && !is_nominal(case));
    if least.is_some_and(|least| free.bytes() < least) {
        return Err(format!(
            "{} bytes, fewer than any plan can do with: {least:?}",
            free.bytes()
        ));
    }
    for alpha in [0, 64, 1_000_000] {
        let plan = asked.plan(alpha, None).map_err(told)?;
        for (name, planner) in recorded_planners(case) {
            at_most(&plan, alpha, &planner, name)?;
        }
    }
    for (key, alpha) in [
        ("oracle_alpha_64", 64),
        ("oracle_alpha_10us", 1_000_000),
        ("oracle_alpha_10us_torch_moves", 1_000_000),
    ] {
        let figures = Figures::new(&case[key]["bytes"], &case[key]["steps"]);
        at_most(
            &asked.plan(alpha, None).map_err(told)?,
            alpha,
            &figures,
            key,
        )?;
    }
    let fronts = ["oracle_front", "front_whole_axes"].map(|key| list(&case[key]));
    fronts
        .into_iter()
        .flatten()
        .try_for_each(|point| keeps_within(asked, point))
}

/// Why there is no plan, or not a right one.
#[derive(Debug)]
enum Failure {
    Plan(Error),
    Proof(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Plan(error) => write!(f, "{error}"),
            Self::Proof(how) => write!(f, "the plan is wrong: {how}"),
        }
    }
}

impl Asked {
    fn has_other_rank(&self) -> bool {
        [&self.from, &self.to]
            .iter()
            .any(|layout| layout.rank() != self.shape.len())
    }

    /// A plan, proved right, where a step costs as much as this many bytes.
    fn plan(&self, alpha: u64, bound: Option<u64>) -> Result<Plan, Failure> {
        // A byte takes a nanosecond.
        let link = Link::new(Duration::from_nanos(alpha), 1_000_000_000).map_err(Failure::Plan)?;
        let relayout = Relayout::new(&self.from, &self.to, &self.shape, self.element_size)
            .map_err(Failure::Plan)?
            .links(Links::uniform(link));
        let relayout = bound.into_iter().fold(relayout, Relayout::memory_bound);
        let plan = relayout.plan().map_err(Failure::Plan)?;
        plan.prove()
            .map_err(|broken| Failure::Proof(told(broken)))?;
        Ok(plan)
    }
}

/// Bytes and collectives, where they are recorded.
struct Figures {
    bytes: Option<u64>,
    steps: Option<u64>,
}

impl Figures {
    /// Only of what moves.
    fn of_bytes(bytes: &Value) -> Self {
        Self {
            bytes: bytes.as_u64(),
            steps: Some(0),
        }
    }

    fn new(bytes: &Value, steps: &Value) -> Self {
        Self {
            bytes: bytes.as_u64(),
            steps: steps.as_u64(),
        }
    }
}

/// With this memory there is a plan that moves not more; with one byte less than the least on
/// record there may be one as well, but then the planner knows of it.
fn keeps_within(asked: &Asked, point: &Value) -> Result<(), String> {
    let peak = bytes(&point["peak"]);
    let plan = asked.plan(0, Some(peak)).map_err(told)?;
    if plan.peak_bytes() > peak {
        return Err(format!(
            "takes {} bytes, more than the bound of {peak}",
            plan.peak_bytes()
        ));
    }
    at_most(
        &plan,
        0,
        &Figures::of_bytes(&point["bytes"]),
        "within the memory bound",
    )?;
    match asked.plan(0, Some(0)) {
        Err(Failure::Plan(Error::MemoryBound { smallest, .. })) if smallest <= peak => Ok(()),
        Ok(plan) if plan.peak_bytes() == 0 => Ok(()),
        other => Err(format!("{peak} bytes do, but without any: {other:?}")),
    }
}

/// Whether a plan costs at most these bytes and steps; nothing is asked where they are not
/// recorded.
fn at_most(plan: &Plan, alpha: u64, figures: &Figures, whose: &str) -> Result<(), String> {
    let (Some(bytes), Some(steps)) = (figures.bytes, figures.steps) else {
        return Ok(());
    };
    let own = plan.bytes() + alpha * plan.collectives() as u64;
    let theirs = bytes + alpha * steps;
    if own <= theirs {
        return Ok(());
    }
    Err(format!(
        "{own} where a step counts {alpha}, above {theirs}, {whose}:\n{}",
        plan.explain()
    ))
}

fn optimum(case: &Value) -> Figures {
    Figures::new(&case["oracle_bytes"], &case["oracle_steps"])
}

/// What the recorded planners move, and in how many steps.
fn recorded_planners(case: &Value) -> Vec<(&'static str, Figures)> {
    let torch = |name: &'static str| {
        let planner = &case[name];
        let figures = Figures::new(&planner["bytes_moved"], &planner["collectives"]);
        (name, figures)
    };
    let shardy = Figures::new(&case["bytes_moved"], &case["steps"]);
    vec![torch("greedy"), torch("min_cost"), ("shardy", shardy)]
}

/// Whether the recorded planner made no plan.
fn is_left_undone(case: &Value) -> bool {
    list(&case["expected"]).any(|step| step["op"] == "reshard")
}

/// Whether the recorded bound is for other blocks than ours: nested chunks of whole axes.
fn is_nominal(case: &Value) -> bool {
    list(&case["marks"]).any(|mark| {
        mark.as_str()
            .is_some_and(|mark| mark.contains("not divisible"))
    })
}
