//! How fast bytes go from rank to rank, measured, and operations that go by it.

use std::time::{Duration, Instant};

use super::Group;
use crate::flight_recorder::MediumKind;
use crate::measured_links::{LinkSpeed, MeasuredLinks, WORDS, opponents};
use crate::{OperationError, Rank};

/// More ranks are not measured: each needs a connection to each, and a moment with it.
const MOST_RANKS: u32 = 64;
/// Messages of one byte, of which the fastest counts: the first may have to make a connection.
const ROUND_TRIPS: usize = 3;
/// Bytes of the first message, and of the longest; each is twice as long as the one before.
const FIRST: usize = 64 << 10;
const LONGEST: usize = 4 << 20;
/// A message that takes so long, and so many round trips, is the last.
const LONG: Duration = Duration::from_millis(100);
const LONG_IN_ROUND_TRIPS: u32 = 4;

impl Group {
    /// Measures how fast bytes go from each rank to each other, and lets later operations of this
    /// group go by that: what goes around a ring takes the ring whose slowest link is fastest, and
    /// [`Communication::Auto`](crate::Communication::Auto) chooses algorithms by what they take
    /// over these links. For ranks whose links differ, as between sites; it is to be called again
    /// where they have changed, and is forgotten where members change.
    ///
    /// Pairs of different ranks measure at the same time, each pair once: a rank sends less than
    /// 8 MiB to each other, and over a slow link little more than what takes a tenth of a second or
    /// four round trips. `None` where all ranks share memory, and nothing is measured.
    ///
    /// ```
    /// let mut group = meshwork_collectives::Group::local(1)?.remove(0);
    /// if let Some(links) = group.measure_links()? {
    ///     println!("{links}"); // ring 0 > 2 > 1 > 3 > 0, its slowest link 96.2 Mbit/s …
    /// }
    /// # Ok::<(), meshwork_collectives::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`OperationError::TooManyToMeasure`] in groups of more than 64 ranks, and nothing has
    /// happened; those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    #[doc(alias("optimize_topology", "bandwidth"))]
    pub fn measure_links(&mut self) -> Result<Option<MeasuredLinks>, OperationError> {
        if self.settled().medium.kind() == MediumKind::Memory {
            return Ok(None);
        }
        let world = self.world();
        if world > MOST_RANKS {
            let most = MOST_RANKS;
            return Err(OperationError::TooManyToMeasure { world, most });
        }
        let mut own = vec![0; WORDS * world as usize];
        let (places, _) = own.as_chunks_mut();
        for peer in opponents(world, self.rank()) {
            places[peer.index()] = self.measure_with(peer)?.words();
        }
        let mut all = vec![0; own.len() * world as usize];
        self.all_gather(&own, &mut all)?;
        let links = MeasuredLinks::from_words(world, &all);
        self.settled().medium.go_by(&links);
        Ok(Some(links))
    }

    /// Both ways, one after the other: how fast bytes go to this peer.
    #[track_caller]
    fn measure_with(&mut self, peer: Rank) -> Result<LinkSpeed, OperationError> {
        if self.rank() < peer {
            let speed = self.measure_to(peer)?;
            self.answer(peer)?;
            return Ok(speed);
        }
        self.answer(peer)?;
        self.measure_to(peer)
    }

    #[track_caller]
    fn measure_to(&mut self, peer: Rank) -> Result<LinkSpeed, OperationError> {
        let mut round_trip = Duration::MAX;
        for _ in 0..ROUND_TRIPS {
            round_trip = round_trip.min(self.time_message(peer, &[0])?);
        }
        let long = LONG.max(round_trip.saturating_mul(LONG_IN_ROUND_TRIPS));
        let mut message = vec![0; FIRST];
        loop {
            let took = self.time_message(peer, &message)?;
            let is_last = took >= long || message.len() >= LONGEST;
            self.send(&[u8::from(is_last)], peer)?;
            if is_last {
                return Ok(LinkSpeed::of_message(message.len(), took, round_trip));
            }
            message = vec![0; 2 * message.len()];
        }
    }

    #[track_caller]
    fn time_message(&mut self, peer: Rank, message: &[u8]) -> Result<Duration, OperationError> {
        let began = Instant::now();
        self.send(message, peer)?;
        self.receive(&mut [0_u8], peer)?;
        Ok(began.elapsed())
    }

    /// Answers the messages of a peer that measures.
    #[track_caller]
    fn answer(&mut self, peer: Rank) -> Result<(), OperationError> {
        for _ in 0..ROUND_TRIPS {
            self.receive(&mut [0_u8], peer)?;
            self.send(&[0_u8], peer)?;
        }
        let mut message = vec![0_u8; FIRST];
        loop {
            self.receive(&mut message, peer)?;
            self.send(&[0_u8], peer)?;
            let mut is_last = [0_u8];
            self.receive(&mut is_last, peer)?;
            if is_last != [0] || message.len() >= LONGEST {
                return Ok(());
            }
            message = vec![0; 2 * message.len()];
        }
    }
}
