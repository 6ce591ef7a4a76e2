//! The book has an entry for every text of the libraries' public errors, and for no other.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::source::Source;

/// Where the entries are: a page for each crate.
const PAGES: &str = "docs/book/src/errors/";
/// Folders without a library that others use; the simulator is only built for tests.
const NO_LIBRARY: &[&str] = &[
    "benches/",
    "collectives/src/sim",
    "examples/",
    "integration-tests/",
    "testing/",
];
/// Entries that there are at least: an empty page is no proof.
const LEAST: usize = 400;
/// What stands for a value, in entries.
const VALUE: char = '…';

/// One text of an error: its page, its type, and itself.
type Text = (String, String, String);

/// Texts without an entry, and entries without a text or an explanation.
pub(crate) fn problems(sources: &[Source], pages: &BTreeMap<String, String>) -> Vec<String> {
    let mut problems = Vec::new();
    let written: BTreeSet<Text> = sources.iter().flat_map(texts).collect();
    let mut explained = BTreeSet::new();
    for (path, page) in pages.iter().filter(|(path, _)| path.starts_with(PAGES)) {
        for entry in entries(path, page) {
            if entry.explanation.is_empty() {
                problems.push(format!("{path}: explain `{}`", entry.text.2));
            }
            explained.insert(entry.text);
        }
    }
    for (page, name, text) in written.difference(&explained) {
        problems.push(format!(
            "{page}: write an entry under `{name}` for `{text}`"
        ));
    }
    for (page, name, text) in explained.difference(&written) {
        problems.push(format!("{page}: no error of `{name}` says `{text}`"));
    }
    if explained.len() < LEAST {
        problems.push(format!("{PAGES} has only {} entries", explained.len()));
    }
    problems
}

struct Entry<'a> {
    text: Text,
    explanation: &'a str,
}

/// The entries of a page: a text as code, and under it a line that begins with a colon.
fn entries<'a>(path: &'a str, page: &'a str) -> impl Iterator<Item = Entry<'a>> {
    let mut name = "";
    let mut lines = page.lines().peekable();
    std::iter::from_fn(move || {
        while let Some(line) = lines.next() {
            if let Some(heading) = line.strip_prefix("## ") {
                name = heading.trim_matches('`');
            }
            let code = line
                .strip_prefix('`')
                .and_then(|line| line.strip_suffix('`'));
            if let Some(code) = code {
                let below = lines.peek().and_then(|line| line.strip_prefix(": "));
                return Some(Entry {
                    text: (path.to_owned(), name.to_owned(), code.to_owned()),
                    explanation: below.map_or("", str::trim),
                });
            }
        }
        None
    })
}

/// The texts of the public errors in a file of a library.
fn texts(source: &Source) -> Vec<Text> {
    let Some(folder) = library(source.path()) else {
        return Vec::new();
    };
    let page = folder.rsplit_once('/').map_or(folder, |(_, name)| name);
    let tokens = source.text().parse().expect("`Source` has parsed it");
    let errors = public_errors(tokens).into_iter();
    errors
        .map(|(name, text)| (format!("{PAGES}{page}.md"), name, text))
        .collect()
}

/// The folder of the library that a file belongs to.
pub(crate) fn library(path: &str) -> Option<&str> {
    let (folder, _) = path.split_once("/src/")?;
    let mut others = NO_LIBRARY.iter();
    (!others.any(|start| path.starts_with(start))).then_some(folder)
}

/// Types and texts of the public errors among these items.
fn public_errors(tokens: TokenStream) -> Vec<(String, String)> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let (TokenTree::Ident(kind), Some(TokenTree::Ident(name))) = (token, tokens.get(at + 1))
        else {
            continue;
        };
        let Some(public) = at.checked_sub(1).filter(|at| is(&tokens[*at], "pub")) else {
            continue;
        };
        let texts = match &*kind.to_string() {
            "enum" => tokens[at..].iter().find_map(body).map_or(vec![], messages),
            "struct" => last_message(&tokens[..public]).into_iter().collect(),
            _ => Vec::new(),
        };
        found.extend(texts.into_iter().map(|text| (name.to_string(), text)));
    }
    found
}

fn is(token: &TokenTree, name: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == name)
}

fn body(token: &TokenTree) -> Option<&Group> {
    match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group),
        _ => None,
    }
}

/// The texts of all variants.
fn messages(variants: &Group) -> Vec<String> {
    let tokens = variants.stream().into_iter();
    tokens.filter_map(|token| message(&token)).collect()
}

/// The text that the attributes at the end give the item which follows.
fn last_message(before: &[TokenTree]) -> Option<String> {
    let attributes = before
        .rchunks_exact(2)
        .take_while(|pair| matches!(&pair[0], TokenTree::Punct(hash) if hash.as_char() == '#'));
    attributes.map(|pair| &pair[1]).find_map(message)
}

/// The text of an attribute `[error("…")]`, in which values are left out.
fn message(attribute: &TokenTree) -> Option<String> {
    let TokenTree::Group(attribute) = attribute else {
        return None;
    };
    let tokens: Vec<TokenTree> = attribute.stream().into_iter().collect();
    let [name, TokenTree::Group(arguments)] = &*tokens else {
        return None;
    };
    match arguments.stream().into_iter().next() {
        Some(TokenTree::Literal(text)) if is(name, "error") => Some(shown(&text.to_string())),
        _ => None,
    }
}

/// What a literal of a format says, with [`VALUE`] for each value.
fn shown(literal: &str) -> String {
    let mut shown = String::new();
    let inner = literal
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let mut letters = inner.unwrap_or(literal).chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some('\n') => while letters.next_if(|next| next.is_whitespace()).is_some() {},
                escaped => shown.extend(escaped),
            },
            '{' => {
                let _value: Vec<char> = letters.by_ref().take_while(|next| *next != '}').collect();
                shown.push(VALUE);
            }
            letter => shown.push(letter),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
        /// Public.
        #[derive(Debug)]
        #[error("{what} failed")]
        pub struct System { what: u8 }
        pub enum Error {
            #[error("{a:.1?} of {}, \
                     \"so\": \"{b}\"", a)]
            First { a: u8 },
            #[error(transparent)]
            Second(System),
        }
        pub(crate) enum Hidden { #[error("hidden")] Own }
    "#;

    fn problems_of(page: &str) -> Vec<String> {
        let source = Source::new("a/b/src/c.rs".to_owned(), SOURCE.to_owned()).unwrap();
        let pages = BTreeMap::from([(format!("{PAGES}b.md"), page.to_owned())]);
        let mut problems = problems(&[source], &pages);
        problems.pop().expect("few entries are a mistake");
        problems
    }

    #[test]
    fn public_texts_have_entries_and_no_other_text_has() {
        let page =
            "## `System`\n\n`… failed`\n: Why.\n\n## `Error`\n\n`… of …, \"so\": \"…\"`\n: How.\n";
        assert_eq!(problems_of(page), [""; 0]);
        let unexplained = problems_of(&page.replace(": Why.", ""));
        assert!(
            unexplained[0].contains("explain `… failed`"),
            "{unexplained:?}"
        );
        let renamed = problems_of(&page.replace("failed", "broke"));
        assert!(
            renamed[0].contains("write an entry under `System`"),
            "{renamed:?}"
        );
        assert!(renamed[1].contains("no error of `System`"), "{renamed:?}");
    }

    #[test]
    fn programs_and_files_outside_of_a_library_have_no_entries() {
        for path in ["benches/src/a.rs", "layout/tests/a.rs"] {
            let source = Source::new(path.to_owned(), SOURCE.to_owned()).unwrap();
            assert_eq!(texts(&source), [], "{path}");
        }
    }
}
