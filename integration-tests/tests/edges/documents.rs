//! Documents: decisions have one form and stand in the index, and links lead somewhere.

use std::collections::BTreeMap;

/// Where the decisions are.
const DECISIONS: &str = "docs/decisions/";
/// The document that lists them.
const INDEX: &str = "ARCHITECTURE.md";
/// The parts of a decision.
const HEADINGS: [&str; 3] = ["## Context", "## Decision", "## Consequences"];
/// The most words that a decision may have.
const LONGEST: usize = 400;
/// The most words that the index and what stands around it may have.
const LONGEST_INDEX: usize = 3_000;
/// Decisions that there are at least: an empty folder is no proof.
const LEAST: usize = 50;

/// Documents by path, with their text.
type Documents = BTreeMap<String, String>;

/// Decisions without the right name, headings or length, or without a line in the index.
pub(crate) fn decision_problems(documents: &Documents) -> Vec<String> {
    let index = documents.get(INDEX).map_or("", String::as_str);
    let listed: Vec<String> = targets(INDEX, index).collect();
    let decisions = || {
        let all = documents.iter();
        all.filter(|(path, _)| path.starts_with(DECISIONS))
    };
    let mut problems: Vec<String> = decisions()
        .flat_map(|(path, text)| decision_problem(path, text, &listed))
        .collect();
    let words = index.split_whitespace().count();
    if words > LONGEST_INDEX {
        problems.push(format!(
            "{INDEX} has {words} words, {LONGEST_INDEX} are the most: what is for users is in the book"
        ));
    }
    if decisions().count() < LEAST {
        problems.push(format!(
            "{DECISIONS} has fewer than {LEAST} decisions: find them, or correct LEAST"
        ));
    }
    problems
}

fn decision_problem(path: &str, text: &str, listed: &[String]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut say = |problem: String| problems.push(format!("{path}: {problem}"));
    let number = path[DECISIONS.len()..]
        .split('-')
        .next()
        .unwrap_or_default();
    if !(2..=3).contains(&number.len()) || !number.chars().all(|c| c.is_ascii_digit()) {
        say("rename it to NN-topic.md".to_owned());
    }
    if !text.starts_with("# ") {
        say("begin with a title, `# …`".to_owned());
    }
    let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("##")).collect();
    if headings != HEADINGS {
        say(format!("has the headings {headings:?}, not {HEADINGS:?}"));
    }
    let words = text.split_whitespace().count();
    if words > LONGEST {
        say(format!(
            "has {words} words, {LONGEST} are the most: split it"
        ));
    }
    if !listed.iter().any(|listed| listed == path) {
        say(format!("add a link to it to the decisions in {INDEX}"));
    }
    problems
}

/// Links to files that are not there, or to headings that a document does not have.
pub(crate) fn dead_links(documents: &Documents, is_there: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in documents {
        for (line, link) in links(text).filter(|(_, link)| is_local(link)) {
            let (_, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = resolved(path, link);
            let heading = |text: &String| headings(text).any(|heading| heading == anchor);
            if !is_there(&target) {
                problems.push(format!("{path}:{line}: {target} is not there"));
            } else if !anchor.is_empty() && !documents.get(&target).is_some_and(heading) {
                problems.push(format!("{path}:{line}: {target} has no heading #{anchor}"));
            }
        }
    }
    problems
}

/// The paths from the root of what the local links of a document lead to.
pub(crate) fn targets(path: &str, text: &str) -> impl Iterator<Item = String> {
    let local = links(text).filter(|(_, link)| is_local(link));
    local.map(move |(_, link)| resolved(path, link))
}

/// Whether a link leads to a file: not to another site, nor to an item of Rust.
fn is_local(link: &str) -> bool {
    !link.contains("://") && !link.contains("::")
}

/// The path from the root of what a link in the document at `path` leads to.
fn resolved(path: &str, link: &str) -> String {
    let (file, _) = link.split_once('#').unwrap_or((link, ""));
    if file.is_empty() {
        return path.to_owned();
    }
    let mut names: Vec<&str> = path.split('/').collect();
    names.pop();
    for name in file
        .split('/')
        .filter(|name| !name.is_empty() && *name != ".")
    {
        match name {
            // Beyond the root nothing is ours: the name stays, and is not found.
            ".." if names.last().is_some_and(|last| *last != "..") => drop(names.pop()),
            name => names.push(name),
        }
    }
    names.join("/")
}

/// The targets of links outside code, by line.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).flat_map(|(line, text)| {
        let outside = text.split('`').step_by(2);
        // A link whose text is code is cut there: what follows still begins with `](`.
        let targets = outside.flat_map(|text| text.split("](").skip(1));
        targets.map(move |rest| (line, rest.split(')').next().unwrap_or_default()))
    })
}

/// The names by which links call the headings of a document.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let titles = prose(text).filter(|(_, line)| line.starts_with('#'));
    titles.map(|(_, line)| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        title
            .chars()
            .filter(kept)
            .collect::<String>()
            .replace(' ', "-")
    })
}

/// The lines outside blocks of code, by number.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().zip(1..).filter_map(move |(text, line)| {
        let fence = text.trim_start().starts_with("```");
        in_code ^= fence;
        (!fence && !in_code).then_some((line, text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents(all: &[(&str, &str)]) -> Documents {
        let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        all.iter().map(owned).collect()
    }

    #[track_caller]
    fn check(problems: &[String], expected: &[&str]) {
        let all = problems.len() == expected.len()
            && problems
                .iter()
                .zip(expected)
                .all(|(problem, expected)| problem.contains(expected));
        assert!(all, "{problems:#?} for {expected:#?}");
    }

    #[test]
    fn a_decision_has_a_number_a_title_three_headings_few_words_and_a_link() {
        let right = "# A\n\n## Context\na\n\n## Decision\nb\n\n## Consequences\nc\n";
        let path = "docs/decisions/07-a.md";
        let listed = [path.to_owned(), "docs/decisions/a.md".to_owned()];
        check(&decision_problem(path, right, &listed), &[]);
        check(&decision_problem(path, right, &[]), &["add a link"]);
        check(
            &decision_problem("docs/decisions/a.md", right, &listed),
            &["rename it"],
        );
        check(
            &decision_problem(path, &right[2..], &listed),
            &["begin with a title"],
        );
        let without = right.replace("## Decision\n", "");
        check(
            &decision_problem(path, &without, &listed),
            &["has the headings"],
        );
        let long = right.to_owned() + &"word ".repeat(LONGEST);
        check(&decision_problem(path, &long, &listed), &["words, 400"]);
    }

    #[test]
    fn decisions_that_are_nowhere_are_a_mistake() {
        check(&decision_problems(&Documents::new()), &["has fewer than"]);
    }

    #[test]
    fn links_lead_to_files_folders_and_headings() {
        let all = documents(&[
            (
                "a.md",
                "# One `two`\n[x](#one-two) [y](#three)\n[`c`](d/b.md#e)",
            ),
            (
                "d/b.md",
                "# E\n[up](../a.md) [gone](c.md) [web](https://a.b/c) [T](crate::T)\n",
            ),
            (
                "e.md",
                "`[x](code)`\n```\n[x](code)\n```\n[out](../../x.md) [d](d)",
            ),
        ]);
        let is_there = |path: &str| path == "d" || all.contains_key(path);
        check(
            &dead_links(&all, &is_there),
            &[
                "a.md:2: a.md has no heading #three",
                "d/b.md:2: d/c.md is not there",
                "e.md:5: ../../x.md is not there",
            ],
        );
    }
}
