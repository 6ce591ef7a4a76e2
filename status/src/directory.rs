//! Where the other ranks of the job are asked.

use std::net::SocketAddr;
use std::path::Path;

use crate::client::Target;
use crate::folder;

/// What is known of where ranks are asked.
#[derive(Debug)]
pub(crate) struct Directory<'a> {
    /// Where the first rank of a host is asked; with port 0 that is not known.
    pub(crate) first: SocketAddr,
    /// In which the ranks say it.
    pub(crate) folder: Option<&'a Path>,
    /// The addresses of all ranks in the group.
    pub(crate) members: &'a [String],
    pub(crate) me: u32,
}

impl Directory<'_> {
    /// Where a rank is asked: as it says itself, or by its place on its host. `None` where nothing
    /// tells.
    pub(crate) fn find(&self, rank: u32) -> Option<Target> {
        let member = self.members.get(rank as usize)?;
        let noted = self.folder.and_then(|folder| folder::of(folder, member));
        noted.or_else(|| self.by_port(rank).map(Target::new))
    }

    /// The `k`-th rank of a host has the `k`-th port from the first on.
    fn by_port(&self, rank: u32) -> Option<String> {
        let (host, own) = (self.host(rank)?, self.host(self.me)?);
        let (address, port) = (self.first.ip(), self.first.port());
        if port == 0 {
            return None;
        }
        let below = (0..rank).filter(|other| self.host(*other) == Some(host));
        let port = port.checked_add(u16::try_from(below.count()).ok()?)?;
        match host == own {
            true if !address.is_unspecified() => Some(SocketAddr::new(address, port).to_string()),
            // What listens on loopback is not reached from elsewhere.
            false if address.is_loopback() => None,
            true | false => Some(format!("{host}:{port}")),
        }
    }

    fn host(&self, rank: u32) -> Option<&str> {
        let member = self.members.get(rank as usize)?;
        Some(member.rsplit_once(':').map_or(&**member, |parts| parts.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_folder_ports_follow_from_the_places_on_each_host() {
        let members = ["a:1", "b:1", "a:2", "b:2", "[::7]:5"].map(str::to_owned);
        let find = |first: &str, me| {
            let directory = Directory {
                first: first.parse().unwrap(),
                folder: None,
                members: &members,
                me,
            };
            let all = (0..6).map(|rank| directory.find(rank));
            all.map(|target| target.map(|target| target.address().to_owned()))
                .collect::<Vec<_>>()
        };
        let some = |address: &str| Some(address.to_owned());
        let everywhere = ["a:90", "b:90", "a:91", "b:91", "[::7]:90"].map(some);
        assert_eq!(find("0.0.0.0:90", 0)[..5], everywhere);
        let mut own = everywhere;
        (own[0], own[2]) = (some("10.0.0.1:90"), some("10.0.0.1:91"));
        assert_eq!(find("10.0.0.1:90", 2)[..5], own);
        let here = [None, some("127.0.0.1:90"), None, some("127.0.0.1:91"), None];
        assert_eq!(find("127.0.0.1:90", 1)[..5], here);
        assert_eq!(find("127.0.0.1:0", 1), [const { None }; 6]);
        assert_eq!(find("0.0.0.0:0", 1), [const { None }; 6]);
        assert_eq!(find("0.0.0.0:65535", 0)[2], None);
    }
}
