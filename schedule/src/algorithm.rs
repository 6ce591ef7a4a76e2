//! The algorithms, their names and codes, and what can be chosen.

use std::fmt::{self, Display};

use super::{Collective, Hosts, KNOMIAL_RADIX, Order};

/// How a collective is carried out. Every algorithm can carry out every collective.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Algorithm {
    /// Every rank sends to its successor and receives from its predecessor: fewest bytes, and every
    /// link is used by one pair at a time.
    Ring = 1,
    /// A binomial tree: few rounds, of the whole buffer each.
    Tree = 2,
    /// Everything to everybody in one round: fewest rounds, most bytes.
    OneShot = 3,
    /// Each rank reduces its part of what all send it at once, and sends it to all at once: fewest
    /// bytes in two rounds, with many messages under way.
    Direct = 4,
    /// Recursive halving and doubling: fewest bytes in few rounds, in a world of a power of two;
    /// one round more on both sides in others.
    Halving = 5,
    /// Among the ranks of a host first and last, and in between among hosts, with every rank of a
    /// host carrying its share: fewest bytes between hosts.
    Hierarchical = 6,
    /// A k-nomial tree, of radix [`KNOMIAL_RADIX`]: fewer rounds than a binomial one, in which a
    /// rank may receive from several.
    Knomial = 7,
}

impl Algorithm {
    /// Every algorithm, in the order of its wire code.
    pub const ALL: [Self; 7] = [
        Self::Ring,
        Self::Tree,
        Self::OneShot,
        Self::Direct,
        Self::Halving,
        Self::Hierarchical,
        Self::Knomial,
    ];

    /// The code that stands for this algorithm on the wire; inverse of [`Algorithm::from_code`].
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The algorithm with this wire code; inverse of [`Algorithm::code`].
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.code() == code)
    }

    /// The order that this algorithm is sure to reduce in: what [`check`](super::check()) finds, or
    /// less. Collectives that do not reduce are in the best order.
    ///
    /// ```
    /// use meshwork_schedule::{Algorithm, Collective, Hosts, Order};
    ///
    /// let order = |algorithm: Algorithm| algorithm.order(Collective::AllReduce, &Hosts::apart(8));
    /// assert_eq!(order(Algorithm::Direct), Order::BalancedAtOnce);
    /// assert_eq!(order(Algorithm::Tree), Order::Balanced);
    /// assert_eq!(order(Algorithm::Ring), Order::Any);
    /// ```
    #[must_use]
    pub fn order(self, collective: Collective, hosts: &Hosts) -> Order {
        let in_place = match collective {
            Collective::AllReduce | Collective::ReduceScatter => true,
            Collective::Reduce { root } => root.index() == 0,
            Collective::Broadcast { .. }
            | Collective::AllGather
            | Collective::Gather { .. }
            | Collective::Scatter { .. }
            | Collective::AllToAll
            | Collective::Barrier => return Order::BalancedAtOnce,
        };
        let all_reduce = collective == Collective::AllReduce;
        let one_level = hosts.count() == 1 || hosts.count() == hosts.world();
        match self {
            _ if hosts.world() <= 2 => Order::BalancedAtOnce,
            Self::OneShot | Self::Direct => Order::BalancedAtOnce,
            Self::Hierarchical if one_level => Order::BalancedAtOnce,
            Self::Hierarchical if hosts.are_aligned() => Order::Balanced,
            Self::Knomial if in_place && hosts.world() <= KNOMIAL_RADIX => Order::BalancedAtOnce,
            Self::Tree | Self::Knomial if in_place => Order::Balanced,
            Self::Halving if all_reduce && hosts.world().is_power_of_two() => Order::Balanced,
            Self::Ring | Self::Tree | Self::Knomial | Self::Halving | Self::Hierarchical => {
                Order::Any
            }
        }
    }
}

impl Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ring => "ring",
            Self::Tree => "tree",
            Self::OneShot => "one-shot",
            Self::Direct => "direct",
            Self::Halving => "halving",
            Self::Hierarchical => "hierarchical",
            Self::Knomial => "knomial",
        })
    }
}
