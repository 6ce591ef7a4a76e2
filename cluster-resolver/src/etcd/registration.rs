//! An address that stays in etcd for as long as its owner lives.

use std::fmt::{self, Debug};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::EtcdError;
use super::gateway::{Gateway, Lease};
use super::settings::Settings;
use crate::service::call;
use crate::service::retry::RetryPolicy;

/// The address of a member in etcd: taken out when this is dropped, and by etcd itself some time
/// after the process has died.
///
/// A thread keeps it there. Dropping waits for it, for 2 s at most.
pub struct EtcdRegistration {
    key: String,
    /// Dropped to end the keeper.
    stop: Option<oneshot::Sender<()>>,
    keeper: Option<JoinHandle<()>>,
}

pub(super) type Report = Box<dyn Fn(&EtcdError) + Send>;

/// Keeps one address registered.
struct Keeper<'a> {
    gateway: Gateway<'a>,
    settings: &'a Settings,
    address: &'a str,
    lease: Option<String>,
    report: Report,
    /// Whether the owner knows already that something is wrong.
    is_reported: bool,
}

impl EtcdRegistration {
    pub(super) fn begin(
        settings: Settings,
        address: String,
        report: Report,
    ) -> Result<Self, EtcdError> {
        let key = settings.key(&address);
        let (stop, stopped) = oneshot::channel();
        let (begun, beginning) = mpsc::channel();
        let keeper = thread::Builder::new().name("etcd-registration".to_owned());
        let keeper = keeper.spawn(move || keep(&settings, &address, report, stopped, &begun));
        let registration = Self {
            key,
            stop: Some(stop),
            keeper: Some(keeper.map_err(call::no_runtime)?),
        };
        // The keeper tells within the deadline of its settings; if it ends before, it panicked.
        let told = beginning.recv().expect("the keeper tells how it began");
        told.map(|()| registration)
    }

    /// The key that holds the address.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl Drop for EtcdRegistration {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(keeper) = self.keeper.take() {
            // A keeper that panicked has said so, and etcd takes the address out.
            drop(keeper.join());
        }
    }
}

impl Debug for EtcdRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EtcdRegistration").field(&self.key).finish()
    }
}

/// The life of the keeper's thread.
fn keep(
    settings: &Settings,
    address: &str,
    report: Report,
    stopped: oneshot::Receiver<()>,
    begun: &mpsc::Sender<Result<(), EtcdError>>,
) {
    let made = Gateway::new(settings).and_then(|gateway| Ok((gateway, call::runtime()?)));
    let (gateway, runtime) = match made {
        Ok(made) => made,
        Err(error) => {
            // Its owner waits for this.
            let _ = begun.send(Err(error));
            return;
        }
    };
    let mut keeper = Keeper {
        gateway,
        settings,
        address,
        lease: None,
        report,
        is_reported: false,
    };
    call::block_on(runtime, async {
        let first = keeper.begin().await;
        let is_kept = first.is_ok();
        let _ = begun.send(first);
        if is_kept {
            tokio::select! {
                _ = stopped => {}
                () = keeper.go_on() => {}
            }
            keeper.end().await;
        }
    });
}

impl Keeper<'_> {
    /// Registers, unless etcd cannot be reached, which may pass.
    async fn begin(&mut self) -> Result<(), EtcdError> {
        match self.register(self.settings.retry).await {
            Err(error) if error.is_transient() => {
                self.tell(&error);
                Ok(())
            }
            registered => registered,
        }
    }

    /// Keeps alive what is registered, and registers what is not, without end.
    async fn go_on(&mut self) {
        // Two signs of life may be lost before the lease ends.
        let interval = self.settings.time_to_live / 3;
        loop {
            sleep(interval).await;
            match self.beat(self.settings.retry.within(interval)).await {
                Ok(()) => self.is_reported = false,
                Err(error) => self.tell(&error),
            }
        }
    }

    async fn beat(&mut self, retry: RetryPolicy) -> Result<(), EtcdError> {
        let Some(lease) = &self.lease else {
            return self.register(retry).await;
        };
        let key = self.settings.key(self.address);
        match self.gateway.keep_alive(&key, lease, retry).await? {
            Lease::Lives => Ok(()),
            Lease::Lost => {
                self.lease = None;
                self.tell(&EtcdError::LeaseLost {
                    endpoint: self.settings.shown(),
                    key,
                    time_to_live: self.settings.time_to_live,
                });
                self.register(retry).await
            }
        }
    }

    async fn register(&mut self, retry: RetryPolicy) -> Result<(), EtcdError> {
        self.lease = Some(self.gateway.register(self.address, retry).await?);
        Ok(())
    }

    /// Takes the address out, as far as that is possible now; etcd does it later.
    async fn end(&mut self) {
        let Some(lease) = self.lease.take() else {
            return;
        };
        let key = self.settings.key(self.address);
        let retry = self.settings.retry.within(FAREWELL);
        let removed = timeout(FAREWELL, self.gateway.revoke(&key, &lease, retry));
        if let Ok(Err(error)) = removed.await {
            self.tell(&error);
        }
    }

    fn tell(&mut self, error: &EtcdError) {
        if !self.is_reported {
            self.is_reported = true;
            (self.report)(error);
        }
    }
}

/// How long the owner waits at its end.
const FAREWELL: Duration = Duration::from_secs(2);
