//! Why a job that runs does not get on.

use std::thread;
use std::time::Duration;

use meshwork_collectives::diagnosis::{Diagnosis, Dump, diagnose_live};
use meshwork_status::{Job, JobWatch};

use super::{DoctorError, dumps};
use crate::tools::attach::{Attach, Ranks};

/// Between the two looks by which a rank is named that makes others wait.
const APART: Duration = Duration::from_secs(1);

/// Looks after the first, as long as nobody is named.
const LOOKS: u32 = 3;

/// What the ranks say, and why others said nothing.
pub(super) struct Live {
    pub(super) found: Diagnosis,
    pub(super) job: Job,
    pub(super) unanswered: Vec<String>,
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
    let found = diagnose_live(&dumps, unanswered.len());
    Ok(Live {
        found,
        job,
        unanswered,
    })
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
    /// Who makes the others wait comes first, where that is sure.
    pub(super) fn text(&self) -> String {
        let mut text = match self.job.culprit() {
            Some(culprit) => format!("{culprit}\n"),
            None => String::new(),
        };
        text += &dumps::text(&self.found);
        for line in &self.unanswered {
            text += &format!("  - {line}\n");
        }
        text
    }

    pub(super) fn json(&self) -> String {
        let mut value = dumps::json(&self.found);
        value["culprit"] = self.job.culprit_json();
        if !self.unanswered.is_empty() {
            value["unanswered"] = self.unanswered.as_slice().into();
        }
        format!("{value}\n")
    }
}
