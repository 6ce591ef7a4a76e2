//! How many ranks share each core: worked out from what every rank has told, so alike on all.

use std::collections::BTreeMap;

use crate::wire::{Cores, MemberRecord};

/// How many ranks share a core where each rank runs, itself among them; `None` where it cannot tell
/// its cores. Ranks that cannot tell their host are taken to be alone on it.
pub(crate) fn ranks_per_core(records: &[MemberRecord]) -> Vec<Option<f64>> {
    let place = |record: &MemberRecord| (record.host, record.cores.first);
    let mut ranks: BTreeMap<_, u32> = BTreeMap::new();
    let mut cores: BTreeMap<_, u16> = BTreeMap::new();
    for record in records {
        *ranks.entry(place(record)).or_default() += 1;
        let most = cores.entry(place(record)).or_default();
        *most = record.cores.count.max(*most);
    }
    let of = |record: &MemberRecord| {
        let here = match record.host == [0; 16] {
            true => 1,
            false => ranks[&place(record)],
        };
        let can_tell = record.cores != Cores::default();
        can_tell.then(|| f64::from(here) / f64::from(cores[&place(record)].max(1)))
    };
    records.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(host: u8, first: u16, count: u16) -> MemberRecord {
        MemberRecord {
            incarnation: 1,
            process: 1,
            host: [host; 16],
            cores: Cores { first, count },
        }
    }

    #[test]
    fn ranks_of_a_host_share_the_cores_that_they_were_given_alike() {
        let on_two = [record(1, 0, 2); 8];
        assert_eq!(ranks_per_core(&on_two), [Some(4.0); 8]);
        // One of them has a host of its own, with as many cores.
        let mut apart = on_two;
        apart[7].host = [2; 16];
        let found = ranks_per_core(&apart);
        assert_eq!((&found[..7], found[7]), (&[Some(3.5); 7][..], Some(0.5)));
    }

    #[test]
    fn ranks_with_a_core_each_share_none() {
        let pinned: Vec<_> = (0..4).map(|core| record(1, core, 1)).collect();
        assert_eq!(ranks_per_core(&pinned), [Some(1.0); 4]);
        let twice: Vec<_> = (0..4).map(|rank| record(1, rank / 2, 1)).collect();
        assert_eq!(ranks_per_core(&twice), [Some(2.0); 4]);
    }

    #[test]
    fn nothing_is_said_of_ranks_that_cannot_tell_their_cores_or_their_host() {
        let silent = MemberRecord {
            cores: Cores::default(),
            ..record(1, 0, 0)
        };
        assert_eq!(
            ranks_per_core(&[silent, record(1, 0, 1)]),
            [None, Some(2.0)]
        );
        assert_eq!(ranks_per_core(&[record(0, 0, 2); 9]), [Some(0.5); 9]);
    }
}
