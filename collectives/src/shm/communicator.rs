//! The ranks of one host, and how they meet for an operation.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};
use std::{io, ptr};

use meshwork_accel::Element;

use super::access::{DataPath, MemoryAccess};
use super::control_block::{ControlBlock, DescriptorCell, Shape};
use super::descriptor::{self, BufferDescriptor, BufferLocation, ContractWords};
use super::flag::{Atomic, Flag};
use super::mapping::{Mapping, Population};
use super::peer_channel::MessageCounters;
use super::reduce::{Receiver, ReducePlan};
use super::registry::{PeerProcess, Registry};
use super::span::Span;
use super::wait::{SpinPolicy, WaitObserver, Waiter};
use crate::Rank;
use crate::contract::Call;
use crate::failure::Failure;
use crate::operation::{Request, Work};

/// One rank's end of the memory that the ranks of a host share.
#[derive(Debug)]
pub(crate) struct ShmCommunicator<A = AtomicU32> {
    /// This rank's place among the ranks of the host.
    pub(super) me: usize,
    /// The control blocks of all ranks of the host, by place.
    pub(super) control_blocks: Vec<ControlBlock<A>>,
    pub(super) reach: MemoryAccess,
    pub(super) shape: Shape,
    spin_policy: SpinPolicy,
    /// Operations so far.
    pub(super) sequence: u32,
    /// Direct operations that this rank has finished, in which ranks touch each other's memory.
    /// Every one is announced by the next number, so that no flag is ever far behind, as it would
    /// be by `sequence`.
    direct: u32,
    /// What others may write to in the current operation, in registered memory of this rank.
    pub(super) exposed: Option<Span>,
    /// Slots that operations have gone through so far, the same on all ranks.
    pub(super) ticks: u32,
    /// What this rank and each other have sent each other, by place.
    pub(super) messages: Vec<MessageCounters>,
    /// The call sites that the two places on the control block show.
    shown: [Option<&'static Location<'static>>; 2],
    /// Room for what is fetched from other processes before it is folded.
    pub(super) scratch: Vec<u64>,
}

/// What this rank has told the others of an operation, and expects to hear of them.
#[derive(Debug)]
#[must_use = "who tells others has to hear them"]
pub(super) struct PostedContract(ContractWords);

/// What a closed rank's flag says; open ones say 0.
pub(super) const CLOSED: u32 = 1;
/// How long a live process is waited for that is inside the memory of one that has failed. One that
/// is stopped there, or frozen, comes out when it likes; copying its part away takes no longer than
/// this.
pub(super) const EXIT_LIMIT: Duration = Duration::from_millis(100);

impl ShmCommunicator {
    /// The communicators of threads of this process, in the order of their ranks.
    ///
    /// # Errors
    /// When there is no memory for the control blocks.
    pub(crate) fn threads(local: usize, cores: usize) -> io::Result<Vec<Self>> {
        let shape = Shape::for_ranks(local);
        let control_block = |_| {
            let memory = Arc::new(Mapping::heap(shape.bytes())?);
            ControlBlock::new(memory, shape).ok_or_else(|| io::ErrorKind::InvalidData.into())
        };
        let control_blocks = (0..local)
            .map(control_block)
            .collect::<io::Result<Vec<_>>>()?;
        let communicator = |me| {
            let reach = MemoryAccess::Threads(Registry::private());
            let spin_policy = SpinPolicy::new(local, cores);
            Self::new(me, control_blocks.clone(), reach, spin_policy)
        };
        Ok((0..local).map(communicator).collect())
    }

    /// That of a rank which has no other.
    ///
    /// # Errors
    /// When there is no memory for its control block.
    pub(crate) fn alone() -> io::Result<Self> {
        let mut only = Self::threads(1, 1)?;
        Ok(only.remove(0))
    }

    /// The communicator of a process, given what it has found out about the others of its host.
    pub(crate) fn processes(
        me: usize,
        control_blocks: Vec<ControlBlock>,
        ids: Vec<u32>,
        cores: usize,
    ) -> Self {
        let registry = Registry::shown_on(control_blocks[me].clone());
        let population = Population::among(ids.len());
        let peers = ids.into_iter();
        let peer_processes = peers.map(|process| PeerProcess::new(process, population));
        let reach = MemoryAccess::Processes {
            registry,
            peer_processes: peer_processes.collect(),
            fetches: false,
        };
        let spin_policy = SpinPolicy::new(control_blocks.len(), cores);
        Self::new(me, control_blocks, reach, spin_policy)
    }

    pub(crate) fn registry(&self) -> &Arc<Registry> {
        match &self.reach {
            MemoryAccess::Threads(registry) | MemoryAccess::Processes { registry, .. } => registry,
        }
    }
}

impl<A: Atomic> ShmCommunicator<A> {
    pub(super) fn new(
        me: usize,
        control_blocks: Vec<ControlBlock<A>>,
        reach: MemoryAccess,
        spin_policy: SpinPolicy,
    ) -> Self {
        Self {
            me,
            shape: control_blocks[me].shape(),
            spin_policy,
            messages: vec![MessageCounters::default(); control_blocks.len()],
            control_blocks,
            reach,
            sequence: 0,
            direct: 0,
            exposed: None,
            ticks: 0,
            shown: [None; 2],
            scratch: Vec::new(),
        }
    }

    /// Carries an operation out on elements that are what any bytes are. One that fails takes this
    /// rank's memory back.
    #[inline]
    pub(crate) fn run<T: Element>(
        &mut self,
        request: &Request,
        waiter: &Waiter<'_>,
        work: Work<'_, T>,
    ) -> Result<(), Failure> {
        let done = self.carry_out(request, waiter, work);
        self.wake_sleepers();
        if done.is_err() {
            // What others were told of this rank's memory ends here.
            self.close();
        }
        done
    }

    fn carry_out<T: Element>(
        &mut self,
        request: &Request,
        waiter: &Waiter<'_>,
        work: Work<'_, T>,
    ) -> Result<(), Failure> {
        match work {
            Work::Barrier | Work::Agree => self.rendezvous(request, waiter),
            Work::Reduce {
                buffer,
                reduction,
                root,
            } => {
                let receiver = root.map_or(Receiver::All, |root| Receiver::One(root.index()));
                let plan = ReducePlan::new(reduction, receiver);
                self.reduce(request, waiter, buffer, &plan)
            }
            Work::Exchange(transfer) => self.exchange(request, waiter, transfer),
            Work::Broadcast { buffer, root } => {
                self.broadcast(request, waiter, buffer, root.index())
            }
            Work::Send { input, to } => self.send(request, waiter, input, to.index()),
            Work::Receive { output, from } => self.receive(request, waiter, output, from.index()),
        }
    }

    /// As if so many operations had been made, none of them a direct one; on all ranks, before the
    /// first.
    #[cfg(test)]
    pub(super) fn begin_after(&mut self, operations: u32) {
        for number in [operations.wrapping_sub(1), operations] {
            self.sequence = number;
            self.post(self.me).flag.set(number);
            let meeting = super::gather::Gathering::meeting(number);
            self.gathered(meeting, self.me).set(number);
            self.own().agreed.0.set(number);
        }
    }

    /// The patience of one operation: at most `limit`, and while `observer` says that it may.
    pub(crate) fn waiter<'a>(&self, limit: Duration, observer: &'a dyn WaitObserver) -> Waiter<'a> {
        Waiter::new(self.spin_policy, limit, observer)
    }

    pub(crate) fn len(&self) -> usize {
        self.control_blocks.len()
    }

    /// The places of the other ranks, beginning behind this one, so that not all turn to the same.
    pub(super) fn others(&self) -> impl Iterator<Item = usize> + use<A> {
        let (me, len) = (self.me, self.len());
        (1..len).map(move |distance| (me + distance) % len)
    }

    /// Says what this rank does next and where its bytes are, and hears it of all others.
    ///
    /// When it returns, every other rank has finished the operation before this one.
    pub(super) fn rendezvous(
        &mut self,
        request: &Request,
        waiter: &Waiter<'_>,
    ) -> Result<(), Failure> {
        let told = self.post_call(request, BufferLocation::Nothing, 0);
        self.await_peers(waiter, &told, || ()).map(drop)
    }

    /// The first half of a meeting: what can be done without the others may follow it.
    #[inline]
    pub(super) fn post_call(
        &mut self,
        request: &Request,
        place: BufferLocation,
        pieces: u64,
    ) -> PostedContract {
        let contract_words = descriptor::contract_words(&request.contract, request.digest);
        self.exposed = None;
        self.sequence = self.sequence.wrapping_add(1);
        self.show_site(request.caller);
        let post = self.post(self.me);
        BufferDescriptor { place, pieces }.write(&contract_words, post);
        post.flag.show(self.sequence);
        if place == BufferLocation::Private {
            // Slots are filled before the others are heard.
            self.wake_sleepers();
        }
        PostedContract(contract_words)
    }

    /// The second half of a meeting. Of many ranks that all hand over short messages, the one at
    /// the top of their tree does `at_top` before any of the others goes on.
    ///
    /// What this rank has written may still be on its way to the others, in the order in which it
    /// was written. Until short messages are read, nothing here may wait for that: no look for
    /// sleepers, and no value that is read from memory in one piece after it was written in
    /// several.
    #[inline]
    pub(super) fn await_peers(
        &self,
        waiter: &Waiter<'_>,
        PostedContract(contract_words): &PostedContract,
        at_top: impl FnOnce(),
    ) -> Result<DataPath, Failure> {
        if self.shape.gathers() && self.meet_along_tree(waiter, contract_words, at_top)? {
            return Ok(DataPath::Small);
        }
        let mut all_small = self.post(self.me).is_near();
        for other in self.others() {
            let post = self.post(other);
            self.wait(waiter, &post.flag, self.sequence, other)?;
            if !cfg!(meshwork_bare) && !post.has(contract_words) {
                return Err(self.disagreement(other));
            }
            all_small &= post.is_near();
        }
        if all_small {
            return Ok(DataPath::Small);
        }
        // What follows takes longer than others should sleep.
        self.wake_sleepers();
        self.data_path()
    }

    /// What the rank at this place says of the current operation.
    pub(super) fn post(&self, place: usize) -> &DescriptorCell<A> {
        &self.control_blocks[place].head().descriptors[self.sequence as usize % 2]
    }

    /// Wakes whoever sleeps until a number that this rank has shown: to be called when an operation
    /// is over, and before anything in it that takes long.
    #[inline]
    pub(crate) fn wake_sleepers(&self) {
        Flag::wake([&self.post(self.me).flag, &self.own().done.0]);
    }

    fn show_site(&mut self, caller: &'static Location<'static>) {
        let parity = self.sequence as usize % 2;
        let changed = self.shown[parity].is_none_or(|shown| !ptr::eq(shown, caller));
        if changed && !cfg!(meshwork_bare) {
            let words = &self.control_blocks[self.me].head().sites[parity];
            descriptor::write_site(words, caller);
            self.shown[parity] = Some(caller);
        }
    }

    #[cold]
    fn disagreement(&self, other: usize) -> Failure {
        let head = self.control_blocks[other].head();
        let site = descriptor::read_site(&head.sites[self.sequence as usize % 2]);
        self.other_call(other, &self.post(other).contract_words(), site)
    }

    /// A call of the rank at this place that is not the expected one.
    pub(super) fn other_call(&self, other: usize, theirs: &ContractWords, site: String) -> Failure {
        let rank = Rank::at(other);
        match descriptor::contract(theirs) {
            Ok(contract) => Failure::Disagreement(rank, Box::new(Call::new(contract, site))),
            Err(error) => Failure::Protocol(rank, error),
        }
    }

    pub(super) fn uneven(&self, other: usize, offered: u64, expected: u64) -> Failure {
        let peer = Rank::at(other);
        Failure::Uneven {
            peer,
            offered,
            expected,
        }
    }

    /// Waits for a flag of the rank at this place, unless it leaves before it gets there.
    #[inline]
    pub(super) fn wait(
        &self,
        waiter: &Waiter<'_>,
        flag: &Flag<A>,
        number: u32,
        other: usize,
    ) -> Result<(), Failure> {
        if waiter.spin(flag, number) {
            return Ok(());
        }
        self.wait_longer(waiter, flag, number, other)
    }

    #[cold]
    fn wait_longer(
        &self,
        waiter: &Waiter<'_>,
        flag: &Flag<A>,
        number: u32,
        other: usize,
    ) -> Result<(), Failure> {
        // The awaited rank may itself sleep until it hears of this one.
        self.wake_sleepers();
        waiter
            .wait_longer(flag, number, self.closed(other), || other)
            .map_err(|error| error.of(other))
    }

    pub(super) fn closed(&self, place: usize) -> &Flag<A> {
        &self.control_blocks[place].head().closed.0
    }

    /// Does a direct operation's `work`, which touches the memory of others, unless one of them has
    /// failed; returns when all others are done with this rank's memory too.
    pub(super) fn with_peer_memory(
        &mut self,
        waiter: &Waiter<'_>,
        work: impl FnOnce(&mut Self) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.enter()?;
        work(self).inspect_err(|_| self.leave())?;
        self.exit_barrier(waiter)
    }

    /// Announces that this rank now touches the memory of others.
    ///
    /// Either this rank sees that another has closed, or the other sees that this one is inside.
    fn enter(&self) -> Result<(), Failure> {
        self.own().inside.0.set(self.direct.wrapping_add(1));
        if self.others().any(|other| self.has_closed(other)) {
            self.leave();
            return Err(Failure::GroupOver);
        }
        Ok(())
    }

    /// Takes back that this rank is inside, without having done its part.
    fn leave(&self) {
        self.own().inside.0.set(self.direct);
    }

    /// Waits until all others have finished with this rank's memory in this operation.
    fn exit_barrier(&mut self, waiter: &Waiter<'_>) -> Result<(), Failure> {
        // Nobody can be through without this rank. So who has closed has failed in this operation,
        // and may have taken its memory back before it was read.
        if let Some(other) = self.others().find(|other| self.has_closed(*other)) {
            self.leave();
            return Err(Failure::Closed(Rank::at(other)));
        }
        self.direct = self.direct.wrapping_add(1);
        self.own().done.0.show(self.direct);
        if self.shape.gathers() {
            return self.part_along_tree(waiter, self.direct);
        }
        for other in self.others() {
            let done = &self.control_blocks[other].head().done.0;
            self.wait(waiter, done, self.direct, other)?;
        }
        Ok(())
    }

    pub(super) fn has_closed(&self, place: usize) -> bool {
        self.control_blocks[place].head().closed.0.reached(CLOSED)
    }

    /// Takes this rank's memory back after a failure: when it returns, no other writes to it any
    /// more.
    ///
    /// Threads are waited for however long they take, which is no longer than it takes to go once
    /// through memory. A process may be stopped inside; from that one the memory is taken away:
    /// what it still writes goes to a file that is nobody's memory any more.
    pub(crate) fn close(&self) {
        // Also where a panic goes through `with_peer_memory`.
        self.leave();
        self.own().closed.0.set(CLOSED);
        let since = Instant::now();
        for other in self.others() {
            while self.is_inside(other) && !self.is_out_of_reach(other, since) {
                A::pause();
            }
        }
    }

    /// Whether the rank at this place may touch this rank's memory.
    fn is_inside(&self, other: usize) -> bool {
        let head = self.control_blocks[other].head();
        !head.done.0.reached(head.inside.0.number())
    }

    /// Whether a rank that is inside cannot write to this rank's memory, or no longer.
    fn is_out_of_reach(&self, other: usize, since: Instant) -> bool {
        match &self.reach {
            MemoryAccess::Threads(_) => false,
            MemoryAccess::Processes { registry, .. } => {
                self.has_ended(other)
                    || since.elapsed() > EXIT_LIMIT
                        && self
                            .exposed
                            .is_none_or(|exposed| registry.withdraw(exposed))
            }
        }
    }
}
