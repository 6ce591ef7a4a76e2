//! Which lists of devices a mesh accepts.

use std::collections::HashMap;

use super::Devices;
use crate::{DeviceSpec, Error};

impl Devices {
    /// Checks that no device is given twice; but one CPU may stand for all.
    pub(crate) fn check_distinct(&self) -> Result<(), Error> {
        // Families that differ in spelling alone have one meaning.
        let mut meanings: HashMap<&DeviceSpec, usize> = HashMap::new();
        let meaning: Vec<usize> = self
            .families
            .iter()
            .enumerate()
            .map(|(index, family)| *meanings.entry(&family.spec).or_insert(index))
            .collect();
        let key = |&index: &usize| {
            let run = &self.runs[index];
            (meaning[run.family], run.task, run.index)
        };
        let mut order: Vec<usize> = (0..self.runs.len()).collect();
        order.sort_by_key(key);
        for pair in order.windows(2) {
            let (lower, upper) = (pair[0], pair[1]);
            let ((family, task, from), (other, other_task, to)) = (key(&lower), key(&upper));
            let start = self.start(lower);
            let distance = (to.wrapping_sub(from)) as usize;
            let overlap = distance < self.runs[lower].end - start;
            if (family, task) == (other, other_task) && overlap {
                if self.is_one_cpu() {
                    return Ok(());
                }
                let (first, second) = (start + distance, self.start(upper));
                return Err(Error::DuplicateDevice {
                    device: self.families[self.runs[upper].family].spec(&self.runs[upper], 0),
                    first: first.min(second),
                    second: first.max(second),
                });
            }
        }
        Ok(())
    }

    /// Checks that all devices have a type, and that it is one.
    pub(crate) fn check_type(&self) -> Result<(), Error> {
        let mut first = None;
        for (index, run) in self.runs.iter().enumerate() {
            let family = &self.families[run.family];
            let position = self.start(index);
            let Some(other) = family.spec.device_type() else {
                let device = family.spec(run, 0);
                return Err(Error::DeviceWithoutType { device, position });
            };
            let first = *first.get_or_insert(other);
            if first != other {
                let (first, other) = (first.to_owned(), other.to_owned());
                return Err(Error::MixedDeviceTypes {
                    first,
                    other,
                    position,
                });
            }
        }
        Ok(())
    }

    /// Checks that every device names a job and a task.
    pub(crate) fn check_hosts(&self) -> Result<(), Error> {
        for (index, run) in self.runs.iter().enumerate() {
            let family = &self.families[run.family];
            if family.spec.job().is_none() || family.spec.task().is_none() {
                let (device, position) = (family.spec(run, 0), self.start(index));
                return Err(Error::DeviceWithoutHost { device, position });
            }
        }
        Ok(())
    }

    fn is_one_cpu(&self) -> bool {
        let mut all = self.iter();
        let Some(first) = all.next() else {
            return false;
        };
        first.device_type() == Some("CPU") && all.all(|device| device == first)
    }
}
