//! Errors as the layers above know them.

use meshwork_accel::{self as accel, Absence, DeviceId};

use crate::Library;
use crate::error::{Error, Failure};

impl Failure {
    /// As a failure of `device`.
    pub(crate) fn on(self, device: DeviceId) -> accel::Error {
        accel::Error::DeviceFailed {
            device,
            operation: self.function,
            code: self.code,
            status: self.status,
        }
    }
}

/// An error of opening the backend, as the layers above know it.
impl From<Error> for accel::Error {
    fn from(error: Error) -> Self {
        let unavailable = |library: Library, absence| Self::Unavailable {
            backend: "CUDA",
            library: library.to_string(),
            absence,
            remedy: library.remedy(),
        };
        match error {
            Error::Device(error) => error,
            Error::NotLoadable { library, .. } => unavailable(library, Absence::NotFound),
            Error::NoFunction {
                library, function, ..
            } => unavailable(
                library,
                Absence::NoFunction {
                    function: function.to_owned(),
                },
            ),
            Error::TooOld {
                library,
                found,
                needed,
            } => unavailable(library, Absence::TooOld { found, needed }),
            Error::NoDevices => Self::Unavailable {
                backend: "CUDA",
                library: Library::Driver.to_string(),
                absence: Absence::NoDevices,
                remedy: "check nvidia-smi, CUDA_VISIBLE_DEVICES, and that a container is given its GPUs",
            },
            Error::Call { code, status, .. } => {
                unavailable(Library::Driver, Absence::Refused { code, status })
            }
            Error::Compile { .. } | Error::CompilerTooNew { .. } => unavailable(
                Library::Nvrtc,
                Absence::Refused {
                    code: -1,
                    status: error.to_string(),
                },
            ),
            Error::UnknownGpu { ordinal, available } => Self::UnknownDevice {
                device: DeviceId::new(ordinal),
                available,
            },
            other => Self::Unavailable {
                backend: "CUDA",
                library: "the backend itself".to_owned(),
                absence: Absence::Refused {
                    code: -1,
                    status: other.to_string(),
                },
                remedy: "see what it was asked for",
            },
        }
    }
}
