//! One name, one idea: no two crates show their users different types of one name, as a program
//! that uses both would have to rename one of them.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::source::Source;

/// A name that several crates may have, and why.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared {
    pub(crate) name: &'static str,
    pub(crate) why: &'static str,
}

/// Names at the roots of several crates that are not `shared`, and `shared` ones that are not.
pub(crate) fn twins(sources: &[Source], shared: &[Shared]) -> Vec<String> {
    let mut crates: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for source in sources {
        let folder = source.path().strip_suffix("/src/lib.rs");
        let is_library = |folder: &&str| !folder.starts_with("examples/");
        if let Some(folder) = folder.filter(is_library) {
            for name in shown(source) {
                crates.entry(name).or_default().insert(folder);
            }
        }
    }
    crates.retain(|_, folders| folders.len() > 1);
    let allowed = |name: &str| shared.iter().any(|shared| shared.name == name);
    let mut problems: Vec<String> = crates
        .iter()
        .filter(|(name, _)| !allowed(name))
        .map(|(name, folders)| {
            format!("`{name}` is a type of each of {folders:?}: rename all but one")
        })
        .collect();
    let unused = shared
        .iter()
        .filter(|shared| !crates.contains_key(shared.name));
    problems.extend(
        unused.map(|shared| format!("`{}` need not be shared: {}", shared.name, shared.why)),
    );
    problems
}

/// The types of its own modules that a crate shows at its root.
fn shown(source: &Source) -> BTreeSet<String> {
    let code = source
        .text()
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let code: Vec<&str> = code.collect();
    let tokens: TokenStream = code.join("\n").parse().expect("it was read before");
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let modules: BTreeSet<String> = after(&tokens, "mod").collect();
    let mut names: BTreeSet<String> = ["struct", "enum", "trait"]
        .iter()
        .flat_map(|kind| after(&tokens, kind))
        .collect();
    for (at, token) in tokens.iter().enumerate() {
        let is_use = token.to_string() == "use" && at > 0 && tokens[at - 1].to_string() == "pub";
        let path = tokens
            .get(at + 1)
            .map(ToString::to_string)
            .unwrap_or_default();
        if is_use && modules.contains(&path) {
            let ends = |token: &&TokenTree| token.to_string() != ";";
            collect(
                tokens[at + 2..].iter().take_while(ends).cloned().collect(),
                &mut names,
            );
        }
    }
    names
}

/// The identifiers that follow a word.
fn after<'a>(tokens: &'a [TokenTree], word: &'a str) -> impl Iterator<Item = String> + 'a {
    let pairs = tokens.windows(2);
    let found = pairs.filter(move |pair| pair[0].to_string() == word);
    found.map(|pair| pair[1].to_string())
}

/// The names of types in the rest of a `use`, as it renames them.
fn collect(tokens: TokenStream, names: &mut BTreeSet<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                collect(group.stream(), names);
            }
            TokenTree::Ident(name) => {
                let renamed = tokens
                    .get(at + 1)
                    .is_some_and(|next| next.to_string() == "as");
                let name = name.to_string();
                let is_type =
                    name.starts_with(char::is_uppercase) && name.chars().any(char::is_lowercase);
                if is_type && !renamed {
                    names.insert(name);
                }
            }
            TokenTree::Group(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

#[test]
fn types_of_own_modules_are_seen_and_those_of_others_are_not() {
    let text = "mod a;\nmod b;\npub use a::{One, two, b::Three as Third, LIMIT};\n\
                pub use b::Four;\npub use other::Five;\nuse a::Six;\npub struct Seven;\n// pub use a::Eight;";
    let source = Source::new("x/src/lib.rs".to_owned(), text.to_owned()).unwrap();
    let names = ["Four", "One", "Seven", "Third"].map(str::to_owned);
    assert_eq!(shown(&source), BTreeSet::from(names));
}

#[test]
fn a_name_of_two_crates_is_a_problem_unless_it_is_shared() {
    let at = |folder: &str| {
        let text = "mod a;\npub use a::One;".to_owned();
        Source::new(format!("{folder}/src/lib.rs"), text).unwrap()
    };
    let (both, alone) = ([at("x"), at("y")], [at("x")]);
    let shared = [Shared {
        name: "One",
        why: "for this test",
    }];
    assert_eq!(
        (twins(&both, &[]).len(), twins(&both, &shared).len()),
        (1, 0)
    );
    assert_eq!(
        (twins(&alone, &[]).len(), twins(&alone, &shared).len()),
        (0, 1)
    );
}
