//! The book: every chapter is in its contents, programs in it are compiled by some crate, and its
//! links lead nowhere outside of it, where a reader of the built book would find nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::documents;
use crate::errors;
use crate::source::Source;
use crate::workspace::Member;

/// Where the chapters are.
const CHAPTERS: &str = "docs/book/src/";
/// The list of them.
const CONTENTS: &str = "docs/book/src/SUMMARY.md";
/// The chapter with all variables that libraries read.
pub(crate) const SETTINGS: &str = "docs/book/src/settings.md";
/// What the names of these begin with.
const PREFIXES: [&str; 2] = ["MESHWORK_", "DTENSOR_"];
/// The chapter with the features of all libraries.
pub(crate) const CRATES: &str = "docs/book/src/crates.md";
/// Where they are in it.
const FEATURES: &str = "## Features";
/// The files that name metrics.
pub(crate) const MONITORING: [&str; 3] = [
    "docs/book/src/monitoring.md",
    "docs/book/src/files/alerts.yaml",
    "docs/book/src/files/board.json",
];
/// What the names of metrics begin with.
const METRIC: &str = "meshwork_";
/// Chapters that there are at least: an empty folder is no proof.
const LEAST: usize = 20;

/// Chapters that nobody finds, or whose programs nobody compiles, and links that lead out.
pub(crate) fn problems(all: &BTreeMap<String, String>, sources: &[Source]) -> Vec<String> {
    let chapters = || all.iter().filter(|(path, _)| path.starts_with(CHAPTERS));
    let contents = all.get(CONTENTS).map_or("", String::as_str);
    let listed: Vec<String> = documents::targets(CONTENTS, contents).collect();
    let mut problems = Vec::new();
    for (path, text) in chapters() {
        if path != CONTENTS && !listed.contains(path) {
            problems.push(format!("{path}: add it to {CONTENTS}"));
        }
        let is_compiled = |source: &Source| source.text().contains(&format!("{path}\")]"));
        if text.contains("```rust") && !sources.iter().any(is_compiled) {
            problems.push(format!("{path}: include it in the tests of a crate"));
        }
        let outside = documents::targets(path, text).filter(|to| !to.starts_with(CHAPTERS));
        problems.extend(outside.map(|to| format!("{path}: name `{to}` without a link")));
    }
    if chapters().count() < LEAST {
        problems.push(format!("{CHAPTERS} has fewer than {LEAST} chapters"));
    }
    problems
}

/// Variables of the environment that a library reads and the settings do not have.
pub(crate) fn unknown_variables(settings: &str, sources: &[Source]) -> Vec<String> {
    let product = |source: &&Source| {
        let path = source.path();
        errors::library(path).is_some() && !path.contains("/tests")
    };
    let literals = sources.iter().filter(product).flat_map(|source| {
        let literals = source.text().split('"');
        literals.map(move |literal| (source.path(), literal))
    });
    let is_variable = |name: &str| {
        let shouted = |c: char| c.is_ascii_uppercase() || c == '_';
        PREFIXES
            .iter()
            .any(|prefix| name.len() > prefix.len() && name.starts_with(prefix))
            && name.chars().all(shouted)
    };
    literals
        .filter(|(_, name)| is_variable(name) && !settings.contains(&format!("`{name}")))
        .map(|(path, name)| format!("{path}: explain `{name}` in {SETTINGS}"))
        .collect()
}

/// Metrics in `text` that no library serves, with the units that their names end with.
pub(crate) fn unknown_metrics(path: &str, text: &str, sources: &[Source]) -> Vec<String> {
    let is_served = |name: &str| {
        let counted = name.strip_suffix("_total").unwrap_or(name);
        let plain = ["_seconds", "_bytes"].map(|unit| counted.strip_suffix(unit));
        let mut names = [Some(counted)].into_iter().chain(plain).flatten();
        names.any(|name| {
            let literal = format!("\"{name}\"");
            let mut all = sources.iter();
            all.any(|source| source.text().contains(&literal))
        })
    };
    let words = text.split(|c: char| !c.is_ascii_lowercase() && c != '_');
    let names: BTreeSet<&str> = words.filter_map(|word| word.strip_prefix(METRIC)).collect();
    if names.is_empty() {
        return vec![format!("{path} has no metrics")];
    }
    let unknown = names.into_iter().filter(|name| !is_served(name));
    unknown
        .map(|name| format!("{path}: no rank serves {METRIC}{name}"))
        .collect()
}

/// Features of libraries without a row in the table, and rows of what is no feature.
pub(crate) fn feature_problems(chapter: &str, members: &[Member]) -> Vec<String> {
    let section = chapter.split_once(FEATURES).map_or("", |(_, rest)| rest);
    let rows = section.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        Some([quoted(cells.next()?), quoted(cells.next()?)])
    });
    let listed: BTreeSet<[&str; 2]> = rows
        .flat_map(|[packages, features]| {
            let of = move |package| features.clone().map(move |feature| [package, feature]);
            packages.flat_map(of)
        })
        .collect();
    let published = members.iter().filter(|member| member.is_published());
    let there: BTreeSet<[&str; 2]> = published
        .flat_map(|member| {
            let names = member.features();
            names.map(|name| [member.package.as_str(), name])
        })
        .collect();
    let wrong = listed.symmetric_difference(&there);
    wrong
        .map(|[package, feature]| {
            format!("{CRATES}: `{feature}` of {package} is there or in the table, not both")
        })
        .collect()
}

/// What stands in a cell as code.
fn quoted(cell: &str) -> impl Iterator<Item = &str> + Clone {
    cell.trim_start_matches('`')
        .split('`')
        .step_by(2)
        .filter(|code| !code.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_in_the_table_and_nothing_else_is() {
        let member = |package: &str, manifest: &str| Member {
            folder: package.to_owned(),
            package: package.to_owned(),
            edges: Vec::new(),
            manifest: manifest.parse().unwrap(),
        };
        let own = "package.publish.workspace = true\nfeatures = { default = [], a = [], b = [] }";
        let members = [
            member("x", own),
            member("y", own),
            member("z", "package.publish = false\nfeatures = { c = [] }"),
        ];
        let table = "## Features\n\n| crate | feature |\n|---|---|\n";
        let problems = |rows: &str| feature_problems(&format!("{table}{rows}"), &members);
        assert_eq!(problems("| `x`, `y` | `a`, `b` | no | `d` |\n"), [""; 0]);
        let wrong = problems("| `x` | `a`, `c` | no | |\n| `y` | `a`, `b` | no | |\n");
        assert_eq!(wrong.len(), 2, "{wrong:?}");
    }

    #[test]
    fn variables_that_a_library_reads_are_in_the_settings() {
        let text = "const A: &str = \"MESHWORK_A\"; // MESHWORK_B\nfn f() { g(\"MESHWORK_C is\") }";
        let source = |path: &str| Source::new(path.to_owned(), text.to_owned()).unwrap();
        let sources = [
            source("a/src/b.rs"),
            source("a/tests/b.rs"),
            source("benches/src/b.rs"),
        ];
        assert_eq!(unknown_variables("`MESHWORK_A`", &sources), [""; 0]);
        let found = unknown_variables("MESHWORK_A", &sources);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn metrics_are_served_by_their_names_without_units() {
        let text = "[(\"age\", 1), (\"sent_bytes\", 2), (\"steps\", 3)]";
        let source = Source::new("a/src/b.rs".to_owned(), text.to_owned()).unwrap();
        let metrics = "meshwork_age_seconds, meshwork_sent_bytes_total meshwork_steps_total";
        assert_eq!(unknown_metrics("a.md", metrics, &[source]), [""; 0]);
        assert_eq!(unknown_metrics("a.md", metrics, &[]).len(), 3);
        assert_eq!(unknown_metrics("a.md", "", &[]).len(), 1);
    }

    #[test]
    fn chapters_are_listed_compiled_and_closed() {
        let of = |path: &str, text: &str| (format!("{CHAPTERS}{path}"), text.to_owned());
        let all = BTreeMap::from([
            of("SUMMARY.md", "[a](a.md) [b](b/c.md)"),
            of(
                "a.md",
                "```rust\nfn main() {}\n```\n[b](b/c.md) [web](https://a.b)",
            ),
            of("b/c.md", "[a](../a.md) [out](../../../x.md)"),
            of("d.md", ""),
        ]);
        let include = "#[doc = include_str!(\"../../docs/book/src/a.md\")]\nmod a {}";
        let source = Source::new("a/src/lib.rs".to_owned(), include.to_owned()).unwrap();
        let found = problems(&all, &[source]);
        let expected = ["`docs/x.md` without a link", "d.md: add it", "fewer than"];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        assert!(
            found
                .iter()
                .zip(expected)
                .all(|(found, part)| found.contains(part))
        );
        assert!(problems(&all, &[])[0].contains("a.md: include it"));
    }
}
