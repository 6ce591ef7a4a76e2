//! Memory that several ranks reach: the heap among threads, a sealed memfd among processes.

#![expect(
    unsafe_code,
    reason = "memory that other ranks reach is allocated and mapped here, and nowhere else"
)]

use std::alloc::{self, Layout};
use std::io;
use std::ptr::NonNull;

use super::span::Span;

/// Zeroed memory that stays where it is until it is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Heap(Layout),
    /// A file that others map too; of a file of this process the descriptor is kept open for them.
    #[cfg(all(target_os = "linux", not(meshwork_portable)))]
    File {
        kept: Option<std::os::fd::OwnedFd>,
    },
}

// SAFETY: the memory belongs to no thread; who may touch it when is decided by flags in it.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared reference gives nothing but the address.
unsafe impl Sync for Mapping {}

/// Control blocks begin on a page, and so on a cache line.
pub(super) const PAGE: usize = 4096;

impl Mapping {
    /// Memory for the threads of this process.
    ///
    /// # Errors
    /// [`io::ErrorKind::OutOfMemory`].
    pub(crate) fn heap(bytes: usize) -> io::Result<Self> {
        let layout = Layout::from_size_align(bytes.max(1), PAGE)
            .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        // SAFETY: the layout has at least one byte.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            start,
            bytes,
            source: Source::Heap(layout),
        })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        match &self.source {
            Source::Heap(layout) => {
                // SAFETY: allocated by `heap` with this layout, and freed once.
                unsafe { alloc::dealloc(self.start.as_ptr(), *layout) };
            }
            #[cfg(all(target_os = "linux", not(meshwork_portable)))]
            Source::File { .. } => {
                // SAFETY: mapped by `linux::map` with this length, and unmapped once.
                let unmapped =
                    unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
                debug_assert_eq!(unmapped, Ok(()), "a mapping is valid until it is dropped");
            }
        }
    }
}

/// How another process on the same host finds memory of this one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SegmentName {
    pub(crate) process: u32,
    pub(crate) descriptor: u32,
    pub(crate) bytes: u64,
}

/// When the pages of another's memory are entered into this process's page table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Population {
    /// All at once, not one by one.
    Eager,
    /// Each when it is first touched.
    Lazy,
}

impl Population {
    /// Of many ranks, each touches a small part of what each other has, and tables for all of it
    /// would take more memory than the buffers.
    pub(crate) fn among(ranks: usize) -> Self {
        match ranks <= 16 {
            true => Self::Eager,
            false => Self::Lazy,
        }
    }
}

#[cfg(all(target_os = "linux", not(meshwork_portable)))]
mod linux {
    use std::ffi::c_void;
    use std::fs::{File, OpenOptions};
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
    use std::sync::atomic::{AtomicU8, Ordering};

    use rustix::fs::{MemfdFlags, SealFlags};
    use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags};

    use super::{Mapping, NonNull, PAGE, Population, SegmentName, Source, Span, io};

    const PROTECTION: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

    /// A segment can neither shrink nor grow: touching what was mapped never faults.
    const SEALS: SealFlags = SealFlags::SHRINK
        .union(SealFlags::GROW)
        .union(SealFlags::SEAL);

    /// Bytes of a huge page.
    const HUGE: usize = 2 << 20;
    /// Bytes of a segment that is worth some: in it, the processor finds more of what it looks for
    /// than it remembers pages.
    const LONG: usize = 2 * HUGE;
    /// Missing in `rustix`, and in `libc` for some C libraries.
    const MADV_COLLAPSE: nix::libc::c_int = 25;

    impl Mapping {
        /// Memory that other processes of the host can map by its name. It is in no file system,
        /// and gone with the last process that maps it.
        pub(crate) fn segment(bytes: usize) -> io::Result<(Self, SegmentName)> {
            let bytes = bytes.max(1);
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = rustix::fs::memfd_create("meshwork", flags)?;
            rustix::fs::ftruncate(&file, bytes as u64)?;
            rustix::fs::fcntl_add_seals(&file, SEALS)?;
            let name = SegmentName {
                process: std::process::id(),
                // A descriptor of an open file is never negative.
                descriptor: file.as_raw_fd().unsigned_abs(),
                bytes: bytes as u64,
            };
            let start = map(file.as_fd(), bytes, MapFlags::SHARED)?;
            let source = Source::File { kept: Some(file) };
            let mapping = Self {
                start,
                bytes,
                source,
            };
            Ok((mapping, name))
        }
    }

    impl Mapping {
        /// Asks the kernel to keep a long segment in huge pages, which all processes then map as
        /// such: by most systems' settings, only memory of one process is. A refusal changes
        /// nothing, as by a kernel before Linux 6.1.
        pub(in crate::shm) fn make_pages_huge(&self) {
            if self.bytes < LONG {
                return;
            }
            let start = self.start.as_ptr().cast();
            // SAFETY: the advice changes neither a byte nor where it is.
            let there =
                unsafe { rustix::mm::madvise(start, self.bytes, Advice::LinuxPopulateWrite) };
            if there.is_ok() {
                // SAFETY: as above.
                unsafe { nix::libc::madvise(start, self.bytes, MADV_COLLAPSE) };
            }
        }

        /// Takes the memory of a file of this process away from all others, where it is and as it
        /// is: the addresses are a private copy of the file from now on. Of the pages of `written`,
        /// to which others may still write, the copies are made at once, of the rest when this
        /// process writes to them.
        ///
        /// No write of another thread is lost, to whatever part: the kernel lets none through while
        /// it changes the mapping, and what was written before is in the file.
        ///
        /// To be called once: the next private copy would be one of the file again.
        ///
        /// # Errors
        /// When the kernel has no memory for another mapping; nothing is changed then.
        pub(in crate::shm) fn make_private(&self, written: Span) -> io::Result<()> {
            let Source::File { kept: Some(file) } = &self.source else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            // A kernel that maps over something takes that away first, and leaves a hole if it then
            // has no memory. So whatever takes some is done elsewhere.
            let (anywhere, flags) = (std::ptr::null_mut(), MapFlags::PRIVATE);
            // SAFETY: the kernel chooses an address where nothing is mapped.
            let copy =
                unsafe { rustix::mm::mmap(anywhere, self.bytes, PROTECTION, flags, file, 0)? };
            if let Err(error) = self.replace_with(copy) {
                // SAFETY: mapped with this length, and nobody was told of it.
                unsafe { rustix::mm::munmap(copy, self.bytes)? };
                return Err(error);
            }
            copy_pages(written);
            Ok(())
        }

        /// Puts a mapping of the same file, length and protection in the place of this one.
        fn replace_with(&self, copy: *mut c_void) -> io::Result<()> {
            let (start, moves) = (self.start.as_ptr().cast(), MremapFlags::MAYMOVE);
            // SAFETY: the copy takes the place of the mapping that `segment` made, so every
            // reference into it stays valid and finds the same bytes.
            let moved =
                unsafe { rustix::mm::mremap_fixed(copy, self.bytes, self.bytes, moves, start) };
            if moved.is_err() {
                // SAFETY: the advice, which all memory is under at first, changes neither a byte
                // nor where it is.
                let there = unsafe { rustix::mm::madvise(start, self.bytes, Advice::Normal) };
                if there.is_err() {
                    // Other threads have references to memory that is gone.
                    std::process::abort();
                }
            }
            moved?;
            Ok(())
        }
    }

    /// Lets the kernel copy the pages of these bytes, which are mapped privately.
    fn copy_pages(bytes: Span) {
        let before = bytes.address() % PAGE;
        let first = std::ptr::with_exposed_provenance_mut::<u8>(bytes.address() - before);
        let length = before + bytes.bytes();
        // SAFETY: the advice changes neither a byte nor where it is, and the pages are mapped.
        let populated =
            unsafe { rustix::mm::madvise(first.cast(), length, Advice::LinuxPopulateWrite) };
        if populated.is_ok() {
            return;
        }
        // Before Linux 5.14, a write to each page does it, here one that changes nothing.
        for page in (0..length).step_by(PAGE) {
            // SAFETY: the page is mapped.
            let byte = unsafe { first.add(page) };
            // SAFETY: as above, and an atomic number of one byte is aligned anywhere.
            let byte = unsafe { AtomicU8::from_ptr(byte) };
            byte.fetch_or(0, Ordering::Relaxed);
        }
    }

    impl SegmentName {
        /// Maps the memory of another process.
        ///
        /// # Errors
        /// When it cannot be opened, or is not what its name says.
        pub(crate) fn map(self, population: Population) -> io::Result<Mapping> {
            let path = format!("/proc/{}/fd/{}", self.process, self.descriptor);
            let file: File = OpenOptions::new().read(true).write(true).open(path)?;
            let sealed = rustix::fs::fcntl_get_seals(&file)?.contains(SEALS);
            let bytes = file.metadata()?.len();
            if !sealed || bytes != self.bytes || bytes == 0 {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidData)?;
            let flags = match population {
                Population::Eager => MapFlags::SHARED | MapFlags::POPULATE,
                Population::Lazy => MapFlags::SHARED,
            };
            Ok(Mapping {
                start: map(file.as_fd(), bytes, flags)?,
                bytes,
                source: Source::File { kept: None },
            })
        }
    }

    fn map(file: BorrowedFd<'_>, bytes: usize, flags: MapFlags) -> io::Result<NonNull<u8>> {
        let hint = match bytes >= LONG {
            true => aligned_hint(bytes)?,
            false => std::ptr::null_mut(),
        };
        // SAFETY: the kernel chooses an address where nothing is mapped: the hint, if it is free.
        let start = unsafe { rustix::mm::mmap(hint, bytes, PROTECTION, flags, file, 0)? };
        NonNull::new(start.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Where a huge page may begin, and nothing was mapped a moment ago: elsewhere none is mapped
    /// as one.
    fn aligned_hint(bytes: usize) -> io::Result<*mut c_void> {
        let room = bytes.checked_add(HUGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let (anywhere, kept) = (
            std::ptr::null_mut(),
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        );
        // SAFETY: the kernel chooses an address where nothing is mapped.
        let start =
            unsafe { rustix::mm::mmap_anonymous(anywhere, room, ProtFlags::empty(), kept)? };
        // SAFETY: mapped with this length, and nobody was told of it.
        unsafe { rustix::mm::munmap(start, room)? };
        let aligned = start.addr().next_multiple_of(HUGE);
        Ok(std::ptr::without_provenance_mut(aligned))
    }
}

#[cfg(any(not(target_os = "linux"), meshwork_portable))]
mod other {
    use super::{Mapping, Population, SegmentName, Span, io};

    impl Mapping {
        pub(in crate::shm) fn make_pages_huge(&self) {}

        pub(in crate::shm) fn make_private(&self, _: Span) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }

        /// Memory without a name in any file system cannot be shared here.
        pub(crate) fn segment(_: usize) -> io::Result<(Self, SegmentName)> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    impl SegmentName {
        pub(crate) fn map(self, _: Population) -> io::Result<Mapping> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}

#[cfg(all(test, target_os = "linux", not(meshwork_portable)))]
mod tests {
    use std::fs::File;
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::*;

    const LEN: usize = 3 * PAGE + 7;
    /// Some bytes of it, on different pages.
    const PLACES: [usize; 3] = [0, PAGE, LEN - 1];

    fn byte(of: &Mapping, at: usize) -> &AtomicU8 {
        assert!(at < of.bytes());
        // SAFETY: inside the memory.
        let byte = unsafe { of.start().add(at) };
        // SAFETY: it is there as long as the mapping, and all touch it atomically.
        unsafe { AtomicU8::from_ptr(byte.as_ptr()) }
    }

    fn set(of: &Mapping, value: u8) {
        for at in PLACES {
            byte(of, at).store(value, Ordering::Relaxed);
        }
    }

    fn values(of: &Mapping) -> [u8; 3] {
        PLACES.map(|at| byte(of, at).load(Ordering::Relaxed))
    }

    #[test]
    fn memory_that_is_taken_back_stays_where_and_as_it_is_and_is_nobody_elses() {
        let (own, name) = Mapping::segment(LEN).unwrap();
        let theirs = name.map(Population::Eager).unwrap();
        set(&theirs, 1);
        own.make_private(Span::of_mapping(&own)).unwrap();
        assert_eq!(values(&own), [1; 3]);
        set(&theirs, 2);
        assert_eq!(values(&own), [1; 3]);
        set(&own, 3);
        assert_eq!((values(&own), values(&theirs)), ([3; 3], [2; 3]));
    }

    #[test]
    fn memory_of_which_no_copy_can_be_mapped_stays_shared_however_often_that_is_tried() {
        let (mut own, name) = Mapping::segment(LEN).unwrap();
        let theirs = name.map(Population::Eager).unwrap();
        // It cannot be mapped to be read.
        let file = File::options().write(true).open("/dev/null").unwrap();
        own.source = Source::File {
            kept: Some(file.into()),
        };
        for value in [1, 2] {
            own.make_private(Span::of_mapping(&own)).unwrap_err();
            set(&theirs, value);
            assert_eq!(values(&own), [value; 3]);
        }
    }
}
