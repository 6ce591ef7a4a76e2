//! Which rank runs on which node.

use std::collections::BTreeMap;
use std::path::Path;

use super::counts::digits;
use super::hostlist;
use crate::error::SlurmError;

/// How Slurm assigns tasks to nodes, given how many each gets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Distribution {
    /// A node gets all of its tasks before the next one gets any.
    Block,
    /// Each node that is not full gets one task in turn.
    Cyclic,
    /// Each node that is not full gets this many tasks in turn, at least 1.
    Plane(u32),
}

/// What the name of a distribution says: nothing about the size of a plane, nor about the file of
/// an arbitrary one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    Block,
    Cyclic,
    Plane,
    Arbitrary,
}

/// Reads the value of `SLURM_DISTRIBUTION`, such as `block:cyclic,nopack`, or the `Dist` that
/// `scontrol` shows, such as `BCyclic`: only how nodes are chosen matters here.
pub(super) fn form(text: &str) -> Result<Form, SlurmError> {
    let nodes = text.split([':', ',', ' ']).next().unwrap_or_default();
    match nodes {
        "block" => Ok(Form::Block),
        "cyclic" => Ok(Form::Cyclic),
        "plane" | "Plane" => Ok(Form::Plane),
        "arbitrary" => Ok(Form::Arbitrary),
        shown if shown.starts_with('B') => Ok(Form::Block),
        shown if shown.starts_with('C') => Ok(Form::Cyclic),
        _ => Err(SlurmError::Distribution {
            distribution: text.to_owned(),
        }),
    }
}

/// Whether the tasks fall on the same nodes in block, cyclic and plane order.
pub(super) fn is_order_free(counts: &[u32]) -> bool {
    let used = counts.iter().filter(|&&count| count > 0);
    used.count() <= 1 || counts.iter().all(|&count| count <= 1)
}

/// The node of each rank, as a position in `counts`. Rounds of equal size are assigned until every
/// node has its count; a block is a round as large as any count.
pub(super) fn assign(counts: &[u32], distribution: Distribution) -> Vec<usize> {
    let most = counts.iter().copied().max().unwrap_or_default();
    let size = match distribution {
        Distribution::Block => most,
        Distribution::Cyclic => 1,
        Distribution::Plane(size) => size,
    };
    let mut open: Vec<(usize, u32)> = counts.iter().copied().enumerate().collect();
    let mut ranks = Vec::new();
    loop {
        open.retain(|&(_, left)| left > 0);
        if open.is_empty() {
            return ranks;
        }
        for (node, left) in &mut open {
            let now = (*left).min(size.max(1));
            *left -= now;
            ranks.extend((0..now).map(|_| *node));
        }
    }
}

/// The node of each rank by a host file: one host a line or several in a list, `host*3` for three
/// tasks, `#` before comments. It must put on each node as many tasks as the step has there.
pub(super) fn by_host_file(
    text: &str,
    path: &Path,
    nodes: &[String],
    counts: &[u32],
) -> Result<Vec<usize>, SlurmError> {
    let wanted: usize = counts.iter().map(|&count| count as usize).sum();
    let index: BTreeMap<&str, usize> = nodes.iter().map(String::as_str).zip(0..).collect();
    let mut ranks = Vec::new();
    for line in text.lines() {
        // A file may list more hosts than the step has tasks: the first ones count.
        let missing = wanted - ranks.len();
        if missing == 0 {
            break;
        }
        let line = line.split('#').next().unwrap_or_default().trim();
        for host in hosts_of_line(line, path)?.iter().take(missing) {
            let node = index.get(host.as_str());
            let stale = || SlurmError::HostFileStale {
                path: path.to_owned(),
                node: host.clone(),
                found: 1,
                expected: 0,
            };
            ranks.push(*node.ok_or_else(stale)?);
        }
    }
    let mut tally = vec![0_u32; nodes.len()];
    for &node in &ranks {
        tally[node] += 1;
    }
    let differs = (0..nodes.len()).find(|&node| tally[node] != counts[node]);
    match differs {
        None => Ok(ranks),
        Some(node) => Err(SlurmError::HostFileStale {
            path: path.to_owned(),
            node: nodes[node].clone(),
            found: tally[node],
            expected: counts[node],
        }),
    }
}

fn hosts_of_line(line: &str, path: &Path) -> Result<Vec<String>, SlurmError> {
    let wrong = |problem| SlurmError::HostFileLine {
        path: path.to_owned(),
        line: line.to_owned(),
        problem,
    };
    let repeated = line
        .split_once('*')
        .and_then(|(host, times)| Some((host, digits::<u16>(times)?)));
    match repeated {
        Some((host, times)) => Ok(vec![host.to_owned(); times.into()]),
        None => hostlist::hosts(line).map_err(wrong),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(count: usize) -> Vec<String> {
        (1..=count).map(|node| format!("n{node}")).collect()
    }

    /// What real steps were seen to do.
    #[test]
    fn tasks_are_assigned_as_slurm_assigns_them() {
        let check = |counts: &[u32], distribution, ranks: &[usize]| {
            assert_eq!(assign(counts, distribution), ranks, "{distribution:?}");
        };
        check(&[3, 1, 1], Distribution::Block, &[0, 0, 0, 1, 2]);
        check(&[3, 1, 1], Distribution::Cyclic, &[0, 1, 2, 0, 0]);
        check(&[5, 1, 1], Distribution::Cyclic, &[0, 1, 2, 0, 0, 0, 0]);
        check(&[5, 1, 1], Distribution::Plane(2), &[0, 0, 1, 2, 0, 0, 0]);
        check(
            &[4, 3, 3],
            Distribution::Plane(3),
            &[0, 0, 0, 1, 1, 1, 2, 2, 2, 0],
        );
        check(&[0, 2], Distribution::Cyclic, &[1, 1]);
        check(&[], Distribution::Block, &[]);
    }

    #[test]
    fn only_the_choice_of_nodes_counts_in_a_distribution() {
        for (text, expected) in [
            ("block", Form::Block),
            ("block:cyclic", Form::Block),
            ("block:block,nopack", Form::Block),
            ("cyclic,pack", Form::Cyclic),
            ("cyclic:fcyclic", Form::Cyclic),
            ("plane", Form::Plane),
            ("arbitrary", Form::Arbitrary),
            ("Block", Form::Block),
            ("BFCyclic", Form::Block),
            ("CFCyclic", Form::Cyclic),
            ("Plane", Form::Plane),
            ("arbitrary task distribution", Form::Arbitrary),
        ] {
            assert_eq!(form(text), Ok(expected), "{text}");
        }
        for text in ["", "unknown", "*", "topology"] {
            let distribution = text.to_owned();
            assert_eq!(form(text), Err(SlurmError::Distribution { distribution }));
        }
    }

    #[test]
    fn a_host_file_says_the_node_of_each_rank() {
        let read = |text| by_host_file(text, Path::new("hosts"), &names(3), &[3, 1, 1]);
        let expected = Ok(vec![2, 0, 0, 1, 0]);
        assert_eq!(read("n3\nn1\nn1\nn2\nn1\n"), expected);
        assert_eq!(
            read("# a comment\nn3 # here\n\nn1*2\nn2,n1\nn2\n"),
            expected
        );
        assert_eq!(read("n[3,1]\nn1 n2\nn1"), expected);
    }

    #[test]
    fn what_a_host_file_lists_beyond_the_tasks_is_not_read() {
        for rest in ["n2\nn3\n", "n2,n3\n", "n2\nn[1\n"] {
            let text = format!("n1\n{rest}");
            let read = by_host_file(&text, Path::new("hosts"), &names(2), &[1, 1]);
            assert_eq!(read, Ok(vec![0, 1]), "{rest}");
        }
    }

    #[test]
    fn a_host_file_of_another_step_is_refused() {
        let path = || Path::new("hosts").to_owned();
        let read = |text| by_host_file(text, &path(), &names(2), &[2, 1]).unwrap_err();
        let stale = |node: &str, found, expected| SlurmError::HostFileStale {
            path: path(),
            node: node.to_owned(),
            found,
            expected,
        };
        assert_eq!(read("n1\nn2\nn2"), stale("n1", 1, 2));
        assert_eq!(read("n1\nn1"), stale("n2", 0, 1));
        assert_eq!(read("n1\nn1\nn7"), stale("n7", 1, 0));
        assert!(matches!(read("n[1"), SlurmError::HostFileLine { .. }));
    }

    /// The round in which a node assigns its k-th task, then the node, then k: sorted, this is the
    /// order of ranks.
    fn naive(counts: &[u32], size: u32) -> Vec<usize> {
        let tasks = counts.iter().enumerate();
        let mut tasks: Vec<_> = tasks
            .flat_map(|(node, &count)| (0..count).map(move |task| (task / size, node, task)))
            .collect();
        tasks.sort_unstable();
        tasks.into_iter().map(|(_, node, _)| node).collect()
    }

    proptest! {
        #[test]
        fn ranks_are_ordered_by_round_node_and_task(
            counts in proptest::collection::vec(0_u32..6, 0..6),
            size in 1_u32..8,
        ) {
            prop_assert_eq!(assign(&counts, Distribution::Plane(size)), naive(&counts, size));
            prop_assert_eq!(assign(&counts, Distribution::Cyclic), naive(&counts, 1));
            prop_assert_eq!(assign(&counts, Distribution::Block), naive(&counts, u32::MAX));
            let same = naive(&counts, 1) == naive(&counts, u32::MAX);
            prop_assert!(same || !is_order_free(&counts));
        }
    }
}
