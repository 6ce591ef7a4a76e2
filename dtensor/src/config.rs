//! What the environment and the devices at hand say about this process.

use std::cmp::Ordering;

use meshwork_core::{Client, DeviceSpec};

use crate::environment::{
    CLIENT_ID, ENABLE_HEARTBEAT, ENABLE_MULTI_DEVICE_EXPANSION, GPU_USE_NCCL_COMMUNICATION,
    JOB_NAME, JOBS, USE_PARALLEL_EXECUTOR,
};
use crate::{DeviceCounts, DeviceType, Environment, Error};

/// The configuration of a process: its number, the number of processes, and its devices.
///
/// Nothing is checked before it is asked for: a wrong number of this process does no harm to one
/// that asks for the list of jobs.
///
/// ```
/// use meshwork_dtensor::{Config, DeviceCounts, DeviceType, Environment, Error, CLIENT_ID, JOBS};
///
/// let environment = Environment::new([(JOBS, "a:1,b:2"), (CLIENT_ID, "1")]);
/// let config = Config::new(environment, DeviceCounts::cpus(4));
/// assert_eq!(config.full_job_name()?, "worker/replica:0/task:1");
/// assert_eq!(config.num_global_devices(DeviceType::Cpu)?, 8);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Config {
    environment: Environment,
    devices: DeviceCounts,
}

impl Config {
    /// The configuration that these variables give a process with these devices.
    #[must_use]
    pub fn new(environment: Environment, devices: DeviceCounts) -> Self {
        Self {
            environment,
            devices,
        }
    }

    /// The addresses of all processes in the order of their numbers; none if this one is alone.
    ///
    /// # Errors
    /// [`Error::JobsUnsorted`], [`Error::JobsMixed`]: names that begin with `/bns/` are in the
    /// order of the numbers at their ends.
    pub fn jobs(&self) -> Result<Vec<String>, Error> {
        let Some(text) = self.environment.get(JOBS) else {
            return Ok(Vec::new());
        };
        let jobs: Vec<String> = text.split(',').map(str::to_owned).collect();
        if jobs.iter().any(|job| job.starts_with("/bns/")) {
            check_order(&jobs)?;
        }
        Ok(jobs)
    }

    /// Whether this process is alone: no list of jobs is set. An empty list is one all the same, of
    /// one job without an address.
    ///
    /// # Errors
    /// Those of [`jobs`](Self::jobs).
    pub fn is_local_mode(&self) -> Result<bool, Error> {
        Ok(self.jobs()?.is_empty())
    }

    /// How many processes there are.
    ///
    /// # Errors
    /// Those of [`jobs`](Self::jobs), [`Error::TooManyClients`].
    pub fn num_clients(&self) -> Result<u32, Error> {
        let count = self.jobs()?.len().max(1);
        u32::try_from(count).map_err(|_| Error::TooManyClients { count })
    }

    /// The number of this process, from 0; 0 where none is set.
    ///
    /// # Errors
    /// [`Error::ClientIdText`] for one that is no whole number, [`Error::ClientIdOutside`], and
    /// those of [`num_clients`](Self::num_clients).
    pub fn client_id(&self) -> Result<u32, Error> {
        let text = self.environment.get(CLIENT_ID).unwrap_or("0");
        let id = whole_number(text).ok_or_else(|| Error::ClientIdText {
            value: text.to_owned(),
        })?;
        let clients = self.num_clients()?;
        let inside = u32::try_from(id).ok().filter(|id| *id < clients);
        inside.ok_or(Error::ClientIdOutside { id, clients })
    }

    /// The name of the job: `localhost` for one process and `worker` for several, if none is set.
    ///
    /// # Errors
    /// Those of [`num_clients`](Self::num_clients).
    pub fn job_name(&self) -> Result<String, Error> {
        let default = match self.num_clients()? {
            1 => "localhost",
            _ => "worker",
        };
        Ok(self.environment.get(JOB_NAME).unwrap_or(default).to_owned())
    }

    /// The job and the task of this process, as `worker/replica:0/task:1`.
    ///
    /// # Errors
    /// Those of [`client_id`](Self::client_id).
    pub fn full_job_name(&self) -> Result<String, Error> {
        self.full_job_name_of(self.client_id()?)
    }

    /// The job and a task, which need not exist where there are several.
    ///
    /// # Errors
    /// [`Error::TaskOfOne`] for another task than 0 where there is one process, and those of
    /// [`num_clients`](Self::num_clients).
    pub fn full_job_name_of(&self, task: u32) -> Result<String, Error> {
        if self.num_clients()? == 1 && task != 0 {
            return Err(Error::TaskOfOne { task });
        }
        Ok(format!("{}/replica:0/task:{task}", self.job_name()?))
    }

    /// Whether processes watch each other: yes, unless the variable says otherwise.
    #[must_use]
    pub fn heartbeat_enabled(&self) -> bool {
        let value = self.environment.get(ENABLE_HEARTBEAT).unwrap_or("true");
        ["true", "1"]
            .iter()
            .any(|yes| value.eq_ignore_ascii_case(yes))
    }

    /// Whether GPUs talk by NCCL.
    #[must_use]
    pub fn gpu_use_nccl_communication(&self) -> bool {
        self.is_not_zero(GPU_USE_NCCL_COMMUNICATION)
    }

    /// Whether one process runs several devices as one program.
    #[must_use]
    pub fn use_multi_device_mode(&self) -> bool {
        self.is_not_zero(ENABLE_MULTI_DEVICE_EXPANSION)
    }

    /// Whether the Pathways executor is asked for, which is not open.
    #[must_use]
    pub fn backend_is_pw(&self) -> bool {
        self.environment.get(USE_PARALLEL_EXECUTOR) == Some("pw")
    }

    /// The devices of this process.
    #[must_use]
    pub fn device_counts(&self) -> DeviceCounts {
        self.devices
    }

    /// How many devices of a type this process has.
    #[must_use]
    pub fn num_local_devices(&self, device_type: DeviceType) -> u32 {
        self.devices.of(device_type)
    }

    /// How many devices of a type all processes have, if they have as many each.
    ///
    /// # Errors
    /// [`Error::TooManyClients`], and those of [`num_clients`](Self::num_clients).
    pub fn num_global_devices(&self, device_type: DeviceType) -> Result<u32, Error> {
        let clients = self.num_clients()?;
        let local = self.num_local_devices(device_type);
        local.checked_mul(clients).ok_or(Error::TooManyClients {
            count: clients as usize,
        })
    }

    /// The names of this process's devices of a type.
    ///
    /// # Errors
    /// Those of [`client_id`](Self::client_id), and [`Error::Mesh`] for a job's name that cannot be
    /// part of a device name.
    pub fn local_devices(&self, device_type: DeviceType) -> Result<Vec<DeviceSpec>, Error> {
        self.local_devices_of(device_type, self.client_id()?)
    }

    /// The names that as many devices of another process have.
    ///
    /// # Errors
    /// Those of [`job_name`](Self::job_name), and [`Error::Mesh`] for a job's name that cannot be
    /// part of a device name.
    pub fn local_devices_of(
        &self,
        device_type: DeviceType,
        client: u32,
    ) -> Result<Vec<DeviceSpec>, Error> {
        let host = DeviceSpec::default().with_job(self.job_name()?)?;
        let host = host.with_replica(0).with_task(client);
        let named = |index| host.clone().with_device(device_type.name(), Some(index));
        let devices = (0..self.num_local_devices(device_type)).map(named);
        Ok(devices.collect::<Result<_, _>>()?)
    }

    /// The fastest type of device that this process has.
    #[must_use]
    pub fn preferred_device_type(&self) -> DeviceType {
        let faster = [DeviceType::Tpu, DeviceType::Gpu].into_iter();
        let mut there = faster.filter(|kind| self.num_local_devices(*kind) > 0);
        there.next().unwrap_or(DeviceType::Cpu)
    }

    /// This process as a client that makes meshes, with its devices.
    ///
    /// # Errors
    /// Those of [`client_id`](Self::client_id) and [`local_devices`](Self::local_devices).
    pub fn client(&self) -> Result<Client, Error> {
        let client = Client::new(&self.job_name()?, self.client_id()?, self.num_clients()?)?;
        with_devices(client, self.devices)
    }

    fn is_not_zero(&self, variable: &str) -> bool {
        self.environment.get(variable).unwrap_or("0") != "0"
    }
}

/// The client with all these devices.
pub(crate) fn with_devices(client: Client, devices: DeviceCounts) -> Result<Client, Error> {
    let kinds = [DeviceType::Cpu, DeviceType::Gpu, DeviceType::Tpu];
    kinds.into_iter().try_fold(client, |client, kind| {
        Ok(client.with_devices(kind.name(), devices.of(kind))?)
    })
}

/// The sort key of a job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum JobKey<'a> {
    Number(i64),
    Text(&'a str),
}

fn check_order(jobs: &[String]) -> Result<(), Error> {
    for (place, pair) in jobs.windows(2).enumerate() {
        let order = match (job_key(&pair[0]), job_key(&pair[1])) {
            (JobKey::Number(first), JobKey::Number(second)) => first.cmp(&second),
            (JobKey::Text(first), JobKey::Text(second)) => first.cmp(second),
            _ => {
                return Err(Error::JobsMixed {
                    first: pair[0].clone(),
                    second: pair[1].clone(),
                });
            }
        };
        if order == Ordering::Greater {
            return Err(Error::JobsUnsorted {
                first: pair[0].clone(),
                second: pair[1].clone(),
                place,
            });
        }
    }
    Ok(())
}

/// The number after the last slash and before a colon, or else the whole name.
fn job_key(job: &str) -> JobKey<'_> {
    let last = job.rsplit('/').next().unwrap_or(job);
    let digits = last.split(':').next().unwrap_or(last);
    whole_number(digits).map_or(JobKey::Text(job), JobKey::Number)
}

/// A whole number as Python reads one: blanks around it, a sign, and single underscores between
/// digits. Beyond 64 bits the nearest that fits.
fn whole_number(text: &str) -> Option<i64> {
    let text = text.trim();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let groups = || digits.split('_');
    if groups().any(|group| group.is_empty() || !group.bytes().all(|b| b.is_ascii_digit())) {
        return None;
    }
    let value = groups().flat_map(str::bytes).fold(0_i64, |value, digit| {
        value
            .saturating_mul(10)
            .saturating_add((digit - b'0').into())
    });
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests;
