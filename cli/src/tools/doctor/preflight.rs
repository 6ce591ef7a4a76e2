//! Whether a job can begin: names, ports, system limits, clocks, and every pair of ranks.

mod findings;
mod look;
mod pairs;

use std::time::Duration;

use meshwork_collectives::{DataTransport, Group, GroupConfig, JobIdentity, Rank};
use meshwork_launcher::{Launch, Outcome, Output};
use serde_json::json;

use super::{Doctor, DoctorError, PROBLEMS};
use crate::tools::placement::placement;
use findings::{Finding, Level, findings};
use pairs::RankPair;

/// The result of the preflight checks, as text, and whether a job could begin.
#[derive(Debug)]
pub(super) struct Checkup {
    pub(super) text: String,
    /// For standard error: what one rank says may be JSON, which no other may break.
    pub(super) aside: String,
    pub(super) healthy: bool,
}

/// Looks at this machine and, where there is a job secret or are certificates, at all pairs of
/// ranks.
pub(super) fn run(wanted: &Doctor) -> Result<Checkup, DoctorError> {
    if let (Some(ranks), false) = (wanted.ranks, wanted.worker) {
        return start_all(wanted, ranks);
    }
    let (members, rank) = place(wanted)?;
    let mut facts = look::at(&members, rank, carrier());
    let pairs = match JobIdentity::from_env() {
        Ok(identity) => match measure(&members, rank, identity) {
            Ok(pairs) => pairs,
            Err(error) => {
                facts.not_joined = Some(error);
                Vec::new()
            }
        },
        Err(error) => {
            facts.not_joined = Some(error.into());
            Vec::new()
        }
    };
    let found = findings(&facts, &pairs);
    if wanted.worker && rank != Rank::CHIEF {
        return Ok(Checkup::aside(found));
    }
    let text = match wanted.json {
        true => as_json(&found, &pairs),
        false => as_text(&found, &pairs),
    };
    Ok(Checkup {
        text,
        aside: String::new(),
        healthy: found.iter().all(is_harmless),
    })
}

impl Checkup {
    /// Of ranks that were started here, one speaks for all, but each of its own problems.
    fn aside(found: Vec<Finding>) -> Self {
        let problems = found.into_iter().filter(|finding| !is_harmless(finding));
        let problems: Vec<Finding> = problems.collect();
        Self {
            text: String::new(),
            aside: as_text(&problems, &[]),
            healthy: problems.is_empty(),
        }
    }
}

fn is_harmless(finding: &Finding) -> bool {
    finding.level < Level::Problem
}

/// Starts this program once for each rank; the chief prints, and whoever has a problem.
fn start_all(wanted: &Doctor, ranks: usize) -> Result<Checkup, DoctorError> {
    let this = std::env::current_exe()?;
    let mut arguments = vec!["doctor".to_owned(), "--worker".to_owned()];
    arguments.push(format!("-n={ranks}"));
    arguments.extend(wanted.json.then(|| "--json".to_owned()));
    let outcome = Launch::new(this)
        .args(arguments)
        .workers(ranks)?
        .output(Output::ChiefInherits)
        .run()?;
    judged(outcome)
}

/// What the ranks that were started here have come to: who has a problem has said so, and anything
/// else is no finding.
fn judged(outcome: Outcome) -> Result<Checkup, DoctorError> {
    let healthy = match outcome {
        Outcome::Succeeded => true,
        Outcome::Failed(failure) if failure.end().exit_code() == PROBLEMS => false,
        outcome => return Err(DoctorError::Ranks { outcome }),
    };
    Ok(Checkup {
        text: String::new(),
        aside: String::new(),
        healthy,
    })
}

/// The members and which of them this is: from the command line, or else from the environment.
fn place(wanted: &Doctor) -> Result<(Vec<String>, Rank), DoctorError> {
    if let (hosts @ [_, ..], Some(rank)) = (wanted.hosts.as_slice(), wanted.rank) {
        return Ok((hosts.to_vec(), Rank::new(rank)));
    }
    let placement = placement()?;
    Ok((placement.addresses().to_vec(), Rank::new(placement.rank())))
}

/// The data transport that the environment names; an unknown name fails later, when joining.
fn carrier() -> DataTransport {
    match std::env::var(DataTransport::ENV) {
        Ok(name) if name == DataTransport::Tls.to_string() => DataTransport::Tls,
        _ => DataTransport::Quic,
    }
}

/// Joins the others, who run the doctor as well, and measures with each of them.
fn measure(
    members: &[String],
    rank: Rank,
    identity: JobIdentity,
) -> Result<Vec<RankPair>, meshwork_collectives::Error> {
    const OPERATION: Duration = Duration::from_secs(60);
    let config = GroupConfig::new(members, rank, identity)?.with_environment()?;
    let mut group = Group::connect(&config)?;
    group.set_operation_timeout(OPERATION);
    let pairs = pairs::measure(&mut group)?;
    group.leave()?;
    Ok(pairs)
}

/// Pairs of 16 ranks: of more, people are shown the slowest few.
const ALL_SHOWN: usize = 120;
const SLOWEST: usize = 16;

fn as_text(found: &[Finding], pairs: &[RankPair]) -> String {
    let mut text = String::new();
    for finding in found {
        text += &format!("{:<8} {}\n", finding.level.name(), finding.what);
        if let Some(remedy) = &finding.remedy {
            text += &format!("         {remedy}\n");
        }
    }
    let mut slowest: Vec<&RankPair> = pairs.iter().collect();
    if pairs.len() > ALL_SHOWN {
        slowest.sort_by(|one, other| one.bandwidth.total_cmp(&other.bandwidth));
        slowest.truncate(SLOWEST);
        text += &format!(
            "pairs    the slowest {SLOWEST} of {}; --json has all\n",
            pairs.len()
        );
    }
    for pair in slowest {
        text += &format!(
            "pair     {} and {}: {:.1} µs one way, {:.2} GB/s, clocks {:+.3} ms apart\n",
            pair.one,
            pair.other,
            pair.latency * 1e6,
            pair.bandwidth / 1e9,
            pair.clock * 1e3,
        );
    }
    text
}

fn as_json(found: &[Finding], pairs: &[RankPair]) -> String {
    let found = found.iter().map(|finding| {
        json!({
            "level": finding.level.name(),
            "subject": finding.subject,
            "what": finding.what,
            "remedy": finding.remedy,
        })
    });
    let pairs = pairs.iter().map(|pair| {
        json!({
            "ranks": [pair.one.number(), pair.other.number()],
            "latency_seconds": pair.latency,
            "bytes_per_second": pair.bandwidth,
            "clock_seconds": pair.clock,
        })
    });
    let value = json!({
        "findings": found.collect::<Vec<_>>(),
        "pairs": pairs.collect::<Vec<_>>(),
    });
    format!("{value}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_were_killed_or_could_not_run_are_no_finding() {
        let judged = |script: &str| {
            let launch = Launch::new("sh").args(["-c", script]);
            judged(launch.run().unwrap())
        };
        assert!(judged("exit 0").unwrap().healthy);
        assert!(!judged("exit 1").unwrap().healthy);
        for (script, code, told) in [
            ("exit 3", 3, "rank 0 failed: exit status 3"),
            ("kill -9 $$", 137, "rank 0 failed: killed by signal 9"),
        ] {
            let error = judged(script).unwrap_err();
            assert_eq!(error.exit_code(), code);
            let text = error.to_string();
            assert!(text.contains(told), "{text}");
        }
    }

    #[test]
    fn a_rank_that_leaves_it_to_another_to_speak_says_what_is_wrong_with_it() {
        let finding = |level, what: &str| Finding {
            level,
            subject: "port",
            what: what.to_owned(),
            remedy: Some("free it".to_owned()),
        };
        let well = Checkup::aside(vec![finding(Level::Warning, "slow")]);
        assert!(well.healthy && well.aside.is_empty());
        let ill = vec![
            finding(Level::Fine, "fast"),
            finding(Level::Problem, "taken"),
        ];
        let ill = Checkup::aside(ill);
        assert!(!ill.healthy && ill.text.is_empty());
        assert_eq!(ill.aside, "problem  taken\n         free it\n");
    }
}
