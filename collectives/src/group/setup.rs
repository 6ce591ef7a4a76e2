//! How a group of processes finds out whether it can share memory, and begins to.

use std::io;
use std::panic::Location;
use std::sync::Arc;

use super::engine::{Asked, Bond, Engine, Transport, Work};
use crate::contract::Kind;
use crate::memory::{Board, Domain, Mapping, Nonce, SegmentName, Shape};
use crate::{Error, Member, Rank};
use meshwork_accel::{ReduceOp, Reduction};
use ring::rand::{SecureRandom, SystemRandom};

/// What a rank tells all others of its memory, in words: the name of its board and where it has
/// mapped it, then its cores.
type Record = [u64; NAME_WORDS + CORE_WORDS];
/// Words by which a board is found and known: descriptor, bytes, address, nonce.
const NAME_WORDS: usize = 5;
/// Where the board is in its own process, and the words that are on it.
const BASE: usize = 2;
const NONCE: usize = 3;
/// Room for the numbers of 1,024 cores.
const CORE_WORDS: usize = 16;

/// How much of the others' memory a rank can reach; all settle for the least.
#[derive(Clone, Copy)]
enum Sharing {
    Nothing,
    /// Their boards, and what they register.
    Boards,
    /// Anything, by the kernel.
    All,
}

impl Engine {
    /// Lets the ranks share memory if all of them run on this host and can reach each other's.
    ///
    /// All ranks come to the same end; where memory cannot be shared, the links go on.
    pub(super) fn share_memory(&mut self) -> Result<(), Error> {
        let Bond::Remote(remote) = &self.ties.bond else {
            return Ok(());
        };
        let hosts = self.hosts();
        if hosts.iter().any(|host| *host != hosts[0]) {
            return Ok(());
        }
        let neighbours = self.places_of(remote.neighbours());
        let own = if neighbours.len() == self.world as usize {
            own_board(neighbours.len())
        } else {
            Err(io::ErrorKind::Unsupported.into())
        };
        let records = self.tell_all(own.as_ref().ok())?;
        let domain = own.and_then(|(own, _)| self.domain(own, &neighbours, &records));
        if let Err(error) = &domain {
            tracing::debug!(%error, "memory is not shared");
        }
        let bases: Vec<u64> = records.iter().map(|record| record[BASE]).collect();
        let able = match &domain {
            Err(_) => Sharing::Nothing,
            Ok(domain) if domain.may_fetch(&bases) => Sharing::All,
            Ok(_) => Sharing::Boards,
        };
        let agreed = self.least(able as u8)?;
        if let (true, Ok(mut domain)) = (agreed >= Sharing::Boards as u8, domain) {
            if agreed == Sharing::All as u8 {
                domain.fetch_long_buffers();
            }
            self.transport = Transport::Memory(domain);
        }
        self.sequence = 0;
        self.pen.adopt();
        Ok(())
    }

    /// A number for the host of each rank; threads of a process are on one.
    pub(super) fn hosts(&self) -> Vec<usize> {
        let Bond::Remote(remote) = &self.ties.bond else {
            return vec![0; self.members.len()];
        };
        let hosts = remote.hosts();
        let host = |member: &Member| hosts[member.rank().index()];
        self.members.iter().map(host).collect()
    }

    /// The members of this group among these, and their process ids.
    fn places_of(&self, neighbours: &[(Rank, u32)]) -> Vec<(Rank, u32)> {
        let process = |member: &Member| {
            let known = neighbours.iter().find(|(rank, _)| *rank == member.rank());
            known.map(|(_, process)| (member.rank(), *process))
        };
        self.members.iter().filter_map(process).collect()
    }

    /// The record of every rank, by rank.
    fn tell_all(&mut self, own: Option<&(Board, SegmentName)>) -> Result<Vec<Record>, Error> {
        let mut records = vec![Record::default(); self.world as usize];
        if let Some((board, name)) = own {
            let record = &mut records[self.rank.index()];
            record[..BASE].copy_from_slice(&[name.descriptor.into(), name.bytes]);
            record[BASE] = board.base();
            record[NONCE..NAME_WORDS].copy_from_slice(&board.nonce());
            record[NAME_WORDS..].copy_from_slice(&own_cores());
        }
        for root in Rank::all(self.world) {
            let buffer = &mut records[root.index()];
            let asked = Asked::new(Kind::Broadcast, buffer.len()).with_root(root);
            self.perform(asked, Location::caller(), Work::Broadcast { buffer, root })?;
        }
        Ok(records)
    }

    /// The least of all ranks' numbers.
    fn least(&mut self, number: u8) -> Result<u8, Error> {
        let mut least = [number];
        let work = Work::Reduce {
            buffer: &mut least,
            reduction: Reduction::new(ReduceOp::Min)?,
            root: None,
        };
        let asked = Asked::new(Kind::AllReduce, 1).with_op(ReduceOp::Min);
        self.perform(asked, Location::caller(), work)?;
        let [least] = least;
        Ok(least)
    }

    fn domain(
        &self,
        own: Board,
        neighbours: &[(Rank, u32)],
        records: &[Record],
    ) -> io::Result<Domain> {
        let shape = Shape::for_ranks(neighbours.len());
        let me = self.rank.index();
        let mut own = Some(own);
        let found =
            |(place, &(_, process)): (usize, &(Rank, u32))| match own.take_if(|_| place == me) {
                Some(own) => Ok(own),
                None => shown_board(&records[place], process, shape),
            };
        let boards = neighbours.iter().enumerate().map(found);
        let boards = boards.collect::<io::Result<Vec<_>>>()?;
        let (ranks, processes) = neighbours.iter().copied().unzip();
        let cores = cores_of(records);
        Ok(Domain::processes((me, boards), ranks, processes, cores))
    }
}

/// This rank's board, and how others find it.
fn own_board(ranks: usize) -> io::Result<(Board, SegmentName)> {
    let shape = Shape::for_ranks(ranks);
    let (memory, name) = Mapping::segment(shape.bytes())?;
    let own = board(memory, shape)?;
    let mut nonce = Nonce::default();
    SystemRandom::new()
        .fill(bytemuck::bytes_of_mut(&mut nonce))
        .map_err(|_| io::Error::other("the system gives no random numbers"))?;
    own.sign(nonce);
    Ok((own, name))
}

/// The board that another process has told of, if it is what is found there: on a copy of its machine,
/// boot, process and descriptor have the same names.
fn shown_board(record: &Record, process: u32, shape: Shape) -> io::Result<Board> {
    let found = board(name(record, process)?.map()?, shape)?;
    match found.nonce() == record[NONCE..NAME_WORDS] {
        true => Ok(found),
        false => Err(io::Error::new(
            io::ErrorKind::NotFound,
            "a process of the same number has another board: its host is a copy of this one",
        )),
    }
}

fn board(memory: Mapping, shape: Shape) -> io::Result<Board> {
    Board::new(Arc::new(memory), shape).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn name(record: &Record, process: u32) -> io::Result<SegmentName> {
    let descriptor = u32::try_from(record[0]).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(SegmentName {
        process,
        descriptor,
        bytes: record[1],
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_board_of_the_right_name_that_is_another_is_refused() {
        let (own, name) = own_board(2).unwrap();
        let shape = Shape::for_ranks(2);
        let mut record = [0; NAME_WORDS + CORE_WORDS];
        record[..BASE].copy_from_slice(&[name.descriptor.into(), name.bytes]);
        record[NONCE..NAME_WORDS].copy_from_slice(&own.nonce());
        shown_board(&record, std::process::id(), shape).unwrap();
        record[NONCE] ^= 1;
        shown_board(&record, std::process::id(), shape).unwrap_err();
    }
}

/// The cores that any of the ranks may run on, counted once.
fn cores_of(records: &[Record]) -> usize {
    let mut union = [0; CORE_WORDS];
    for record in records {
        for (word, own) in union.iter_mut().zip(&record[NAME_WORDS..]) {
            *word |= own;
        }
    }
    let cores: u32 = union.iter().map(|word| word.count_ones()).sum();
    cores as usize
}

/// The cores that this thread may run on, as bits.
#[cfg(target_os = "linux")]
fn own_cores() -> [u64; CORE_WORDS] {
    let mut words = [0; CORE_WORDS];
    if let Ok(cores) = rustix::thread::sched_getaffinity(None) {
        for core in (0..CORE_WORDS * 64).filter(|core| cores.is_set(*core)) {
            words[core / 64] |= 1 << (core % 64);
        }
    }
    words
}

#[cfg(not(target_os = "linux"))]
fn own_cores() -> [u64; CORE_WORDS] {
    [0; CORE_WORDS]
}
