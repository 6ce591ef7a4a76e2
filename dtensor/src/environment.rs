use std::collections::BTreeMap;

/// The variables that say which process of which job this is: those whose names begin with
/// `DTENSOR_`.
///
/// ```
/// use meshwork_dtensor::{Environment, JOBS};
///
/// let environment = Environment::new([(JOBS, "10.0.0.1:4000,10.0.0.2:4000"), ("HOME", "/root")]);
/// assert_eq!(environment.get(JOBS), Some("10.0.0.1:4000,10.0.0.2:4000"));
/// assert_eq!(environment.get("HOME"), None);
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Environment(BTreeMap<String, String>);

/// `host:port` of every process of the job, separated by commas, in the order of their numbers.
/// Where it is not set, the process is alone.
pub const JOBS: &str = "DTENSOR_JOBS";
/// The number of this process, from 0.
pub const CLIENT_ID: &str = "DTENSOR_CLIENT_ID";
/// The name of the job in device names.
pub const JOB_NAME: &str = "DTENSOR_JOB_NAME";
/// Whether processes watch each other: `true` and `1` mean yes, all else no.
pub const ENABLE_HEARTBEAT: &str = "DTENSOR_ENABLE_HEARTBEAT";
/// Which executor runs programs; `pw` asks for one that is not open.
pub const USE_PARALLEL_EXECUTOR: &str = "DTENSOR_USE_PARALLEL_EXECUTOR";
/// Whether GPUs talk by NCCL: all but `0` means yes.
pub const GPU_USE_NCCL_COMMUNICATION: &str = "DTENSOR_GPU_USE_NCCL_COMMUNICATION";
/// Whether one process runs several devices as one program: all but `0` means yes.
pub const ENABLE_MULTI_DEVICE_EXPANSION: &str = "DTENSOR_ENABLE_MULTI_DEVICE_EXPANSION";

impl Environment {
    /// These variables; others than `DTENSOR_` ones are left out.
    pub fn new(
        variables: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>,
    ) -> Self {
        let variables = variables.into_iter();
        let named = variables.map(|(name, value)| (name.into(), value.into()));
        Self(
            named
                .filter(|(name, _)| name.starts_with("DTENSOR_"))
                .collect(),
        )
    }

    /// The variables of this process, as they are now. Bytes that are no UTF-8 are replaced.
    #[must_use]
    pub fn of_process() -> Self {
        let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        Self::new(std::env::vars_os().map(|(name, value)| (text(name), text(value))))
    }

    /// The value of a variable, if it is set.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}
