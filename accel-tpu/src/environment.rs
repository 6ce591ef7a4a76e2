//! What libtpu needs in the environment of a process, see [`tpu`](crate::tpu).

use std::env;
use std::path::Path;

use crate::Error;

/// What the environment of a process must have for libtpu to compile, quietly and beside others, on
/// a machine without a TPU.
pub const ENVIRONMENT: [(&str, &str); 8] = [
    SKIP_METADATA,
    ("ALLOW_MULTIPLE_LIBTPU_LOAD", "1"),
    ("TPU_LOG_DIR", "disabled"),
    ("TPU_MIN_LOG_LEVEL", "3"),
    ("TPU_STDERR_LOG_LEVEL", "3"),
    // Without these it complains that nobody told it where it runs; topologies do not depend on
    // them.
    ("TPU_ACCELERATOR_TYPE", "v5litepod-8"),
    ("TPU_WORKER_HOSTNAMES", "localhost"),
    ("TPU_WORKER_ID", "0"),
];

const SKIP_METADATA: (&str, &str) = ("TPU_SKIP_MDS_QUERY", "1");

/// Whether the environment of this process is good for libtpu: either there is a TPU, or
/// [`ENVIRONMENT`] is set.
#[must_use]
pub fn is_environment_set() -> bool {
    has_tpu()
        || ENVIRONMENT
            .iter()
            .all(|(variable, _)| env::var_os(variable).is_some())
}

/// Refuses to load libtpu where it would ask a metadata server that is not there.
pub(crate) fn check_environment(plugin: &Path) -> Result<(), Error> {
    let name = plugin.file_name().unwrap_or_default().to_string_lossy();
    let (variable, value) = SKIP_METADATA;
    if !name.contains("libtpu") || env::var_os(variable).is_some() || has_tpu() {
        return Ok(());
    }
    Err(Error::Environment { variable, value })
}

/// Whether the kernel shows a TPU, by either of its drivers.
fn has_tpu() -> bool {
    ["/dev/accel0", "/dev/vfio/0"]
        .into_iter()
        .any(|device| Path::new(device).exists())
}
