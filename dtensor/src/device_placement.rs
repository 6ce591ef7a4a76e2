//! Where the ranks of a mesh live.

use meshwork_core::{Mesh, MeshRank};

use crate::Error;

/// Which client each rank of a mesh belongs to, and which of its devices on the mesh it is.
#[derive(Debug)]
pub(crate) struct DevicePlacement {
    by_rank: Vec<RankLocation>,
    /// The ranks here, in the order of the mesh's local devices.
    local: Vec<MeshRank>,
}

/// The place of one rank.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RankLocation {
    /// The client.
    pub(crate) client: usize,
    /// Its place among that client's ranks of the mesh.
    pub(crate) place: usize,
}

impl DevicePlacement {
    /// The ranks of each client.
    pub(crate) fn of(
        mesh: &Mesh,
        clients: Vec<(usize, Vec<MeshRank>)>,
        local: Vec<MeshRank>,
    ) -> Result<Self, Error> {
        let mut owners: Vec<Vec<RankLocation>> = vec![Vec::new(); mesh.size()];
        for (client, ranks) in clients {
            for (place, rank) in ranks.into_iter().enumerate() {
                if let Some(owners) = owners.get_mut(rank.index()) {
                    owners.push(RankLocation { client, place });
                }
            }
        }
        let only = |(rank, owners): (usize, Vec<RankLocation>)| match owners[..] {
            [home] => Ok(home),
            _ => Err(Error::RankOwners {
                rank,
                owners: owners.len(),
            }),
        };
        let by_rank = owners.into_iter().enumerate().map(only);
        Ok(Self {
            by_rank: by_rank.collect::<Result<_, _>>()?,
            local,
        })
    }

    /// The home of a rank of the mesh.
    pub(crate) fn of_rank(&self, rank: MeshRank) -> RankLocation {
        self.by_rank[rank.index()]
    }

    /// Whether several clients have devices of the mesh.
    pub(crate) fn are_shared(&self) -> bool {
        let mut clients = self.by_rank.iter().map(|home| home.client);
        let first = clients.next();
        clients.any(|client| Some(client) != first)
    }

    /// The ranks of this process, in the order of their devices.
    pub(crate) fn local(&self) -> &[MeshRank] {
        &self.local
    }
}

/// The description of a mesh on which all clients have to agree: all but which devices are local.
pub(crate) fn common_text(mesh: &Mesh) -> String {
    let dims = mesh
        .dims()
        .iter()
        .map(|dim| format!("{}={}", dim.name(), dim.size()));
    let ids = mesh.global_device_ids();
    let runs_from = ids.get(0).unwrap_or_default();
    let is_counted = ids.iter().eq((runs_from..).take(ids.len()));
    let ids = match is_counted {
        true => format!("ids from {runs_from}"),
        false => format!("ids {:?}", ids.iter().collect::<Vec<_>>()),
    };
    format!(
        "{}|{}|{ids}|{} {}",
        mesh.name(),
        dims.collect::<Vec<_>>().join(","),
        mesh.num_local_devices(),
        mesh.device_type().unwrap_or("devices"),
    )
}

/// A mesh without devices has all its ranks here.
pub(crate) fn local_ranks(mesh: &Mesh) -> Vec<MeshRank> {
    let without_devices = mesh.local_devices().is_empty() && mesh.global_devices().is_empty();
    match without_devices && mesh.is_remote() {
        true => mesh.ranks().collect(),
        false => mesh.local_ranks().collect(),
    }
}
