//! Names that the guides tell people to use, held against the source.

use crate::source::{Part, Source};

/// Names of others, which guides use beside ours: of HTTP, of a shell, of burn, of files.
const FOREIGN: &[&str] = &[
    "Authorization",
    "Bearer",
    "Hn",
    "exp_avg",
    "exp_avg_sq",
    "gradient_checkpointing",
];

/// Names in `guide` that no product has.
pub(crate) fn unknown_names(sources: &[Source], file: &str, guide: &str) -> Vec<String> {
    let is_there = |name: &str| {
        let mut mentions = sources.iter().flat_map(Source::mentions);
        FOREIGN.contains(&name)
            || mentions.any(|mention| mention.part == Part::Product && mention.is(name))
    };
    let unknown = names(guide).filter(|(_, name)| !is_there(name));
    unknown
        .map(|(line, name)| format!("{file}:{line}: `{name}` is nowhere in the source"))
        .collect()
}

/// Names of types and functions in code of a guide, by line; what stands in the first column of a
/// table is another library's, and a line that is code as a whole is the text of an error.
fn names(guide: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_fence = |text: &str| text.starts_with("```");
    let is_text = |text: &str| text.starts_with('`') && text.ends_with('`');
    let lines = guide.lines().zip(1..);
    let lines = lines.filter(move |(text, _)| !is_fence(text) && !is_text(text));
    lines.flat_map(|(text, line)| {
        let own = match text.strip_prefix("| ") {
            Some(row) => row.split_once(" | ").map_or("", |(_, own)| own),
            None => text,
        };
        let code = own.split('`').skip(1).step_by(2);
        let words = code.flat_map(|code| code.split(|c: char| !c.is_alphanumeric() && c != '_'));
        words
            .filter(|word| is_name(word))
            .map(move |word| (line, word))
    })
}

/// Two words or a type; a single word in small letters may be English, and large ones a variable.
fn is_name(word: &str) -> bool {
    let small = word.contains(|c: char| c.is_lowercase());
    small && (word.trim_matches('_').contains('_') || word.starts_with(char::is_uppercase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_code_outside_the_first_column() {
        let guide = "# A `Guide`\n\n| `tf.run_it` | `group.all_reduce(&Layout)`, TF_CONFIG |\n\
                     Say `with_pair` or `sum`.\n| `float_32` | `TF_CONFIG` |\n\
                     ```rust,no_run\n```\n`The Text of an error`";
        let found: Vec<_> = names(guide).collect();
        let expected = [
            (1, "Guide"),
            (3, "all_reduce"),
            (3, "Layout"),
            (4, "with_pair"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_name_that_is_only_in_tests_is_unknown() {
        let source = |path: &str| {
            Source::new(path.to_owned(), "fn with_pair() {}".to_owned()).expect("it is Rust")
        };
        let guide = "Say `with_pair`.";
        assert!(unknown_names(&[source("a/src/b.rs")], "g.md", guide).is_empty());
        assert_eq!(
            unknown_names(&[source("a/tests/b.rs")], "g.md", guide),
            ["g.md:1: `with_pair` is nowhere in the source"]
        );
    }
}
