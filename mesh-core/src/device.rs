//! `DeviceSpec`: device names such as `/job:worker/task:1/device:GPU:2`, parsed, merged and printed
//! by TensorFlow's rules. Lists of devices are in `devices`.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::sync::Arc;

use crate::Error;

/// The name of a device, or of a set of devices where a part is left open.
///
/// All parts are optional: job, replica, task, device type, and with a type the device index.
/// Shown, a spec has the canonical form `/job:worker/replica:0/task:1/device:GPU:2`, with `*` for
/// an open index; [`parse`](Self::parse) reads it back. Clones share the text.
///
/// ```
/// use meshwork_core::DeviceSpec;
///
/// let host = DeviceSpec::default().with_job("worker")?.with_replica(0).with_task(1);
/// let device = host.merge(&DeviceSpec::parse("gpu:2")?);
/// assert_eq!(device.to_string(), "/job:worker/replica:0/task:1/device:GPU:2");
/// assert_eq!(device.device_type(), Some("GPU"));
/// # Ok::<(), meshwork_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct DeviceSpec {
    job: Option<Arc<str>>,
    replica: Option<u32>,
    task: Option<u32>,
    device: Option<Device>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Device {
    kind: Arc<str>,
    index: Option<u32>,
}

impl DeviceSpec {
    /// Reads a device name.
    ///
    /// Parts are between slashes, in any order: `job:worker`, `replica:0`, `task:1`,
    /// `device:TYPE:2`, or the short forms `GPU:2` and `GPU` for the types CPU, GPU and TPU in any
    /// case. `*` for the index, or none in a short form, leaves it open. Empty parts are skipped, a
    /// later job, replica or task replaces an earlier one. The types `cpu` and `gpu` become upper
    /// case in the long form too; others keep their case.
    ///
    /// Unlike TensorFlow, an empty job or type, a part that begins with a colon, and a negative
    /// number are refused, and so are the characters that separate devices in a mesh's text form.
    ///
    /// # Errors
    /// [`Error::DevicePart`], [`Error::DeviceNumber`], [`Error::TwoDevices`],
    /// [`Error::DeviceWord`].
    #[doc(alias = "from_string")]
    pub fn parse(spec: &str) -> Result<Self, Error> {
        let mut parsed = Self::default();
        for part in spec.split('/').filter(|part| !part.is_empty()) {
            parsed.read_part(spec, part)?;
        }
        Ok(parsed)
    }

    /// The same spec with this job; `*` is taken as it is.
    ///
    /// # Errors
    /// [`Error::DeviceWord`] for a text that is empty or has a blank, a control character, or one
    /// of `/ : , |`.
    pub fn with_job(mut self, job: impl AsRef<str>) -> Result<Self, Error> {
        self.job = Some(checked_word(job.as_ref())?.into());
        Ok(self)
    }

    /// The same spec with this replica.
    #[must_use]
    pub fn with_replica(mut self, replica: u32) -> Self {
        self.replica = Some(replica);
        self
    }

    /// The same spec with this task.
    #[must_use]
    pub fn with_task(mut self, task: u32) -> Self {
        self.task = Some(task);
        self
    }

    /// The same spec with this index for its device; unchanged if it names none.
    #[must_use]
    pub fn with_index(mut self, index: u32) -> Self {
        if let Some(device) = &mut self.device {
            device.index = Some(index);
        }
        self
    }

    /// The same spec with a device of this type, `cpu` and `gpu` in upper case; `None` leaves the
    /// index open.
    ///
    /// # Errors
    /// [`Error::DeviceWord`] as for [`with_job`](Self::with_job).
    pub fn with_device(mut self, kind: impl AsRef<str>, index: Option<u32>) -> Result<Self, Error> {
        let kind = match checked_word(kind.as_ref())? {
            "cpu" => "CPU".into(),
            "gpu" => "GPU".into(),
            other => other.into(),
        };
        self.device = Some(Device { kind, index });
        Ok(self)
    }

    /// This spec with each part that `other` has taken from `other`.
    #[must_use]
    pub fn merge(&self, other: &Self) -> Self {
        let device = match (&self.device, &other.device) {
            (Some(own), Some(other)) => Some(Device {
                kind: other.kind.clone(),
                index: other.index.or(own.index),
            }),
            (own, other) => other.as_ref().or(own.as_ref()).cloned(),
        };
        Self {
            job: other.job.as_ref().or(self.job.as_ref()).cloned(),
            replica: other.replica.or(self.replica),
            task: other.task.or(self.task),
            device,
        }
    }

    /// The job.
    #[must_use]
    pub fn job(&self) -> Option<&str> {
        self.job.as_deref()
    }

    /// The replica, 0 wherever there is one set of tasks.
    #[must_use]
    pub fn replica(&self) -> Option<u32> {
        self.replica
    }

    /// The task's index in its job.
    #[must_use]
    pub fn task(&self) -> Option<u32> {
        self.task
    }

    /// The device type, such as `GPU`.
    #[must_use]
    pub fn device_type(&self) -> Option<&str> {
        self.device.as_ref().map(|device| &*device.kind)
    }

    /// The device's index among those of its type in its task.
    #[must_use]
    pub fn device_index(&self) -> Option<u32> {
        self.device.as_ref()?.index
    }

    /// The same spec with the numbers that it has, task and index, taken as 0: what the devices of
    /// a cluster have in common.
    pub(crate) fn family(&self) -> Self {
        self.numbered(0, 0)
    }

    /// The same spec with these numbers in place of those it has.
    pub(crate) fn numbered(&self, task: u32, index: u32) -> Self {
        let mut spec = self.clone();
        spec.task = self.task.map(|_| task);
        if let Some(device) = &mut spec.device {
            device.index = device.index.map(|_| index);
        }
        spec
    }

    /// Whether both have one [`family`](Self::family).
    pub(crate) fn is_akin(&self, other: &Self) -> bool {
        let devices_akin = match (&self.device, &other.device) {
            (Some(own), Some(other)) => {
                same_text(&own.kind, &other.kind) && own.index.is_some() == other.index.is_some()
            }
            (own, other) => own.is_none() && other.is_none(),
        };
        let jobs_akin = match (&self.job, &other.job) {
            (Some(own), Some(other)) => same_text(own, other),
            (own, other) => own.is_none() && other.is_none(),
        };
        devices_akin
            && jobs_akin
            && self.replica == other.replica
            && self.task.is_some() == other.task.is_some()
    }

    fn read_part(&mut self, spec: &str, part: &str) -> Result<(), Error> {
        let number = |text: &str| {
            text.parse().map_err(|_| Error::DeviceNumber {
                spec: spec.to_owned(),
                part: part.to_owned(),
            })
        };
        let index = |text| {
            if text == "*" {
                Ok(None)
            } else {
                number(text).map(Some)
            }
        };
        // The usual part has two or three words; more make it unknown, so a fourth is not split
        // off.
        let words: Vec<&str> = part.splitn(4, ':').collect();
        let (kind, index) = match *words.as_slice() {
            ["job", job] => {
                self.job = Some(checked_word(job)?.into());
                return Ok(());
            }
            ["replica", replica] => {
                self.replica = Some(number(replica)?);
                return Ok(());
            }
            ["task", task] => {
                self.task = Some(number(task)?);
                return Ok(());
            }
            ["device", kind, text] => (kind.to_owned(), index(text)?),
            [kind, text] if is_short_type(kind) => (kind.to_ascii_uppercase(), index(text)?),
            [kind] if is_short_type(kind) => (kind.to_ascii_uppercase(), None),
            _ => {
                let (spec, part) = (spec.to_owned(), part.to_owned());
                return Err(Error::DevicePart { spec, part });
            }
        };
        if self.device.is_some() {
            let (spec, part) = (spec.to_owned(), part.to_owned());
            return Err(Error::TwoDevices { spec, part });
        }
        *self = std::mem::take(self).with_device(kind, index)?;
        Ok(())
    }
}

impl Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(job) = &self.job {
            write!(f, "/job:{job}")?;
        }
        if let Some(replica) = self.replica {
            write!(f, "/replica:{replica}")?;
        }
        if let Some(task) = self.task {
            write!(f, "/task:{task}")?;
        }
        match &self.device {
            None => Ok(()),
            Some(Device {
                kind,
                index: Some(index),
            }) => write!(f, "/device:{kind}:{index}"),
            Some(Device { kind, index: None }) => write!(f, "/device:{kind}:*"),
        }
    }
}

impl FromStr for DeviceSpec {
    type Err = Error;

    fn from_str(spec: &str) -> Result<Self, Error> {
        Self::parse(spec)
    }
}

fn checked_word(word: &str) -> Result<&str, Error> {
    let separates = |c: char| c.is_whitespace() || c.is_control() || "/:,|".contains(c);
    if word.is_empty() || word.contains(separates) {
        return Err(Error::DeviceWord {
            word: word.to_owned(),
        });
    }
    Ok(word)
}

/// Whether texts are equal; quick for clones, which share theirs.
fn same_text(left: &Arc<str>, right: &Arc<str>) -> bool {
    Arc::ptr_eq(left, right) || left == right
}

fn is_short_type(kind: &str) -> bool {
    SHORT_TYPES
        .iter()
        .any(|known| known.eq_ignore_ascii_case(kind))
}

/// The types that need no `device:` before them.
const SHORT_TYPES: [&str; 3] = ["CPU", "GPU", "TPU"];

#[cfg(test)]
mod tests;
