//! Which ranks share a host, and their local ranks.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Which ranks share a host: what [hierarchical](super::Algorithm::Hierarchical) schedules need.
///
/// ```
/// use meshwork_schedule::Hosts;
///
/// let hosts = Hosts::of(["a", "a", "b", "a"]);
/// assert_eq!((hosts.world(), hosts.count(), hosts.share(0, 3), hosts.share(0, 2)), (4, 2, true, false));
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Hosts {
    world: usize,
    /// `None` while each rank has a host of its own.
    shared: Option<Arc<Shared>>,
}

#[derive(Debug, Eq, PartialEq)]
struct Shared {
    /// The ranks of each host, in order.
    members: Vec<Vec<usize>>,
    /// Of each rank, its host and its place among the host's ranks.
    host_places: Vec<(usize, usize)>,
    /// The ranks by place, then by host.
    by_local_rank: Vec<usize>,
    /// Where each rank stands in `by_local_rank`.
    local_rank_places: Vec<usize>,
}

impl Hosts {
    /// Each of `world` ranks has a host of its own.
    #[must_use]
    pub fn apart(world: u32) -> Self {
        Self {
            world: world as usize,
            shared: None,
        }
    }

    /// The ranks in order, each with something that names its host.
    #[must_use]
    pub fn of<H: Ord>(names: impl IntoIterator<Item = H>) -> Self {
        let mut known = BTreeMap::new();
        let mut members: Vec<Vec<usize>> = Vec::new();
        let mut host_places = Vec::new();
        for (rank, name) in names.into_iter().enumerate() {
            let next = members.len();
            let host = *known.entry(name).or_insert(next);
            if host == next {
                members.push(Vec::new());
            }
            host_places.push((host, members[host].len()));
            members[host].push(rank);
        }
        let world = host_places.len();
        let mut by_local_rank: Vec<usize> = (0..world).collect();
        by_local_rank.sort_by_key(|rank| (host_places[*rank].1, host_places[*rank].0));
        let mut local_rank_places = vec![0; world];
        for (place, rank) in by_local_rank.iter().enumerate() {
            local_rank_places[*rank] = place;
        }
        let shared = Arc::new(Shared {
            members,
            host_places,
            by_local_rank,
            local_rank_places,
        });
        Self {
            world,
            shared: Some(shared).filter(|shared| shared.members.len() < world),
        }
    }

    /// How many ranks there are.
    #[must_use]
    pub fn world(&self) -> usize {
        self.world
    }

    /// How many hosts there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.shared
            .as_ref()
            .map_or(self.world, |shared| shared.members.len())
    }

    /// Whether two ranks, given by their numbers below [`world`](Self::world), share a host.
    #[must_use]
    pub fn share(&self, left: usize, right: usize) -> bool {
        self.host(left) == self.host(right)
    }

    /// Whether every host has as many ranks as every other, each time the same power of two, in one
    /// row that begins at a multiple of it; the last host may have fewer.
    pub(super) fn are_aligned(&self) -> bool {
        let size = self.size(self.host(0));
        let in_rows = (0..self.world).all(|rank| self.host(rank) == rank / size);
        size.is_power_of_two() && in_rows
    }

    /// The host of a rank, counted in the order in which ranks name them.
    #[must_use]
    pub fn host(&self, rank: usize) -> usize {
        self.shared
            .as_ref()
            .map_or(rank, |shared| shared.host_places[rank].0)
    }

    /// A rank's place among those of its host.
    #[must_use]
    pub fn local_rank(&self, rank: usize) -> usize {
        self.shared
            .as_ref()
            .map_or(0, |shared| shared.host_places[rank].1)
    }

    /// How many ranks a host has.
    #[must_use]
    pub fn size(&self, host: usize) -> usize {
        self.shared
            .as_ref()
            .map_or(1, |shared| shared.members[host].len())
    }

    /// The rank of a host with a local rank; a host with fewer ranks has several local ranks for
    /// some of them.
    #[must_use]
    pub fn at(&self, host: usize, local_rank: usize) -> usize {
        self.shared.as_ref().map_or(host, |shared| {
            let members = &shared.members[host];
            members[local_rank % members.len()]
        })
    }

    /// The ranks of a host.
    pub fn members(&self, host: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.size(host)).map(move |local_rank| self.at(host, local_rank))
    }

    /// Where a rank stands when all are sorted by local rank; inverse of [`Hosts::in_local_ranks`].
    pub(super) fn local_rank_place(&self, rank: usize) -> usize {
        self.shared
            .as_ref()
            .map_or(rank, |shared| shared.local_rank_places[rank])
    }

    /// The ranks by local rank, then by host.
    pub(super) fn in_local_ranks(&self, place: usize) -> usize {
        self.shared
            .as_ref()
            .map_or(place, |shared| shared.by_local_rank[place])
    }
}
