//! Clients tell each other which ranks of a mesh are theirs.

use meshwork_core::{Mesh, MeshRank};

use super::Context;
use crate::Error;
use crate::device_placement::{DevicePlacement, common_text, local_ranks};
use crate::error::Subject;

impl DevicePlacement {
    /// The home of each rank, as all clients together know.
    #[track_caller]
    pub(super) fn find(context: &Context, mesh: &Mesh) -> Result<Self, Error> {
        let local = local_ranks(mesh);
        let own = context.index() as usize;
        if local.len() == mesh.size() {
            return Self::of(mesh, vec![(own, local.clone())], local);
        }
        if context.is_alone() {
            return Err(Error::RemoteMesh {
                remote: mesh.size() - local.len(),
                mesh: Box::new(mesh.clone()),
            });
        }
        context.agree(Subject::Mesh, &common_text(mesh))?;
        let numbers: Vec<u8> = local
            .iter()
            .flat_map(|rank| (rank.index() as u64).to_le_bytes())
            .collect();
        let told = context.all_gather_bytes(Subject::Mesh, &numbers)?;
        let ranks = |bytes: &Vec<u8>| -> Vec<MeshRank> {
            let numbers = bytes.chunks_exact(8).map(|chunk| {
                let bytes = <[u8; 8]>::try_from(chunk).expect("chunks of 8 bytes");
                MeshRank::new(usize::try_from(u64::from_le_bytes(bytes)).unwrap_or(usize::MAX))
            });
            numbers.collect()
        };
        let clients = told.iter().map(ranks).enumerate().collect();
        Self::of(mesh, clients, local)
    }
}
