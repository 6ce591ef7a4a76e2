//! Work that a plugin has begun, and its end.
#![expect(unsafe_code, reason = "the end of work comes as a call from C")]

use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::api::Plugin;
use super::args::Args;
use super::handle::Handle;
use super::pjrt::*;
use crate::Error;

/// Tells when work on a device has ended, and how.
#[derive(Debug)]
pub struct Event(Handle<PJRT_Event>);

impl Event {
    /// # Safety
    /// As for [`Handle::take`].
    pub(super) unsafe fn take(
        plugin: &Plugin,
        function: &'static str,
        raw: *mut PJRT_Event,
    ) -> Result<Self, Error> {
        // SAFETY: the caller says so.
        unsafe { Handle::take(plugin, function, raw) }.map(Self)
    }

    /// How the work has ended, `None` while it has not.
    ///
    /// # Errors
    /// [`Error::NotSupported`], [`Error::Plugin`] when this is unknown; the outcome of the work is
    /// inside.
    pub fn outcome(&self) -> Result<Option<Result<(), Error>>, Error> {
        let mut args = PJRT_Event_IsReady_Args {
            event: self.0.raw(),
            ..Args::new()
        };
        // SAFETY: the event is alive.
        unsafe { self.0.plugin().call(&mut args) }?;
        if !args.is_ready {
            return Ok(None);
        }
        let mut args = PJRT_Event_Error_Args {
            event: self.0.raw(),
            ..Args::new()
        };
        // SAFETY: the event is alive and ready.
        Ok(Some(unsafe { self.0.plugin().call(&mut args) }))
    }

    /// Waits for the end of the work, at most `within`.
    ///
    /// # Errors
    /// [`Error::Deadline`], after which the work continues and can be waited for again;
    /// [`Error::Plugin`] when it failed; [`Error::NotSupported`].
    pub fn wait(&self, within: Duration) -> Result<(), Error> {
        if let Some(outcome) = self.outcome()? {
            return outcome;
        }
        let bell = Arc::new(Completion {
            plugin: self.0.plugin().clone(),
            rung: Mutex::new(None),
            ringing: Condvar::new(),
        });
        let mut args = PJRT_Event_OnReady_Args {
            event: self.0.raw(),
            callback: Some(ring),
            user_arg: Arc::into_raw(Arc::clone(&bell)).cast_mut().cast(),
            ..Args::new()
        };
        // SAFETY: the event is alive, and `ring` takes the bell that it is given.
        let asked = unsafe { self.0.plugin().call(&mut args) };
        if let Err(refused) = asked {
            // SAFETY: a call that was refused will not ring, so its share of the bell is ours.
            drop(unsafe { Arc::from_raw(args.user_arg.cast::<Completion>()) });
            return Err(refused);
        }
        bell.wait(within)
    }

    /// Waits for the end of the work, for as long as it takes.
    ///
    /// For copies into memory that is only borrowed, which cannot be given back before.
    pub(super) fn await_end(&self) -> Result<(), Error> {
        let mut args = PJRT_Event_Await_Args {
            event: self.0.raw(),
            ..Args::new()
        };
        // SAFETY: the event is alive.
        unsafe { self.0.plugin().call(&mut args) }
    }
}

/// State shared by a waiting thread and the plugin; either may be the last to release it.
struct Completion {
    plugin: Plugin,
    rung: Mutex<Option<Result<(), Error>>>,
    ringing: Condvar,
}

impl Completion {
    fn wait(&self, within: Duration) -> Result<(), Error> {
        let begin = Instant::now();
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(outcome) = rung.take() {
                return outcome;
            }
            let left = within.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Err(Error::Deadline { waited: within });
            }
            rung = self
                .ringing
                .wait_timeout(rung, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

/// Called by the plugin when the work has ended; must not panic, and does nothing that could.
unsafe extern "C" fn ring(error: *mut PJRT_Error, bell: *mut c_void) {
    // SAFETY: this is the share that `wait` gave away, and each call takes its own once.
    let bell = unsafe { Arc::from_raw(bell.cast_const().cast::<Completion>()) };
    let outcome = bell.plugin.check("PJRT_Event_OnReady", error);
    *bell.rung.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    bell.ringing.notify_all();
}

#[cfg(test)]
mod stub {
    use std::ptr;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Who waits for the end of an event.
    pub(crate) struct Bell(PJRT_Event_OnReady_Args);

    // SAFETY: the end may be told from any thread.
    unsafe impl Send for Bell {}

    impl Bell {
        /// Tells that the work has ended well.
        pub(crate) fn ring(self) {
            let ring = self.0.callback.expect("whoever waits names one");
            // SAFETY: each is rung once, and null is no error.
            unsafe { ring(ptr::null_mut(), self.0.user_arg) };
        }
    }

    impl Event {
        /// One of no plugin, whose work has not ended, and who waits for it.
        pub(crate) fn stub() -> (Self, Receiver<Bell>) {
            // SAFETY: the table is made of numbers and optional functions.
            let mut api: PJRT_Api = unsafe { std::mem::zeroed() };
            api.PJRT_Event_IsReady = Some(is_ready);
            api.PJRT_Event_OnReady = Some(on_ready);
            api.PJRT_Event_Destroy = Some(destroy);
            let (waiting, bells) = channel::<Bell>();
            let raw = Box::into_raw(Box::new(waiting)).cast();
            // SAFETY: the event is new, and only `destroy` frees it.
            let event = unsafe { Self::take(&Plugin::of(api), "stub", raw) };
            (event.expect("it is not null"), bells)
        }
    }

    /// It has not: arguments are all zero.
    unsafe extern "C" fn is_ready(_: *mut PJRT_Event_IsReady_Args) -> *mut PJRT_Error {
        ptr::null_mut()
    }

    unsafe extern "C" fn on_ready(args: *mut PJRT_Event_OnReady_Args) -> *mut PJRT_Error {
        // SAFETY: the caller gives arguments that are its own.
        let args = unsafe { *args };
        // SAFETY: the event is one of `stub`, and alive.
        let waiting = unsafe { &*args.event.cast::<Sender<Bell>>() };
        // Without a test that asks for it, it does not end.
        let _ = waiting.send(Bell(args));
        ptr::null_mut()
    }

    unsafe extern "C" fn destroy(args: *mut PJRT_Event_Destroy_Args) -> *mut PJRT_Error {
        // SAFETY: the caller gives arguments that are its own.
        let event = unsafe { (*args).event };
        // SAFETY: the event is one of `stub`, and nobody has it after this.
        drop(unsafe { Box::from_raw(event.cast::<Sender<Bell>>()) });
        ptr::null_mut()
    }
}
