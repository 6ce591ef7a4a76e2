//! Where the other ranks of the job are asked.

use std::net::SocketAddr;
use std::path::Path;

use crate::client::Target;
use crate::{access, folder};

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
    /// The number of the view, from 1.
    pub(crate) view: u64,
}

impl Directory<'_> {
    /// Where a rank is asked: as it says itself, or by its place on its host. `None` where nothing
    /// tells.
    pub(crate) fn find(&self, rank: u32) -> Option<Target> {
        let member = self.members.get(rank as usize)?;
        match self.folder.and_then(|folder| folder::of(folder, member)) {
            // It would be this host's own.
            Some(noted) if noted.is_on_loopback() && !self.is_here(rank) => None,
            Some(noted) => Some(noted.target()),
            None => self.by_port(rank),
        }
    }

    /// Whether a rank is on this host, as far as the addresses in the group tell.
    fn is_here(&self, rank: u32) -> bool {
        let member = self.members.get(rank as usize);
        let is_own = member.is_some_and(|member| access::is_own(member.as_bytes()));
        is_own || self.host(rank) == self.host(self.me)
    }

    /// The `k`-th rank of a host has the `k`-th port from the first on. When members change, ranks
    /// do too, and each keeps its port: of several on a host it is no longer known, and of one it
    /// is a guess.
    fn by_port(&self, rank: u32) -> Option<Target> {
        let (host, own) = (self.host(rank)?, self.host(self.me)?);
        let (address, port) = (self.first.ip(), self.first.port());
        let have_changed = self.view > 1;
        if port == 0 || have_changed && self.ranks_of(host).nth(1).is_some() {
            return None;
        }
        let below = self.ranks_of(host).take_while(|other| *other < rank);
        let port = port.checked_add(u16::try_from(below.count()).ok()?)?;
        let target = Target::new(match host == own {
            true if !address.is_unspecified() => SocketAddr::new(address, port).to_string(),
            // What listens on loopback is not reached from elsewhere.
            false if address.is_loopback() => return None,
            true | false => format!("{host}:{port}"),
        });
        Some(match have_changed {
            true => target.guessed(),
            false => target,
        })
    }

    fn ranks_of(&self, host: &str) -> impl Iterator<Item = u32> {
        (0..).zip(self.members).filter_map(move |(rank, member)| {
            let of_host = host_of(member) == host;
            of_host.then_some(rank)
        })
    }

    fn host(&self, rank: u32) -> Option<&str> {
        self.members
            .get(rank as usize)
            .map(|member| host_of(member))
    }
}

fn host_of(member: &str) -> &str {
    member.rsplit_once(':').map_or(member, |parts| parts.0)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::error::FetchError;
    use crate::folder::Note;
    use crate::look::{Silence, Unanswered};

    #[test]
    fn without_a_folder_ports_follow_from_the_places_on_each_host() {
        let members = ["a:1", "b:1", "a:2", "b:2", "[::7]:5"].map(str::to_owned);
        let find = |first: &str, me| {
            let directory = Directory {
                first: first.parse().unwrap(),
                folder: None,
                members: &members,
                me,
                view: 1,
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

    #[test]
    fn once_members_have_changed_ports_say_nothing_of_several_ranks_of_a_host() {
        let members = ["a:1", "b:1", "a:2", "[::7]:5"].map(str::to_owned);
        let directory = Directory {
            first: "0.0.0.0:90".parse().unwrap(),
            folder: None,
            members: &members,
            me: 0,
            view: 2,
        };
        let refused = FetchError::Unreached {
            address: String::new(),
            kind: io::ErrorKind::ConnectionRefused,
        };
        let find = |rank| directory.find(rank);
        assert_eq!([find(0), find(2)], [None, None]);
        for (rank, address) in [(1, "b:90"), (3, "[::7]:90")] {
            let target = find(rank).unwrap();
            assert_eq!(target.address(), address);
            // Nobody said that it listens there.
            assert_eq!(target.unanswered(&refused), Unanswered::unasked());
            let told = Target::new(address).unanswered(&refused);
            assert_eq!(told.silence, Silence::Gone);
        }
    }

    #[test]
    fn notes_say_where_to_ask_as_seen_from_the_host_that_asks() {
        let folder = tempfile::tempdir().unwrap();
        let members = ["a:1", "b:1", "[::7]:5", "a:2", "b:2", "127.0.0.2:1", "c:1"];
        let members = members.map(str::to_owned);
        let listens = [
            "0.0.0.0:90",
            "0.0.0.0:91",
            "[::]:92",
            "127.0.0.1:93",
            "127.0.0.1:94",
            "127.0.0.1:95",
            "10.0.0.3:96",
        ];
        let notes = members.iter().zip(listens).map(|(member, listens)| {
            let listens = listens.parse().unwrap();
            Note::write(folder.path(), member, listens).unwrap()
        });
        let _notes: Vec<Note> = notes.collect();
        let find = |me| {
            let directory = Directory {
                first: "0.0.0.0:70".parse().unwrap(),
                folder: Some(folder.path()),
                members: &members,
                me,
                view: 1,
            };
            let all = (0..7).map(|rank| directory.find(rank));
            all.map(|target| target.map(|target| target.address().to_owned()))
                .collect::<Vec<_>>()
        };
        let some = |address: &str| Some(address.to_owned());
        let own = some("127.0.0.1:93");
        let mut expected = [
            "a:90",
            "b:91",
            "[::7]:92",
            "",
            "",
            "127.0.0.1:95",
            "10.0.0.3:96",
        ]
        .map(some);
        (expected[3], expected[4]) = (own, None);
        assert_eq!(find(0), expected);
        (expected[3], expected[4]) = (None, some("127.0.0.1:94"));
        assert_eq!(find(1), expected);
        (expected[3], expected[4]) = (None, None);
        assert_eq!(find(6), expected);
    }
}
