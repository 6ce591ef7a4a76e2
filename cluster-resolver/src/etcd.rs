//! Where newcomers find a job that runs: its members write their addresses into etcd.
//!
//! ```text
//!   member ── lease, kept alive ──> /meshwork/my-job/10.0.0.1:4000 = 10.0.0.1:4000
//!   newcomer ── what is under /meshwork/my-job/ ? ──> addresses to ask
//! ```
//!
//! Nothing that etcd says is trusted: an address is one to dial, no more.

mod form;
mod gateway;
mod registration;
mod settings;

use std::fmt::{self, Debug};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use crate::address;
use crate::error::{Error, EtcdError, EtcdOperation, ServiceError};
use crate::service::call;
use crate::service::http::Endpoint;
use crate::service::retry::RetryPolicy;
use crate::variables::Variables;

use gateway::Gateway;
pub use registration::EtcdRegistration;
use settings::{Authorities, Settings, User};

/// The addresses of a job's members, under a prefix of etcd that is the job's own.
///
/// Members [`register`](Self::register) theirs, and newcomers take the
/// [`addresses`](Self::addresses) as seeds. Whoever may write there can make a newcomer dial an
/// address; who is a member is decided by the job secret or the certificates of both.
///
/// ```no_run
/// use meshwork_cluster_resolver::EtcdMembers;
///
/// let job = EtcdMembers::new(["https://etcd-0:2379", "https://etcd-1:2379"], "/meshwork/my-job")
///     .with_user("meshwork", std::fs::read_to_string("/etc/meshwork/password")?)
///     .with_authorities(std::fs::read("/etc/etcd/ca.crt")?);
/// // A member, until this is dropped:
/// let registration = job.register("10.0.0.1:4000", |trouble| eprintln!("{trouble}"))?;
/// // A newcomer:
/// let seeds = job.addresses()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// etcd is asked through its JSON gateway, which it has from 3.4 on, and never through a proxy.
#[derive(Clone, Eq, PartialEq)]
pub struct EtcdMembers {
    settings: Settings,
}

impl EtcdMembers {
    /// The variable with the client URLs of etcd, with commas between them.
    pub const ENDPOINTS_ENV: &'static str = "MESHWORK_ETCD";
    /// The variable with the job's prefix.
    pub const PREFIX_ENV: &'static str = "MESHWORK_ETCD_PREFIX";
    /// The variable with the user of etcd.
    pub const USER_ENV: &'static str = "MESHWORK_ETCD_USER";
    /// The variable that names the file with the user's password.
    pub const PASSWORD_FILE_ENV: &'static str = "MESHWORK_ETCD_PASSWORD_FILE";
    /// The variable that names the file with the authorities for etcd's certificate.
    pub const AUTHORITY_FILE_ENV: &'static str = "MESHWORK_ETCD_AUTHORITY_FILE";

    /// The least time that a lease may last.
    pub const LEAST_TIME_TO_LIVE: Duration = Duration::from_secs(2);

    /// The members under this prefix, in the etcd with these client URLs; any that answers will do.
    ///
    /// A slash at the end of the prefix does not count.
    pub fn new(
        endpoints: impl IntoIterator<Item = impl Into<String>>,
        prefix: impl Into<String>,
    ) -> Self {
        let prefix: String = prefix.into();
        Self {
            settings: Settings {
                endpoints: endpoints.into_iter().map(Endpoint::new).collect(),
                prefix: prefix.trim_end_matches('/').to_owned(),
                user: None,
                authorities: None,
                retry: RetryPolicy::default().with_attempt_timeout(Duration::from_secs(5)),
                time_to_live: Duration::from_secs(15),
            },
        }
    }

    /// What the variables say; `None` where [`ENDPOINTS_ENV`](Self::ENDPOINTS_ENV) is not set.
    ///
    /// The files that they name may be replaced: that of the password is read again before signing
    /// in, that of the authorities where the certificate of etcd is not trusted. A file that cannot
    /// be used then changes nothing.
    ///
    /// # Errors
    /// [`Error::NotUnicode`]; [`EtcdError::Unset`] for one that another needs; [`EtcdError::File`].
    pub fn from_variables(variables: &Variables) -> Result<Option<Self>, Error> {
        settings::read(variables)
    }

    /// As this user of etcd, who may read and write what is under the prefix. A line break at the
    /// end of the password does not count.
    #[must_use]
    pub fn with_user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.settings.user = Some(User::new(name, password));
        self
    }

    /// Only an etcd with a certificate of these authorities is asked, which are the text of a PEM
    /// file; without them, one with a certificate that the system trusts.
    #[must_use]
    pub fn with_authorities(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.settings.authorities = Some(Authorities::new(pem));
        self
    }

    /// How long a newcomer waits for somebody to be registered, and a member for its address to be
    /// written; 30 s unless said.
    #[must_use]
    pub fn with_retry_policy(mut self, retry: RetryPolicy) -> Self {
        self.settings.retry = retry;
        self
    }

    /// How long an address stays behind a member that has died, in whole seconds; 15 s unless said.
    #[must_use]
    pub fn with_time_to_live(mut self, time_to_live: Duration) -> Self {
        self.settings.time_to_live = time_to_live;
        self
    }

    /// The addresses of members, at most 1,000; waits until there is one. Each call begins at
    /// another of them, so that newcomers do not all ask the same ones.
    ///
    /// Entries that hold no address are passed over.
    ///
    /// # Errors
    /// [`EtcdError::NoMembers`] where nobody has registered before the deadline; all others where
    /// etcd cannot be asked.
    pub fn addresses(&self) -> Result<Vec<String>, EtcdError> {
        self.settings.check()?;
        call::run(async { Ok(self.found().await) })?
    }

    /// Writes this address of a member, and keeps it there until the registration is dropped.
    ///
    /// Where etcd cannot be reached now, or later, or has lost the address, `report` is told so,
    /// once until it works again, and it is tried again for as long as the registration lives.
    ///
    /// # Errors
    /// Those that do not pass by themselves, as [`EtcdError::SignIn`] and [`EtcdError::Forbidden`].
    pub fn register(
        &self,
        address: impl Into<String>,
        report: impl Fn(&EtcdError) + Send + 'static,
    ) -> Result<EtcdRegistration, EtcdError> {
        let address = address.into();
        self.settings.check()?;
        if let Err(problem) = address::parse(&address) {
            return Err(EtcdError::Address { address, problem });
        }
        EtcdRegistration::begin(self.settings.clone(), address, Box::new(report))
    }

    async fn found(&self) -> Result<Vec<String>, EtcdError> {
        let begun = Instant::now();
        let mut gateway = Gateway::new(&self.settings)?;
        let mut others = None;
        loop {
            let left = self
                .settings
                .retry
                .deadline()
                .saturating_sub(begun.elapsed());
            let found = match (gateway.list(self.settings.retry.within(left)).await, others) {
                (Ok(found), _) => found,
                // Cut short by the deadline, this says less than the look before it.
                (Err(error), Some(entries)) if error.is_transient() => {
                    return Err(self.no_members(entries, begun.elapsed()));
                }
                (Err(error), _) => return Err(error),
            };
            let mut addresses = found.addresses;
            if !addresses.is_empty() {
                let at = RandomState::new().hash_one(begun) % addresses.len() as u64;
                addresses.rotate_left(usize::try_from(at).expect("below a length"));
                return Ok(addresses);
            }
            if left <= PAUSE {
                return Err(self.no_members(found.others, begun.elapsed()));
            }
            others = Some(found.others);
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn no_members(&self, entries: usize, waited: Duration) -> EtcdError {
        EtcdError::NoMembers {
            endpoint: self.settings.shown(),
            prefix: self.settings.prefix.clone(),
            entries,
            waited,
        }
    }
}

impl Debug for EtcdMembers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

/// The pause before a newcomer looks again whether somebody has registered.
const PAUSE: Duration = Duration::from_millis(250);
