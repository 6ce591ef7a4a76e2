//! The ports of the processes of one job on one host: all of them know the same ones, and jobs side
//! by side have others.

use std::ops::RangeInclusive;

/// The first port above those that Linux hands out by default.
const FIRST: u16 = 61_000;

/// How many ports there are from [`FIRST`] on.
pub(super) const COUNT: u32 = 4_536;

/// Successive ports, one for each process.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Ports(RangeInclusive<u16>);

impl Ports {
    /// The ports of the job with this number; those of successive numbers do not overlap, except
    /// where they wrap around. `processes` is 1 to [`COUNT`].
    pub(super) fn of_number(job: u64, processes: u32) -> Self {
        let starts = u64::from(COUNT - processes + 1);
        let start = job.wrapping_mul(processes.into()) % starts;
        let at = |offset: u64| {
            let offset = u16::try_from(offset).expect("an offset is below `COUNT`");
            FIRST + offset
        };
        Self(at(start)..=at(start + u64::from(processes) - 1))
    }

    /// The ports of the job with this name.
    pub(super) fn of_name(job: &str, processes: u32) -> Self {
        // FNV-1a, which spreads names that differ little.
        let hash = job.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self::of_number(hash, processes)
    }
}

impl Iterator for Ports {
    type Item = u16;

    fn next(&mut self) -> Option<u16> {
        self.0.next()
    }
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
