//! Which package may depend on which, and what its manifest must say.

use std::collections::BTreeSet;

use crate::workspace::{Edge, Kind, Member};

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layer {
    folder: &'static str,
    may_use: MayUse,
}

/// What a package may depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MayUse {
    /// These folders.
    Only(&'static [&'static str]),
    /// Everything but examples, tests, what is for tests, and benchmarks.
    All,
    /// The same, and this folder.
    AllAnd(&'static str),
}

impl Layer {
    pub(crate) const fn new(folder: &'static str, may_use: MayUse) -> Self {
        Self { folder, may_use }
    }

    fn allows(self, folder: &str) -> bool {
        match self.may_use {
            MayUse::Only(folders) => folders.contains(&folder),
            MayUse::All => !is_outermost(folder),
            MayUse::AllAnd(more) => folder == more || !is_outermost(folder),
        }
    }
}

/// All disagreements between table, members and their dependencies.
///
/// Normal and build dependencies are the table's edges. A dev-dependency may besides be on what an
/// allowed package may itself use, directly or not: tests then name what is built for them anyway.
/// What is [`FOR_TESTS`] may be a dev-dependency of all, and is no other.
pub(crate) fn edge_problems(layers: &[Layer], members: &[Member]) -> Vec<String> {
    let mut problems = Vec::new();
    for layer in layers {
        if !members.iter().any(|member| member.folder == layer.folder) {
            problems.push(format!(
                "{TABLE}: LAYERS has `{0}`, which is no member: remove it, or add `{0}` to members \
                 in Cargo.toml",
                layer.folder
            ));
        }
    }
    for member in members {
        let Some(layer) = layers.iter().find(|layer| layer.folder == member.folder) else {
            problems.push(format!(
                "Cargo.toml: the member `{}` is not in LAYERS of {TABLE}: add it there with what \
                 it may depend on",
                member.folder
            ));
            continue;
        };
        let refused = |edge: &&Edge| !allowed(layers, members, *layer, edge);
        for edge in member.edges.iter().filter(refused) {
            problems.push(format!(
                "{}/Cargo.toml: {} may not depend on {} (in [{}]): remove it, or change LAYERS in \
                 {TABLE} in the same commit",
                member.folder,
                member.package,
                edge.package,
                section(edge.kind)
            ));
        }
    }
    problems
}

/// What every manifest must say, whatever its layer.
pub(crate) fn manifest_problems(members: &[Member]) -> Vec<String> {
    members.iter().flat_map(manifest_problem).collect()
}

/// How the document's table differs from `layers`, with the table to paste.
pub(crate) fn document_problem(layers: &[Layer], document: Option<&str>) -> Option<String> {
    let expected = table(layers);
    let Some(document) = document else {
        return Some(format!(
            "ARCHITECTURE.md is missing: write it, with\n\n{expected}"
        ));
    };
    let found = document
        .split_once(BEGIN)
        .and_then(|(_, rest)| rest.split_once(END))
        .map(|(table, _)| table);
    let own = format!("{BEGIN}{}{END}", found.unwrap_or_default());
    (own != expected).then(|| {
        format!("ARCHITECTURE.md does not have the table of LAYERS in {TABLE}: paste\n\n{expected}")
    })
}

/// The markdown that ARCHITECTURE.md has to contain.
fn table(layers: &[Layer]) -> String {
    let row = |layer: &Layer| {
        let may_use = match layer.may_use {
            MayUse::All => "all".to_owned(),
            MayUse::AllAnd(more) => format!("all, and `{more}`"),
            MayUse::Only([]) => "nothing of ours".to_owned(),
            MayUse::Only(folders) => {
                let quoted: Vec<_> = folders.iter().map(|folder| format!("`{folder}`")).collect();
                quoted.join(", ")
            }
        };
        let Layer { folder, .. } = layer;
        format!("| `{folder}` | `{}` | {may_use} |\n", package_name(folder))
    };
    let rows: String = layers.iter().map(row).collect();
    format!("{BEGIN}\n| folder | package | may depend on |\n|---|---|---|\n{rows}{END}")
}

fn allowed(layers: &[Layer], members: &[Member], layer: Layer, edge: &Edge) -> bool {
    let Some(target) = members.iter().find(|member| member.package == edge.package) else {
        return false;
    };
    match edge.kind {
        Kind::Normal | Kind::Build => layer.allows(&target.folder),
        Kind::Dev => {
            target.folder == FOR_TESTS || reachable(layers, layer).contains(target.folder.as_str())
        }
    }
}

/// All folders that a package may depend on, directly or through others.
fn reachable(layers: &[Layer], from: Layer) -> BTreeSet<&'static str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(layer) = open.pop() {
        for next in layers.iter().filter(|next| layer.allows(next.folder)) {
            if reached.insert(next.folder) {
                open.push(*next);
            }
        }
    }
    reached
}

fn manifest_problem(member: &Member) -> Vec<String> {
    let mut problems = Vec::new();
    let file = format!("{}/Cargo.toml", member.folder);
    let expected = package_name(&member.folder);
    if member.package != expected {
        problems.push(format!(
            "{file}: the package is named {}: name it {expected}, after its folder",
            member.package
        ));
    }
    let inherits = |table: Option<&toml::Value>| {
        table.and_then(|value| value.get("workspace")) == Some(&toml::Value::Boolean(true))
    };
    let package = member.manifest.get("package");
    // What a page of a registry shows.
    let shown: &[_] = match inherits(package.and_then(|package| package.get("publish"))) {
        true => &["readme", "keywords", "categories"],
        false => &[],
    };
    for key in ["version", "edition", "rust-version", "license"]
        .iter()
        .chain(shown)
    {
        if !inherits(package.and_then(|package| package.get(*key))) {
            problems.push(format!(
                "{file}: {key} is not the workspace's: write `{key}.workspace = true` in [package]"
            ));
        }
    }
    if !inherits(member.manifest.get("lints")) {
        problems.push(format!(
            "{file}: the lints are not the workspace's: write `workspace = true` in [lints]"
        ));
    }
    problems
}

/// `meshwork-` and the last folder, without a `mesh-` of its own; an example has its folder's name.
fn package_name(folder: &str) -> String {
    let last = folder.rsplit('/').next().unwrap_or(folder);
    if folder.starts_with("examples/") {
        return last.to_owned();
    }
    format!("meshwork-{}", last.strip_prefix("mesh-").unwrap_or(last))
}

/// What is built depends on none of these.
fn is_outermost(folder: &str) -> bool {
    folder.starts_with("examples/") || [FOR_TESTS, "integration-tests", "benches"].contains(&folder)
}

fn section(kind: Kind) -> &'static str {
    match kind {
        Kind::Normal => "dependencies",
        Kind::Build => "build-dependencies",
        Kind::Dev => "dev-dependencies",
    }
}

/// What tests of all packages share.
const FOR_TESTS: &str = "testing";
const TABLE: &str = "integration-tests/tests/edges.rs";
const BEGIN: &str = "<!-- edges -->";
const END: &str = "<!-- /edges -->";

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &[Layer] = &[
        Layer::new("mesh-core", MayUse::Only(&[])),
        Layer::new("layout", MayUse::Only(&["mesh-core"])),
        Layer::new("plan", MayUse::Only(&["layout"])),
        Layer::new("cli", MayUse::All),
        Layer::new("testing", MayUse::Only(&[])),
        Layer::new("benches", MayUse::All),
    ];

    fn member(folder: &str, edges: &[(Kind, &str)]) -> Member {
        let manifest = "[package]\nversion.workspace = true\nedition.workspace = true\n\
             rust-version.workspace = true\nlicense.workspace = true\n[lints]\nworkspace = true\n";
        let edge = |(kind, package): &(Kind, &str)| Edge {
            kind: *kind,
            package: (*package).to_owned(),
        };
        Member {
            folder: folder.to_owned(),
            package: package_name(folder),
            edges: edges.iter().map(edge).collect(),
            manifest: manifest.parse().unwrap(),
        }
    }

    /// What is found when one member of the small workspace has these edges and the others none.
    #[track_caller]
    fn check_edges(folder: &str, edges: &[(Kind, &str)], expected: &[&str]) {
        let members: Vec<_> = SMALL
            .iter()
            .map(|layer| {
                member(
                    layer.folder,
                    if layer.folder == folder { edges } else { &[] },
                )
            })
            .collect();
        check(&edge_problems(SMALL, &members), expected);
    }

    /// Each problem contains the expected text, and there are no others.
    #[track_caller]
    fn check(problems: &[String], expected: &[&str]) {
        assert_eq!(problems.len(), expected.len(), "{problems:#?}");
        for (problem, expected) in problems.iter().zip(expected) {
            assert!(problem.contains(expected), "{problem}");
        }
    }

    #[test]
    fn an_edge_of_the_table_may_be_taken_and_no_other() {
        check_edges("layout", &[(Kind::Normal, "meshwork-core")], &[]);
        check_edges("layout", &[(Kind::Build, "meshwork-core")], &[]);
        let expected = "mesh-core/Cargo.toml: meshwork-core may not depend on meshwork-layout \
                        (in [dependencies]): remove it";
        check_edges(
            "mesh-core",
            &[(Kind::Normal, "meshwork-layout")],
            &[expected],
        );
        let expected = "(in [build-dependencies])";
        check_edges("layout", &[(Kind::Build, "meshwork-plan")], &[expected]);
        check_edges("layout", &[(Kind::Normal, "elsewhere")], &["elsewhere"]);
    }

    #[test]
    fn only_tests_may_name_what_lies_two_layers_below() {
        check_edges("plan", &[(Kind::Dev, "meshwork-core")], &[]);
        check_edges(
            "plan",
            &[(Kind::Normal, "meshwork-core")],
            &["[dependencies]"],
        );
        check_edges(
            "layout",
            &[(Kind::Dev, "meshwork-plan")],
            &["[dev-dependencies]"],
        );
    }

    #[test]
    fn nothing_depends_on_examples_tests_and_benchmarks() {
        check_edges("cli", &[(Kind::Normal, "meshwork-plan")], &[]);
        check_edges(
            "cli",
            &[(Kind::Dev, "meshwork-benches")],
            &["meshwork-benches"],
        );
    }

    #[test]
    fn what_is_for_tests_is_a_dev_dependency_of_all_and_no_other() {
        for folder in ["mesh-core", "cli"] {
            check_edges(folder, &[(Kind::Dev, "meshwork-testing")], &[]);
            check_edges(
                folder,
                &[(Kind::Normal, "meshwork-testing")],
                &["may not depend on meshwork-testing (in [dependencies])"],
            );
        }
    }

    #[test]
    fn table_and_members_are_the_same_folders() {
        let members = [member("layout", &[]), member("extra", &[])];
        let expected = [
            "LAYERS has `mesh-core`, which is no member",
            "the member `extra` is not in LAYERS",
        ];
        check(&edge_problems(&SMALL[..2], &members), &expected);
    }

    #[test]
    fn a_package_is_named_after_its_folder() {
        assert_eq!(package_name("mesh-core"), "meshwork-core");
        assert_eq!(package_name("adapters/candle"), "meshwork-candle");
        assert_eq!(package_name("examples/mnist"), "mnist");
        let mut wrong = member("layout", &[]);
        wrong.package = "layout".to_owned();
        check(
            &manifest_problems(&[wrong]),
            &["layout/Cargo.toml: the package is named layout"],
        );
    }

    #[test]
    fn a_manifest_inherits_what_the_workspace_decides() {
        check(&manifest_problems(&[member("layout", &[])]), &[]);
        for key in ["version", "edition", "rust-version", "license"] {
            let mut wrong = member("layout", &[]);
            wrong.manifest["package"][key] = "2.0".into();
            check(
                &manifest_problems(&[wrong]),
                &[&format!("`{key}.workspace = true`")],
            );
        }
        let mut wrong = member("layout", &[]);
        wrong.manifest.remove("lints");
        check(&manifest_problems(&[wrong]), &["in [lints]"]);
        let mut published = member("layout", &[]);
        let inherited: toml::Value =
            toml::Table::from_iter([("workspace".into(), true.into())]).into();
        published.manifest["package"]
            .as_table_mut()
            .unwrap()
            .insert("publish".into(), inherited);
        let expected = ["readme", "keywords", "categories"];
        check(&manifest_problems(&[published]), &expected);
    }

    #[test]
    fn a_document_with_another_table_is_told_what_to_paste() {
        let right = table(SMALL);
        assert!(right.contains("| `layout` | `meshwork-layout` | `mesh-core` |"));
        let document = |table: &str| format!("# Layers\n\n{table}\n\nMore.\n");
        assert_eq!(document_problem(SMALL, Some(&document(&right))), None);
        let changed = right.replace("| all |", "| nothing of ours |");
        for wrong in [None, Some(""), Some(BEGIN), Some(&*document(&changed))] {
            let problem = document_problem(SMALL, wrong).unwrap();
            assert!(problem.ends_with(&right), "{problem}");
        }
    }
}
