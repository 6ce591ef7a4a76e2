//! What a plugin made for us and has to destroy.
#![expect(
    unsafe_code,
    reason = "objects of a plugin are addresses that it gave out"
)]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::api::Plugin;
use super::args::Args;
use super::pjrt::*;
use crate::Error;

/// An object of a plugin; destroyed when dropped.
pub(super) struct Handle<T: Resource> {
    raw: NonNull<T>,
    plugin: Plugin,
}

// SAFETY: PJRT's objects may be used from any thread and from several at once, as the classes
// behind them (clients, buffers, executables, topologies, events) promise.
unsafe impl<T: Resource> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T: Resource> Sync for Handle<T> {}

impl<T: Resource> Handle<T> {
    /// Takes what `function` of `plugin` gave.
    ///
    /// # Safety
    /// `raw` is null, or an object of this plugin that nothing else destroys.
    pub(super) unsafe fn take(
        plugin: &Plugin,
        function: &'static str,
        raw: *mut T,
    ) -> Result<Self, Error> {
        let raw = NonNull::new(raw).ok_or(Error::Nothing {
            function,
            what: T::WHAT,
        })?;
        plugin.counters().of::<T>().fetch_add(1, Ordering::Relaxed);
        let plugin = plugin.clone();
        Ok(Self { raw, plugin })
    }

    /// The object, alive as long as this handle.
    pub(super) fn raw(&self) -> *mut T {
        self.raw.as_ptr()
    }

    pub(super) fn plugin(&self) -> &Plugin {
        &self.plugin
    }
}

impl<T: Resource> Drop for Handle<T> {
    fn drop(&mut self) {
        let mut args = T::destruction(self.raw.as_ptr());
        // A plugin that cannot destroy what it made leaks it, which nobody here can help.
        // SAFETY: nobody has the object after its handle.
        let _ = unsafe { self.plugin.call(&mut args) };
        self.plugin
            .counters()
            .of::<T>()
            .fetch_sub(1, Ordering::Relaxed);
    }
}

impl<T: Resource> std::fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", T::WHAT, self.plugin.path().display())
    }
}

/// A kind of object.
pub(super) trait Resource: Sized {
    /// The kind of object, for messages.
    const WHAT: &'static str;

    /// Its place among the counters.
    const PLACE: usize;

    /// The arguments that destroy one.
    type Destroy: Args;

    /// Those for this one.
    fn destruction(raw: *mut Self) -> Self::Destroy;
}

macro_rules! resources {
    ($($place:literal $what:literal $raw:ident: $destroy:ident.$field:ident;)+) => {$(
        impl Resource for $raw {
            const WHAT: &'static str = $what;
            const PLACE: usize = $place;
            type Destroy = $destroy;

            fn destruction(raw: *mut Self) -> $destroy {
                $destroy { $field: raw, ..Args::new() }
            }
        }
    )+};
}

resources! {
    0 "client" PJRT_Client: PJRT_Client_Destroy_Args.client;
    1 "buffer" PJRT_Buffer: PJRT_Buffer_Destroy_Args.buffer;
    2 "event" PJRT_Event: PJRT_Event_Destroy_Args.event;
    3 "executable" PJRT_LoadedExecutable: PJRT_LoadedExecutable_Destroy_Args.executable;
    4 "program" PJRT_Executable: PJRT_Executable_Destroy_Args.executable;
    5 "topology" PJRT_TopologyDescription: PJRT_TopologyDescription_Destroy_Args.topology;
}

/// How many objects of each kind are alive.
#[derive(Debug, Default)]
pub(super) struct Counters([AtomicUsize; 6]);

impl Counters {
    fn of<T: Resource>(&self) -> &AtomicUsize {
        &self.0[T::PLACE]
    }

    pub(super) fn live(&self) -> Live {
        let count = |place: usize| self.0[place].load(Ordering::Relaxed);
        Live {
            clients: count(0),
            buffers: count(1),
            events: count(2),
            executables: count(3),
            programs: count(4),
            topologies: count(5),
        }
    }
}

/// How many objects of a plugin have been made and not been destroyed yet.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Live {
    /// Clients.
    pub clients: usize,
    /// Buffers on devices.
    pub buffers: usize,
    /// Events that are or were waited for.
    pub events: usize,
    /// Programs that are loaded on devices.
    pub executables: usize,
    /// Compiled programs.
    pub programs: usize,
    /// Topologies.
    pub topologies: usize,
}
