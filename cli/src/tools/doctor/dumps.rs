//! Why a job failed.

use std::fs;
use std::path::{Path, PathBuf};

use meshwork_collectives::Rank;
use meshwork_collectives::diagnosis::{Diagnosis, Dump, diagnose, trace};
use serde_json::{Value, json};

use super::DoctorError;

/// The diagnosis from the dumps in a folder; their operations go to the file for a trace.
pub(super) fn diagnosis(
    folder: &Path,
    trace_file: Option<&Path>,
) -> Result<Diagnosis, DoctorError> {
    let dumps = read_all(folder)?;
    if let Some(path) = trace_file {
        fs::write(path, trace(&dumps)).map_err(failing(path, "written"))?;
    }
    Ok(diagnose(&dumps))
}

fn read_all(folder: &Path) -> Result<Vec<Dump>, DoctorError> {
    let entries = fs::read_dir(folder).map_err(failing(folder, "read"))?;
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in entries {
        let path = entry.map_err(failing(folder, "read"))?.path();
        if is_dump(&path) {
            paths.push(path);
        }
    }
    paths.sort();
    if paths.is_empty() {
        let path = folder.to_owned();
        return Err(DoctorError::NoDumps { path });
    }
    paths.iter().map(|path| read(path)).collect()
}

fn is_dump(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let number = name.and_then(|name| name.strip_prefix("rank-")?.strip_suffix(".json"));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

fn read(path: &Path) -> Result<Dump, DoctorError> {
    let text = fs::read_to_string(path).map_err(failing(path, "read"))?;
    let path = path.to_owned();
    Dump::from_json(&text).map_err(|source| DoctorError::NoDump { path, source })
}

fn failing(path: &Path, what: &'static str) -> impl Fn(std::io::Error) -> DoctorError {
    move |source| DoctorError::File {
        path: path.to_owned(),
        what,
        source,
    }
}

/// What was found, in lines.
pub(super) fn text(found: &Diagnosis) -> String {
    let cause = found.cause();
    lines(&cause.to_string(), cause.remedy(), found.evidence())
}

/// A cause, what to do about it, and what shows it.
pub(super) fn lines(cause: &str, remedy: &str, evidence: &[String]) -> String {
    let mut text = format!("{cause}\n  {remedy}\n");
    for line in evidence {
        text += &format!("  - {line}\n");
    }
    text
}

pub(super) fn json(found: &Diagnosis) -> Value {
    let cause = found.cause();
    let ranks: Vec<u32> = cause.ranks().into_iter().map(Rank::number).collect();
    json!({
        "class": cause.class(),
        "ranks": ranks,
        "cause": cause.to_string(),
        "remedy": cause.remedy(),
        "evidence": found.evidence(),
    })
}
