//! Places where something stands in for a value that is not there, for an error that nobody reads,
//! or for a case that is not named: each is listed with its reason.

use crate::source::{Part, Source};

/// The list, relative to the root.
const LIST: &str = "integration-tests/tests/edges/fallbacks.txt";

/// What the reader of a [`Source`] calls these places.
const FORMS: &[&str] = &[
    "unwrap_or(constant)",
    "unwrap_or_default()",
    "unwrap_or_else(|_| ..)",
    "else { return Ok(()) }",
    "_ => constant",
];

/// Places of one file, or of a folder, that have one reason.
struct Entry<'a> {
    file: &'a str,
    reason: &'a str,
    /// Parts of their lines.
    parts: Vec<&'a str>,
}

/// Places in `sources` that the list does not have, and what it has without being there or without
/// a reason.
pub(crate) fn problems<'a>(
    sources: impl IntoIterator<Item = &'a Source>,
    list: &str,
) -> Vec<String> {
    let mut entries = read(list);
    let unexplained = entries.iter().filter(|entry| entry.reason.is_empty());
    let mut problems: Vec<String> = unexplained
        .map(|entry| format!("{LIST}: {}: say why these may stay", entry.file))
        .collect();
    for source in sources {
        let lines: Vec<&str> = source.text().lines().collect();
        for mention in source.mentions() {
            if mention.part == Part::Test || !FORMS.contains(&mention.what.as_str()) {
                continue;
            }
            let text = lines[mention.line - 1];
            if !take(&mut entries, source.path(), text) {
                problems.push(format!(
                    "{}:{}: {}: match every case, prove in `expect` that there is a value, or return \
                     an error; else add the line and its reason to {LIST}",
                    source.path(),
                    mention.line,
                    mention.what,
                ));
            }
        }
    }
    let left = entries
        .iter()
        .flat_map(|entry| entry.parts.iter().map(|part| (entry.file, part)));
    problems
        .extend(left.map(|(file, part)| format!("{LIST}: {file} has no `{part}`: take it out")));
    problems
}

/// Takes one part of this line of the file from the list, if it has one.
fn take(entries: &mut [Entry<'_>], file: &str, line: &str) -> bool {
    let mut of_file = entries
        .iter_mut()
        .filter(|entry| match entry.file.ends_with('/') {
            true => file.starts_with(entry.file),
            false => file == entry.file,
        });
    of_file.any(|entry| {
        let place = entry.parts.iter().position(|part| line.contains(part));
        place.map(|place| entry.parts.remove(place)).is_some()
    })
}

/// Lines `file: reason`, or `folder/: reason`, each with indented parts of lines below it; `#`
/// begins a comment.
fn read(list: &str) -> Vec<Entry<'_>> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    for line in lines.filter(|line| !line.trim().is_empty()) {
        match (line.strip_prefix(' '), entries.last_mut()) {
            (Some(part), Some(entry)) => entry.parts.push(part.trim()),
            (Some(part), None) => panic!("{LIST}: `{part}` is of no file"),
            (None, _) => {
                let (file, reason) = line.split_once(':').unwrap_or((line, ""));
                entries.push(Entry {
                    file,
                    reason: reason.trim(),
                    parts: Vec::new(),
                });
            }
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, list: &str, expected: &[&str]) {
        let source = Source::new("layout/src/a.rs".to_owned(), text.to_owned()).unwrap();
        let problems = problems([&source], list);
        let begin = problems.len() == expected.len()
            && (problems.iter().zip(expected)).all(|(found, start)| found.starts_with(start));
        assert!(begin, "{problems:#?} for {expected:#?}");
    }

    const LISTED: &str = "# Why.\nlayout/src/a.rs: none is as good as zero\n    a.unwrap_or(0)\n";

    #[test]
    fn a_place_is_listed_as_often_as_it_is_there() {
        let once = "fn f() {\n    a.unwrap_or(0);\n}";
        let twice = "fn f() {\n    a.unwrap_or(0);\n    a.unwrap_or(0);\n}";
        check(once, LISTED, &[]);
        check(once, "", &["layout/src/a.rs:2: unwrap_or(constant): "]);
        check(twice, LISTED, &["layout/src/a.rs:3: unwrap_or(constant): "]);
        check(
            "fn f() {}",
            LISTED,
            &[
                "integration-tests/tests/edges/fallbacks.txt: layout/src/a.rs has no `a.unwrap_or(0)`",
            ],
        );
    }

    #[test]
    fn every_place_has_a_reason() {
        let unexplained = LISTED.replace(" none is as good as zero", "");
        let expected = ["integration-tests/tests/edges/fallbacks.txt: layout/src/a.rs: say why"];
        check("fn f() { a.unwrap_or(0); }", &unexplained, &expected);
    }

    #[test]
    fn tests_may_do_so() {
        check(
            "#[cfg(test)]\nmod tests {\n fn f() { a.unwrap_or_default() }\n}",
            "",
            &[],
        );
    }
}
