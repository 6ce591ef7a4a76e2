//! NCCL: its functions, as `nccl.h` of 2.30 has them, and communicators.
#![expect(unsafe_code, reason = "functions of other languages are called here")]

use std::ffi::{c_char, c_int, c_uint};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::driver::{Address, StreamHandle, text_at};
use super::memory::Part;
use super::shared_library::table;
use super::stream::Stream;
use crate::error::Failure;
use crate::{Error, Libraries, Library};

/// `ncclResult_t`.
pub(super) type Code = c_uint;

/// `ncclComm_t`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(transparent)]
pub(super) struct CommHandle(usize);

/// `ncclUniqueId`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Id {
    internal: [u8; ID_BYTES],
}

/// How many bytes name a communicator before it is there.
pub(crate) const ID_BYTES: usize = 128;

/// `ncclConfig_t` of NCCL 2.18, which newer ones take by its size and version.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
}

impl Config {
    /// Calls return at once, and are done when [`Comm::is_ready`] says so.
    fn not_blocking() -> Self {
        Self {
            size: size_of::<Self>(),
            magic: MAGIC,
            version: 21_800,
            blocking: 0,
            cga_cluster_size: c_int::MIN,
            min_ctas: c_int::MIN,
            max_ctas: c_int::MIN,
            net_name: ptr::null(),
            split_share: c_int::MIN,
        }
    }
}

table! {
    /// The functions of NCCL that this crate calls. Addresses are those of a device.
    Collectives of Library::Nccl;
    get_version: ncclGetVersion(*mut c_int) -> Code;
    get_unique_id: ncclGetUniqueId(*mut Id) -> Code;
    error_string: ncclGetErrorString(Code) -> *const c_char;
    last_error: ncclGetLastError(CommHandle) -> *const c_char;
    init_rank: ncclCommInitRankConfig(*mut CommHandle, c_int, Id, c_int, *mut Config) -> Code;
    finalize: ncclCommFinalize(CommHandle) -> Code;
    destroy: ncclCommDestroy(CommHandle) -> Code;
    abort: ncclCommAbort(CommHandle) -> Code;
    async_error: ncclCommGetAsyncError(CommHandle, *mut Code) -> Code;
    split: ncclCommSplit(CommHandle, c_int, c_int, *mut CommHandle, *mut Config) -> Code;
    shrink: ncclCommShrink(CommHandle, *mut c_int, c_int, *mut CommHandle, *mut Config, c_int) -> Code;
    count: ncclCommCount(CommHandle, *mut c_int) -> Code;
    user_rank: ncclCommUserRank(CommHandle, *mut c_int) -> Code;
    all_reduce: ncclAllReduce(Address, Address, usize, c_uint, c_uint, CommHandle, StreamHandle) -> Code;
    reduce: ncclReduce(Address, Address, usize, c_uint, c_uint, c_int, CommHandle, StreamHandle) -> Code;
    all_gather: ncclAllGather(Address, Address, usize, c_uint, CommHandle, StreamHandle) -> Code;
    reduce_scatter: ncclReduceScatter(Address, Address, usize, c_uint, c_uint, CommHandle, StreamHandle) -> Code;
    broadcast: ncclBroadcast(Address, Address, usize, c_uint, c_int, CommHandle, StreamHandle) -> Code;
    send: ncclSend(Address, usize, c_uint, c_int, CommHandle, StreamHandle) -> Code;
    receive: ncclRecv(Address, usize, c_uint, c_int, CommHandle, StreamHandle) -> Code;
    group_start: ncclGroupStart() -> Code;
    group_end: ncclGroupEnd() -> Code;
}

impl Collectives {
    /// Loads NCCL.
    ///
    /// # Errors
    /// [`Error::NotLoadable`], [`Error::NoFunction`].
    pub(crate) fn open(libraries: &Libraries) -> Result<Arc<Self>, Error> {
        Self::lookup(libraries).map(Arc::new)
    }

    /// Its version, as 23007 for 2.30.7.
    pub(crate) fn version(&self) -> Result<u32, Failure> {
        let mut version = 0;
        // SAFETY: `version` is writable.
        let code = unsafe { (self.get_version)(&raw mut version) };
        self.check("ncclGetVersion", code)?;
        Ok(u32::try_from(version).expect("a version is not negative"))
    }

    /// A new name for a communicator; the process that asks for it listens for the others.
    pub(crate) fn unique_id(&self) -> Result<[u8; ID_BYTES], Failure> {
        let mut id = Id {
            internal: [0; ID_BYTES],
        };
        // SAFETY: `id` is writable.
        let code = unsafe { (self.get_unique_id)(&raw mut id) };
        self.check("ncclGetUniqueId", code)?;
        Ok(id.internal)
    }

    fn check(&self, function: &'static str, code: Code) -> Result<(), Failure> {
        if code == SUCCESS || code == IN_PROGRESS {
            return Ok(());
        }
        // SAFETY: any number may be asked about.
        let text = unsafe { (self.error_string)(code) };
        // SAFETY: it is a constant of the library, which stays loaded.
        let text = unsafe { text_at(text) };
        // SAFETY: no communicator means the last error of this thread.
        let last = unsafe { (self.last_error)(CommHandle(0)) };
        // SAFETY: it lives until the next error of this thread.
        let last = unsafe { text_at(last) };
        Err(Failure {
            function,
            code: code.into(),
            status: format!("{text}; {}", last.trim()),
        })
    }
}

/// Whether a function of NCCL says by this code that it cannot reach another process.
pub(crate) fn tells_of_a_lost_peer(function: &str, code: i64) -> bool {
    let codes = [SYSTEM_ERROR, REMOTE_ERROR].map(i64::from);
    function.starts_with("nccl") && codes.contains(&code)
}

/// The element type in NCCL's terms: `ncclDataType_t`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct DataType {
    pub(crate) code: c_uint,
    pub(crate) bytes: usize,
}

/// Bytes, which move and are not computed with: `ncclUint8`.
pub(crate) const BYTES: DataType = DataType { code: 1, bytes: 1 };

/// `ncclRedOp_t`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RedOp(pub(crate) c_uint);

/// One rank of a communicator, on one stream.
#[derive(Debug)]
pub(crate) struct Comm {
    nccl: Arc<Collectives>,
    handle: CommHandle,
    stream: Arc<Stream>,
    /// Where NCCL writes the handle of a child, some time after the call that asked for it: so it
    /// stays until this communicator has ended, and with it whatever still writes.
    birth: Box<AtomicUsize>,
}

impl Comm {
    /// Begins to join; it is there when [`is_ready`](Self::is_ready) says so.
    pub(crate) fn join(
        nccl: Arc<Collectives>,
        stream: Arc<Stream>,
        id: [u8; ID_BYTES],
        rank: c_int,
        world: c_int,
    ) -> Result<Self, Failure> {
        let (mut handle, mut config) = (CommHandle(0), Config::not_blocking());
        let here = stream.gpu().enter()?;
        let id = Id { internal: id };
        // SAFETY: `handle` and `config` are writable, and the rank's GPU is current.
        let code = unsafe { (nccl.init_rank)(&raw mut handle, world, id, rank, &raw mut config) };
        drop(here);
        // Even after a failure there may be something to abort, which dropping does.
        let comm = Self {
            nccl,
            handle,
            stream,
            birth: Box::default(),
        };
        comm.nccl.check("ncclCommInitRankConfig", code)?;
        Ok(comm)
    }

    /// The stream that it works on.
    pub(crate) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Whether what was called before is done with being queued; an error if the communicator
    /// failed.
    pub(crate) fn is_ready(&self) -> Result<bool, Failure> {
        let mut state = SUCCESS;
        // SAFETY: the communicator lives, and `state` is writable.
        let code = unsafe { (self.nccl.async_error)(self.handle, &raw mut state) };
        self.nccl.check("ncclCommGetAsyncError", code)?;
        self.nccl.check("ncclCommGetAsyncError", state)?;
        Ok(state != IN_PROGRESS)
    }

    /// Which rank this is, of how many.
    pub(crate) fn place(&self) -> Result<(usize, usize), Failure> {
        let (mut rank, mut world) = (0, 0);
        // SAFETY: the communicator lives, and `rank` is writable.
        let code = unsafe { (self.nccl.user_rank)(self.handle, &raw mut rank) };
        self.nccl.check("ncclCommUserRank", code)?;
        // SAFETY: the communicator lives, and `world` is writable.
        let code = unsafe { (self.nccl.count)(self.handle, &raw mut world) };
        self.nccl.check("ncclCommCount", code)?;
        let number = |value| usize::try_from(value).expect("NCCL counts ranks from 0");
        Ok((number(rank), number(world)))
    }

    /// Replaces `values` by the op of all ranks' values.
    pub(crate) fn all_reduce(
        &self,
        values: Part<'_>,
        kind: DataType,
        op: RedOp,
    ) -> Result<(), Failure> {
        let _here = self.stream.gpu().enter()?;
        let (at, count) = (values.address(), values.bytes() / kind.bytes);
        // SAFETY: so many elements are there, and are freed only after the stream's work; in place
        // is allowed.
        let code = unsafe {
            (self.nccl.all_reduce)(
                at,
                at,
                count,
                kind.code,
                op.0,
                self.handle,
                self.stream.handle,
            )
        };
        self.nccl.check("ncclAllReduce", code)
    }

    /// Replaces the `values` of `root` by the op of all ranks' values; the others keep theirs.
    pub(crate) fn reduce(
        &self,
        values: Part<'_>,
        kind: DataType,
        op: RedOp,
        root: c_int,
    ) -> Result<(), Failure> {
        let _here = self.stream.gpu().enter()?;
        let (at, count) = (values.address(), values.bytes() / kind.bytes);
        // SAFETY: so many elements are there, and are freed only after the stream's work; in place
        // is allowed, and only the root is written to.
        let code = unsafe {
            (self.nccl.reduce)(
                at,
                at,
                count,
                kind.code,
                op.0,
                root,
                self.handle,
                self.stream.handle,
            )
        };
        self.nccl.check("ncclReduce", code)
    }

    /// Replaces `to` by all ranks' `from`, in their order; `to` has their number times its bytes.
    pub(crate) fn all_gather(&self, from: Part<'_>, to: Part<'_>) -> Result<(), Failure> {
        let _here = self.stream.gpu().enter()?;
        let (at, into, count) = (from.address(), to.address(), from.bytes());
        // SAFETY: so many bytes are there, in `to` for each rank, and are freed only after the
        // stream's work.
        let code = unsafe {
            (self.nccl.all_gather)(at, into, count, BYTES.code, self.handle, self.stream.handle)
        };
        self.nccl.check("ncclAllGather", code)
    }

    /// Replaces `to` by this rank's block of the op of all ranks' `from`, which has a block for
    /// each.
    pub(crate) fn reduce_scatter(
        &self,
        from: Part<'_>,
        to: Part<'_>,
        kind: DataType,
        op: RedOp,
    ) -> Result<(), Failure> {
        let _here = self.stream.gpu().enter()?;
        let (at, into, count) = (from.address(), to.address(), to.bytes() / kind.bytes);
        // SAFETY: so many elements are there, in `from` for each rank, and are freed only after the
        // stream's work.
        let code = unsafe {
            (self.nccl.reduce_scatter)(
                at,
                into,
                count,
                kind.code,
                op.0,
                self.handle,
                self.stream.handle,
            )
        };
        self.nccl.check("ncclReduceScatter", code)
    }

    /// Replaces `values` by those of the rank `root`.
    pub(crate) fn broadcast(&self, values: Part<'_>, root: c_int) -> Result<(), Failure> {
        let _here = self.stream.gpu().enter()?;
        let (at, count) = (values.address(), values.bytes());
        // SAFETY: so many bytes are there, and are freed only after the stream's work; in place is
        // allowed.
        let code = unsafe {
            (self.nccl.broadcast)(
                at,
                at,
                count,
                BYTES.code,
                root,
                self.handle,
                self.stream.handle,
            )
        };
        self.nccl.check("ncclBroadcast", code)
    }

    /// Sends to one rank what another sends here, at once: what is `None` is left out.
    pub(crate) fn exchange(
        &self,
        sent: Option<(Part<'_>, c_int)>,
        received: Option<(Part<'_>, c_int)>,
    ) -> Result<(), Failure> {
        let _here = self.stream.gpu().enter()?;
        // SAFETY: ended below, whatever happens in between.
        let code = unsafe { (self.nccl.group_start)() };
        self.nccl.check("ncclGroupStart", code)?;
        let sent = sent.map_or(Ok(()), |(from, to)| self.send(from, to));
        let received = received.map_or(Ok(()), |(to, from)| self.receive(to, from));
        // SAFETY: it was started above, by this thread.
        let code = unsafe { (self.nccl.group_end)() };
        sent.and(received)?;
        self.nccl.check("ncclGroupEnd", code)
    }

    fn send(&self, from: Part<'_>, to: c_int) -> Result<(), Failure> {
        let (at, count) = (from.address(), from.bytes());
        // SAFETY: so many bytes are there, and are freed only after the stream's work.
        let code =
            unsafe { (self.nccl.send)(at, count, BYTES.code, to, self.handle, self.stream.handle) };
        self.nccl.check("ncclSend", code)
    }

    fn receive(&self, to: Part<'_>, from: c_int) -> Result<(), Failure> {
        let (at, count) = (to.address(), to.bytes());
        // SAFETY: so many bytes are there, and are freed only after the stream's work.
        let code = unsafe {
            (self.nccl.receive)(at, count, BYTES.code, from, self.handle, self.stream.handle)
        };
        self.nccl.check("ncclRecv", code)
    }

    /// Begins to split: ranks of one color are together, in the order of `key`; nowhere without
    /// color. When [`is_ready`](Self::is_ready) says so, the part is [`born`](Self::born).
    pub(crate) fn split(&self, color: Option<c_int>, key: c_int) -> Result<(), Failure> {
        let mut config = Config::not_blocking();
        let _here = self.stream.gpu().enter()?;
        let (color, born) = (color.unwrap_or(NO_COLOR), self.birth.as_ptr().cast());
        // SAFETY: the communicator lives, and what is written later lives as long; `config` is read
        // before this returns.
        let code = unsafe { (self.nccl.split)(self.handle, color, key, born, &raw mut config) };
        self.nccl.check("ncclCommSplit", code)
    }

    /// Begins to leave out ranks, whose work is ended first. When [`is_ready`](Self::is_ready) says
    /// so, the rest is [`born`](Self::born).
    pub(crate) fn shrink(&self, mut lost: Vec<c_int>) -> Result<(), Failure> {
        let mut config = Config::not_blocking();
        let _here = self.stream.gpu().enter()?;
        let count = c_int::try_from(lost.len()).expect("ranks, which are themselves `c_int`");
        let ranks = lost.as_mut_ptr();
        let (born, how) = (self.birth.as_ptr().cast(), &raw mut config);
        // SAFETY: the communicator lives, and what is written later lives as long; the ranks, of
        // which there are so many, and `config` are read before this returns.
        let code =
            unsafe { (self.nccl.shrink)(self.handle, ranks, count, born, how, SHRINK_ABORT) };
        self.nccl.check("ncclCommShrink", code)
    }

    /// The communicator that a split or shrink has made; `None` where there is none, or none yet.
    pub(crate) fn born(&self) -> Option<Self> {
        let handle = CommHandle(self.birth.swap(0, Ordering::Acquire));
        (handle != CommHandle(0)).then(|| Self {
            nccl: self.nccl.clone(),
            handle,
            stream: self.stream.clone(),
            birth: Box::default(),
        })
    }

    /// Begins to end in order: all ranks' work is done when [`is_ready`](Self::is_ready) says so.
    pub(crate) fn finalize(&self) -> Result<(), Failure> {
        let _here = self.stream.gpu().enter()?;
        // SAFETY: the communicator lives.
        let code = unsafe { (self.nccl.finalize)(self.handle) };
        self.nccl.check("ncclCommFinalize", code)
    }

    /// Frees what was finalized.
    pub(crate) fn destroy(mut self) -> Result<(), Failure> {
        let handle = std::mem::replace(&mut self.handle, CommHandle(0));
        let _here = self.stream.gpu().enter()?;
        // SAFETY: the communicator lives, and nobody has its handle any more.
        let code = unsafe { (self.nccl.destroy)(handle) };
        self.nccl.check("ncclCommDestroy", code)
    }
}

impl Drop for Comm {
    /// Ends its work at once, so that nothing waits for ranks that are gone. NCCL waits for its own
    /// threads before it returns.
    fn drop(&mut self) {
        if self.handle == CommHandle(0) {
            return;
        }
        let Ok(_here) = self.stream.gpu().enter() else {
            return;
        };
        // SAFETY: the communicator lives, and nobody has its handle any more.
        unsafe { (self.nccl.abort)(self.handle) };
    }
}

/// Where the header has each field that is set here, and its numbers.
#[cfg(test)]
impl Config {
    pub(super) const OFFSETS: [(&str, usize); 5] = [
        ("magic", std::mem::offset_of!(Self, magic)),
        ("version", std::mem::offset_of!(Self, version)),
        ("blocking", std::mem::offset_of!(Self, blocking)),
        ("netName", std::mem::offset_of!(Self, net_name)),
        ("splitShare", std::mem::offset_of!(Self, split_share)),
    ];
}

#[cfg(test)]
pub(super) const NUMBERS: [(&str, c_uint); 9] = [
    ("ncclSuccess", SUCCESS),
    ("ncclInProgress", IN_PROGRESS),
    ("ncclSystemError", SYSTEM_ERROR),
    ("ncclRemoteError", REMOTE_ERROR),
    ("NCCL_SPLIT_NOCOLOR", NO_COLOR.cast_unsigned()),
    ("NCCL_SHRINK_ABORT", SHRINK_ABORT.cast_unsigned()),
    ("NCCL_API_MAGIC", MAGIC),
    ("NCCL_CONFIG_UNDEF_INT", c_int::MIN.cast_unsigned()),
    ("ncclUint8", BYTES.code),
];

/// `NCCL_API_MAGIC`.
const MAGIC: c_uint = 0xCAFE_BEEF;
const SUCCESS: Code = 0;
const IN_PROGRESS: Code = 7;
/// A call to the system failed, such as one that sends to a process that has ended.
const SYSTEM_ERROR: Code = 2;
/// The network failed, or a process has ended.
const REMOTE_ERROR: Code = 6;
/// `NCCL_SPLIT_NOCOLOR`.
const NO_COLOR: c_int = -1;
/// `NCCL_SHRINK_ABORT`.
const SHRINK_ABORT: c_int = 1;
