//! `Devices`: a run-length encoded list of device names that keeps their spelling, for meshes of a
//! million devices. Building one is in `builder`, the search for duplicates in `check`.

use std::borrow::Cow;
use std::iter::FusedIterator;

use crate::{DeviceSpec, Error};

mod builder;
mod check;

use builder::Builder;

/// The devices of a mesh, in the order of its ids.
///
/// A device given as text keeps its spelling: `/gpu:0` is the device `/device:GPU:0`, and is
/// written `/gpu:0` again.
///
/// Devices that differ only in the number of their task and in an index that counts up are kept as
/// one run a task, of three words: the 1,048,576 devices of 131,072 tasks take 3 MiB, and no list
/// of devices that are written in the canonical form takes more than 24 bytes a device and its
/// names once.
///
/// ```
/// use meshwork_core::{DeviceSpec, Devices, Error};
///
/// let host = DeviceSpec::parse("/job:worker/replica:0")?;
/// let devices = Devices::of_tasks(&host, 2, &DeviceSpec::parse("GPU")?, 4)?;
/// assert_eq!(devices.len(), 8);
/// let sixth = devices.get(5).map(|device| device.to_string());
/// assert_eq!(sixth.as_deref(), Some("/job:worker/replica:0/task:1/device:GPU:1"));
/// assert_eq!(devices.device_type(), Some("GPU"));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Devices {
    families: Vec<Family>,
    runs: Vec<Run>,
}

/// The name and spelling that the devices of many runs share.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Family {
    /// With 0 for each number that a run knows.
    spec: DeviceSpec,
    spelling: Spelling,
}

/// How devices were written.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Spelling {
    /// As a [`DeviceSpec`] shows itself.
    Canonical,
    /// This text, and then the index.
    Before(Box<str>),
    /// This text for one device.
    Whole(Box<str>),
}

/// Devices of one task whose indices count up from `index`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Run {
    end: usize,
    family: usize,
    task: u32,
    index: u32,
}

impl Devices {
    /// Parses devices from text, and keeps the spelling of each.
    ///
    /// # Errors
    /// Those of [`DeviceSpec::parse`].
    pub fn parse(texts: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, Error> {
        let mut list = Builder::default();
        for text in texts {
            let (spec, spelling) = Spelling::read(text.as_ref())?;
            list.push(&spec, spelling);
        }
        Ok(list.finish())
    }

    /// The devices of `tasks` tasks of a job, `per_task` of them each, the tasks and the devices of
    /// each counted from 0, the task's number changing slowest.
    ///
    /// `host` names the job and replica, `device` the type.
    ///
    /// # Errors
    /// [`Error::DeviceWithoutType`] when neither names a type, [`Error::TooManyDevices`] when there
    /// are more devices than a `usize` can count, or more tasks than memory holds.
    pub fn of_tasks(
        host: &DeviceSpec,
        tasks: u32,
        device: &DeviceSpec,
        per_task: u32,
    ) -> Result<Self, Error> {
        let first = host.merge(device).with_task(0).with_index(0);
        if first.device_type().is_none() {
            let (device, position) = (first, 0);
            return Err(Error::DeviceWithoutType { device, position });
        }
        let mut list = Builder::default();
        list.push_tasks(&first, tasks, per_task)?;
        Ok(list.finish())
    }

    /// Devices that are spelled like `first`, their indices counting up from its own.
    pub(crate) fn counted(first: &str, len: usize) -> Result<Self, Error> {
        let (spec, spelling) = Spelling::read(first)?;
        let len = u32::try_from(len).map_err(|_| Error::TooManyDevices)?;
        let mut list = Builder::default();
        list.push_counted(&spec, spelling, len)?;
        Ok(list.finish())
    }

    /// How many devices there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.runs.last().map_or(0, |run| run.end)
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The device at this position.
    #[must_use]
    pub fn get(&self, position: usize) -> Option<DeviceSpec> {
        let (family, run, offset) = self.at(position)?;
        Some(family.spec(run, offset))
    }

    /// The device at this position as it was written.
    #[must_use]
    pub fn text(&self, position: usize) -> Option<Cow<'_, str>> {
        let (family, run, offset) = self.at(position)?;
        Some(family.text(run, offset))
    }

    /// All devices, in order.
    pub fn iter(&self) -> impl FusedIterator<Item = DeviceSpec> + '_ {
        self.placed()
            .map(|(family, run, offset)| family.spec(run, offset))
    }

    /// All devices as they were written, in order.
    pub fn texts(&self) -> impl FusedIterator<Item = Cow<'_, str>> {
        self.placed()
            .map(|(family, run, offset)| family.text(run, offset))
    }

    /// The type of the first device that has one, such as `GPU`. In a mesh it is that of all.
    #[must_use]
    pub fn device_type(&self) -> Option<&str> {
        self.families
            .iter()
            .find_map(|family| family.spec.device_type())
    }

    /// A device as its family, its run, and its place in the run.
    fn at(&self, position: usize) -> Option<(&Family, &Run, usize)> {
        let index = self.runs.partition_point(|run| run.end <= position);
        let run = self.runs.get(index)?;
        Some((
            &self.families[run.family],
            run,
            position - self.start(index),
        ))
    }

    /// Every device with its family, its run, and its place in the run.
    fn placed(&self) -> impl FusedIterator<Item = (&Family, &Run, usize)> {
        let runs = self.runs.iter().enumerate();
        runs.flat_map(|(index, run)| {
            let family = &self.families[run.family];
            (0..run.end - self.start(index)).map(move |offset| (family, run, offset))
        })
    }

    /// The position of a run's first device.
    fn start(&self, run: usize) -> usize {
        run.checked_sub(1).map_or(0, |before| self.runs[before].end)
    }
}

impl FromIterator<DeviceSpec> for Devices {
    fn from_iter<T: IntoIterator<Item = DeviceSpec>>(devices: T) -> Self {
        let mut list = Builder::default();
        for device in devices {
            list.push(&device, Spelling::Canonical);
        }
        list.finish()
    }
}

impl Family {
    fn spec(&self, run: &Run, offset: usize) -> DeviceSpec {
        self.spec.numbered(run.task, run.index_at(offset))
    }

    fn text(&self, run: &Run, offset: usize) -> Cow<'_, str> {
        match &self.spelling {
            Spelling::Canonical => self.spec(run, offset).to_string().into(),
            Spelling::Before(text) => format!("{text}{}", run.index_at(offset)).into(),
            Spelling::Whole(text) => text.as_ref().into(),
        }
    }
}

impl Spelling {
    /// Reads a device, and how it is written.
    fn read(text: &str) -> Result<(DeviceSpec, Self), Error> {
        let spec = DeviceSpec::parse(text)?;
        if spec.to_string() == text {
            return Ok((spec, Self::Canonical));
        }
        let index = spec.device_index().map(|index| index.to_string());
        let before = index.and_then(|index| text.strip_suffix(index.as_str()));
        // The text may end with the number of the task, or with an index such as 007.
        let spelling = match before {
            Some(before) if before.ends_with(':') && ends_with_device(text) => {
                Self::Before(before.into())
            }
            _ => Self::Whole(text.into()),
        };
        Ok((spec, spelling))
    }
}

impl Run {
    /// The index of a device of this run; `offset` is below its length, up to which indices were
    /// counted when it was made.
    fn index_at(&self, offset: usize) -> u32 {
        let offset = u32::try_from(offset).expect("indices of a run are counted as u32");
        self.index + offset
    }
}

/// Whether the last part of a device's name is the device and not its job, replica or task.
fn ends_with_device(text: &str) -> bool {
    let last = text.rsplit('/').next().unwrap_or_default();
    !["job:", "replica:", "task:"]
        .iter()
        .any(|part| last.starts_with(part))
}

#[cfg(test)]
mod tests;
