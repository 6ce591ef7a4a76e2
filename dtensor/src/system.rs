use std::num::NonZeroU32;
use std::time::Duration;

use meshwork_collectives::{Group, GroupConfig, JobSecret, Rank, Timeouts};

use crate::error::Subject;
use crate::{Config, Context, DeviceCounts, DeviceType, Environment, Error};

/// What [`System::initialize`] is asked for.
///
/// ```
/// use std::num::NonZeroU32;
/// use meshwork_dtensor::{DeviceType, Initialize};
///
/// let eight = NonZeroU32::new(8).expect("not zero");
/// let asked = Initialize::new().device_type(DeviceType::Cpu).logical_cpu_devices(eight);
/// # let _ = asked;
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Initialize {
    device_type: Option<DeviceType>,
    logical_cpus: Option<NonZeroU32>,
    coordination: Coordination,
    before: Before,
    cores: Cores,
    secret: Option<JobSecret>,
}

/// Whether barriers check that all clients mean the same one.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Coordination {
    #[default]
    Checked,
    Unchecked,
}

/// What becomes of a context that was used before.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Before {
    #[default]
    Refused,
    TornDown,
}

/// What a TPU chip counts as.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Cores {
    #[default]
    Single,
    Paired,
}

impl Initialize {
    /// The preferred type of device, with as many logical CPUs as there are.
    pub fn new() -> Self {
        Self::default()
    }

    /// For this type of device.
    pub fn device_type(self, device_type: DeviceType) -> Self {
        Self {
            device_type: Some(device_type),
            ..self
        }
    }

    /// With this many logical CPUs in this process.
    #[doc(alias = "num_logical_cpu_devices")]
    pub fn logical_cpu_devices(self, count: NonZeroU32) -> Self {
        Self {
            logical_cpus: Some(count),
            ..self
        }
    }

    /// Without the checks that TensorFlow's coordination service makes: that all clients have the same
    /// list of jobs, and that a barrier has the same name on all. Clients watch each other all the same.
    #[doc(alias = "enable_coordination_service")]
    pub fn without_coordination_service(self) -> Self {
        Self {
            coordination: Coordination::Unchecked,
            ..self
        }
    }

    /// Even if tensors were made before, which then cannot be moved between processes any more.
    #[doc(alias = "experimental_reset_context")]
    pub fn reset_context(self) -> Self {
        Self {
            before: Before::TornDown,
            ..self
        }
    }

    /// With the two cores of a TPU chip as one device.
    #[doc(alias = "experimental_enable_megcore")]
    pub fn megacore(self) -> Self {
        Self {
            cores: Cores::Paired,
            ..self
        }
    }

    /// With this job secret instead of the environment's, see [`JobSecret::from_env`]. One client
    /// needs none.
    pub fn secret(self, secret: JobSecret) -> Self {
        Self {
            secret: Some(secret),
            ..self
        }
    }
}

/// The accelerators of a process, from their initialisation to their shutdown.
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
    /// How many logical CPUs the first of the physical ones is split into.
    logical_cpus: Option<NonZeroU32>,
    state: State,
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
        Self {
            physical,
            logical_cpus: None,
            state: State::Fresh,
        }
    }

    /// Makes the devices ready and, where the environment lists several jobs, meets the other
    /// clients. Blocks until all have come.
    ///
    /// GPUs may be asked for where there are none; then there is no mesh to be made of them.
    ///
    /// # Errors
    /// [`Error::AlreadyInitialized`], [`Error::UsedBefore`], [`Error::Pathways`],
    /// [`Error::TooFewCpus`], [`Error::NoDevices`] for TPU, [`Error::NoBackend`],
    /// [`Error::JobAddress`], [`Error::ClientsDisagree`], [`Error::Group`], and those of
    /// [`Config::client`]. The system is then as it was before.
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
        let preferred = config.preferred_device_type();
        let device_type = asked.device_type.unwrap_or(preferred);
        let logical_cpus = self.logical_cpus_for(device_type, &asked)?;
        self.check_backend(device_type, asked.cores)?;
        let devices = self.devices(Some(logical_cpus));
        let config = Config::new(environment.clone(), devices);
        let context = start(&config, &asked)?;
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
    /// [`Error::NotInitialized`], and [`Error::Group`] where a client was lost before; the system is
    /// shut down all the same.
    #[doc(alias = "shutdown_accelerator_system")]
    #[doc(alias = "shutdown_tpu_system")]
    #[track_caller]
    pub fn shutdown(&mut self) -> Result<(), Error> {
        let State::Initialized(_, context) = &self.state else {
            return Err(Error::NotInitialized);
        };
        let context = context.clone();
        *self = Self::new(self.physical);
        context.leave()
    }

    /// Whether it is initialised.
    #[must_use]
    pub fn is_initialized(&self) -> bool {
        matches!(self.state, State::Initialized(..))
    }

    /// What this environment and the devices say about the process.
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
        match logical_cpus {
            Some(count) => self.physical.with(DeviceType::Cpu, count.get()),
            None => self.physical,
        }
    }

    fn logical_cpus_for(
        &self,
        device_type: DeviceType,
        asked: &Initialize,
    ) -> Result<NonZeroU32, Error> {
        let now = NonZeroU32::new(self.physical.of(DeviceType::Cpu)).unwrap_or(NonZeroU32::MIN);
        let accelerators = match device_type {
            DeviceType::Cpu => 0,
            other => self.physical.of(other),
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
        match (device_type, self.physical.of(device_type)) {
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
    let secret = match &asked.secret {
        Some(secret) => secret.clone(),
        None => JobSecret::from_env()?,
    };
    let group =
        GroupConfig::new(jobs, Rank::new(config.client_id()?), secret)?.with_environment()?;
    let group = match config.heartbeat_enabled() {
        true => group,
        false => group.with_timeouts(Timeouts::from_env()?.with_silence(NEVER)),
    };
    Context::over(client, Group::connect(&group)?)
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
