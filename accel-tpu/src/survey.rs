use meshwork_accel::{Absence, Error as Refusal};

use crate::{Error, PjrtAccelerator, PjrtClient, Platform, Plugin};

/// The accelerator of a platform's plugin, wherever that is found.
///
/// # Errors
/// [`meshwork_accel::Error::Unavailable`] with the reason, and with what to do about it.
pub fn open(platform: Platform) -> Result<PjrtAccelerator, Refusal> {
    let path = platform.find().map_err(|error| refusal(platform, &error))?;
    let client = Plugin::load(path).and_then(|plugin| PjrtClient::new(&plugin, &[]));
    let client = client.map_err(|error| refusal(platform, &error))?;
    if client.devices().is_empty() {
        return Err(unavailable(platform, Absence::NoDevices));
    }
    Ok(PjrtAccelerator::new(client))
}

fn refusal(platform: Platform, error: &Error) -> Refusal {
    let absence = match error {
        Error::NoApi { .. } => Absence::NoFunction {
            function: "GetPjrtApi".to_owned(),
        },
        Error::NotSupported { function, .. } => Absence::NoFunction {
            function: (*function).to_owned(),
        },
        Error::ApiVersion {
            major, expected, ..
        } => Absence::TooOld {
            found: major.to_string(),
            needed: expected.to_string(),
        },
        // libtpu is asked for devices only where the kernel shows some.
        Error::Environment { .. } => Absence::NoDevices,
        Error::Plugin {
            status, message, ..
        } => Absence::Refused {
            code: i64::from(status.code()),
            status: message.lines().next().unwrap_or_default().to_owned(),
        },
        _ => Absence::NotFound,
    };
    unavailable(platform, absence)
}

fn unavailable(platform: Platform, absence: Absence) -> Refusal {
    Refusal::Unavailable {
        backend: platform.backend(),
        library: platform.library(),
        remedy: platform.remedy(&absence),
        absence,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_a_remedy() {
        let error = Error::NoPlugin {
            platform: "TPU",
            variable: "TPU_LIBRARY_PATH",
            package: "libtpu",
            looked_at: Vec::new(),
        };
        assert_eq!(
            refusal(Platform::Tpu, &error).to_string(),
            "PJRT for TPU is not available: libtpu.so cannot be loaded; install libtpu with pip, or set TPU_LIBRARY_PATH to its libtpu.so"
        );
        let error = Error::Environment {
            variable: "A",
            value: "1",
        };
        assert_eq!(
            refusal(Platform::Tpu, &error).to_string(),
            "PJRT for TPU is not available: libtpu.so sees no device; run this on a machine with a TPU, or only compile: meshwork tpu compile"
        );
    }
}
