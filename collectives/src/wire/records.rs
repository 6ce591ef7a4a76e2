//! What members tell of themselves and others while a group begins.

use rkyv::{Archive, Deserialize, Serialize};

use super::Message;

/// What every member of a group knows of every other.
#[derive(Archive, Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct MemberRecord {
    pub(crate) incarnation: u64,
    /// The process id, meaningful only to a process on the same host.
    pub(crate) process: u32,
    /// Of the name of the host and its process namespace; zeros where unknown.
    pub(crate) host: [u8; 16],
    pub(crate) cores: Cores,
}

/// Cores of a host that a rank may run on, as far as it takes to tell who shares them: ranks that
/// were given the same cores have the same first one, and ranks that were given others another.
#[derive(Archive, Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Cores {
    /// The lowest number.
    pub(crate) first: u16,
    /// None where the rank cannot tell.
    pub(crate) count: u16,
}

/// The records of ranks that follow each other, around the end of the world.
#[derive(Archive, Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct RecordBatch {
    pub(crate) first: u32,
    pub(crate) records: Vec<MemberRecord>,
}

impl RecordBatch {
    /// Records that one message carries at most.
    pub(super) const LIMIT: usize = 900;

    /// The same in as many messages as it takes.
    pub(crate) fn messages(&self, world: u32) -> impl Iterator<Item = Message> {
        let firsts = (self.first..).step_by(Self::LIMIT);
        firsts
            .zip(self.records.chunks(Self::LIMIT))
            .map(move |(first, records)| {
                Message::Records(Self {
                    first: first % world,
                    records: records.to_vec(),
                })
            })
    }
}

#[cfg(test)]
pub(super) fn sample(count: usize) -> RecordBatch {
    let record = MemberRecord {
        incarnation: u64::MAX,
        process: 9,
        host: [7; 16],
        cores: Cores { first: 2, count: 8 },
    };
    RecordBatch {
        first: 1900,
        records: vec![record; count],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_records_are_told_in_several_messages_around_the_end_of_the_world() {
        let parts: Vec<(u32, usize)> = sample(1000)
            .messages(2000)
            .map(|message| match message {
                Message::Records(part) => (part.first, part.records.len()),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(parts, [(1900, 900), (800, 100)]);
    }
}
