//! Which algorithm an operation is carried out by.

mod cost;

use std::borrow::Cow;
use std::sync::OnceLock;

use crate::schedule::{Algorithm, Collective, Hosts};
use crate::{ElementType, MeasuredLinks, Rank, ReduceOp};

use cost::Cost;
pub use cost::{CostModel, LinkCost};

/// How the algorithm of an operation is chosen. All ranks of a group choose alike.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Communication {
    /// Whichever is predicted to be fastest, by [`Choices`], for the size of the buffer and for as
    /// many ranks to a core as where most share one; among more than eight ranks, of those in which
    /// a rank has to do with few others, unless they take more than four times as long.
    /// For means of `f16`, of those that combine all contributions at once: the sum behind such a
    /// mean, which others round on its way, is infinite above 65,504.
    #[default]
    Auto,
    /// Always the ring.
    Ring,
    /// Always the tree.
    Tree,
    /// Always everything to everybody at once.
    OneShot,
    /// Always everybody's part from all, then to all.
    Direct,
    /// Always recursive halving and doubling.
    Halving,
    /// Always two levels: inside hosts, and between them.
    Hierarchical,
    /// Always the k-nomial tree.
    Knomial,
    /// Whichever is predicted to be fastest of those whose result depends on the contributions
    /// alone: not on the size of the buffer, on where ranks are, nor on the transport.
    Reproducible,
}

impl Communication {
    /// Every way to choose.
    pub const ALL: [Self; 9] = [
        Self::Auto,
        Self::Ring,
        Self::Tree,
        Self::OneShot,
        Self::Direct,
        Self::Halving,
        Self::Hierarchical,
        Self::Knomial,
        Self::Reproducible,
    ];

    /// The algorithm, where it is always the same.
    #[must_use]
    pub fn algorithm(self) -> Option<Algorithm> {
        match self {
            Self::Auto | Self::Reproducible => None,
            Self::Ring => Some(Algorithm::Ring),
            Self::Tree => Some(Algorithm::Tree),
            Self::OneShot => Some(Algorithm::OneShot),
            Self::Direct => Some(Algorithm::Direct),
            Self::Halving => Some(Algorithm::Halving),
            Self::Hierarchical => Some(Algorithm::Hierarchical),
            Self::Knomial => Some(Algorithm::Knomial),
        }
    }
}

/// What each algorithm is predicted to take among given ranks, worked out once for every size.
///
/// ```
/// use meshwork_collectives::schedule::{Algorithm, Collective, Hosts};
/// use meshwork_collectives::{Choices, Communication, CostModel};
///
/// let choices = Choices::new(&Hosts::apart(16), CostModel::QUIC);
/// let fastest = |bytes| choices.explain(Collective::AllReduce, bytes)[0].algorithm();
/// assert_eq!((fastest(1 << 10), fastest(64 << 20)), (Algorithm::OneShot, Algorithm::Halving));
/// for line in choices.explain(Collective::AllReduce, 1 << 20) {
///     println!("{:>12}: {:.6} s", line.algorithm(), line.seconds());
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Choices {
    hosts: Hosts,
    basis: Basis,
    // Each once it was asked for.
    all_reduce: OnceLock<Vec<Line>>,
    reduce: OnceLock<Vec<Line>>,
    broadcast: OnceLock<Vec<Line>>,
    reduce_scatter: OnceLock<Vec<Line>>,
    all_gather: OnceLock<Vec<Line>>,
}

/// What predictions are made from.
#[derive(Clone, Debug)]
enum Basis {
    Model(CostModel),
    Measured(MeasuredLinks),
}

impl Basis {
    fn displaces(&self) -> bool {
        match self {
            Self::Model(model) => model.displaces(),
            Self::Measured(_) => false,
        }
    }
}

/// Up to so many ranks, time alone decides: all are neighbours. Unless many share a core.
pub(crate) const SMALL_WORLD: usize = 8;

/// How many times as long an algorithm may take that needs few other ranks. Every further one costs
/// a connection, and where ranks share cores, their time for its messages.
const WORTH_FEW_PEERS: f64 = 4.0;
/// How many times as long an algorithm may take that needs fewer messages, or about as many in
/// fewer rounds, in which ranks are woken for several at once.
const WORTH_FEW_MESSAGES: f64 = 1.2;
/// Their number is that of some ranks, which stand for all.
const ABOUT_AS_MANY: f64 = 1.2;

/// Cost as a function of size: nearly what the rounds of a schedule add up to.
#[derive(Clone, Copy, Debug)]
struct Line {
    algorithm: Algorithm,
    /// For no bytes.
    fixed: Cost,
    /// For each byte.
    per_byte: Cost,
    effort: Effort,
}

impl Line {
    fn seconds(&self, bytes: usize) -> f64 {
        let cost = Cost {
            chain: self.fixed.chain + self.per_byte.chain * bytes as f64,
            work: self.fixed.work + self.per_byte.work * bytes as f64,
        };
        cost.seconds()
    }
}

/// What an algorithm asks of ranks besides their time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Effort {
    /// Other ranks that the busiest one has to do with.
    peers: usize,
    /// Messages that a rank sends, on average.
    messages: f64,
    rounds: usize,
}

/// What an operation works on: elements of a type, and the op if they are reduced.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Payload {
    op: Option<ReduceOp>,
    element: ElementType,
    count: usize,
}

impl Payload {
    /// `count` elements, which are only moved.
    #[must_use]
    pub fn new(element: ElementType, count: usize) -> Self {
        let op = None;
        Self { op, element, count }
    }

    /// The same elements, reduced by `op`.
    #[must_use]
    pub fn reduced_by(self, op: ReduceOp) -> Self {
        let op = Some(op);
        Self { op, ..self }
    }
}

/// What one algorithm is predicted to take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    algorithm: Algorithm,
    seconds: f64,
    effort: Effort,
}

impl Prediction {
    /// The algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The time, in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// How many others the rank with the most of them has to be connected with.
    #[must_use]
    pub fn peers(&self) -> usize {
        self.effort.peers
    }
}

impl Choices {
    /// Works out what operations take among all ranks of `hosts`.
    #[must_use]
    pub fn new(hosts: &Hosts, model: CostModel) -> Self {
        Self::by(hosts.clone(), Basis::Model(model))
    }

    /// Works out what operations take over links that were measured, of which rings take the
    /// fastest.
    #[must_use]
    pub fn measured(links: &MeasuredLinks) -> Self {
        let world = u32::try_from(links.ring().world()).expect("ranks are below 2^32");
        Self::by(Hosts::apart(world), Basis::Measured(links.clone()))
    }

    fn by(hosts: Hosts, basis: Basis) -> Self {
        Self {
            hosts,
            basis,
            all_reduce: OnceLock::new(),
            reduce: OnceLock::new(),
            broadcast: OnceLock::new(),
            reduce_scatter: OnceLock::new(),
            all_gather: OnceLock::new(),
        }
    }

    /// What each algorithm is predicted to take for a buffer of `bytes`, fastest first. Which rank
    /// is the root plays no part.
    #[must_use]
    pub fn explain(&self, collective: Collective, bytes: usize) -> Vec<Prediction> {
        let predict = |line: &Line| Prediction {
            algorithm: line.algorithm,
            seconds: line.seconds(bytes),
            effort: line.effort,
        };
        let mut table: Vec<_> = self.lines(collective).iter().map(predict).collect();
        table.sort_by(|left, right| left.seconds.total_cmp(&right.seconds));
        table
    }

    /// The algorithm for a buffer: see [`Communication`].
    ///
    /// ```
    /// use meshwork_collectives::schedule::{Algorithm, Collective, Hosts};
    /// use meshwork_collectives::{Choices, Communication, CostModel, Payload};
    /// use meshwork_collectives::{ElementType, ReduceOp};
    ///
    /// let choices = Choices::new(&Hosts::apart(8), CostModel::QUIC);
    /// let buffer = Payload::new(ElementType::Bf16, 32 << 20).reduced_by(ReduceOp::Sum);
    /// let choose = |how| choices.choose(how, Collective::AllReduce, buffer);
    /// assert_eq!(choose(Communication::Ring), Algorithm::Ring);
    /// assert_eq!(choose(Communication::Reproducible), Algorithm::Direct);
    /// ```
    #[must_use]
    pub fn choose(
        &self,
        communication: Communication,
        collective: Collective,
        payload: Payload,
    ) -> Algorithm {
        if let Some(always) = communication.algorithm() {
            return always;
        }
        let Payload { op, element, count } = payload;
        let suits = |prediction: &Prediction| {
            let order = prediction.algorithm.order(collective, &self.hosts);
            op.is_none_or(|op| match communication {
                Communication::Reproducible => order.reproduces(op, element),
                _ => order.keeps_means(op, element),
            })
        };
        let mut table = self.explain(collective, count.saturating_mul(element.size()));
        table.retain(suits);
        // One step suits every op and type, and comes with every collective.
        self.least_effort(&table)
            .map_or(Algorithm::Direct, |chosen| chosen.algorithm)
    }

    /// The first of a table, or in a large world one that takes not much longer but fewer others or
    /// messages.
    fn least_effort<'a>(&self, table: &'a [Prediction]) -> Option<&'a Prediction> {
        let fastest = table.first()?;
        if self.hosts.world() <= SMALL_WORLD && !self.basis.displaces() {
            return Some(fastest);
        }
        // A k-nomial tree needs seven on each level, of which each has an eighth of those below.
        let few = 5 * self.hosts.world().ilog2() as usize / 2 + 1;
        let within = |limit: f64| {
            let in_time = table.iter().filter(move |other| other.seconds <= limit);
            in_time.filter(move |other| other.effort.peers <= few)
        };
        let Some(first) = within(fastest.seconds * WORTH_FEW_PEERS).next() else {
            return Some(fastest);
        };
        let worth = || within(first.seconds * WORTH_FEW_MESSAGES);
        let messages = worth().map(|other| other.effort.messages);
        let fewest = messages.fold(f64::INFINITY, f64::min);
        worth()
            .filter(|other| other.effort.messages <= ABOUT_AS_MANY * fewest)
            .min_by_key(|other| other.effort.rounds)
    }

    fn lines(&self, collective: Collective) -> Cow<'_, [Line]> {
        let root = Rank::CHIEF;
        let (slot, collective) = match collective {
            Collective::AllReduce => (&self.all_reduce, collective),
            Collective::Reduce { .. } => (&self.reduce, Collective::Reduce { root }),
            Collective::Broadcast { .. } => (&self.broadcast, Collective::Broadcast { root }),
            Collective::ReduceScatter => (&self.reduce_scatter, collective),
            Collective::AllGather => (&self.all_gather, collective),
            other => return lines(other, &self.hosts, &self.basis).into(),
        };
        let lines = || lines(collective, &self.hosts, &self.basis);
        slot.get_or_init(lines).into()
    }
}

fn lines(collective: Collective, hosts: &Hosts, basis: &Basis) -> Vec<Line> {
    const LARGE: usize = 64 << 20;
    let cost = |algorithm, bytes| match basis {
        Basis::Model(model) => model.cost(collective, algorithm, hosts, bytes),
        Basis::Measured(links) => Cost {
            chain: links.seconds(collective, algorithm, bytes),
            work: 0.0,
        },
    };
    let line = |algorithm| {
        let fixed = cost(algorithm, 0);
        let large = cost(algorithm, LARGE);
        Line {
            algorithm,
            fixed,
            per_byte: Cost {
                chain: (large.chain - fixed.chain) / LARGE as f64,
                work: (large.work - fixed.work) / LARGE as f64,
            },
            effort: cost::effort(collective, algorithm, hosts),
        }
    };
    Algorithm::ALL.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests;
