//! How a group over several hosts finds out who shares one, and makes the groups for that.

use super::split::Part;
use crate::OperationError;
use crate::links::Hierarchy;
use crate::medium::Medium;
use crate::schedule::Hosts;
use crate::session::{ControlPlane, Session};

impl Session {
    /// Makes the groups inside hosts and across them, where there are several hosts and one of them
    /// has several ranks. All ranks come to the same end.
    pub(super) fn find_hosts(&mut self) -> Result<(), OperationError> {
        let context = self.context.clone();
        let ControlPlane::Remote(remote) = &context.control else {
            return Ok(());
        };
        let hosts = Hosts::of(self.hosts());
        if hosts.count() == 1 || hosts.count() == hosts.world() {
            return Ok(());
        }
        let me = self.rank.index();
        let number = self.next_number();
        let here: Vec<usize> = hosts.members(hosts.host(me)).collect();
        let local = Part::with(here, me, number);
        let carries = hosts.local_rank(me) < Hierarchy::shares(&hosts);
        let carriers: Vec<usize> = Hierarchy::carriers(&hosts, me).collect();
        let across = carries.then(|| Part::with(carriers, me, number.wrapping_add(1)));
        let local = self.split_processes(remote, &local)?;
        let across = across.map(|across| self.split_processes(remote, &across));
        let across = across.transpose()?;
        for part in [Some(&local), across.as_ref()].into_iter().flatten() {
            part.log.is_part_of(self.id.number);
        }
        match &mut self.medium {
            Medium::Links(links) => {
                links.set_hierarchy(Hierarchy::new(self.rank, hosts, local, across));
            }
            Medium::Shm(_) => unreachable!("ranks of several hosts share no memory"),
        }
        Ok(())
    }
}
