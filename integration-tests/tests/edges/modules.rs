//! Which modules of a crate use which: those that use each other, however far around, are one piece
//! that nobody can read, test or move by halves.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Part, Source};

/// Modules of a crate that use each other, and why they may.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cycle {
    member: &'static str,
    modules: &'static [&'static str],
    reason: &'static str,
}

impl Cycle {
    pub(crate) const fn new(
        member: &'static str,
        modules: &'static [&'static str],
        reason: &'static str,
    ) -> Self {
        Self {
            member,
            modules,
            reason,
        }
    }
}

/// The modules at the top of one crate.
#[derive(Debug)]
struct Crate<'a> {
    member: &'a str,
    /// The modules that each one uses, and where it first does.
    uses: BTreeMap<&'a str, BTreeMap<&'a str, String>>,
}

/// Cycles that are not listed, and what is listed without being there or without a reason.
pub(crate) fn problems(sources: &[Source], listed: &[Cycle]) -> Vec<String> {
    let unexplained = listed.iter().filter(|cycle| cycle.reason.is_empty());
    let mut problems: Vec<String> = unexplained
        .map(|cycle| format!("{}: say why {:?} may stay", cycle.member, cycle.modules))
        .collect();
    let mut left: Vec<&Cycle> = listed.iter().collect();
    let members: BTreeSet<&str> = sources.iter().filter_map(member).collect();
    for member in members {
        let found = Crate::new(member, sources);
        for modules in found.cycles() {
            let place = left
                .iter()
                .position(|cycle| cycle.member == member && cycle.modules == modules);
            match place {
                Some(place) => drop(left.remove(place)),
                None => problems.push(found.describe(&modules)),
            }
        }
    }
    let gone = left.into_iter().map(|cycle| {
        let Cycle {
            member, modules, ..
        } = cycle;
        format!(
            "{member}: {modules:?} are no cycle as listed: take it out, or write down what is left"
        )
    });
    problems.extend(gone);
    problems
}

/// The folder of the package that a file of a library is in.
fn member(source: &Source) -> Option<&str> {
    source.path().strip_suffix("/src/lib.rs")
}

impl<'a> Crate<'a> {
    fn new(member: &'a str, sources: &'a [Source]) -> Self {
        let inside = |source: &'a Source| {
            let path = source.path().strip_prefix(member)?.strip_prefix("/src/")?;
            Some((source, module_path(path)?))
        };
        let files: Vec<(&Source, Vec<&str>)> = sources.iter().filter_map(inside).collect();
        let modules: BTreeSet<&str> = files.iter().map(|(_, module)| module[0]).collect();
        let root = format!("{member}/src/lib.rs");
        let root = sources.iter().find(|source| source.path() == root);
        let exports = exports(root, &modules);
        let mut uses: BTreeMap<&str, BTreeMap<&str, String>> = BTreeMap::new();
        for (source, module) in &files {
            let own = uses.entry(module[0]).or_default();
            for mention in source.mentions() {
                let used = from_root(&mention.what, module.len())
                    .filter(|_| mention.part == Part::Product)
                    .and_then(|name| modules.get(name).or_else(|| exports.get(name)));
                if let Some(used) = used.filter(|used| **used != module[0]) {
                    let place = || format!("{}:{}", source.path(), mention.line);
                    own.entry(used).or_insert_with(place);
                }
            }
        }
        Self { member, uses }
    }

    /// The modules that a module reaches by those that it uses.
    fn reached(&self, from: &'a str) -> BTreeSet<&'a str> {
        let mut reached = BTreeSet::new();
        let mut next = vec![from];
        while let Some(module) = next.pop() {
            let used = self.uses.get(module).into_iter().flat_map(BTreeMap::keys);
            next.extend(used.filter(|used| reached.insert(**used)));
        }
        reached
    }

    /// The largest sets of modules that reach each other, each in order.
    fn cycles(&self) -> BTreeSet<Vec<&'a str>> {
        let reached: BTreeMap<&str, BTreeSet<&str>> = self
            .uses
            .keys()
            .map(|module| (*module, self.reached(module)))
            .collect();
        let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|all| all.contains(to));
        let around = self.uses.keys().map(|module| {
            let both = |other: &&str| reaches(module, other) && reaches(other, module);
            self.uses.keys().copied().filter(both).collect::<Vec<_>>()
        });
        around.filter(|modules| modules.len() > 1).collect()
    }

    fn describe(&self, modules: &[&str]) -> String {
        let lines = modules.iter().flat_map(|module| {
            let inside = self.uses[module]
                .iter()
                .filter(|(used, _)| modules.contains(used));
            inside.map(move |(used, place)| format!("\n  {module} uses {used}: {place}"))
        });
        let lines: String = lines.collect();
        let member = self.member;
        format!("{member}: {modules:?} use each other: move what both need to the lower one{lines}")
    }
}

/// The names from the top of the crate down to a file's module; none for the top itself, and for
/// programs.
fn module_path(path: &str) -> Option<Vec<&str>> {
    let names: Vec<&str> = path.strip_suffix(".rs")?.split('/').collect();
    let is_module = !matches!(names[0], "lib" | "main" | "bin") && !names.contains(&"tests");
    is_module.then_some(names)
}

/// The first name of a path from the top of the crate on, as a module so deep in it says it.
fn from_root(path: &str, depth: usize) -> Option<&str> {
    let mut names = path.split("::");
    let first = names.next()?;
    let supers = 1 + names.clone().take_while(|name| *name == "super").count();
    match first {
        "crate" => names.next(),
        "super" if supers == depth => names.nth(supers - 1),
        _ => None,
    }
}

/// The names that the top of a crate takes out of its modules, and out of which.
fn exports<'a>(
    root: Option<&'a Source>,
    modules: &BTreeSet<&'a str>,
) -> BTreeMap<&'a str, &'a str> {
    let mentions = root.into_iter().flat_map(Source::mentions);
    let exports = mentions.filter_map(|mention| {
        let path = mention
            .what
            .strip_prefix("crate::")
            .unwrap_or(&mention.what);
        let (module, name) = path.split_once("::")?;
        let name = name.rsplit("::").next()?;
        Some((name, *modules.get(module)?))
    });
    exports.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(files: &[(&str, &str)]) -> Vec<Source> {
        let file = |(path, text): &(&str, &str)| {
            let path = format!("layout/src/{path}");
            Source::new(path, (*text).to_owned()).unwrap()
        };
        files.iter().map(file).collect()
    }

    #[test]
    fn modules_that_use_each_other_are_found_by_every_kind_of_path() {
        for (lower, upper) in [
            ("use crate::upper::A;", "use crate::lower::B;"),
            ("use crate::A;", "use super::lower::B;"),
            ("fn f(a: crate::A) {}", "use crate::{other, lower::{B, C}};"),
        ] {
            let sources = library(&[
                ("lib.rs", "mod lower; mod upper; pub use upper::{A, D};"),
                ("lower.rs", lower),
                ("upper.rs", ""),
                ("upper/deep.rs", &upper.replace("super", "super::super")),
            ]);
            let found = problems(&sources, &[]);
            assert_eq!(found.len(), 1, "{lower}, {upper}: {found:?}");
            let there = Cycle::new("layout", &["lower", "upper"], "they are one");
            assert_eq!(problems(&sources, &[there]), [""; 0]);
        }
    }

    #[test]
    fn cycles_go_around_and_end_where_a_module_uses_none_of_the_others() {
        let sources = library(&[
            ("lib.rs", ""),
            ("a.rs", "use crate::b;"),
            ("b.rs", "use crate::c;"),
            ("c.rs", "use crate::{a, d};"),
            ("d.rs", ""),
        ]);
        let there = Cycle::new("layout", &["a", "b", "c"], "they are one");
        assert_eq!(problems(&sources, &[there]), [""; 0]);
        let smaller = Cycle::new("layout", &["a", "b"], "they are one");
        assert_eq!(problems(&sources, &[smaller]).len(), 2);
    }

    #[test]
    fn tests_comments_and_parts_of_one_module_make_no_cycle() {
        let sources = library(&[
            ("lib.rs", "pub use upper::A;"),
            (
                "lower.rs",
                "//! crate::upper\n#[cfg(test)]\nmod tests { use crate::A; }",
            ),
            ("upper.rs", "mod deep;\nuse crate::lower::B;"),
            ("upper/deep.rs", "use super::A;\nuse crate::upper::A;"),
            ("lower/tests.rs", "use crate::A;"),
        ]);
        assert_eq!(problems(&sources, &[]), [""; 0]);
    }

    #[test]
    fn what_is_listed_is_there_and_has_a_reason() {
        let gone = Cycle::new("layout", &["lower", "upper"], "");
        assert_eq!(problems(&library(&[("lib.rs", "")]), &[gone]).len(), 2);
    }
}
