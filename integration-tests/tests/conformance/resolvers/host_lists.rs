//! Host lists beside what `scontrol show hostnames` prints.

use meshwork_cluster_resolver::slurm::{HostListProblem, hosts};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::probe::{Probe, failed, verdict};
use crate::deviations::{Deviation, resolvers as deviations};
use crate::harness::Verdict;

pub(super) fn judge(case: &Value) -> Verdict {
    let list = case["input"].as_str().expect("a recorded list");
    // It exits with 0 whatever happens, but for crashes; problems show on stderr.
    let accepted = case["rc"] == 0 && case.get("stderr").is_none();
    match (hosts(list), accepted) {
        (Ok(hosts), true) => compare(&hosts, case),
        (Err(_), false) => Verdict::Passed,
        (Err(problem), true) => {
            let excuse = excuse(&problem);
            excuse.map_or_else(|| failed(problem), Verdict::by)
        }
        (Ok(hosts), false) => failed(hosts),
    }
}

/// Short answers are recorded whole, long ones by their ends and a hash of the lines.
fn compare(hosts: &[String], case: &Value) -> Verdict {
    let lines: String = hosts.iter().map(|host| format!("{host}\n")).collect();
    let hash = digest(&SHA256, lines.as_bytes());
    let hash: String = hash
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let end = |name: &str, from: fn(&[String], usize) -> &[String]| {
        let length = case[name].as_array().map_or(0, Vec::len).min(hosts.len());
        json!(from(hosts, length))
    };
    let probes: Vec<_> = [
        ("count", json!(hosts.len())),
        ("hosts", json!(hosts)),
        ("first", end("first", |hosts, length| &hosts[..length])),
        (
            "last",
            end("last", |hosts, length| &hosts[hosts.len() - length..]),
        ),
        ("sha256_nl", json!(hash)),
    ]
    .into_iter()
    .filter_map(|(name, ours)| Some(Probe::plain(name, case.get(name)?, Ok(ours))))
    .collect();
    verdict(&probes, |_| None)
}

/// What `scontrol` takes and nobody can mean.
fn excuse(problem: &HostListProblem) -> Option<Deviation> {
    match problem {
        HostListProblem::Unclosed
        | HostListProblem::Unopened { .. }
        | HostListProblem::Nested { .. } => Some(deviations::BRACKETS),
        HostListProblem::Range { range } => {
            let odd = |character: char| !character.is_ascii_digit() && character != '-';
            let open = range.ends_with('-');
            let large = range
                .split('-')
                .any(|number| number.parse::<u64>().is_err());
            (range.contains(odd) || open || large).then_some(deviations::RANGES)
        }
        _ => None,
    }
}
