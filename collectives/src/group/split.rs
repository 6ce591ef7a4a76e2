//! Groups of some of the ranks of another.

use std::panic::Location;
use std::sync::Arc;

use tokio::time::timeout;

use super::Group;
use super::session::{ControlPlane, Medium, OperationSpec, Origin, Session, failed};
use crate::contract::Kind;
use crate::execute::Scratch;
use crate::shm::ShmCommunicator;
use crate::{Error, Member, Rank};

/// What every rank tells all others: whether it takes part and in which group, and its key.
type Choice = [u64; 3];

/// The ranks of a new group as places in the old one, in their new order, and which is this one.
pub(super) struct Part {
    places: Vec<usize>,
    me: usize,
    /// The same on the ranks of the new group, another for each group.
    number: u64,
}

impl Part {
    pub(super) fn new(places: Vec<usize>, me: usize, number: u64) -> Self {
        Self { places, me, number }
    }
}

impl Group {
    /// Splits the group: ranks that give the same colour become a group of their own, in which they
    /// are ordered by `key`, and by their rank where keys are equal. A rank that gives no colour
    /// gets no group.
    ///
    /// All ranks call it, like any operation. The groups can be used at the same time, each by a
    /// thread of its own; they share the fate of the group that was joined, and their errors name
    /// ranks by its numbers. Leaving it ends them all; one that was split may be dropped when its
    /// work is done.
    ///
    /// For groups along the dimensions of a mesh the colour is the number of the rank's group along
    /// them, and the key its place in it.
    ///
    /// ```
    /// use meshwork_collectives::{Group, ReduceOp};
    ///
    /// // Rows and columns of a 2 × 2 mesh.
    /// std::thread::scope(|threads| {
    ///     for mut group in Group::local(4)? {
    ///         threads.spawn(move || {
    ///             let rank = group.rank().number();
    ///             let mut row = group.split(Some(rank / 2), 0)?.expect("every rank has a row");
    ///             let mut sum = [rank];
    ///             row.all_reduce(&mut sum, ReduceOp::Sum)?;
    ///             assert_eq!(sum, [if rank < 2 { 0 + 1 } else { 2 + 3 }]);
    ///             group.leave()
    ///         });
    ///     }
    ///     Ok::<(), meshwork_collectives::Error>(())
    /// })?;
    /// # Ok::<(), meshwork_collectives::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce); [`Error::System`] when there is no memory for
    /// what the new ranks share.
    #[track_caller]
    pub fn split(&mut self, color: Option<u32>, key: i64) -> Result<Option<Self>, Error> {
        let choice = [
            u64::from(color.is_some()),
            color.unwrap_or_default().into(),
            // Keeps the order of signed numbers.
            key.cast_unsigned() ^ (1 << 63),
        ];
        let mut choices = vec![0; choice.len() * self.world() as usize];
        self.all_gather(&choice, &mut choices)?;
        let caller = Location::caller();
        let mut session = self.settled();
        let part = part(&choices, session.rank.index(), session.next_number());
        let split = session.split(part, caller)?;
        drop(session);
        Ok(split.map(Self::with_session))
    }
}

impl Session {
    pub(super) fn split(
        &mut self,
        part: Option<Part>,
        caller: &'static Location<'static>,
    ) -> Result<Option<Self>, Error> {
        let all = self.members.clone();
        let members = |part: &Part| -> Arc<[Member]> {
            let member = |place: &usize| all[*place].clone();
            part.places.iter().map(member).collect()
        };
        let transport = match (&self.context.control, &part) {
            (ControlPlane::Local(_), _) => self.among_threads(part.as_ref(), caller)?,
            (ControlPlane::Remote(_), Some(part)) if part.places.len() == 1 => self.alone(part)?,
            (ControlPlane::Remote(_), Some(part)) => {
                let members = members(part);
                let links = self.new_links(&members, part.number)?;
                Some(Medium::Links(links, Scratch::new()))
            }
            (ControlPlane::Remote(_), None) => None,
        };
        let (Some(part), Some(transport)) = (part, transport) else {
            return Ok(None);
        };
        let shares = matches!(transport, Medium::Links(..)) && self.may_share_memory;
        #[expect(clippy::cast_possible_truncation, reason = "smaller than this group")]
        let place = (Rank::new(part.me as u32), members(&part));
        let mut new = Self::new(
            place,
            transport,
            self.context.clone(),
            Origin::Split,
            (self.epoch, part.number),
        )?;
        new.timeouts = self.timeouts;
        new.communication = self.communication;
        if shares {
            new.may_share_memory = true;
            new.share_memory()?;
        }
        Ok(Some(new))
    }

    fn alone(&self, part: &Part) -> Result<Option<Medium>, Error> {
        let ranks = part.places.iter().map(|place| self.members[*place].rank());
        let mut communicators = ShmCommunicator::threads(ranks.collect(), 1).map_err(refused)?;
        Ok(communicators.pop().map(Medium::Memory))
    }

    /// The first rank of each new group makes the memory for all of it.
    fn among_threads(
        &mut self,
        part: Option<&Part>,
        caller: &'static Location<'static>,
    ) -> Result<Option<Medium>, Error> {
        let ControlPlane::Local(hub) = &self.context.control else {
            return Ok(None);
        };
        let hub = hub.clone();
        if let Some(part) = part.filter(|part| part.me == 0) {
            let ranks = part.places.iter().map(|place| self.members[*place].rank());
            let communicators =
                ShmCommunicator::threads(ranks.collect(), super::cores()).map_err(refused)?;
            hub.hand_over(part.number, communicators);
        }
        self.perform::<u8>(
            OperationSpec::new(Kind::Barrier, 0),
            caller,
            super::session::Work::Meet,
        )?;
        let communicator = part.and_then(|part| hub.take_over(part.number, part.me));
        Ok(communicator.map(Medium::Memory))
    }

    fn new_links(&mut self, members: &[Member], number: u64) -> Result<crate::links::Links, Error> {
        let ControlPlane::Remote(remote) = &self.context.control else {
            return Err(Error::InsideAsync);
        };
        let waited = self.timeouts.join();
        let mut failure = self.context.control.failure();
        self.context.driver.block_on(async {
            tokio::select! {
                streams = timeout(waited, remote.streams(members, number)) => {
                    streams.unwrap_or(Err(Error::System {
                        what: "opening streams for a split group",
                        kind: std::io::ErrorKind::TimedOut,
                    }))
                }
                error = failed(&mut failure) => Err(error),
            }
        })
    }

    /// A number for the next split, the same on all ranks.
    pub(super) fn next_number(&mut self) -> u64 {
        self.splits += 1;
        mix(self.number, self.splits)
    }
}

fn refused(error: std::io::Error) -> Error {
    Error::System {
        what: "allocating the memory that threads share",
        kind: error.kind(),
    }
}

fn part(choices: &[u64], me: usize, number: u64) -> Option<Part> {
    let choice = |place: usize| -> Choice { std::array::from_fn(|word| choices[place * 3 + word]) };
    let [takes_part, color, _] = choice(me);
    if takes_part == 0 {
        return None;
    }
    let ranks = 0..choices.len() / 3;
    let mut places: Vec<usize> = ranks
        .filter(|place| choice(*place)[..2] == [1, color])
        .collect();
    // Stable: equal keys leave the order of the ranks.
    places.sort_by_key(|place| choice(*place)[2]);
    let me = places.iter().position(|place| *place == me)?;
    let number = mix(number, color);
    Some(Part { places, me, number })
}

/// Two numbers as one that is hard to meet by chance: a step of SplitMix64.
fn mix(a: u64, b: u64) -> u64 {
    let mut z = a ^ b.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
