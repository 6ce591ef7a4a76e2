//! The workers as a mesh of two dimensions: those that keep the parts of one model, and those that
//! keep the same part.
//!
//! ```text
//!                 part 0    part 1    part 2     gathers and reduce-scatters go along a row,
//!   replica 0     rank 0    rank 1    rank 2     the sums of what was reduced down a column
//!   replica 1     rank 3    rank 4    rank 5
//! ```

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

use meshwork_collectives::schedule::Hosts;
use meshwork_collectives::{Group, Rank};

use crate::Error;
use crate::error::ShardGroupError;

/// Which workers keep the parts of one model. If these are not all, there are as many copies of the
/// model as such groups, trained as one.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[doc(alias("HSDP", "HYBRID_SHARD", "device_mesh", "MiCS"))]
pub enum ShardGroup {
    /// All of them.
    #[default]
    All,
    /// Those of each host, of which each has as many. Parameters are gathered through its memory;
    /// between hosts go the parts of the gradients.
    Host,
    /// So many whose ranks follow one another.
    Workers(NonZeroU32),
}

/// Where a worker is in the mesh.
#[derive(Clone, Debug)]
pub(super) struct ShardMesh {
    /// Its part.
    pub(super) place: usize,
    /// Parts of a model.
    pub(super) parts: u32,
    /// Its copy of the model.
    pub(super) replica: usize,
    reach: Reach,
    /// `None` while all workers keep the parts of one model.
    groups: Option<Arc<Mutex<Groups>>>,
}

/// How those that keep the parts of one model come to each other's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Reach {
    /// All are on one host.
    Memory,
    /// Some are on others, and what goes over links is copied for it.
    Links,
}

impl Reach {
    fn within(row: &Group) -> Self {
        if row.hosts().count() == 1 {
            Self::Memory
        } else {
            Self::Links
        }
    }
}

/// A worker's row and its column.
#[derive(Debug)]
struct Groups {
    row: Group,
    column: Group,
}

/// The row and the column of a rank.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Coordinates {
    place: usize,
    replica: usize,
}

impl ShardMesh {
    /// Of one worker that keeps all.
    pub(super) const ALONE: Self = Self {
        place: 0,
        parts: 1,
        replica: 0,
        reach: Reach::Memory,
        groups: None,
    };

    /// One row of all workers.
    pub(super) fn flat(group: &Group) -> Self {
        Self {
            place: group.rank().index(),
            parts: group.world(),
            replica: 0,
            reach: Reach::within(group),
            groups: None,
        }
    }

    /// Rows of such groups, if there are several and they have several workers. All workers come to
    /// it, with the same.
    ///
    /// # Errors
    /// [`Error::ShardGroup`] where they do not fit the workers, [`Error::Group`].
    #[track_caller]
    pub(super) fn new(group: &mut Group, of: ShardGroup) -> Result<Self, Error> {
        let parts = match of {
            ShardGroup::All => group.world(),
            ShardGroup::Host => per_host(&group.hosts())?,
            ShardGroup::Workers(size) => in_groups_of(size, group.world())?,
        };
        if parts == group.world() {
            return Ok(Self::flat(group));
        }
        let own = match of {
            ShardGroup::Host => on_host(&group.hosts(), group.rank()),
            ShardGroup::All | ShardGroup::Workers(_) => in_order(group.rank(), parts),
        };
        let color = |number: usize| u32::try_from(number).expect("there are fewer than ranks");
        let row = group.split(Some(color(own.replica)), 0)?;
        let column = group.split(Some(color(own.place)), 0)?;
        let (row, column) = row.zip(column).expect("every rank has given a colour");
        Ok(Self {
            place: own.place,
            parts,
            replica: own.replica,
            reach: Reach::within(&row),
            groups: Some(Arc::new(Mutex::new(Groups { row, column }))),
        })
    }

    /// Whose part this worker keeps a copy of, if it is to outlive that one. Where several groups
    /// keep a model, the others have it.
    pub(super) fn neighbour(&self, all: u32) -> Option<usize> {
        let parts = self.parts as usize;
        let keeps_copy = self.parts > 1 && self.parts == all;
        keeps_copy.then(|| (self.place + parts - 1) % parts)
    }

    /// Whether several groups keep a model.
    pub(super) fn has_groups(&self) -> bool {
        self.groups.is_some()
    }

    /// Whether those that keep the parts of one model read them where they are.
    pub(super) fn reads_memory(&self) -> bool {
        self.reach == Reach::Memory
    }

    /// Lets `act` have the group of those that keep the parts of one model, and that of those that
    /// keep the same part, if there are such. `all` is the group of all workers.
    pub(super) fn with<R>(
        &self,
        all: &mut Group,
        act: impl FnOnce(&mut Group, Option<&mut Group>) -> R,
    ) -> R {
        let Some(groups) = &self.groups else {
            return act(all, None);
        };
        // A group that was used when something panicked is over, and says so.
        let mut groups = groups.lock().unwrap_or_else(PoisonError::into_inner);
        let Groups { row, column } = &mut *groups;
        act(row, Some(column))
    }
}

/// Workers of each host.
fn per_host(hosts: &Hosts) -> Result<u32, ShardGroupError> {
    let workers = hosts.size(0);
    let other = (1..hosts.count()).find(|host| hosts.size(*host) != workers);
    if let Some(host) = other {
        let first = hosts.at(host, 0);
        return Err(ShardGroupError::HostsDiffer {
            workers,
            rank: Rank::new(u32::try_from(first).expect("ranks are numbered by u32")),
            others: hosts.size(host),
        });
    }
    Ok(u32::try_from(workers).expect("there are no more than ranks"))
}

fn in_groups_of(size: NonZeroU32, workers: u32) -> Result<u32, ShardGroupError> {
    match workers % size {
        0 => Ok(size.get()),
        _ => Err(ShardGroupError::NotDivided { size, workers }),
    }
}

fn on_host(hosts: &Hosts, rank: Rank) -> Coordinates {
    Coordinates {
        place: hosts.local_rank(rank.index()),
        replica: hosts.host(rank.index()),
    }
}

fn in_order(rank: Rank, parts: u32) -> Coordinates {
    let parts = parts as usize;
    Coordinates {
        place: rank.index() % parts,
        replica: rank.index() / parts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_has_a_place_of_its_own_on_hosts_of_one_size() {
        for (names, parts) in [
            (vec!["a", "a", "b", "b"], Some(2)),
            (vec!["a", "b", "b", "a", "c", "c"], Some(2)),
            (vec!["a", "b", "c"], Some(1)),
            (vec!["a", "a", "a"], Some(3)),
            (vec!["a", "a", "b"], None),
        ] {
            let hosts = Hosts::of(&names);
            let Some(parts) = parts else {
                let told = per_host(&hosts).unwrap_err().to_string();
                assert!(
                    told.contains("rank 2 has 1") && told.contains("rank 0 has 2"),
                    "{told}"
                );
                continue;
            };
            assert_eq!(per_host(&hosts).unwrap(), parts);
            let ranks = 0..names.len();
            let mut found: Vec<_> = ranks
                .map(|rank| {
                    let own = on_host(&hosts, Rank::new(u32::try_from(rank).unwrap()));
                    assert_eq!(hosts.at(own.replica, own.place), rank);
                    own.replica * parts as usize + own.place
                })
                .collect();
            found.sort_unstable();
            assert!(found.into_iter().eq(0..names.len()));
        }
    }

    #[test]
    fn ranks_that_follow_one_another_share_a_model() {
        let own = |rank| in_order(Rank::new(rank), 3);
        let (place, replica) = (0, 1);
        assert_eq!(own(3), Coordinates { place, replica });
        let (place, replica) = (2, 1);
        assert_eq!(own(5), Coordinates { place, replica });
    }
}
