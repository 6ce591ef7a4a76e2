//! The words of the glossary: what they replace is in no identifier and no file name. And what
//! makes source readable: a file says what is in it, comments are no wider than a page, and
//! parameters have names.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::source::Source;

/// The document with the glossary.
const GLOSSARY: &str = "docs/book/src/glossary.md";
/// The heading above the table of words that are not used.
const HEADING: &str = "# Words that are not used";
/// Columns of the widest comment.
const WIDEST: usize = 100;
/// Lines from which on a file says what is in it.
const LONG: usize = 100;

/// A word that is not used in some folders, as the table has it.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Forbidden {
    word: String,
    instead: String,
    folders: Vec<String>,
}

/// The table: `| word | instead | folders |`.
pub(crate) fn forbidden(document: &str) -> Vec<Forbidden> {
    let table = document
        .lines()
        .skip_while(|line| *line != HEADING)
        .skip(1)
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .skip(2);
    let row = |line: &str| {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let mut cell = || cells.next().unwrap_or_default().to_owned();
        let (word, instead, folders) = (cell(), cell(), cell());
        let folders = folders.split(", ").map(|folder| folder.trim_matches('`'));
        Forbidden {
            word,
            instead,
            folders: folders.map(str::to_owned).collect(),
        }
    };
    table.map(row).collect()
}

/// Identifiers and file names with a word that is not used there.
pub(crate) fn old_words(sources: &[Source], forbidden: &[Forbidden]) -> Vec<String> {
    let mut problems = Vec::new();
    if forbidden.is_empty() {
        problems.push(format!("words.md: no table under {HEADING:?}"));
    }
    for source in sources {
        let mut names = BTreeSet::from([source.path().to_owned()]);
        identifiers(&tokens(source), &mut names);
        let words: BTreeMap<String, &String> = names
            .iter()
            .flat_map(|name| words(name).into_iter().map(move |word| (word, name)))
            .collect();
        let here = |row: &&Forbidden| {
            let begins = |folder: &String| source.path().starts_with(&format!("{folder}/"));
            row.folders.iter().any(begins)
        };
        for row in forbidden.iter().filter(here) {
            if let Some(name) = words.get(&row.word) {
                problems.push(format!(
                    "{}: `{name}`: say {} for {}, as {GLOSSARY} does",
                    source.path(),
                    row.instead,
                    row.word
                ));
            }
        }
    }
    problems
}

/// Comments that are wider than a page.
pub(crate) fn wide_comments(sources: &[Source]) -> Vec<String> {
    let lines = sources.iter().flat_map(|source| {
        let lines = source.text().lines().zip(1..);
        lines.map(move |(text, line)| (source.path(), line, text))
    });
    lines
        .filter(|(.., text)| text.trim_start().starts_with("//") && text.chars().count() > WIDEST)
        .filter(|(.., text)| !is_fixed(text))
        .map(|(path, line, text)| {
            let columns = text.chars().count();
            format!("{path}:{line}: a comment of {columns} columns: {WIDEST} are the most")
        })
        .collect()
}

/// Whether a line of a comment cannot be broken: of a table, a drawing or an example.
fn is_fixed(text: &str) -> bool {
    let text = text.trim_start().trim_start_matches(['/', '!']);
    let drawing = |character: char| ('\u{2190}'..='\u{257f}').contains(&character);
    text.starts_with(" |")
        || text.starts_with("   ")
        || text.contains(drawing)
        || text.ends_with([';', ',', '{'])
}

/// How many long files of each folder do not say what is in them, where it is another number than
/// what is `expected`: it may only become smaller.
pub(crate) fn silent_files(sources: &[Source], expected: &[(&str, usize)]) -> Vec<String> {
    let silent = |source: &&Source| {
        source.text().lines().count() > LONG
            && !source.text().lines().any(|line| line.starts_with("//!"))
    };
    let found = sources.iter().filter(silent).map(Source::path);
    ratchet(
        "files of more than 100 lines without `//!`",
        found,
        expected,
    )
}

/// Messages of errors that leave it open which of two things has happened: an "or" before the
/// remedy, which follows a colon or semicolon. Examples, behind "such as", may have one.
pub(crate) fn two_causes(sources: &[Source]) -> Vec<String> {
    let messages = sources.iter().flat_map(|source| {
        let begins = source.text().split("#[error(").skip(1);
        begins.filter_map(move |text| Some((source.path(), text.trim_start().strip_prefix('"')?)))
    });
    messages
        .filter_map(|(path, text)| {
            let message = text.split('"').next()?;
            let cause = message.split([':', ';']).next()?;
            let cause = cause.split("such as").next()?;
            let is_open = cause.split_whitespace().any(|word| word == "or");
            is_open
                .then(|| format!("{path}: {message:?} has two causes: give each its own variant"))
        })
        .collect()
}

/// The same for functions with parameters that are patterns of tuples.
pub(crate) fn tuple_parameters(sources: &[Source], expected: &[(&str, usize)]) -> Vec<String> {
    let found = sources.iter().flat_map(|source| {
        let count = tuple_patterns(&tokens(source));
        std::iter::repeat_n(source.path(), count)
    });
    ratchet("tuple patterns in parameters", found, expected)
}

/// Numbers by member that differ from those that are written down.
fn ratchet<'a>(
    what: &str,
    found: impl Iterator<Item = &'a str>,
    expected: &[(&str, usize)],
) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> =
        expected.iter().map(|(folder, _)| (*folder, 0)).collect();
    for path in found {
        *counts.entry(folder(path)).or_default() += 1;
    }
    let differ = counts.into_iter().filter_map(|(folder, count)| {
        let known = expected.iter().find(|(known, _)| *known == folder);
        let known = known.map_or(0, |(_, known)| *known);
        let say = |verdict: &str| {
            format!("{folder}: {count} {what}, {known} are written down: {verdict}")
        };
        match count.cmp(&known) {
            std::cmp::Ordering::Less => Some(say("write down the smaller number")),
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Greater => Some(say("mend the new ones")),
        }
    });
    differ.collect()
}

/// The first folder of a path.
fn folder(path: &str) -> &str {
    path.split('/').next().unwrap_or(path)
}

fn tokens(source: &Source) -> TokenStream {
    source.text().parse().expect("`Source` has parsed it")
}

fn identifiers(tokens: &TokenStream, names: &mut BTreeSet<String>) {
    for token in tokens.clone() {
        match token {
            TokenTree::Ident(name) => drop(names.insert(name.to_string())),
            TokenTree::Group(group) => identifiers(&group.stream(), names),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// The words of an identifier or path, in lower case: of `OneShot`, `one_shot` and `ONE_SHOT` the
/// same.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = '_';
    for character in name.chars() {
        if !character.is_alphanumeric() || (character.is_uppercase() && before.is_lowercase()) {
            words.push(String::new());
        }
        if character.is_alphanumeric() {
            words
                .last_mut()
                .expect("there is one")
                .extend(character.to_lowercase());
        }
        before = character;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// How many functions have a parameter that is a pattern of a tuple.
fn tuple_patterns(tokens: &TokenStream) -> usize {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let within = tokens.iter().map(|token| match token {
        TokenTree::Group(group) => tuple_patterns(&group.stream()),
        TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => 0,
    });
    let functions = tokens.iter().enumerate().filter(|(at, token)| {
        matches!(token, TokenTree::Ident(name) if name == "fn") && has_tuple(&tokens[at + 1..])
    });
    within.sum::<usize>() + functions.count()
}

/// Whether the parameters that come next have one that begins with a parenthesis.
fn has_tuple(after: &[TokenTree]) -> bool {
    let named = matches!(after, [TokenTree::Ident(_), ..]);
    let parameters = after.iter().find_map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => Some(group),
        _ => None,
    });
    let Some(parameters) = parameters.filter(|_| named) else {
        return false;
    };
    let tokens: Vec<TokenTree> = parameters.stream().into_iter().collect();
    let begins = |at: usize| match at.checked_sub(1).map(|before| &tokens[before]) {
        None => true,
        Some(TokenTree::Punct(punct)) => punct.as_char() == ',',
        Some(TokenTree::Group(_) | TokenTree::Ident(_) | TokenTree::Literal(_)) => false,
    };
    let is_pattern = |at: usize| {
        let group = matches!(&tokens[at], TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis);
        let colon =
            matches!(tokens.get(at + 1), Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
        group && colon && begins(at)
    };
    (0..tokens.len()).any(is_pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::new("layout/src/old_name.rs".to_owned(), text.to_owned()).unwrap()
    }

    #[test]
    fn old_words_are_found_in_every_kind_of_name_and_only_where_they_are_forbidden() {
        let table = format!(
            "{HEADING}\n\nWords.\n\n| word | instead | where |\n|---|---|---|\n| desk | channel | `layout`, `cli` |\n| old | new | `cli` |\n\n| desk |\n"
        );
        let rows = forbidden(&table);
        assert_eq!(rows.len(), 2);
        for text in [
            "struct OwnDesk;",
            "fn f() { g(my_desk) }",
            "const DESK: u8 = 1;",
        ] {
            assert_eq!(old_words(&[source(text)], &rows).len(), 1, "{text}");
        }
        let fine = [
            source("struct Desktop; // desk"),
            source("fn f() -> &str { \"desk\" }"),
        ];
        assert_eq!(old_words(&fine, &rows), [""; 0]);
        assert_eq!(old_words(&fine, &[]).len(), 1);
    }

    #[test]
    fn file_names_have_no_old_words() {
        let rows = [Forbidden {
            word: "old".to_owned(),
            instead: "new".to_owned(),
            folders: vec!["layout".to_owned()],
        }];
        assert_eq!(old_words(&[source("")], &rows).len(), 1);
    }

    #[test]
    fn tuples_count_in_parameters_and_nowhere_else() {
        let none = "fn f(a: (u8, u8), b: &dyn Fn((u8, u8))) { let (x, y) = a; call((x, y)); }";
        let one = "impl A { fn f<T>(&self, (a, b): (u8, T)) where T: Fn((u8, u8)) {} }";
        assert_eq!(tuple_patterns(&tokens(&source(none))), 0);
        assert_eq!(tuple_patterns(&tokens(&source(one))), 1);
        let sources = [source(one), source(one)];
        assert_eq!(tuple_parameters(&sources, &[("layout", 2)]), [""; 0]);
        assert_eq!(tuple_parameters(&sources, &[("layout", 1)]).len(), 1);
        assert_eq!(tuple_parameters(&sources, &[("layout", 3)]).len(), 1);
        assert_eq!(tuple_parameters(&[], &[("layout", 1)]).len(), 1);
    }

    #[test]
    fn an_or_before_the_remedy_is_found() {
        // Not as one literal, which would be found here.
        let found = |message: &str| {
            let text = ["#[error", "(\"", message, "\")]"].concat();
            two_causes(&[source(&text)]).len()
        };
        assert_eq!(found("{path} is missing or damaged: restore it"), 1);
        assert_eq!(found("{path} is missing: restore it or save anew"), 0);
        assert_eq!(found("it takes a number, such as 2 or 0.5"), 0);
    }

    #[test]
    fn long_files_without_a_head_and_wide_comments_are_found() {
        let long = "\n".repeat(LONG + 1);
        let said = format!("//! What is in it.\n{long}");
        assert_eq!(silent_files(&[source(&long)], &[]).len(), 1);
        assert_eq!(silent_files(&[source(&said), source("\n")], &[]), [""; 0]);
        let wide = format!("fn f() {{\n    // {}\n}}", "x".repeat(WIDEST));
        assert_eq!(wide_comments(&[source(&wide)]).len(), 1);
        assert_eq!(wide_comments(&[source("// narrow")]), [""; 0]);
    }
}
