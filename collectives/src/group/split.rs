//! Groups of some of the ranks of another.

use std::sync::Arc;

use super::Group;
use crate::contract::Kind;
use crate::links::LinkMedium;
use crate::local::Hub;
use crate::medium::Medium;
use crate::operation::{OperationSpec, Work};
use crate::quic::Remote;
use crate::session::{ControlPlane, GroupId, Session};
use crate::shm::ShmCommunicator;
use crate::{Member, OperationError, Rank, SystemError, config};

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
    /// These places, among them that of this rank.
    pub(super) fn with(places: Vec<usize>, own: usize, number: u64) -> Self {
        let me = places.iter().position(|place| *place == own);
        Self {
            me: me.expect("this rank is one of those"),
            places,
            number,
        }
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
    /// Two ranks can use 64 groups at a time whose bytes go over the network. An operation that
    /// needs one more ends with [`OperationError::TooManyGroups`].
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce); [`OperationError::System`] when there is no
    /// memory for what the new ranks share.
    #[track_caller]
    pub fn split(&mut self, color: Option<u32>, key: i64) -> Result<Option<Self>, OperationError> {
        let choice = [
            u64::from(color.is_some()),
            color.unwrap_or_default().into(),
            // Keeps the order of signed numbers.
            key.cast_unsigned() ^ (1 << 63),
        ];
        let mut choices = vec![0; choice.len() * self.world() as usize];
        self.all_gather(&choice, &mut choices)?;
        let mut session = self.settled();
        let part = part(&choices, session.rank.index(), session.next_number());
        let split = session.split(part)?;
        drop(session);
        let observer = self.observer();
        Ok(split.map(|session| Self::with_session(session, observer)))
    }
}

impl Session {
    #[track_caller]
    pub(super) fn split(&mut self, part: Option<Part>) -> Result<Option<Self>, OperationError> {
        let context = self.context.clone();
        match &context.control {
            ControlPlane::Local(hub) => self.split_threads(hub, part),
            ControlPlane::Remote(remote) => part
                .map(|part| self.split_processes(remote, &part))
                .transpose(),
        }
    }

    /// The first rank of each new group makes the memory for all of it.
    #[track_caller]
    fn split_threads(
        &mut self,
        hub: &Hub,
        part: Option<Part>,
    ) -> Result<Option<Self>, OperationError> {
        if let Some(part) = part.as_ref().filter(|part| part.me == 0) {
            // The others wait for it: an error is everybody's.
            let communicators = ShmCommunicator::threads(part.places.len(), super::cores())
                .map_err(|error| self.end(refused(error).into()))?;
            hub.hand_over(part.number, communicators);
        }
        self.perform::<u8>(OperationSpec::new(Kind::Barrier, 0), Work::Barrier)?;
        let new = |part: Part| {
            let communicator = hub.take_over(part.number, part.me);
            let communicator = communicator.expect("its first rank has made one for each rank");
            self.with_part(&part, Medium::Shm(communicator))
        };
        Ok(part.map(new))
    }

    /// A group of processes, by streams of its own, or memory where they can share it.
    pub(super) fn split_processes(
        &self,
        remote: &Remote,
        part: &Part,
    ) -> Result<Self, OperationError> {
        if part.places.len() == 1 {
            let alone = ShmCommunicator::alone().map_err(refused)?;
            return Ok(self.with_part(part, Medium::Shm(alone)));
        }
        let members = self.members_of(part);
        let model = remote.cost_model(&members);
        let links = remote.links(members, part.number);
        let world = config::world_of(part.places.len());
        let links = LinkMedium::new(links, world, model);
        let mut new = self.with_part(part, Medium::Links(Box::new(links)));
        if self.may_share_memory {
            new.may_share_memory = true;
            new.share_memory()?;
        }
        Ok(new)
    }

    /// The session of this rank in a part of the group.
    fn with_part(&self, part: &Part, medium: Medium) -> Self {
        let id = GroupId {
            number: part.number,
            ..self.id
        };
        let mut new = Self::new(
            id,
            Rank::at(part.me),
            self.members_of(part),
            medium,
            self.context.clone(),
        );
        new.timeouts = self.timeouts;
        new.communication = self.communication;
        new
    }

    fn members_of(&self, part: &Part) -> Arc<[Member]> {
        let member = |place: &usize| self.members[*place].clone();
        part.places.iter().map(member).collect()
    }

    /// A number for the next split, the same on all ranks.
    pub(super) fn next_number(&mut self) -> u64 {
        self.splits += 1;
        mix(self.id.number, self.splits)
    }
}

fn refused(error: std::io::Error) -> SystemError {
    SystemError::new("allocating the memory that threads share", error.kind())
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
    Some(Part::with(places, me, mix(number, color)))
}

/// Two numbers as one that is hard to meet by chance: a step of SplitMix64.
fn mix(a: u64, b: u64) -> u64 {
    let mut z = a ^ b.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
