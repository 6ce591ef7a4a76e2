//! Plans for laying a tensor out anew: the cheapest list of collectives from one layout to another.
//!
//! [`Relayout`] is a question, [`Plan`] its answer.

use std::time::Duration;

use meshwork_core::{Mesh, MeshRank};
use smallvec::SmallVec;

use crate::{Error, Layout};

#[cfg(any(test, feature = "testing"))]
mod apply;
mod class;
mod evenness;
mod explain;
mod frame;
mod links;
mod mesh_placement;
mod moves;
mod path;
mod problem;
mod rank_digits;
mod search;
mod state;
mod step;
mod target;

use frame::{Endpoint, Frame, Frames};
use links::duration;
use path::{Found, Path};
use problem::{Place, Problem, Tensor};
use rank_digits::Numbering;
use search::{Aim, EFFORT, search};
use state::members;
use target::Target;

#[cfg(any(test, feature = "testing"))]
pub use apply::{Broken, Term};
pub use explain::PlanExplanation;
pub use links::{Link, Links};
pub use mesh_placement::{DimPart, MeshPlacement};
pub use step::{PlanStep, StepKind};

/// A relayout to be planned: a tensor in one layout that is to be brought into another.
///
/// The two meshes hold the same devices: in the same order or another, in the same shape or
/// another. Meshes without devices have the same ones, in the order of ranks. The target's mesh may
/// also hold a few of the source's devices, if their number divides.
///
/// ```
/// use meshwork_core::Mesh;
/// use meshwork_layout::{StepKind, Layout, Relayout, UNSHARDED};
///
/// let mesh = Mesh::new([("x", 2), ("y", 4)])?;
/// let rows = Layout::from_names(["y", UNSHARDED], &mesh)?;
/// let columns = Layout::from_names([UNSHARDED, "y"], &mesh)?;
/// let plan = Relayout::new(&rows, &columns, &[8, 8], 4)?.plan()?;
///
/// assert_eq!(plan.steps()[0].kind(), StepKind::AllToAll);
/// // Each device keeps a quarter of its 64 bytes and receives the rest.
/// assert_eq!(plan.bytes(), 48);
/// # Ok::<(), meshwork_layout::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Relayout<'a> {
    from: &'a Layout,
    to: &'a Layout,
    target: Target<'a>,
    tensor: Tensor,
    links: Links,
    memory_bound: Option<u64>,
    /// How many moves a search looks at before it gives up.
    effort: u64,
}

impl<'a> Relayout<'a> {
    /// A relayout of a tensor of this shape, whose elements have this many bytes, over
    /// [default links](Links::default) and without a bound on memory.
    ///
    /// # Errors
    /// [`Error::RankMismatch`] for a shape of another rank than either layout's,
    /// [`Error::OtherDevices`] for meshes of different devices, [`Error::TensorTooLarge`] where
    /// bytes cannot be counted in 64 bits.
    pub fn new(
        from: &'a Layout,
        to: &'a Layout,
        shape: &[usize],
        element_size: usize,
    ) -> Result<Self, Error> {
        for layout in [from, to] {
            if layout.rank() != shape.len() {
                return Err(Error::RankMismatch {
                    found: shape.to_vec(),
                    expected: layout.rank(),
                });
            }
        }
        let tensor = Tensor::new(shape, element_size, from.mesh().size())?;
        Ok(Self {
            from,
            to,
            target: Target::new(to, from.mesh())?,
            tensor,
            links: Links::default(),
            memory_bound: None,
            effort: EFFORT,
        })
    }

    /// Over these links.
    #[must_use]
    pub fn links(self, links: Links) -> Self {
        Self { links, ..self }
    }

    /// With at most this many bytes on any device, counting at each step its block before and its
    /// block after.
    #[must_use]
    pub fn memory_bound(self, bytes: u64) -> Self {
        Self {
            memory_bound: Some(bytes),
            ..self
        }
    }

    /// The plan that takes the least time by the links, among those the fewest collectives, among
    /// those the fewest steps.
    ///
    /// Mesh dimensions are used in part where that is cheaper, on meshes of up to six prime
    /// factors, and with few of their orders where those differ. On meshes of very many dimensions
    /// the search is given up after some millions of steps. [`Plan::is_proven_cheapest`] reports
    /// both.
    ///
    /// # Errors
    /// [`Error::MemoryBound`] if no plan keeps within the bound; it says which bound would do.
    /// [`Error::SearchGivenUp`] if none was found before the search was given up.
    pub fn plan(&self) -> Result<Plan, Error> {
        let Problems { problems, are_all } = self.problems();
        let aim = self.memory_bound.map_or(Aim::Cost, Aim::CostWithin);
        let (best, finished) = self.best(&problems, aim);
        if let Some(best) = best {
            return Ok(Plan {
                is_proven_cheapest: are_all && finished,
                ..best
            });
        }
        // Without a bound there always is a plan.
        let bound = self.memory_bound.unwrap_or(u64::MAX);
        let (least, is_least) = self.best(&problems, Aim::Memory);
        let smallest = least.as_ref().map_or(u64::MAX, Plan::peak_bytes);
        match least {
            // Looking for the least memory may lead where the other search did not get to.
            Some(plan) if smallest <= bound => Ok(plan),
            _ if finished && is_least => Err(Error::MemoryBound { bound, smallest }),
            _ => Err(Error::SearchGivenUp {
                bound,
                known: smallest,
            }),
        }
    }

    /// The best plan for any of these problems, and whether all searches came to their end.
    fn best(&self, problems: &[Problem], aim: Aim) -> (Option<Plan>, bool) {
        let found = problems.iter().map(|problem| {
            let (path, finished) = search(problem, aim, self.effort);
            (path.map(|path| (problem, path)), finished)
        });
        let (paths, finished): (Vec<_>, Vec<bool>) = found.unzip();
        let paths = paths.into_iter().flatten();
        let best = paths.min_by_key(|(problem, path)| aim.measure(problem, path));
        (
            best.map(|(problem, path)| self.to_plan(problem, &path)),
            finished.into_iter().all(|finished| finished),
        )
    }

    /// The relayout in terms of sub-axes, in each way that is worth a search.
    fn problems(&self) -> Problems {
        let reductions = (self.from.reduction(), self.to.reduction());
        let two_reductions =
            matches!(reductions, (Some(from), Some(to)) if from != to) && self.from.terms() > 1;
        let problem = |frames: SmallVec<[Frame; 2]>, ends: &[Endpoint<'_>; 2]| {
            let start = frames[0].state(&ends[0]);
            let goal = frames[frames.len() - 1].state(&ends[1]);
            let goal = if two_reductions { goal.renewed() } else { goal };
            Problem::new(frames, [start, goal], self.tensor.clone(), &self.links)
        };
        let shape = &self.tensor.shape;
        if let Numbering::Digits(digits) = &self.target.numbering {
            let to = Endpoint {
                layout: &self.target.layout,
                digits: digits.clone(),
            };
            let ends = [Endpoint::own(self.from), to];
            if let Some(Frames { frames, are_all }) = Frame::joint(&ends, shape) {
                let frames = frames.into_iter().map(|frame| SmallVec::from_iter([frame]));
                return Problems {
                    problems: frames.map(|frames| problem(frames, &ends)).collect(),
                    are_all,
                };
            }
        }
        let ends = [Endpoint::own(self.from), Endpoint::own(&self.target.layout)];
        let targets = Frame::single(&self.target.layout, shape);
        let sources = Frame::single(self.from, shape);
        let are_all = sources.are_all && targets.are_all;
        let pairs = sources.frames.into_iter().flat_map(|source| {
            let targets = targets.frames.iter();
            targets.map(move |target| SmallVec::from_iter([source.clone(), target.clone()]))
        });
        Problems {
            problems: pairs.map(|frames| problem(frames, &ends)).collect(),
            are_all,
        }
    }

    /// A plan that is not yet said to be the cheapest.
    fn to_plan(&self, problem: &Problem, path: &Path) -> Plan {
        let steps = path.steps.iter().map(|found| self.to_step(problem, found));
        Plan {
            from: self.from.clone(),
            to: self.to.clone(),
            target_mesh: self.target.layout.mesh().clone(),
            numbering: self.target.numbering.clone(),
            tensor: self.tensor.clone(),
            steps: steps.collect(),
            initial_bytes: problem.block(0, &problem.start),
            time: duration(path.cost.fs),
            is_proven_cheapest: false,
        }
    }

    fn to_step(&self, problem: &Problem, found: &Found) -> PlanStep {
        let (from, to) = (&found.from, &found.to);
        let placed = |place: &Place| {
            let [source, target] = [self.from, self.to].map(Layout::reduction);
            // One term alone awaits no reduction.
            let source = source.filter(|_| !place.state.is_renewed() && self.from.terms() > 1);
            MeshPlacement::of(problem.frame(place.frame), &place.state, source.or(target))
        };
        PlanStep {
            kind: found.kind,
            over: DimPart::joined(problem.frame(from.frame), members(found.over)),
            before: placed(from),
            after: placed(to),
            bytes: found.bytes,
            peak_bytes: found.peak(problem),
            time: duration(found.cost(problem).fs),
        }
    }
}

/// A relayout in the ways that are searched.
struct Problems {
    problems: Vec<Problem>,
    /// Whether no way is left out that might be cheaper.
    are_all: bool,
}

/// A relayout plan: the steps by which devices bring a tensor from one layout into another.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    from: Layout,
    to: Layout,
    /// That of `to`, with all devices of that of `from`.
    target_mesh: Mesh,
    numbering: Numbering,
    tensor: Tensor,
    steps: Vec<PlanStep>,
    initial_bytes: u64,
    time: Duration,
    is_proven_cheapest: bool,
}

impl Plan {
    /// The layout of the tensor before.
    #[must_use]
    pub fn from(&self) -> &Layout {
        &self.from
    }

    /// The layout of the tensor after.
    #[must_use]
    pub fn to(&self) -> &Layout {
        &self.to
    }

    /// The shape of the whole tensor, in elements.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.tensor.shape
    }

    /// The bytes of one element.
    #[must_use]
    pub fn element_size(&self) -> usize {
        self.tensor.element_size
    }

    /// The steps, first to last; none where every device already holds its block.
    #[must_use]
    pub fn steps(&self) -> &[PlanStep] {
        &self.steps
    }

    /// The bytes that each device receives in all steps.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.steps.iter().map(PlanStep::bytes).sum()
    }

    /// How many steps communicate.
    #[must_use]
    pub fn collectives(&self) -> usize {
        let communicating = self.steps.iter().filter(|step| step.kind().communicates());
        communicating.count()
    }

    /// The peak memory of a device, in bytes.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        let peaks = self.steps.iter().map(PlanStep::peak_bytes);
        peaks.fold(self.initial_bytes, u64::max)
    }

    /// How long the plan should take, by its links.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.time
    }

    /// Whether the search came to its end and left no part of a mesh dimension out, so that no
    /// other list of these collectives is cheaper. It does leave parts out on meshes of more than
    /// six prime factors, such as 8×16, and where factors that differ have many orders, as in 12 or
    /// 6×6×6.
    #[must_use]
    pub fn is_proven_cheapest(&self) -> bool {
        self.is_proven_cheapest
    }

    /// The rank of the source's mesh whose device a rank of the target's mesh is on.
    ///
    /// # Errors
    /// [`Error::Mesh`] for a rank outside the mesh.
    pub fn source_rank(&self, rank: MeshRank) -> Result<MeshRank, Error> {
        self.to.mesh().coords(rank)?;
        Ok(self.numbering.of(&self.target_mesh, rank))
    }

    /// The rank of the source's mesh on whose device a rank is, at the beginning or the end of a
    /// step: placements may be on the source's mesh, or on the target's with ranks added for the
    /// devices that it leaves out.
    ///
    /// # Errors
    /// [`Error::Mesh`] for a rank outside the placement's mesh.
    pub fn device_rank(
        &self,
        placement: &MeshPlacement,
        rank: MeshRank,
    ) -> Result<MeshRank, Error> {
        placement.mesh().coords(rank)?;
        match placement.mesh() == self.from.mesh() {
            true => Ok(rank),
            false => Ok(self.numbering.of(&self.target_mesh, rank)),
        }
    }

    /// The plan in words, one line per step.
    #[must_use]
    pub fn explain(&self) -> PlanExplanation<'_> {
        PlanExplanation::of(self)
    }
}

#[cfg(test)]
mod tests;
