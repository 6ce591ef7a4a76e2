//! All devices, for people and for programs.

use std::fmt::{self, Display};

use meshwork_accel::{Error, Memory};
use serde_json::{Value, json};

use super::Found;

/// The devices of each backend, or why it has none, in their order.
#[derive(Debug)]
pub(super) struct Report {
    backends: Vec<(&'static str, Result<Vec<Found>, Error>)>,
}

impl Report {
    pub(super) fn new(
        looked: impl IntoIterator<Item = (&'static str, Result<Vec<Found>, Error>)>,
    ) -> Self {
        Self {
            backends: looked.into_iter().collect(),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let backends = self.backends.iter().map(|(name, looked)| {
            let devices = looked.iter().flatten().map(device);
            json!({
                "backend": name,
                "devices": devices.collect::<Vec<_>>(),
                "unavailable": looked.as_ref().err().map(why),
            })
        });
        json!({"backends": backends.collect::<Vec<_>>()})
    }
}

/// A line for each device, two for a backend that has none: why, and what to do.
impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, looked) in &self.backends {
            match looked {
                Ok(found) => {
                    for Found { device, memory } in found {
                        writeln!(f, "{name:<6}{device}{}", Amount(*memory))?;
                    }
                }
                Err(Error::Unavailable {
                    library,
                    absence,
                    remedy,
                    ..
                }) => writeln!(f, "{name:<6}none: {library} {absence}\n      {remedy}")?,
                Err(error) => writeln!(f, "{name:<6}none: {error}")?,
            }
        }
        Ok(())
    }
}

fn device(found: &Found) -> Value {
    let Found { device, memory } = found;
    json!({
        "id": device.id().index(),
        "kind": device.kind(),
        "name": device.name(),
        "address": device.address(),
        "coordinates": device.coordinates(),
        "memory": {"total": memory.total(), "free": memory.free()},
    })
}

fn why(error: &Error) -> Value {
    match error {
        Error::Unavailable {
            library,
            absence,
            remedy,
            ..
        } => json!({"library": library, "reason": absence.to_string(), "remedy": remedy}),
        other => json!({"library": null, "reason": other.to_string(), "remedy": null}),
    }
}

/// Free and total memory as far as known, after a comma.
struct Amount(Memory);

impl Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(total) = self.0.total() {
            write!(f, ", {}", Size(total))?;
        }
        match self.0.free() {
            Some(free) => write!(f, ", {} free", Size(free)),
            None => Ok(()),
        }
    }
}

/// Bytes in the largest unit that leaves at least one of it.
struct Size(u64);

impl Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            (1_u64 << 40, "TiB"),
            (1 << 30, "GiB"),
            (1 << 20, "MiB"),
            (1 << 10, "KiB"),
        ];
        match units.into_iter().find(|(unit, _)| self.0 >= *unit) {
            Some((unit, name)) => write!(f, "{:.1} {name}", self.0 as f64 / unit as f64),
            None => write!(f, "{} B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use meshwork_accel::{Absence, Device, DeviceId};

    use super::*;

    fn report() -> Report {
        let chip = Device::new(DeviceId::new(0), "TPU")
            .with_name("TPU v5e")
            .with_coordinates([1, 0]);
        let tpu = Found {
            device: chip,
            memory: Memory::of(16 << 30).with_free(15 << 30),
        };
        let cuda = Error::Unavailable {
            backend: "CUDA",
            library: "libcuda.so.1".to_owned(),
            absence: Absence::NotFound,
            remedy: "install the NVIDIA driver",
        };
        Report::new([("tpu", Ok(vec![tpu])), ("cuda", Err(cuda))])
    }

    #[test]
    fn people_read_a_line_for_each_device_and_two_for_what_is_missing() {
        assert_eq!(
            report().to_string(),
            "\
tpu   TPU:0 (TPU v5e), 16.0 GiB, 15.0 GiB free
cuda  none: libcuda.so.1 cannot be loaded
      install the NVIDIA driver
"
        );
    }

    #[test]
    fn programs_read_one_object() {
        let expected = json!({"backends": [
            {
                "backend": "tpu",
                "devices": [{
                    "id": 0,
                    "kind": "TPU",
                    "name": "TPU v5e",
                    "address": null,
                    "coordinates": [1, 0],
                    "memory": {"total": 17_179_869_184_u64, "free": 16_106_127_360_u64},
                }],
                "unavailable": null,
            },
            {
                "backend": "cuda",
                "devices": [],
                "unavailable": {
                    "library": "libcuda.so.1",
                    "reason": "cannot be loaded",
                    "remedy": "install the NVIDIA driver",
                },
            },
        ]});
        assert_eq!(report().to_json(), expected);
    }

    #[test]
    fn sizes_are_in_the_largest_unit_that_fits() {
        let sizes = [0, 1023, 1024, 1536 << 10, 3 << 40].map(|bytes| Size(bytes).to_string());
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.5 MiB", "3.0 TiB"]);
    }
}
