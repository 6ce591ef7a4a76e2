//! `Plan::explain`: a plan as English text, one line per step, with bytes in binary units (KiB,
//! MiB). Nothing is computed here: the costs are those of the plan.

use std::fmt::{self, Display};
use std::iter::successors;

use super::{DimPart, Plan, PlanStep, StepKind};

/// A [`Plan`] in words; see [`Plan::explain`].
#[derive(Clone, Copy, Debug)]
pub struct PlanExplanation<'a>(&'a Plan);

impl<'a> PlanExplanation<'a> {
    pub(super) fn of(plan: &'a Plan) -> Self {
        Self(plan)
    }
}

impl Display for PlanExplanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = self.0;
        write!(
            f,
            "{}, {} an element: ",
            Sizes(plan.shape()),
            Bytes(plan.element_size() as u64)
        )?;
        let Some(last) = plan.steps().last() else {
            return write!(
                f,
                "every device has what it needs, {}, and nothing is to be done",
                Bytes(plan.peak_bytes())
            );
        };
        let first = plan.steps()[0].before();
        writeln!(f, "from {first} to {}", last.after())?;
        for (number, step) in (1..).zip(plan.steps()) {
            writeln!(f, "{number:>3}. {}", StepSentence(step))?;
            writeln!(
                f,
                "     then {}, {} held meanwhile, {:.1?}",
                step.after(),
                Bytes(step.peak_bytes()),
                step.time()
            )?;
        }
        let plural = if plan.collectives() == 1 { "" } else { "s" };
        write!(
            f,
            "in all {} received by each device in {} collective{plural}, at most {} held, {:.1?}",
            Bytes(plan.bytes()),
            plan.collectives(),
            Bytes(plan.peak_bytes()),
            plan.time()
        )
    }
}

/// A step in a sentence.
struct StepSentence<'a>(&'a PlanStep);

impl Display for StepSentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = self.0;
        let others = step.over().iter().map(DimPart::size).product::<usize>() - 1;
        let bytes = Bytes(step.bytes());
        write!(f, "{} over {}: ", step.kind(), Over(step.over()))?;
        match step.kind() {
            StepKind::Slice => f.write_str("each device keeps a part of its block"),
            StepKind::AllGather => {
                write!(
                    f,
                    "each device receives the blocks of {others} more, {bytes}"
                )
            }
            StepKind::AllToAll => write!(
                f,
                "each device exchanges parts of its block with {others} more and receives {bytes}"
            ),
            StepKind::Permute => write!(f, "each block moves to another device, {bytes}"),
            StepKind::ReduceScatter => write!(
                f,
                "each device reduces its part of the blocks of {others} more and its own, \
                 receiving {bytes}"
            ),
            StepKind::AllReduce => write!(
                f,
                "each device reduces with {others} more and has all of the outcome, receiving {bytes}"
            ),
            StepKind::MakePartial => {
                f.write_str("each device takes what it has for a term, nothing for what it lacks")
            }
        }
    }
}

/// Mesh dimensions and parts of them, in a list.
struct Over<'a>(&'a [DimPart]);

impl Display for Over<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, part) in self.0.iter().enumerate() {
            write!(f, "{}{part}", if number == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// A shape.
struct Sizes<'a>(&'a [usize]);

impl Display for Sizes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("a scalar");
        }
        for (number, size) in self.0.iter().enumerate() {
            write!(f, "{}{size}", if number == 0 { "" } else { "×" })?;
        }
        Ok(())
    }
}

/// A number of bytes in the largest unit of which there is one at least.
struct Bytes(u64);

impl Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let tenths = successors(Some(u128::from(self.0) * 10), |tenths| Some(tenths / 1024));
        let fits = tenths
            .skip(1)
            .zip(units)
            .take_while(|(tenths, _)| *tenths >= 10)
            .last();
        match fits {
            None => write!(f, "{} B", self.0),
            Some((tenths, unit)) => write!(f, "{}.{} {unit}", tenths / 10, tenths % 10),
        }
    }
}

#[cfg(test)]
mod tests {
    use meshwork_core::Mesh;

    use super::*;
    use crate::{Layout, PartialReduction, Relayout, UNSHARDED};

    #[test]
    fn bytes_are_told_in_a_unit_of_which_there_is_one() {
        for (bytes, told) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_048_575, "1023.9 KiB"),
            (3 << 19, "1.5 MiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), told);
        }
    }

    #[test]
    fn a_plan_is_told_step_by_step() {
        let mesh = Mesh::new([("x", 2), ("y", 2)]).unwrap();
        let whole = Layout::replicated(&mesh, 2);
        let terms = whole
            .clone()
            .with_partial(["x"], PartialReduction::Sum)
            .unwrap();
        let plan = Relayout::new(&terms, &whole, &[16, 8], 4)
            .unwrap()
            .plan()
            .unwrap();
        assert_eq!(
            plan.explain().to_string(),
            "16×8, 4 B an element: from [-, -], partial x to [-, -]\n  \
             1. all-reduce over x: each device reduces with 1 more and has all of the outcome, \
             receiving 512 B\n     \
             then [-, -], 1.0 KiB held meanwhile, 10.0µs\n\
             in all 512 B received by each device in 1 collective, at most 1.0 KiB held, 10.0µs"
        );
    }

    #[test]
    fn nothing_to_be_done_is_told_so() {
        let mesh = Mesh::new([("x", 2)]).unwrap();
        let rows = Layout::from_names(["x", UNSHARDED], &mesh).unwrap();
        let plan = Relayout::new(&rows, &rows, &[16, 8], 4)
            .unwrap()
            .plan()
            .unwrap();
        assert_eq!(
            plan.explain().to_string(),
            "16×8, 4 B an element: every device has what it needs, 256 B, and nothing is to be done"
        );
    }
}
