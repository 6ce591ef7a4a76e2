//! What the book says of limits, held against the constants.

use crate::workspace::Workspace;

/// The document with the table.
pub(crate) const DOCUMENT: &str = "docs/book/src/security.md";
/// Where the table is in it.
const SECTION: &str = "## What others can cause";
/// Rows that it has at least: an empty table is no proof.
const LEAST: usize = 20;

/// Rows whose constant is not in its file, or has another value there.
pub(crate) fn problems(workspace: &Workspace, document: &str) -> Vec<String> {
    let section = document.split_once(SECTION).map_or("", |(_, rest)| rest);
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows: Vec<[&str; 3]> = section.lines().filter_map(row).collect();
    let mut problems: Vec<String> = rows
        .iter()
        .filter_map(|row| problem(workspace, *row))
        .collect();
    if rows.len() < LEAST {
        problems.push(format!("{SECTION} has only {} rows", rows.len()));
    }
    problems
}

/// File, constant and value of a row of the table.
fn row(line: &str) -> Option<[&str; 3]> {
    let (file, rest) = line.strip_prefix("| `")?.split_once("` `")?;
    let (constant, rest) = rest.split_once("` | `")?;
    let (value, _) = rest.split_once('`')?;
    Some([file, constant, value])
}

fn problem(workspace: &Workspace, [file, constant, value]: [&str; 3]) -> Option<String> {
    let path = format!("collectives/src/{file}");
    let Some(source) = workspace.document(&path) else {
        return Some(format!("{path}, which {DOCUMENT} names, is not there"));
    };
    let (_, behind) = source
        .split_once(&format!("const {constant}: "))
        .unwrap_or_default();
    let found = behind
        .split(';')
        .next()
        .and_then(|rest| rest.split_once(" = "));
    let found = found.map_or("nothing", |(_, found)| found);
    (found != value).then(|| format!("{path}: {constant} is {found}, but {value} in {DOCUMENT}"))
}
