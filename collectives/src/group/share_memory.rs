//! How a group of processes finds out whether it can share memory, and begins to.

use std::io;
use std::sync::Arc;

use crate::contract::Kind;
use crate::medium::Medium;
use crate::operation::{OnArrival, OperationSpec, ReceiveBlock, SendBlocks, Transfer, Work};
use crate::session::{ControlPlane, Session};
use crate::shm::{ControlBlock, Mapping, Nonce, Population, SegmentName, Shape, ShmCommunicator};
use crate::{Member, OperationError, Rank};
use meshwork_accel::{ReduceOp, Reduction};
use ring::rand::{SecureRandom, SystemRandom};

/// What a rank tells all others of its memory, in words: the name of its control block and where it
/// has mapped it, then its cores.
type Record = [u64; NAME_WORDS + CORE_WORDS];
/// Words by which a control block is found and known: descriptor, bytes, address, nonce.
const NAME_WORDS: usize = 5;
/// Where the control block is in its own process, and the words that are on it.
const BASE: usize = 2;
const NONCE: usize = 3;
/// Room for the numbers of 1,024 cores.
const CORE_WORDS: usize = 16;

/// How much of the others' memory a rank can reach; all settle for the least.
#[derive(Clone, Copy)]
enum SharingLevel {
    Nothing,
    /// Their control blocks, and what they register.
    ControlBlocks,
    /// Anything, by the kernel.
    All,
}

impl Session {
    /// Lets the ranks share memory if all of them run on this host and can reach each other's.
    ///
    /// All ranks come to the same end; where memory cannot be shared, the links go on.
    pub(super) fn share_memory(&mut self) -> Result<(), OperationError> {
        let ControlPlane::Remote(remote) = &self.context.control else {
            return Ok(());
        };
        let hosts = self.hosts();
        if hosts.iter().any(|host| *host != hosts[0]) {
            return Ok(());
        }
        let local_members = self.places_of(remote.local_members());
        let own = if local_members.len() == self.world as usize {
            own_control_block(local_members.len())
        } else {
            Err(io::ErrorKind::Unsupported.into())
        };
        let records = self.tell_all(own.as_ref().ok())?;
        let communicator =
            own.and_then(|(own, _)| self.communicator(own, &local_members, &records));
        if let Err(error) = &communicator {
            tracing::debug!(%error, "memory is not shared");
        }
        let bases: Vec<u64> = records.iter().map(|record| record[BASE]).collect();
        let able = match &communicator {
            Err(_) => SharingLevel::Nothing,
            Ok(communicator) if communicator.may_fetch(&bases) => SharingLevel::All,
            Ok(_) => SharingLevel::ControlBlocks,
        };
        let agreed = self.least(able as u8)?;
        if let (true, Ok(mut communicator)) =
            (agreed >= SharingLevel::ControlBlocks as u8, communicator)
        {
            if agreed == SharingLevel::All as u8 {
                communicator.fetch_long_buffers();
            }
            self.medium = Medium::Shm(communicator);
        }
        (self.sequence, self.completed) = (0, 0);
        self.log.adopt();
        Ok(())
    }

    /// A number for the host of each rank; threads of a process are on one.
    pub(super) fn hosts(&self) -> Vec<usize> {
        let ControlPlane::Remote(remote) = &self.context.control else {
            return vec![0; self.members.len()];
        };
        let hosts = remote.hosts();
        let host = |member: &Member| hosts[member.rank().index()];
        self.members.iter().map(host).collect()
    }

    /// The members of this group among these, and their process ids.
    fn places_of(&self, local_members: &[(Rank, u32)]) -> Vec<(Rank, u32)> {
        let process = |member: &Member| {
            let known = local_members
                .iter()
                .find(|(rank, _)| *rank == member.rank());
            known.map(|(_, process)| (member.rank(), *process))
        };
        self.members.iter().filter_map(process).collect()
    }

    /// The record of every rank, by rank: one all-gather, whatever the world.
    fn tell_all(
        &mut self,
        own: Option<&(ControlBlock, SegmentName)>,
    ) -> Result<Vec<Record>, OperationError> {
        let mut record = Record::default();
        if let Some((control_block, name)) = own {
            record[..BASE].copy_from_slice(&[name.descriptor.into(), name.bytes]);
            record[BASE] = control_block.base();
            record[NONCE..NAME_WORDS].copy_from_slice(&control_block.nonce());
            record[NAME_WORDS..].copy_from_slice(&own_cores());
        }
        let mut records = vec![Record::default(); self.world as usize];
        let (me, whole) = (self.rank.index(), 0..record.len());
        records[me] = record;
        let place = |from: usize| from * whole.len()..(from + 1) * whole.len();
        let others = (0..records.len()).filter(|from| *from != me);
        let receives: Vec<_> = others
            .map(|from| ReceiveBlock::new(from, 0, 0, place(from)))
            .collect();
        let output = records.as_flattened_mut();
        let spec = OperationSpec::new(Kind::AllGather, output.len());
        let transfer = Transfer {
            outgoing_blocks: SendBlocks::whole(&record, std::slice::from_ref(&whole)),
            receives: &receives,
            output,
            then: OnArrival::Copy,
        };
        self.perform(spec, Work::Exchange(transfer))?;
        Ok(records)
    }

    /// The least of all ranks' numbers.
    fn least(&mut self, number: u8) -> Result<u8, OperationError> {
        let mut least = [number];
        let work = Work::Reduce {
            buffer: &mut least,
            reduction: Reduction::new(ReduceOp::Min)?,
            root: None,
        };
        let spec = OperationSpec::new(Kind::AllReduce, 1).with_op(ReduceOp::Min);
        self.perform(spec, work)?;
        let [least] = least;
        Ok(least)
    }

    fn communicator(
        &self,
        own: ControlBlock,
        local_members: &[(Rank, u32)],
        records: &[Record],
    ) -> io::Result<ShmCommunicator> {
        let shape = Shape::for_ranks(local_members.len());
        let me = self.rank.index();
        let mut own = Some(own);
        let found =
            |(place, &(_, process)): (usize, &(Rank, u32))| match own.take_if(|_| place == me) {
                Some(own) => Ok(own),
                None => peer_control_block(&records[place], process, shape),
            };
        let control_blocks = local_members.iter().enumerate().map(found);
        let control_blocks = control_blocks.collect::<io::Result<Vec<_>>>()?;
        let processes = local_members.iter().map(|(_, process)| *process).collect();
        let cores = cores_of(records);
        Ok(ShmCommunicator::processes(
            me,
            control_blocks,
            processes,
            cores,
        ))
    }
}

/// This rank's control block, and how others find it.
fn own_control_block(ranks: usize) -> io::Result<(ControlBlock, SegmentName)> {
    let shape = Shape::for_ranks(ranks);
    let (memory, name) = Mapping::segment(shape.bytes())?;
    let own = control_block(memory, shape)?;
    let mut nonce = Nonce::default();
    SystemRandom::new()
        .fill(bytemuck::bytes_of_mut(&mut nonce))
        .map_err(|_| io::Error::other("the system gives no random numbers"))?;
    own.sign(nonce);
    Ok((own, name))
}

/// The control block that another process has told of, if it is what is found there: on a copy of
/// its machine, boot, process and descriptor have the same names.
fn peer_control_block(record: &Record, process: u32, shape: Shape) -> io::Result<ControlBlock> {
    let population = Population::among(shape.ranks());
    let found = control_block(name(record, process)?.map(population)?, shape)?;
    match found.nonce() == record[NONCE..NAME_WORDS] {
        true => Ok(found),
        false => Err(io::Error::new(
            io::ErrorKind::NotFound,
            "a process of the same number has another control block: its host is a copy of this one",
        )),
    }
}

fn control_block(memory: Mapping, shape: Shape) -> io::Result<ControlBlock> {
    ControlBlock::new(Arc::new(memory), shape).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn name(record: &Record, process: u32) -> io::Result<SegmentName> {
    let descriptor = u32::try_from(record[0]).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(SegmentName {
        process,
        descriptor,
        bytes: record[1],
    })
}

#[cfg(all(test, target_os = "linux", not(meshwork_portable)))]
mod tests {
    use super::*;

    #[test]
    fn a_control_block_of_the_right_name_that_is_another_is_refused() {
        let (own, name) = own_control_block(2).unwrap();
        let shape = Shape::for_ranks(2);
        let mut record = [0; NAME_WORDS + CORE_WORDS];
        record[..BASE].copy_from_slice(&[name.descriptor.into(), name.bytes]);
        record[NONCE..NAME_WORDS].copy_from_slice(&own.nonce());
        peer_control_block(&record, std::process::id(), shape).unwrap();
        record[NONCE] ^= 1;
        peer_control_block(&record, std::process::id(), shape).unwrap_err();
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
#[cfg(all(target_os = "linux", not(meshwork_portable)))]
fn own_cores() -> [u64; CORE_WORDS] {
    let mut words = [0; CORE_WORDS];
    if let Ok(cores) = rustix::thread::sched_getaffinity(None) {
        for core in (0..CORE_WORDS * 64).filter(|core| cores.is_set(*core)) {
            words[core / 64] |= 1 << (core % 64);
        }
    }
    words
}

#[cfg(any(not(target_os = "linux"), meshwork_portable))]
fn own_cores() -> [u64; CORE_WORDS] {
    [0; CORE_WORDS]
}
