//! How a list of devices grows.

use std::collections::HashMap;

use super::{Devices, Family, Run, Spelling};
use crate::{DeviceSpec, Error};

/// Builds a list of devices, one at a time.
#[derive(Default)]
pub(super) struct Builder {
    list: Devices,
    known: HashMap<Family, usize>,
}

impl Builder {
    pub(super) fn push(&mut self, spec: &DeviceSpec, spelling: Spelling) {
        if !self.extends(spec, &spelling) {
            let family = self.family(spec, spelling);
            self.list.runs.push(Run {
                end: self.list.len(),
                family,
                task: spec.task().unwrap_or(0),
                index: spec.device_index().unwrap_or(0),
            });
        }
        if let Some(run) = self.list.runs.last_mut() {
            run.end += 1;
        }
    }

    /// `len` devices whose indices count up from that of `first`, which has one.
    pub(super) fn push_counted(
        &mut self,
        first: &DeviceSpec,
        spelling: Spelling,
        len: u32,
    ) -> Result<(), Error> {
        let Some(rest) = len.checked_sub(1) else {
            return Ok(());
        };
        let countable = first
            .device_index()
            .and_then(|index| index.checked_add(rest));
        let end = self.list.len().checked_add(len as usize);
        let (Some(_), Some(end)) = (countable, end) else {
            return Err(Error::TooManyDevices);
        };
        self.push(first, spelling);
        if let Some(run) = self.list.runs.last_mut() {
            run.end = end;
        }
        Ok(())
    }

    /// As many devices for each of the tasks from 0 on, all indices counted from 0. `first` is the
    /// first of them, and the list is empty.
    pub(super) fn push_tasks(
        &mut self,
        first: &DeviceSpec,
        tasks: u32,
        per_task: u32,
    ) -> Result<(), Error> {
        let total = (tasks as usize).checked_mul(per_task as usize);
        if total.ok_or(Error::TooManyDevices)? == 0 {
            return Ok(());
        }
        let family = self.family(first, Spelling::Canonical);
        let reserved = self.list.runs.try_reserve_exact(tasks as usize);
        reserved.map_err(|_| Error::TooManyDevices)?;
        let mut end = 0;
        for task in 0..tasks {
            end += per_task as usize;
            self.list.runs.push(Run {
                end,
                family,
                task,
                index: 0,
            });
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Devices {
        self.list.families.shrink_to_fit();
        self.list.runs.shrink_to_fit();
        self.list
    }

    /// Whether this device continues the last run.
    fn extends(&self, spec: &DeviceSpec, spelling: &Spelling) -> bool {
        let Some(run) = self.list.runs.last() else {
            return false;
        };
        let family = &self.list.families[run.family];
        let len = self.list.len() - self.list.start(self.list.runs.len() - 1);
        let next = u32::try_from(len)
            .ok()
            .and_then(|len| run.index.checked_add(len));
        let task = spec.task().unwrap_or(0);
        next.is_some()
            && next == spec.device_index()
            && task == run.task
            && !matches!(spelling, Spelling::Whole(_))
            && family.spelling == *spelling
            && family.spec.is_akin(spec)
    }

    /// The family of a device, a new one if there is none.
    fn family(&mut self, spec: &DeviceSpec, spelling: Spelling) -> usize {
        if let Some(run) = self.list.runs.last() {
            let last = &self.list.families[run.family];
            if last.spelling == spelling && last.spec.is_akin(spec) {
                return run.family;
            }
        }
        let family = Family {
            spec: spec.family(),
            spelling,
        };
        if let Some(&known) = self.known.get(&family) {
            return known;
        }
        let new = self.list.families.len();
        self.list.families.push(family.clone());
        self.known.insert(family, new);
        new
    }
}
