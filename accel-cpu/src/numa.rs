//! The NUMA nodes of this machine, and the cores of each.

use std::fmt::{self, Display};
use std::fs;

/// Cores by number, in ascending order, each once.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Cores(Vec<usize>);

/// Some cores that are equally far from one part of the memory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Node {
    pub(crate) number: usize,
    pub(crate) cores: Cores,
}

/// The nodes on whose cores this process may run. A system that does not say is one node.
pub(crate) fn nodes() -> Vec<Node> {
    let read = |path: String| fs::read_to_string(format!("/sys/devices/system/node/{path}")).ok();
    find(&Cores::allowed(), read)
}

/// The nodes by what `read` finds in the folder of all nodes, without cores that are not `allowed`
/// and nodes that have no others.
fn find(allowed: &Cores, read: impl Fn(String) -> Option<String>) -> Vec<Node> {
    let online = read("online".to_owned()).and_then(|text| Cores::parse(&text));
    let numbers = online.map_or_else(Vec::new, |online| online.0);
    let nodes = numbers.into_iter().filter_map(|number| {
        let cores = Cores::parse(&read(format!("node{number}/cpulist"))?)?;
        let cores = cores.within(allowed);
        (!cores.0.is_empty()).then_some(Node { number, cores })
    });
    let nodes: Vec<Node> = nodes.collect();
    if !nodes.is_empty() {
        return nodes;
    }
    let (number, cores) = (0, allowed.clone());
    vec![Node { number, cores }]
}

impl Cores {
    /// Those on which this process may run.
    #[cfg(all(target_os = "linux", not(meshwork_portable)))]
    pub(crate) fn allowed() -> Self {
        use rustix::thread::{CpuSet, sched_getaffinity};

        let Ok(set) = sched_getaffinity(None) else {
            return Self::counted();
        };
        let cores = 0..CpuSet::MAX_CPU;
        Self(cores.filter(|core| set.is_set(*core)).collect())
    }

    #[cfg(any(not(target_os = "linux"), meshwork_portable))]
    pub(crate) fn allowed() -> Self {
        Self::counted()
    }

    /// As many as the system says there are, from 0.
    fn counted() -> Self {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        Self((0..count).collect())
    }

    /// Reads the kernel's lists, such as `0-3,8,10-11`; an empty one has no cores.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.is_empty() {
            return Some(Self(Vec::new()));
        }
        let mut cores = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.parse().ok()?, last.parse().ok()?);
            let behind = cores.last().is_none_or(|before| *before < first);
            if !behind || last < first || last >= MOST {
                return None;
            }
            cores.extend(first..=last);
        }
        Some(Self(cores))
    }

    fn within(self, allowed: &Self) -> Self {
        let both = self.0.into_iter().filter(|core| allowed.0.contains(core));
        Self(both.collect())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Keeps the calling thread on these cores. A system that refuses leaves it where it was:
    /// slower, but right.
    #[cfg(all(target_os = "linux", not(meshwork_portable)))]
    pub(crate) fn bind_this_thread(&self) {
        use rustix::thread::{CpuSet, sched_setaffinity};

        let mut set = CpuSet::new();
        let known = self.0.iter().filter(|core| **core < CpuSet::MAX_CPU);
        known.for_each(|core| set.set(*core));
        let _ = sched_setaffinity(None, &set);
    }

    #[cfg(any(not(target_os = "linux"), meshwork_portable))]
    pub(crate) fn bind_this_thread(&self) {}
}

/// In the form that [`Cores::parse`] reads.
impl Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.0.chunk_by(|left, right| left + 1 == *right);
        for (place, run) in runs.enumerate() {
            let comma = if place == 0 { "" } else { "," };
            match run {
                [first, .., last] => write!(f, "{comma}{first}-{last}")?,
                [only] => write!(f, "{comma}{only}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

/// More cores or nodes than any kernel is built for.
const MOST: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use proptest::collection::btree_set;
    use proptest::prelude::*;

    use super::*;

    fn cores(list: &str) -> Cores {
        Cores::parse(list).unwrap()
    }

    #[test]
    fn lists_of_the_kernel_are_read() {
        assert_eq!(cores("0-3,8,10-11\n").0, [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(cores("\n").0, [0; 0]);
        for wrong in [
            "0-",
            "-1",
            "3-1",
            "a",
            "1,1",
            "2,1",
            "0-4294967295",
            "1;2",
            "0,",
        ] {
            assert_eq!(Cores::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn nodes_have_the_cores_that_are_allowed_and_others_are_left_out() {
        let read = |path: String| {
            let text = match path.as_str() {
                "online" => "0-2,4",
                "node0/cpulist" => "0-3,8-11",
                "node1/cpulist" => "4-7",
                "node2/cpulist" => "",
                _ => return None,
            };
            Some(text.to_owned())
        };
        let found = find(&cores("2-5,8"), read);
        let shown = found
            .iter()
            .map(|node| format!("{}: {}", node.number, node.cores));
        assert_eq!(shown.collect::<Vec<_>>(), ["0: 2-3,8", "1: 4-5"]);
        assert_eq!(find(&cores("8"), read).len(), 1);
    }

    #[test]
    fn a_system_that_does_not_say_is_one_node_of_all_allowed_cores() {
        for online in [None, Some("what?"), Some("0")] {
            let read = |path: String| online.filter(|_| path == "online").map(str::to_owned);
            let found = find(&cores("0-1"), read);
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].cores, cores("0-1"));
        }
    }

    #[test]
    fn this_machine_has_a_node_with_a_core() {
        assert!(nodes().iter().all(|node| node.cores.count() > 0));
        assert!(!nodes().is_empty());
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_again(set in btree_set(0_usize..200, 0..40)) {
            let list = Cores(set.into_iter().collect());
            prop_assert_eq!(Cores::parse(&list.to_string()), Some(list));
        }
    }
}
