//! Rules about source that no compiler holds.

use crate::source::{Mention, Part, Source};

/// What pure modules must not reach, and what to do instead.
const IMPURE: &[(&str, &str)] = &[
    ("tokio", "keep waiting in the caller"),
    (
        "std::net",
        "keep addresses as text, and sockets in the caller",
    ),
    ("std::thread", "keep threads in the caller"),
    ("std::env", "take the value as an argument"),
    ("Instant::now", "take the time as an argument"),
    ("SystemTime::now", "take the time as an argument"),
    ("thread_rng", "take a seed as an argument"),
    ("rand::rng", "take a seed as an argument"),
    ("rand::random", "take a seed as an argument"),
];

const UNFINISHED: &[(&str, &str)] = &[
    ("todo!", "write it"),
    ("unimplemented!", "write it"),
    ("#[ignore", "make the test pass everywhere, or remove it"),
];

/// The most lines that a file may have besides its tests.
const LONGEST: usize = 500;

/// Mentions in files that begin with one of `pure`, tests aside, of what is not pure.
pub(crate) fn impure(sources: &[Source], pure: &[&str]) -> Vec<String> {
    let mut problems = Vec::new();
    for start in pure {
        let files = || {
            sources
                .iter()
                .filter(|source| source.path().starts_with(start))
        };
        if files().next().is_none() {
            problems.push(format!(
                "integration-tests/tests/edges.rs: no file begins with `{start}`: correct PURE"
            ));
        }
        for source in files() {
            let code = source
                .mentions()
                .iter()
                .filter(|mention| mention.part == Part::Product);
            problems.extend(code.filter_map(|mention| found(source, mention, IMPURE)));
        }
    }
    problems
}

/// `unsafe` in files that are not in `expected`, without a reason beside it, or no longer there.
pub(crate) fn unexpected_unsafe(sources: &[Source], expected: &[(&str, &str)]) -> Vec<String> {
    let mut problems = Vec::new();
    for source in sources {
        let path = source.path();
        let listed = expected.iter().any(|(file, _)| *file == path);
        for mention in source.mentions() {
            let line = mention.line;
            if mention.is("unsafe") && !listed {
                problems.push(format!(
                    "{path}:{line}: unsafe: do without, or add the file and its reason to UNSAFE \
                     in integration-tests/tests/edges.rs"
                ));
            }
            if mention.is("unsafe {") && !source.comment_above(line).contains("SAFETY:") {
                problems.push(format!(
                    "{path}:{line}: unsafe without a reason: say `// SAFETY:` above why it is sound"
                ));
            }
        }
    }
    for (file, _) in expected {
        let says_unsafe = |source: &&Source| {
            source.path() == *file && source.mentions().iter().any(|mention| mention.is("unsafe"))
        };
        if !sources.iter().any(|source| says_unsafe(&source)) {
            problems.push(format!(
                "integration-tests/tests/edges.rs: {file} is not unsafe: take it out of UNSAFE"
            ));
        }
    }
    problems
}

/// Code that is not written yet, and tests that do not run; in tests as well.
pub(crate) fn unfinished(sources: &[Source]) -> Vec<String> {
    let mentions = sources.iter().flat_map(|source| {
        let mentions = source.mentions().iter();
        mentions.filter_map(move |mention| found(source, mention, UNFINISHED))
    });
    mentions.collect()
}

/// Skips that a test says by itself: the harness may hide them, and nobody can forbid them.
pub(crate) fn private_skips(sources: &[Source]) -> Vec<String> {
    let others = |source: &&Source| {
        let allowed = ["benches/", "testing/"];
        !allowed
            .iter()
            .any(|folder| source.path().starts_with(folder))
    };
    let lines = sources.iter().filter(others).flat_map(|source| {
        let lines = source.text().lines().zip(1..);
        lines.map(move |(text, line)| (source.path(), line, text))
    });
    lines
        .filter(|(.., text)| text.contains(concat!("(\"", "skipped: ")))
        .map(|(path, line, _)| {
            format!("{path}:{line}: a skip that may go unheard: say it by meshwork_testing::Need")
        })
        .collect()
}

/// Files that are too long, unless they are `generated`, or called `mod.rs`.
pub(crate) fn misshapen(sources: &[Source], generated: &[(&str, &str)]) -> Vec<String> {
    let mut problems = Vec::new();
    for source in sources {
        let (path, lines) = (source.path(), source.production_lines());
        if let Some(folder) = path.strip_suffix("/mod.rs") {
            problems.push(format!("{path}: rename it to {folder}.rs"));
        }
        let written = !generated.iter().any(|(file, _)| *file == path);
        if written && lines > LONGEST {
            problems.push(format!(
                "{path}: {lines} lines besides tests: split it, {LONGEST} are the most"
            ));
        }
    }
    problems
}

fn found(source: &Source, mention: &Mention, refused: &[(&str, &str)]) -> Option<String> {
    let (what, remedy) = refused.iter().find(|(what, _)| mention.is(what))?;
    Some(format!(
        "{}:{}: {what}: {remedy}",
        source.path(),
        mention.line
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source::new(path.to_owned(), text.to_owned()).unwrap()
    }

    #[track_caller]
    fn check(problems: &[String], expected: &[&str]) {
        let begin = problems.len() == expected.len()
            && problems
                .iter()
                .zip(expected)
                .all(|(problem, expected)| problem.starts_with(expected));
        assert!(begin, "{problems:#?} for {expected:#?}");
    }

    #[test]
    fn impure_code_is_found_in_pure_files_only() {
        for text in [
            "use tokio::sync;",
            "tokio::select! {}",
            "use std::{fmt, net::IpAddr};",
            "fn f() { std::thread::spawn(g); }",
            "use std::env;",
            "fn f() { let now = std::time::Instant::now(); }",
            "fn f() { vec![SystemTime::now()] }",
            "fn f() { rand::rng() }",
            "fn f() { rand::thread_rng() }",
        ] {
            let files = [
                source("layout/src/a.rs", text),
                source("cli/src/a.rs", text),
            ];
            check(&impure(&files, &["layout/src/"]), &["layout/src/a.rs:1: "]);
        }
        let harmless = "use std::time::Instant;\nfn f(now: Instant) { env!(\"A\"); thread(now) }\n\
                        #[cfg(test)]\nmod tests { use std::thread; }";
        check(
            &impure(&[source("layout/src/a.rs", harmless)], &["layout/src/"]),
            &[],
        );
    }

    #[test]
    fn a_pure_path_without_files_is_a_mistake() {
        let expected = ["integration-tests/tests/edges.rs: no file begins with `gone/`"];
        check(&impure(&[], &["gone/"]), &expected);
    }

    #[test]
    fn unsafe_is_refused_outside_the_list_and_without_its_reason() {
        let list = [("a/src/sys.rs", "why")];
        let sound = "fn f() {\n    // SAFETY: it is.\n    unsafe { g() }\n}";
        let bare = "fn f() {\n    unsafe { g() }\n}";
        check(
            &unexpected_unsafe(&[source("a/src/sys.rs", sound)], &list),
            &[],
        );
        let without = ["a/src/sys.rs:2: unsafe without a reason"];
        check(
            &unexpected_unsafe(&[source("a/src/sys.rs", bare)], &list),
            &without,
        );
        let outside = ["a/src/lib.rs:3: unsafe: do without"];
        check(
            &unexpected_unsafe(&[source("a/src/lib.rs", sound)], &[]),
            &outside,
        );
        let declared = source("a/tests/a.rs", "unsafe impl Send for A {}");
        check(
            &unexpected_unsafe(&[declared], &[]),
            &["a/tests/a.rs:1: unsafe: do without"],
        );
    }

    #[test]
    fn the_list_of_unsafe_files_does_not_outlive_them() {
        let safe = source("a/src/sys.rs", "#![forbid(unsafe_code)]");
        let expected = ["integration-tests/tests/edges.rs: a/src/sys.rs is not unsafe"];
        check(
            &unexpected_unsafe(&[safe], &[("a/src/sys.rs", "why")]),
            &expected,
        );
    }

    #[test]
    fn unfinished_code_is_found_in_tests_too() {
        let text = "fn f() { todo!() }\nfn g() { core::unimplemented!() }\n\
                    #[cfg(test)]\nmod tests { #[test]\n#[ignore]\nfn t() {} }";
        let expected = [
            "a/src/b.rs:1: todo!: ",
            "a/src/b.rs:2: unimplemented!: ",
            "a/src/b.rs:5: #[ignore: ",
        ];
        check(&unfinished(&[source("a/src/b.rs", text)]), &expected);
        check(
            &unfinished(&[source("a/src/b.rs", "fn f() { ignore(todo) }")]),
            &[],
        );
    }

    #[test]
    fn a_test_that_skips_by_itself_is_found() {
        let said = concat!("fn f() {\n println!(\"", "skipped: no GPU\");\n}");
        let expected = ["a/tests/b.rs:2: a skip that may go unheard"];
        check(&private_skips(&[source("a/tests/b.rs", said)]), &expected);
        check(&private_skips(&[source("benches/benches/b.rs", said)]), &[]);
    }

    #[test]
    fn long_files_and_mod_files_are_found() {
        let long = "\n".repeat(LONGEST + 1);
        let generated = [("a/src/c.rs", "by a program")];
        let misshapen = |path, text| misshapen(&[source(path, text)], &generated);
        check(&misshapen("a/src/b.rs", &long[1..]), &[]);
        check(&misshapen("a/src/b.rs", &long), &["a/src/b.rs: 501 lines"]);
        check(&misshapen("a/src/b/tests.rs", &long), &[]);
        check(&misshapen("a/src/c.rs", &long), &[]);
        check(
            &misshapen("a/src/b/mod.rs", ""),
            &["a/src/b/mod.rs: rename it to a/src/b.rs"],
        );
    }
}
