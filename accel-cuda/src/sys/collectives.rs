//! NCCL: its functions, and communicators.
#![expect(unsafe_code, reason = "functions of other languages are called here")]

mod operations;

use std::ffi::{c_char, c_int, c_uint};
use std::mem::offset_of;
use std::ptr;
use std::sync::Arc;

use cudarc::nccl::sys::{self, ncclConfig_t, ncclDataType_t, ncclResult_t};

use super::foreign::{Handle, Returned, call, table, text_at};
use super::stream::Stream;
use crate::error::Failure;
use crate::{Error, Libraries, Library};

/// How many bytes name a communicator before it is there.
pub(crate) const ID_BYTES: usize = size_of::<sys::ncclUniqueId>();

/// As of NCCL 2.18, which newer ones take by its size and version: calls return at once, and are
/// done when [`Comm::is_ready`] says so.
fn not_blocking() -> ncclConfig_t {
    ncclConfig_t {
        // Where it was padded later versions have the traffic class, which is undefined, too.
        size: offset_of!(ncclConfig_t, commName),
        magic: MAGIC,
        version: 21_800,
        blocking: 0,
        cgaClusterSize: c_int::MIN,
        minCTAs: c_int::MIN,
        maxCTAs: c_int::MIN,
        netName: ptr::null(),
        splitShare: c_int::MIN,
        trafficClass: c_int::MIN,
        commName: ptr::null(),
        collnetEnable: c_int::MIN,
        CTAPolicy: c_int::MIN,
        shrinkShare: c_int::MIN,
        nvlsCTAs: c_int::MIN,
        nChannelsPerNetPeer: c_int::MIN,
        nvlinkCentricSched: c_int::MIN,
        graphUsageMode: c_int::MIN,
        numRmaCtx: c_int::MIN,
        maxP2pPeers: c_int::MIN,
    }
}

table! {
    /// The functions of NCCL that this crate calls.
    Collectives of Library::Nccl {
        ncclGetVersion(_);
        ncclGetUniqueId(_);
        ncclCommInitRankConfig(_, _, _, _, _);
        ncclCommFinalize(_);
        ncclCommDestroy(_);
        ncclCommAbort(_);
        ncclCommGetAsyncError(_, _);
        ncclCommCount(_, _);
        ncclCommUserRank(_, _);
        ncclAllReduce(_, _, _, _, _, _, _);
        ncclReduce(_, _, _, _, _, _, _, _);
        ncclAllGather(_, _, _, _, _, _);
        ncclReduceScatter(_, _, _, _, _, _, _);
        ncclBroadcast(_, _, _, _, _, _, _);
    } lacking {
        /// Asked about codes that no enum has.
        ncclGetErrorString(c_uint) -> *const c_char;
        /// Returns no code.
        ncclGetLastError(*mut sys::ncclComm) -> *const c_char;
    }
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
        unsafe { call!(self, ncclGetVersion(&raw mut version)) }?;
        Ok(u32::try_from(version).expect("a version is not negative"))
    }

    /// A new name for a communicator; the process that asks for it listens for the others.
    pub(crate) fn unique_id(&self) -> Result<[u8; ID_BYTES], Failure> {
        let mut id = sys::ncclUniqueId {
            internal: [0; ID_BYTES],
        };
        // SAFETY: `id` is writable.
        unsafe { call!(self, ncclGetUniqueId(&raw mut id)) }?;
        Ok(id.internal.map(c_char::cast_unsigned))
    }

    fn check(&self, returned: Returned) -> Result<(), Failure> {
        if returned.is(ncclResult_t::ncclSuccess) || returned.is(ncclResult_t::ncclInProgress) {
            return Ok(());
        }
        // SAFETY: any number may be asked about.
        let text = unsafe { (self.ncclGetErrorString)(returned.code) };
        // SAFETY: it is a constant of the library, which stays loaded.
        let text = unsafe { text_at(text) };
        // SAFETY: no communicator means the last error of this thread.
        let last = unsafe { (self.ncclGetLastError)(ptr::null_mut()) };
        // SAFETY: it lives until the next error of this thread.
        let last = unsafe { text_at(last) };
        Err(returned.failure(format!("{text}; {}", last.trim())))
    }
}

/// Whether a function of NCCL says by this code that it cannot reach another process.
pub(crate) fn tells_of_a_lost_peer(function: &str, code: i64) -> bool {
    let codes = [
        // A call to the system failed, such as one that sends to a process that has ended.
        ncclResult_t::ncclSystemError,
        // The network failed, or a process has ended.
        ncclResult_t::ncclRemoteError,
    ];
    function.starts_with("nccl") && codes.into_iter().any(|known| known as i64 == code)
}

/// The element type in NCCL's terms.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct DataType {
    pub(crate) code: ncclDataType_t,
    pub(crate) bytes: usize,
}

/// One rank of a communicator, on one stream.
#[derive(Debug)]
pub(crate) struct Comm {
    nccl: Arc<Collectives>,
    handle: Handle<sys::ncclComm>,
    stream: Arc<Stream>,
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
        let (mut handle, mut config) = (Handle::NULL, not_blocking());
        let here = stream.gpu().enter()?;
        let id = sys::ncclUniqueId {
            internal: id.map(u8::cast_signed),
        };
        // SAFETY: `handle` and `config` are writable, and the rank's GPU is current.
        let joined = unsafe {
            call!(
                nccl,
                ncclCommInitRankConfig(&raw mut handle.0, world, id, rank, &raw mut config)
            )
        };
        drop(here);
        // Even after a failure there may be something to abort, which dropping does.
        let comm = Self {
            nccl,
            handle,
            stream,
        };
        joined?;
        Ok(comm)
    }

    /// The stream that it works on.
    pub(crate) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Whether what was called before is done with being queued; an error if the communicator
    /// failed.
    pub(crate) fn is_ready(&self) -> Result<bool, Failure> {
        let mut state: c_uint = 0;
        // SAFETY: the communicator lives, and `state` is writable.
        unsafe {
            call!(
                self.nccl,
                ncclCommGetAsyncError(self.handle.0, (&raw mut state).cast())
            )
        }?;
        let state = Returned {
            function: "ncclCommGetAsyncError",
            code: state,
        };
        self.nccl.check(state)?;
        Ok(!state.is(ncclResult_t::ncclInProgress))
    }

    /// Which rank this is, of how many.
    pub(crate) fn place(&self) -> Result<(usize, usize), Failure> {
        let (mut rank, mut world) = (0, 0);
        // SAFETY: the communicator lives, and `rank` is writable.
        unsafe { call!(self.nccl, ncclCommUserRank(self.handle.0, &raw mut rank)) }?;
        // SAFETY: the communicator lives, and `world` is writable.
        unsafe { call!(self.nccl, ncclCommCount(self.handle.0, &raw mut world)) }?;
        let number = |value| usize::try_from(value).expect("NCCL counts ranks from 0");
        Ok((number(rank), number(world)))
    }

    /// Begins to end in order: all ranks' work is done when [`is_ready`](Self::is_ready) says so.
    pub(crate) fn finalize(&self) -> Result<(), Failure> {
        let _here = self.stream.gpu().enter()?;
        // SAFETY: the communicator lives.
        unsafe { call!(self.nccl, ncclCommFinalize(self.handle.0)) }
    }

    /// Frees what was finalized.
    pub(crate) fn destroy(mut self) -> Result<(), Failure> {
        let handle = std::mem::replace(&mut self.handle, Handle::NULL);
        let _here = self.stream.gpu().enter()?;
        // SAFETY: the communicator lives, and nobody has its handle any more.
        unsafe { call!(self.nccl, ncclCommDestroy(handle.0)) }
    }
}

impl Drop for Comm {
    /// Ends its work at once, so that nothing waits for ranks that are gone. NCCL waits for its own
    /// threads before it returns.
    fn drop(&mut self) {
        if self.handle == Handle::NULL {
            return;
        }
        let Ok(_here) = self.stream.gpu().enter() else {
            return;
        };
        // SAFETY: the communicator lives, and nobody has its handle any more.
        let _ = unsafe { call!(self.nccl, ncclCommAbort(self.handle.0)) };
    }
}

/// `NCCL_API_MAGIC`.
const MAGIC: c_uint = 0xCAFE_BEEF;

/// Where the header has fields of the configuration, and what is no number of cudarc's.
#[cfg(test)]
pub(super) const CONFIG: [(&str, usize); 6] = [
    ("magic", offset_of!(ncclConfig_t, magic)),
    ("version", offset_of!(ncclConfig_t, version)),
    ("blocking", offset_of!(ncclConfig_t, blocking)),
    ("netName", offset_of!(ncclConfig_t, netName)),
    ("splitShare", offset_of!(ncclConfig_t, splitShare)),
    ("commName", offset_of!(ncclConfig_t, commName)),
];

#[cfg(test)]
pub(super) const NUMBERS: [(&str, c_uint); 2] = [
    ("NCCL_API_MAGIC", MAGIC),
    ("NCCL_CONFIG_UNDEF_INT", c_int::MIN.cast_unsigned()),
];
