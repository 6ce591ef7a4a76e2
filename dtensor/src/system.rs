//! `System`: initialization and shutdown of a process's accelerators, as TensorFlow's
//! `initialize_accelerator_system` has them, with an explicit state in place of globals. The global
//! one is in `process`, arguments are in `system/initialize`, the environment in `config`.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use meshwork_collectives::{Group, GroupConfig, JobIdentity, Rank, Timeouts};

use crate::error::Subject;
use crate::{Backend, Config, Context, DeviceCounts, DeviceType, Environment, Error};

mod initialize;

pub use initialize::Initialize;
use initialize::{Before, Coordination, Cores};

/// The accelerator system of a process, from initialization to shutdown.
///
/// The functions of this crate's root work on one for the process; a program may have others.
///
/// ```
/// use meshwork_dtensor::{DeviceCounts, DeviceType, Environment, Error, Initialize, System};
///
/// let mut system = System::new(DeviceCounts::cpus(1));
/// let environment = Environment::default();
/// assert_eq!(system.initialize(&environment, Initialize::new())?, DeviceType::Cpu);
/// assert!(system.is_initialized());
/// system.shutdown()?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct System {
    physical: DeviceCounts,
    search: Search,
    /// The backends found so far.
    found: BTreeMap<DeviceType, Backend>,
    /// How many logical CPUs the first of the physical ones is split into.
    logical_cpus: Option<NonZeroU32>,
    state: State,
}

/// The source of accelerators.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Search {
    /// They were given, and there are no others.
    Told,
    /// From the backends that are compiled in.
    Machine,
}

#[derive(Debug)]
enum State {
    Fresh,
    /// Tensors were made without initialisation.
    Used(Context),
    Initialized(DeviceType, Context),
}

impl System {
    /// The accelerators of a process with these devices.
    #[must_use]
    pub const fn new(physical: DeviceCounts) -> Self {
        Self::with(physical, Search::Told)
    }

    /// The accelerators of a process that looks for them: a CPU, and what the backends find that
    /// are compiled in ([`Backend::find`]), once it is needed.
    ///
    /// ```
    /// use meshwork_dtensor::{DeviceType, Environment, Error, Initialize, System};
    ///
    /// let mut system = System::of_machine();
    /// let asked = Initialize::new().device_type(DeviceType::Tpu);
    /// match system.initialize(&Environment::default(), asked) {
    ///     Ok(found) => assert_eq!(found, DeviceType::Tpu),
    ///     // Says what to install, or which feature to build with.
    ///     Err(error) => println!("{error}"),
    /// }
    /// ```
    #[must_use]
    pub const fn of_machine() -> Self {
        Self::with(DeviceCounts::cpus(1), Search::Machine)
    }

    const fn with(physical: DeviceCounts, search: Search) -> Self {
        Self {
            physical,
            search,
            found: BTreeMap::new(),
            logical_cpus: None,
            state: State::Fresh,
        }
    }

    /// Makes the devices ready and, where the environment lists several jobs, meets the other
    /// clients. Blocks until all have come.
    ///
    /// Without a type the fastest is taken for which devices are found: TPU, then GPU, then CPU. A
    /// system that was given its devices may be asked for GPUs where there are none, as
    /// TensorFlow's; then there is no mesh to be made of them. One that looks for itself
    /// ([`of_machine`](Self::of_machine)) says what is missing.
    ///
    /// # Errors
    /// [`Error::AlreadyInitialized`], [`Error::UsedBefore`], [`Error::Pathways`],
    /// [`Error::TooFewCpus`], [`Error::NoDevices`] for TPU, [`Error::NoBackend`],
    /// [`Error::JobAddress`], [`Error::ClientsDisagree`], [`Error::Group`], and those of
    /// [`Config::client`] and [`Backend::find`]. The system is then as it was before.
    #[doc(alias = "initialize_accelerator_system")]
    #[doc(alias = "initialize_tpu_system")]
    #[doc(alias = "initialize_multi_client")]
    #[track_caller]
    pub fn initialize(
        &mut self,
        environment: &Environment,
        asked: Initialize,
    ) -> Result<DeviceType, Error> {
        match &self.state {
            State::Initialized(device_type, _) => {
                return Err(Error::AlreadyInitialized {
                    device_type: *device_type,
                });
            }
            State::Used(_) if asked.before == Before::Refused => return Err(Error::UsedBefore),
            State::Used(_) | State::Fresh => {}
        }
        let config = self.config(environment);
        if config.backend_is_pw() {
            return Err(Error::Pathways);
        }
        let device_type = match asked.device_type {
            Some(device_type) => device_type,
            None => self.preferred_device_type(environment),
        };
        let backend = self.find(device_type)?;
        let logical_cpus = self.logical_cpus_for(device_type, &asked)?;
        self.check_backend(device_type, asked.cores)?;
        let devices = self.devices(Some(logical_cpus));
        let config = Config::new(environment.clone(), devices);
        let context = start(&config, &asked)?;
        if let Some(backend) = backend {
            context.compute_on(device_type, backend)?;
        }
        if asked.coordination == Coordination::Checked {
            let jobs = config.jobs()?.join(",");
            context.agree(Subject::Job, &format!("{device_type} of {jobs}"))?;
            context.check_barriers();
        }
        self.logical_cpus = Some(logical_cpus);
        self.state = State::Initialized(device_type, context);
        Ok(device_type)
    }

    /// Ends what [`initialize`](Self::initialize) began; with several clients all of them call it,
    /// and it returns when all have. TensorFlow refuses that.
    ///
    /// # Errors
    /// [`Error::NotInitialized`], and [`Error::Group`] where a client was lost before; the system
    /// is shut down all the same.
    #[doc(alias = "shutdown_accelerator_system")]
    #[doc(alias = "shutdown_tpu_system")]
    #[track_caller]
    pub fn shutdown(&mut self) -> Result<(), Error> {
        let State::Initialized(_, context) = &self.state else {
            return Err(Error::NotInitialized);
        };
        let context = context.clone();
        let found = std::mem::take(&mut self.found);
        *self = Self {
            found,
            ..Self::with(self.physical, self.search)
        };
        context.leave()
    }

    /// Whether it is initialised.
    #[must_use]
    pub fn is_initialized(&self) -> bool {
        matches!(self.state, State::Initialized(..))
    }

    /// [`Config::preferred_device_type`], after a search for devices that were not given.
    #[must_use]
    pub fn preferred_device_type(&mut self, environment: &Environment) -> DeviceType {
        for device_type in [DeviceType::Tpu, DeviceType::Gpu] {
            // What is not there is not preferred; why, is told to those who ask for it.
            if let Ok(Some(_)) = self.find(device_type) {
                break;
            }
        }
        self.config(environment).preferred_device_type()
    }

    /// The [`config`](Self::config), after a search for devices of a type that were not given.
    pub(crate) fn config_with(
        &mut self,
        environment: &Environment,
        device_type: DeviceType,
    ) -> Config {
        // Of what is not there, there are none.
        let _ = self.find(device_type);
        self.config(environment)
    }

    /// The backend for a type of device; none where the host computes, or devices were given. One
    /// that was found is kept: plugins cannot be opened twice.
    fn find(&mut self, device_type: DeviceType) -> Result<Option<Backend>, Error> {
        if self.search == Search::Told || device_type == DeviceType::Cpu {
            return Ok(None);
        }
        if let Some(known) = self.found.get(&device_type) {
            return Ok(Some(known.clone()));
        }
        let found = Backend::find(device_type)?;
        self.found.insert(device_type, found.clone());
        Ok(Some(found))
    }

    /// The configuration of the process from this environment and its devices: those that were
    /// given, and those that were found when they were needed.
    #[must_use]
    pub fn config(&self, environment: &Environment) -> Config {
        Config::new(environment.clone(), self.devices(self.logical_cpus))
    }

    /// The context that was initialised. Where none was and the process is alone, one of its own,
    /// after which the system can be initialised by a reset only.
    ///
    /// # Errors
    /// [`Error::NotInitialized`] where several jobs are listed, and those of [`Config::client`].
    pub fn context(&mut self, environment: &Environment) -> Result<Context, Error> {
        if let State::Initialized(_, context) | State::Used(context) = &self.state {
            return Ok(context.clone());
        }
        let config = self.config(environment);
        if config.num_clients()? > 1 {
            return Err(Error::NotInitialized);
        }
        let context = Context::alone(config.client()?);
        for (device_type, backend) in &self.found {
            context.compute_on(*device_type, backend.clone())?;
        }
        self.state = State::Used(context.clone());
        Ok(context)
    }

    /// The context that was initialised.
    ///
    /// # Errors
    /// [`Error::NotInitialized`].
    pub fn initialized(&self) -> Result<Context, Error> {
        match &self.state {
            State::Initialized(_, context) => Ok(context.clone()),
            State::Fresh | State::Used(_) => Err(Error::NotInitialized),
        }
    }

    fn devices(&self, logical_cpus: Option<NonZeroU32>) -> DeviceCounts {
        let devices = self.physical();
        match logical_cpus {
            Some(count) => devices.with(DeviceType::Cpu, count.get()),
            None => devices,
        }
    }

    /// The devices that were given or found.
    fn physical(&self) -> DeviceCounts {
        let with = |devices: DeviceCounts, (kind, backend): (&DeviceType, &Backend)| {
            let count = u32::try_from(backend.devices().len());
            let count = count.expect("devices have numbers, which are u32");
            devices.with(*kind, count)
        };
        self.found.iter().fold(self.physical, with)
    }

    fn logical_cpus_for(
        &self,
        device_type: DeviceType,
        asked: &Initialize,
    ) -> Result<NonZeroU32, Error> {
        let now = NonZeroU32::new(self.physical().of(DeviceType::Cpu)).unwrap_or(NonZeroU32::MIN);
        let accelerators = match device_type {
            DeviceType::Cpu => 0,
            other => self.physical().of(other),
        };
        let enough = NonZeroU32::new(accelerators).map_or(now, |least| least.max(now));
        match asked.logical_cpus {
            Some(cpus) if cpus.get() < accelerators => Err(Error::TooFewCpus {
                cpus: cpus.get(),
                accelerators,
            }),
            Some(cpus) => Ok(cpus),
            None => Ok(enough),
        }
    }

    fn check_backend(&self, device_type: DeviceType, cores: Cores) -> Result<(), Error> {
        match (device_type, self.physical().of(device_type)) {
            _ if self.found.contains_key(&device_type) => Ok(()),
            (DeviceType::Cpu, _) | (DeviceType::Gpu, 0) => Ok(()),
            (DeviceType::Tpu, 0) => Err(Error::NoDevices { device_type }),
            (DeviceType::Tpu, cores_found) if cores == Cores::Paired => Err(Error::NoBackend {
                device_type,
                count: cores_found.div_ceil(2),
            }),
            (_, count) => Err(Error::NoBackend { device_type, count }),
        }
    }
}

/// Meets the other clients, if there are any.
#[track_caller]
fn start(config: &Config, asked: &Initialize) -> Result<Context, Error> {
    let jobs = config.jobs()?;
    for (place, address) in jobs.iter().enumerate() {
        check_address(address, place)?;
    }
    if jobs.len() < 2 {
        // A process that is alone need not know its number.
        let job = config.job_name()?;
        let client = meshwork_core::Client::new(&job, 0, 1)?;
        let devices = config.device_counts();
        return Ok(Context::alone(crate::config::with_devices(
            client, devices,
        )?));
    }
    let client = config.client()?;
    let identity = match &asked.secret {
        Some(secret) => secret.clone().into(),
        None => JobIdentity::from_env()?,
    };
    let group =
        GroupConfig::new(jobs, Rank::new(config.client_id()?), identity)?.with_environment()?;
    let group = match config.heartbeat_enabled() {
        true => group,
        false => group.with_timeouts(Timeouts::from_env()?.with_silence(NEVER)),
    };
    Context::from_group(client, Group::connect(&group)?)
}

fn check_address(address: &str, place: usize) -> Result<(), Error> {
    let port = address
        .rsplit_once(':')
        .filter(|(host, _)| !host.is_empty());
    match port.and_then(|(_, port)| port.parse::<u16>().ok()) {
        Some(_) => Ok(()),
        None => Err(Error::JobAddress {
            address: address.to_owned(),
            place,
        }),
    }
}

/// Longer than anything runs.
const NEVER: Duration = Duration::from_secs(86_400 * 365);

#[cfg(test)]
mod tests;
