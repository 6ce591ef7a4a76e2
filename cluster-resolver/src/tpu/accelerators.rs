//! How many cores a TPU has: by its type, by its topology, and by the devices that it shows.

use std::collections::BTreeMap;

use crate::error::ServiceError;

/// The cores of a slice with this accelerator type, such as `v3-32` or `v5litepod-16`; `None` for a
/// type that is no slice of a known generation.
///
/// The number in a type counts cores up to `v4` and for `v5p`, and chips of one core after that.
///
/// ```
/// use meshwork_cluster_resolver::tpu_cores_of_type;
///
/// assert_eq!(tpu_cores_of_type("v3-32"), Some(32));
/// assert_eq!(tpu_cores_of_type("v100"), None);
/// ```
#[must_use]
pub fn tpu_cores_of_type(accelerator_type: &str) -> Option<u32> {
    let (generation, number) = accelerator_type.rsplit_once('-')?;
    let known = ["v2", "v3", "v4", "v5p", "v5litepod", "v5e", "v6e", "tpu7x"];
    if !known.contains(&generation) || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    number.parse().ok().filter(|&cores| cores > 0)
}

/// The cores of a slice of this generation with this topology in chips, such as `V4` and `2x2x4`;
/// `None` for an unknown generation or a text that is no topology.
///
/// ```
/// use meshwork_cluster_resolver::tpu_cores_of_topology;
///
/// assert_eq!(tpu_cores_of_topology("V4", "2x2x4"), Some(32));
/// assert_eq!(tpu_cores_of_topology("V6E", "4x4"), Some(16));
/// ```
#[must_use]
pub fn tpu_cores_of_topology(generation: &str, topology: &str) -> Option<u32> {
    let cores_per_chip: u32 = match generation {
        "V2" | "V3" | "V4" | "V5P" => 2,
        "V5LITE_POD" | "V6E" => 1,
        _ => return None,
    };
    let mut sides = topology.split('x').map(|side| side.parse::<u32>().ok());
    let cores = sides.try_fold(cores_per_chip, |product, side| product.checked_mul(side?));
    cores.filter(|&cores| cores > 0)
}

/// The cores that TPU devices show by their names, by host.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TpuDevices {
    by_host: BTreeMap<u32, Vec<u32>>,
}

impl TpuDevices {
    /// Reads names such as `/job:tpu_worker/task:1/device:TPU:0`; those of other devices, and of
    /// devices without a task, are passed over.
    pub fn from_names(names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let mut by_host: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (host, core) in names.into_iter().filter_map(|name| placed(name.as_ref())) {
            by_host.entry(host).or_default().push(core);
        }
        Self { by_host }
    }

    /// Each host with its cores, in the order of their names.
    pub fn hosts(&self) -> impl ExactSizeIterator<Item = (u32, &[u32])> {
        self.by_host
            .iter()
            .map(|(&host, cores)| (host, cores.as_slice()))
    }

    /// All cores.
    #[must_use]
    pub fn total_cores(&self) -> usize {
        self.by_host.values().map(Vec::len).sum()
    }

    /// The cores of each host; 0 without hosts.
    ///
    /// # Errors
    /// [`ServiceError::UnevenCores`] where hosts differ.
    pub fn cores_per_host(&self) -> Result<usize, ServiceError> {
        let mut counts = self.by_host.values().map(Vec::len);
        let first = counts.next().unwrap_or_default();
        if counts.all(|count| count == first) {
            return Ok(first);
        }
        Err(ServiceError::UnevenCores {
            cores: u32::try_from(self.total_cores()).unwrap_or(u32::MAX),
            hosts: self.by_host.len(),
        })
    }
}

/// Host and core of a name that ends with `task:HOST/…device:TPU:CORE`.
fn placed(name: &str) -> Option<(u32, u32)> {
    let (before, core) = name.rsplit_once("device:TPU:")?;
    let (_, after_task) = before.rsplit_once("task:")?;
    let (host, _) = after_task.split_once('/')?;
    Some((number(host)?, number(core)?))
}

fn number(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

/// The cores of each of these hosts.
pub(super) fn share(cores: u32, hosts: usize) -> Result<u32, ServiceError> {
    let each = u32::try_from(hosts).ok().filter(|&hosts| hosts > 0);
    match each {
        Some(hosts) if cores.is_multiple_of(hosts) => Ok(cores / hosts),
        _ => Err(ServiceError::UnevenCores { cores, hosts }),
    }
}

/// The only job of a cluster that may hold TPUs, if the master is one of several tasks: `None` for
/// a master that is this process.
///
/// No jobs at all stand for `tpu_worker`, a single job for itself, and of two the one that is not
/// the coordinator.
///
/// # Errors
/// [`ServiceError::MasterJob`] for other jobs, and for one that is called `tpu_worker` itself.
pub fn tpu_master_job<'a>(master: &str, jobs: &[&'a str]) -> Result<Option<&'a str>, ServiceError> {
    if matches!(master, "" | "local") {
        return Ok(None);
    }
    let reserved = "tpu_worker";
    let job = match *jobs {
        [] => return Ok(Some(reserved)),
        [only] | [only, "coordinator"] | ["coordinator", only] => Some(only),
        _ => None,
    };
    match job {
        Some(job) if job != reserved && !jobs.contains(&reserved) => Ok(Some(job)),
        _ => Err(ServiceError::MasterJob {
            jobs: jobs.iter().map(ToString::to_string).collect(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_say_their_cores() {
        let check = |name, cores| assert_eq!(tpu_cores_of_type(name), cores, "{name}");
        check("v2-8", Some(8));
        check("v4-4096", Some(4096));
        check("v5litepod-1", Some(1));
        check("v6e-256", Some(256));
        for unknown in [
            "",
            "v3",
            "v3-",
            "v3-x",
            "v3-+8",
            "v9-8",
            "v3-0",
            "v3-99999999999",
        ] {
            check(unknown, None);
        }
    }

    #[test]
    fn topologies_multiply_to_chips() {
        let check = |generation, topology, cores| {
            assert_eq!(
                tpu_cores_of_topology(generation, topology),
                cores,
                "{topology}"
            );
        };
        check("V3", "4x4", Some(32));
        check("V5P", "2x2x1", Some(8));
        check("V5LITE_POD", "2x4", Some(8));
        for broken in ["", "2x", "x2", "2X2", "0x4", "-1x2", "65536x65536"] {
            check("V4", broken, None);
        }
        check("V1", "2x2", None);
    }

    #[test]
    fn cores_are_shared_evenly_or_not_at_all() {
        for cores in 0..64 {
            for hosts in 0..9 {
                let fits = hosts > 0 && (0..=cores).any(|each| each * hosts == cores);
                let shared = share(cores, usize::try_from(hosts).unwrap());
                assert_eq!(shared.is_ok(), fits, "{cores} {hosts}");
                assert!(shared.is_ok_and(|each| each * hosts == cores) || !fits);
            }
        }
    }

    #[test]
    fn devices_without_a_task_or_of_another_kind_are_passed_over() {
        let names = [
            "/job:w/replica:0/task:10/device:TPU:1",
            "/job:w/replica:0/task:10/device:TPU:0",
            "/job:w/task:2/device:TPU:0",
            "/device:TPU:0",
            "/job:w/task:0/device:GPU:0",
            "/job:w/task:0/device:TPU:0/x",
        ];
        let devices = TpuDevices::from_names(names);
        let hosts: Vec<_> = devices.hosts().collect();
        assert_eq!(hosts, [(2, &[0][..]), (10, &[1, 0])]);
        assert_eq!(devices.total_cores(), 3);
        let (cores, hosts) = (3, 2);
        assert_eq!(
            devices.cores_per_host(),
            Err(ServiceError::UnevenCores { cores, hosts })
        );
    }

    #[test]
    fn one_job_beside_the_coordinator_holds_the_tpus() {
        let job = |master, jobs: &[&'static str]| tpu_master_job(master, jobs).ok();
        assert_eq!(job("", &["a", "b"]), Some(None));
        assert_eq!(job("grpc://x", &[]), Some(Some("tpu_worker")));
        assert_eq!(job("grpc://x", &["w"]), Some(Some("w")));
        assert_eq!(job("grpc://x", &["coordinator", "w"]), Some(Some("w")));
        for unclear in [&["a", "b"][..], &["a", "b", "coordinator"], &["tpu_worker"]] {
            assert_eq!(job("grpc://x", unclear), None, "{unclear:?}");
        }
    }
}
