//! Why a job that runs does not get on.

use meshwork_collectives::diagnosis::{Diagnosis, Dump, diagnose_live};

use super::DoctorError;
use crate::attach::Attach;

/// What the ranks say, and why others said nothing.
pub(super) struct Live {
    pub(super) found: Diagnosis,
    pub(super) unanswered: Vec<String>,
}

pub(super) fn look(attach: &Attach) -> Result<Live, DoctorError> {
    let (mut dumps, mut unanswered) = (Vec::new(), Vec::new());
    for answer in attach.job()?.ask("/dump.json")? {
        match answer.map(|text| Dump::from_json(&text)) {
            Ok(Ok(dump)) => dumps.push(dump),
            Ok(Err(error)) => unanswered.push(error.to_string()),
            Err(error) => unanswered.push(error.to_string()),
        }
    }
    if let (true, Some(first)) = (dumps.is_empty(), unanswered.first()) {
        let first = first.clone();
        return Err(DoctorError::NoAnswer { first });
    }
    let found = diagnose_live(&dumps, unanswered.len());
    Ok(Live { found, unanswered })
}
