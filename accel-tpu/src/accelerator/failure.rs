//! What a plugin refuses, in the words that all backends share.

use meshwork_accel::{DeviceId, Error};

use crate::Status;
use crate::stablehlo::Kernel;

/// An error of the plugin, as every backend has them.
pub(super) fn failed(device: DeviceId, error: crate::Error) -> Error {
    let (operation, code) = match error {
        crate::Error::Plugin {
            function, status, ..
        } => (function, i64::from(status.code())),
        crate::Error::NotSupported { function, .. } | crate::Error::Nothing { function, .. } => {
            (function, i64::from(Status::UNIMPLEMENTED.code()))
        }
        crate::Error::Deadline { .. } => (
            "PJRT_Event_OnReady",
            i64::from(Status::DEADLINE_EXCEEDED.code()),
        ),
        _ => ("the call", i64::from(Status::INVALID_ARGUMENT.code())),
    };
    let status = match error {
        crate::Error::Plugin { message, .. } => message,
        other => other.to_string(),
    };
    Error::DeviceFailed {
        device,
        operation,
        code,
        status,
    }
}

/// Why there is no program of a kernel: arithmetic that the device does not have is no failure of
/// it.
pub(super) fn uncompiled(device: DeviceId, kernel: &Kernel, error: crate::Error) -> Error {
    match (kernel.arithmetic(), &error) {
        (Some(element), crate::Error::Plugin { status, .. })
            if *status == Status::UNIMPLEMENTED =>
        {
            Error::UnsupportedElement { element }
        }
        _ => failed(device, error),
    }
}

#[cfg(test)]
mod tests {
    use meshwork_accel::{ElementType, Pairwise, ProductShape};

    use super::*;
    use crate::stablehlo::Vector;

    fn refused(kernel: &Kernel, status: Status) -> Error {
        let error = crate::Error::Plugin {
            function: "PJRT_Client_Compile",
            status,
            message: "no".to_owned(),
        };
        uncompiled(DeviceId::new(1), kernel, error)
    }

    #[test]
    fn a_type_that_a_device_does_not_compute_with_is_named() {
        let element = ElementType::F64;
        let vector = Vector { element, len: 3 };
        let shape = ProductShape::new(1, 3, 1).unwrap();
        for kernel in [
            Kernel::Pairwise(Pairwise::Add, vector),
            Kernel::Product(shape, element),
        ] {
            let unsupported = Error::UnsupportedElement { element };
            assert_eq!(refused(&kernel, Status::UNIMPLEMENTED), unsupported);
            let failed = refused(&kernel, Status::RESOURCE_EXHAUSTED);
            assert!(
                matches!(failed, Error::DeviceFailed { code: 8, .. }),
                "{failed}"
            );
        }
    }

    #[test]
    fn a_device_that_cannot_move_a_type_has_failed() {
        let vector = Vector {
            element: ElementType::F64,
            len: 3,
        };
        let failed = refused(&Kernel::Fill(vector), Status::UNIMPLEMENTED);
        assert!(
            matches!(failed, Error::DeviceFailed { code: 12, .. }),
            "{failed}"
        );
    }
}
