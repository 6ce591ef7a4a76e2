//! Why a job that runs does not get on.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use meshwork_collectives::Rank;
use meshwork_collectives::diagnosis::{Cause, Diagnosis, Dump, diagnose_live};
use meshwork_status::{Job, JobWatch};

use super::{DoctorError, dumps};
use crate::tools::attach::{Attach, Ranks};

/// Between the two looks by which a rank is named that makes others wait.
const APART: Duration = Duration::from_secs(1);

/// Looks after the first, as long as nobody is named.
const LOOKS: u32 = 3;

/// Ranks that are named which nothing was heard of; of the rest the number is told.
const NAMED: usize = 8;

/// What the ranks say, and why others said nothing.
pub(super) struct Live {
    found: Diagnosis,
    /// Ranks that have said what they do, and how many there are by what they say.
    heard: BTreeSet<Rank>,
    world: u32,
    job: Job,
    unanswered: Vec<String>,
}

/// What is said in place of a cause.
struct Verdict {
    cause: String,
    remedy: &'static str,
}

pub(super) fn look(attach: &Attach) -> Result<Live, DoctorError> {
    let mut ranks = attach.ranks()?;
    let mut watch = JobWatch::default();
    let mut job = watch.see(ranks.look()?);
    for _ in 0..LOOKS {
        if job.culprit().is_none() {
            thread::sleep(APART);
            job = watch.see(ranks.look()?);
        }
    }
    let (dumps, unanswered) = dumps_of(&ranks)?;
    if let (true, Some(first)) = (dumps.is_empty(), unanswered.first()) {
        let first = first.clone();
        return Err(DoctorError::NoAnswer { first });
    }
    Ok(Live::new(&dumps, job, unanswered))
}

fn dumps_of(ranks: &Ranks<'_>) -> Result<(Vec<Dump>, Vec<String>), DoctorError> {
    let (mut dumps, mut unanswered) = (Vec::new(), Vec::new());
    for answer in ranks.ask("/dump.json")? {
        match answer.map(|text| Dump::from_json(&text)) {
            Ok(Ok(dump)) => dumps.push(dump),
            Ok(Err(error)) => unanswered.push(error.to_string()),
            Err(error) => unanswered.push(error.to_string()),
        }
    }
    Ok((dumps, unanswered))
}

impl Live {
    fn new(dumps: &[Dump], job: Job, unanswered: Vec<String>) -> Self {
        Self {
            found: diagnose_live(dumps, unanswered.len()),
            heard: dumps.iter().map(Dump::rank).collect(),
            world: dumps.iter().map(Dump::world).fold(0, u32::max),
            job,
            unanswered,
        }
    }

    /// Why there may be a fault though no rank that was heard knows of one.
    fn doubt(&self) -> Option<Verdict> {
        let missing = (self.world as usize).saturating_sub(self.heard.len());
        if *self.found.cause() != Cause::Running || missing == 0 {
            return None;
        }
        let others = Rank::all(self.world).filter(|rank| !self.heard.contains(rank));
        let names: Vec<String> = others.take(NAMED).map(|rank| rank.to_string()).collect();
        let names = names.join(", ");
        let more = match missing.saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        // An answer that is missing may be that of any rank that was asked.
        let (how, remedy) = if missing <= self.unanswered.len() {
            ("no answer of", "see below why they do not answer")
        } else {
            ("nothing heard of", ASK_ALL)
        };
        Some(Verdict {
            cause: format!(
                "{}: no rank that was heard waits for another, and {how} {names}{more}",
                Cause::Unknown.class()
            ),
            remedy,
        })
    }

    /// Who makes the others wait comes first, where that is sure.
    pub(super) fn text(&self) -> String {
        let mut text = match self.job.culprit() {
            Some(culprit) => format!("{culprit}\n"),
            None => String::new(),
        };
        let verdict = match self.doubt() {
            Some(Verdict { cause, remedy }) => dumps::lines(&cause, remedy, self.found.evidence()),
            None => dumps::text(&self.found),
        };
        text += &verdict;
        for line in &self.unanswered {
            text += &format!("  - {line}\n");
        }
        text
    }

    pub(super) fn json(&self) -> String {
        let mut value = dumps::json(&self.found);
        if let Some(Verdict { cause, remedy }) = self.doubt() {
            value["class"] = Cause::Unknown.class().into();
            value["cause"] = cause.into();
            value["remedy"] = remedy.into();
        }
        value["culprit"] = self.job.culprit_json();
        if !self.unanswered.is_empty() {
            value["unanswered"] = self.unanswered.as_slice().into();
        }
        format!("{value}\n")
    }
}

/// What to do where not all ranks were asked.
const ASK_ALL: &str =
    "ask all ranks: give the folder in MESHWORK_STATUS_FOLDER, or the addresses of all";

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// What a rank says that is in no operation.
    fn dump(rank: u32, world: u32) -> Dump {
        let text = format!(
            r#"{{ "version": 1, "rank": {rank}, "world": {world}, "address": "a:{rank}",
            "written": 900, "failure": null, "afterwards": null, "operations": [] }}"#
        );
        Dump::from_json(&text).unwrap()
    }

    fn live(heard: &[u32], world: u32, unanswered: &[&str]) -> Live {
        let dumps: Vec<Dump> = heard.iter().map(|rank| dump(*rank, world)).collect();
        let unanswered = unanswered.iter().copied().map(str::to_owned).collect();
        Live::new(&dumps, Job::default(), unanswered)
    }

    #[test]
    fn a_job_of_which_all_ranks_were_heard_may_have_no_fault() {
        let all = live(&[0, 1], 2, &[]);
        assert!(all.text().starts_with("no fault: "), "{}", all.text());
        let value: Value = serde_json::from_str(&all.json()).unwrap();
        assert_eq!(value["class"], "no fault");
    }

    #[test]
    fn ranks_that_were_not_asked_are_named_and_no_fault_is_ruled_out() {
        let one = live(&[1], 3, &[]);
        let text = one.text();
        assert!(text.starts_with("unknown cause: "), "{text}");
        assert!(text.contains("nothing heard of rank 0, rank 2\n"), "{text}");
        assert!(text.contains("the addresses of all\n"), "{text}");
        assert!(text.contains("  - rank 1 (a:1) was in no call\n"), "{text}");
        let value: Value = serde_json::from_str(&one.json()).unwrap();
        assert_eq!(value["class"], "unknown cause");
        let remedy = value["remedy"].as_str().unwrap();
        assert!(remedy.contains("MESHWORK_STATUS_FOLDER"), "{value}");
        let many = live(&[0], 1000, &[]).text();
        assert!(many.contains("rank 7, rank 8 and 991 more\n"), "{many}");
    }

    #[test]
    fn ranks_that_were_asked_and_silent_are_told_from_those() {
        let silent = live(&[0, 1], 3, &["a:2 has not answered"]).text();
        assert!(silent.contains("no answer of rank 2\n"), "{silent}");
        assert!(silent.ends_with("  - a:2 has not answered\n"), "{silent}");
    }
}
