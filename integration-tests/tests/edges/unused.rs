//! Dependencies that no file uses: they cost every build, and mislead who reads the manifest.

use crate::source::Source;
use crate::workspace::Member;

/// Those of `members` that none of their `sources` mentions, unless they are `expected`, which are
/// folder, package and reason; and what is expected without being so.
pub(crate) fn dependencies(
    members: &[Member],
    sources: &[Source],
    expected: &[(&str, &str, &str)],
) -> Vec<String> {
    let mut problems = Vec::new();
    let is_expected = |folder: &str, package: &str| {
        let mut all = expected.iter();
        all.any(|(of, name, _)| (*of, *name) == (folder, package))
    };
    for member in members {
        let unused: Vec<_> = asked_for(&member.manifest)
            .into_iter()
            .filter(|package| !is_used(sources, &member.folder, package))
            .collect();
        let surplus = unused
            .iter()
            .filter(|package| !is_expected(&member.folder, package));
        problems.extend(surplus.map(|package| {
            format!(
                "{}/Cargo.toml: {package} is mentioned by no file: remove it",
                member.folder
            )
        }));
        let of_member = expected.iter().filter(|(of, ..)| *of == member.folder);
        let settled = of_member.filter(|(_, name, _)| !unused.iter().any(|found| found == name));
        problems.extend(settled.map(|(of, name, _)| {
            format!(
                "integration-tests/tests/edges.rs: {of} uses {name}: take it out of UNMENTIONED"
            )
        }));
    }
    problems
}

fn is_used(sources: &[Source], folder: &str, package: &str) -> bool {
    let name = package.replace('-', "_");
    let inside = |source: &&Source| {
        let rest = source.path().strip_prefix(folder);
        rest.is_some_and(|rest| rest.starts_with('/'))
    };
    let mut own = sources.iter().filter(inside);
    own.any(|source| source.mentions().iter().any(|mention| mention.is(&name)))
}

/// All packages that a manifest names, for tests and for some systems only too.
fn asked_for(manifest: &toml::Table) -> Vec<String> {
    let table = |value: Option<&toml::Value>| value.and_then(toml::Value::as_table).cloned();
    let systems = table(manifest.get("target")).unwrap_or_default();
    let parts = systems.values().filter_map(toml::Value::as_table);
    let parts = std::iter::once(manifest).chain(parts);
    let tables = parts.flat_map(|part| {
        ["dependencies", "dev-dependencies", "build-dependencies"]
            .map(|section| table(part.get(section)).unwrap_or_default())
    });
    tables
        .flat_map(|table| table.keys().cloned().collect::<Vec<_>>())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(&str, &str, &str)], problems: &[&str]) {
        let manifest = "[dependencies]\na-b.workspace = true\n[target.'cfg(unix)'.dev-dependencies]\nc = \"1\"";
        let member = Member {
            folder: "layout".to_owned(),
            package: "meshwork-layout".to_owned(),
            edges: Vec::new(),
            manifest: manifest.parse().unwrap(),
        };
        let source = |path: &str| Source::new(path.to_owned(), text.to_owned()).unwrap();
        let sources = [source("layout/src/a.rs")];
        assert_eq!(dependencies(&[member], &sources, expected), problems);
    }

    #[test]
    fn what_is_mentioned_is_used() {
        check("use a_b::C;\nfn f() { c::g() }", &[], &[]);
        check(
            "// a_b\nfn f() { c::g() }",
            &[],
            &["layout/Cargo.toml: a-b is mentioned by no file: remove it"],
        );
        check(
            "use a_b::C;",
            &[],
            &["layout/Cargo.toml: c is mentioned by no file: remove it"],
        );
    }

    #[test]
    fn an_exception_does_not_outlive_its_reason() {
        check("use a_b::C;", &[("layout", "c", "why")], &[]);
        let settled = "integration-tests/tests/edges.rs: layout uses c: take it out of UNMENTIONED";
        check(
            "use a_b::C;\nfn f() { c::g() }",
            &[("layout", "c", "why")],
            &[settled],
        );
    }
}
