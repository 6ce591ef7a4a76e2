//! The ports of the tasks of one job on a host: all of them know the same ones, and jobs side by
//! side have others.

use std::ops::RangeInclusive;

use crate::error::Error;
use crate::explanation::{Explanation, Question};
use crate::variables::{SetBy, Variables};

/// TensorFlow's port base.
pub(crate) const TENSORFLOW: u16 = 8888;

/// The variable that sets the port base where nobody lists ports.
pub(crate) const VARIABLE: &str = "MESHWORK_PORT_BASE";

/// The first port above those that Linux hands out by default.
const FIRST: u16 = 61_000;

/// How many ports there are from [`FIRST`] on.
pub(crate) const COUNT: u32 = 4_536;

/// What the port of the first task of each host follows from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PortBase {
    /// The program, whatever the environment says.
    Given(u16),
    /// [`VARIABLE`] if it is set, else the job.
    OfJob,
}

/// The variables by which a job differs from others on its hosts.
#[derive(Clone, Copy)]
pub(crate) struct JobNames {
    /// Whoever sets them.
    pub(crate) launcher: &'static str,
    pub(crate) job: &'static str,
    /// The job within which that is one, where jobs may be in others.
    pub(crate) enclosing: Option<&'static str>,
    /// The number of a step or of an element, where one job may have several.
    pub(crate) part: Option<&'static str>,
}

impl PortBase {
    /// The port of the first task of each host; none has more tasks than this.
    pub(crate) fn first(
        self,
        variables: &Variables,
        names: JobNames,
        tasks: u32,
    ) -> Result<u16, Error> {
        if let Self::Given(port) = self {
            return Ok(port);
        }
        let read = variables.set_by(names.launcher);
        match set_base(&read, tasks)? {
            Some(port) => Ok(port),
            None => Ok(first(names.number(&read)?, tasks)),
        }
    }

    /// Notes what is looked at to know it.
    pub(crate) fn note(self, evidence: &mut Explanation, variables: &Variables, names: JobNames) {
        if let Self::Given(port) = self {
            evidence.port("port base", port, TENSORFLOW);
        } else if !note_set(evidence, variables) {
            let all = [Some(names.job), names.enclosing, names.part];
            for variable in all.into_iter().flatten() {
                evidence.look(variables, Question::Cluster, variable);
            }
        }
    }
}

impl Default for PortBase {
    fn default() -> Self {
        Self::Given(TENSORFLOW)
    }
}

impl JobNames {
    /// A number that other jobs do not have; successive parts of one job have successive ones.
    fn number(self, read: &SetBy<'_>) -> Result<u64, Error> {
        let mut job = read.text(self.job)?;
        if let Some(enclosing) = self.enclosing {
            let enclosing = read.variables.read_nonempty(enclosing)?;
            job.extend(enclosing.map(|enclosing| format!(" in {enclosing}")));
        }
        // Flux begins its numbers with either, by the locale of each host.
        let job = hash(&job.replace('ƒ', "f"));
        let part = match self.part {
            Some(part) if read.variables.read_nonempty(part)?.is_some() => {
                read.number(part, 0, u32::MAX)?
            }
            Some(_) | None => 0,
        };
        Ok(job.wrapping_add(part.into()))
    }
}

/// The port that [`VARIABLE`] says, from which on so many tasks of a host have one each.
pub(crate) fn set_base(read: &SetBy<'_>, tasks: u32) -> Result<Option<u16>, Error> {
    if read.variables.read_nonempty(VARIABLE)?.is_none() {
        return Ok(None);
    }
    // A host with more tasks than there are ports has an error of its own.
    let most = u16::MAX.saturating_sub(others(tasks)).max(1);
    read.port(VARIABLE, most).map(Some)
}

/// Notes [`VARIABLE`], and says whether it is set.
pub(crate) fn note_set(evidence: &mut Explanation, variables: &Variables) -> bool {
    let is_set = !matches!(variables.read_nonempty(VARIABLE), Ok(None));
    if is_set {
        evidence.look(variables, Question::Cluster, VARIABLE);
    }
    is_set
}

/// Successive ports, one for each process.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Ports(RangeInclusive<u16>);

impl Ports {
    /// So many ports from this one on, as far as there are.
    pub(crate) fn new(first: u16, processes: u32) -> Self {
        Self(first..=first.saturating_add(others(processes)))
    }

    /// The ports of the job with this number. `processes` is 1 to [`COUNT`].
    pub(crate) fn of_number(job: u64, processes: u32) -> Self {
        Self::new(first(job, processes), processes)
    }

    /// The ports of the job with this name.
    pub(crate) fn of_name(job: &str, processes: u32) -> Self {
        Self::of_number(hash(job), processes)
    }
}

impl Iterator for Ports {
    type Item = u16;

    fn next(&mut self) -> Option<u16> {
        self.0.next()
    }
}

/// Where the ports of the job with this number begin; those of successive numbers do not overlap,
/// except where they wrap around. More than [`COUNT`] begin at the first of all, and do not fit.
fn first(job: u64, processes: u32) -> u16 {
    let starts = u64::from(COUNT.saturating_sub(processes)) + 1;
    let start = job.wrapping_mul(processes.into()) % starts;
    FIRST + u16::try_from(start).expect("it is at most `COUNT`")
}

/// How many ports there are after the first of so many.
fn others(processes: u32) -> u16 {
    u16::try_from(processes.saturating_sub(1)).unwrap_or(u16::MAX)
}

/// FNV-1a, which spreads names that differ little.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_has_a_port_of_its_own_in_the_range() {
        for processes in (1..=COUNT).step_by(7).chain([COUNT]) {
            for job in [0, 1, 29_500, u64::from(u16::MAX), u64::MAX] {
                let ports: Vec<_> = Ports::of_number(job, processes).collect();
                assert_eq!(ports.len(), processes as usize, "job {job}");
                assert!(ports[0] >= FIRST);
                assert!(ports.windows(2).all(|pair| pair[0] + 1 == pair[1]));
            }
        }
    }

    #[test]
    fn jobs_at_successive_numbers_share_no_port() {
        for processes in [1, 2, 8, 64] {
            let one = Ports::of_number(29_500, processes);
            let mut other = Ports::of_number(29_501, processes);
            assert!(other.all(|port| one.clone().all(|taken| taken != port)));
        }
    }

    #[test]
    fn a_name_always_means_the_same_ports() {
        let ports = || Ports::of_name("1795096577", 2);
        assert_eq!(ports(), ports());
        assert_ne!(ports(), Ports::of_name("1795162113", 2));
    }
}
