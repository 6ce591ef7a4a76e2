//! One Rust file as the paths it mentions: what a search of the text would find, without what
//! stands in comments and literals, and with `use` groups written out.

use std::error::Error;

use proc_macro2::{Delimiter, Group, Spacing, TokenStream, TokenTree};

/// A file, and what its code mentions.
#[derive(Debug)]
pub(crate) struct Source {
    path: String,
    text: String,
    mentions: Vec<Mention>,
    test_lines: usize,
}

/// A path such as `std::net`, a macro such as `todo!`, an attribute such as `#[ignore`, or
/// `unsafe {`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Mention {
    pub(crate) what: String,
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) part: Part,
}

/// What is built into the product, or what proves it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Part {
    Product,
    Test,
}

impl Source {
    /// # Errors
    /// When the text is no Rust.
    pub(crate) fn new(path: String, text: String) -> Result<Self, Box<dyn Error>> {
        let tokens: TokenStream = text.parse().map_err(|error| format!("{path}: {error}"))?;
        let mut reader = Reader::default();
        reader.read(tokens, "", part_of_file(&path));
        Ok(Self {
            path,
            text,
            mentions: reader.mentions,
            test_lines: reader.test_lines,
        })
    }

    /// Relative to the root, with `/`.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn mentions(&self) -> &[Mention] {
        &self.mentions
    }

    /// Lines that are built into the product, comments and blank lines among them.
    pub(crate) fn production_lines(&self) -> usize {
        match part_of_file(&self.path) {
            Part::Product => self.text.lines().count() - self.test_lines,
            Part::Test => 0,
        }
    }

    /// The comment above the statement that this line, counted from 1, belongs to.
    pub(crate) fn comment_above(&self, line: usize) -> String {
        let above = self.text.lines().take(line.saturating_sub(1));
        let above: Vec<_> = above.map(str::trim).collect();
        let unfinished = |line: &&&str| !line.starts_with("//") && !line.ends_with([';', '{', '}']);
        let comment = above.iter().rev().skip_while(unfinished);
        let mut comment: Vec<_> = comment
            .take_while(|line| line.starts_with("//"))
            .copied()
            .collect();
        comment.reverse();
        comment.join("\n")
    }
}

impl Mention {
    /// Whether this is `path`, or reaches it: `std::time::Instant::now` is an `Instant::now`.
    pub(crate) fn is(&self, path: &str) -> bool {
        let before = self.what.strip_suffix(path);
        before.is_some_and(|before| before.is_empty() || before.ends_with("::"))
    }
}

/// Files of tests and benchmarks, which are in no product.
fn part_of_file(path: &str) -> Part {
    let mut names = path.split('/').skip(1);
    if names.any(|name| matches!(name, "tests" | "tests.rs" | "benches")) {
        Part::Test
    } else {
        Part::Product
    }
}

#[derive(Default)]
struct Reader {
    mentions: Vec<Mention>,
    test_lines: usize,
}

impl Reader {
    /// Reads tokens in which every path continues `base`: that of the `use` group around them.
    fn read(&mut self, tokens: TokenStream, base: &str, part: Part) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut rest = tokens.as_slice();
        let mut path = base.to_owned();
        while let [token, after @ ..] = rest {
            if part == Part::Product
                && let Some(item) = test_item(rest)
            {
                self.read_tests(item);
                rest = &rest[item.len()..];
                continue;
            }
            let line = token.span().start().line;
            let mut mention = |what: String| self.mentions.push(Mention { what, line, part });
            let before = &tokens[..tokens.len() - rest.len()];
            match token {
                TokenTree::Ident(name) => {
                    path = match (continues_path(before), base) {
                        (true, _) => format!("{path}::{name}"),
                        (false, "") => name.to_string(),
                        (false, base) => format!("{base}::{name}"),
                    };
                    mention(path.clone());
                    if is_macro(after) {
                        mention(format!("{path}!"));
                    }
                    if name == "unsafe" && matches!(after, [TokenTree::Group(_), ..]) {
                        mention("unsafe {".to_owned());
                    }
                    if let Some(fallback) = fallback(&name.to_string(), after) {
                        mention(fallback.to_owned());
                    }
                }
                TokenTree::Group(group) => {
                    if let Some(name) = attribute(before, group) {
                        mention(format!("#[{name}"));
                    }
                    let base = if continues_path(before) { &*path } else { "" };
                    self.read(group.stream(), base, part);
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
            rest = after;
        }
    }

    fn read_tests(&mut self, item: &[TokenTree]) {
        if let [first, .., last] = item {
            self.test_lines += 1 + last.span().end().line - first.span().start().line;
        }
        self.read(item.iter().cloned().collect(), "", Part::Test);
    }
}

/// The item that these tokens begin with, if it is there for tests only.
fn test_item(tokens: &[TokenTree]) -> Option<&[TokenTree]> {
    let [TokenTree::Punct(hash), TokenTree::Group(cfg), ..] = tokens else {
        return None;
    };
    if hash.as_char() != '#' || cfg.stream().to_string().replace(' ', "") != "cfg(test)" {
        return None;
    }
    let ends = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(punct) => punct.as_char() == ';',
        TokenTree::Ident(_) | TokenTree::Literal(_) => false,
    };
    let last = tokens.iter().position(ends);
    Some(last.map_or(tokens, |last| &tokens[..=last]))
}

/// Whether `::` stands before.
fn continues_path(before: &[TokenTree]) -> bool {
    let [.., TokenTree::Punct(first), TokenTree::Punct(second)] = before else {
        return false;
    };
    (first.as_char(), first.spacing(), second.as_char()) == (':', Spacing::Joint, ':')
}

/// Whether `!` and its arguments come next, which `!=` is not.
fn is_macro(after: &[TokenTree]) -> bool {
    matches!(after, [TokenTree::Punct(bang), TokenTree::Group(_), ..] if bang.as_char() == '!')
}

/// What is put in the place of a value that is not there, of an error that nobody reads, or of a
/// case that is not named.
fn fallback(name: &str, after: &[TokenTree]) -> Option<&'static str> {
    let inside = match after {
        [TokenTree::Group(group), ..] => group.stream().into_iter().collect(),
        _ => Vec::new(),
    };
    match name {
        "unwrap_or" if is_constant(&inside) => Some("unwrap_or(constant)"),
        "unwrap_or_default" => Some("unwrap_or_default()"),
        "unwrap_or_else" | "map_or_else" if plain(&inside).starts_with("|_|") => {
            Some("unwrap_or_else(|_| ..)")
        }
        "else" if matches!(&*plain(&inside), "returnOk(())" | "returnOk(());") => {
            Some("else { return Ok(()) }")
        }
        "_" if plain(after).starts_with("=>") => {
            let arm = after[2..].split(|token| plain(std::slice::from_ref(token)) == ",");
            let arm = arm.into_iter().next()?;
            let value = match arm {
                [TokenTree::Ident(name), value @ ..] if name == "return" => value,
                value => value,
            };
            (is_constant(value) || is_variant(value)).then_some("_ => constant")
        }
        _ => None,
    }
}

/// Whether this is a number, a truth value, or a constant.
fn is_constant(value: &[TokenTree]) -> bool {
    let is_shouted = |name: &str| {
        let mut letters = name.chars().filter(|letter| letter.is_alphabetic());
        name.len() > 1 && letters.all(char::is_uppercase)
    };
    match value {
        [TokenTree::Literal(literal)] => literal.to_string().starts_with(char::is_numeric),
        [TokenTree::Punct(minus), TokenTree::Literal(_)] => minus.as_char() == '-',
        [path @ .., TokenTree::Ident(name)] if path.is_empty() || continues_path(path) => {
            let name = name.to_string();
            matches!(&*name, "true" | "false") || is_shouted(&name)
        }
        _ => false,
    }
}

/// Whether this is `Ok(())`, or a variant without values, as `Sum` of `ReduceOp::Sum`.
fn is_variant(value: &[TokenTree]) -> bool {
    match value {
        [TokenTree::Ident(name), TokenTree::Group(_)] => name == "Ok" && plain(value) == "Ok(())",
        [path @ .., TokenTree::Ident(name)] => {
            continues_path(path) && name.to_string().starts_with(char::is_uppercase)
        }
        _ => false,
    }
}

/// As text without spaces.
fn plain(tokens: &[TokenTree]) -> String {
    let text: TokenStream = tokens.iter().cloned().collect();
    text.to_string().replace(' ', "")
}

/// The first name in a group that is an attribute.
fn attribute(before: &[TokenTree], group: &Group) -> Option<String> {
    let (inner, before) = match before {
        [rest @ .., TokenTree::Punct(bang)] if bang.as_char() == '!' => (true, rest),
        _ => (false, before),
    };
    let Some(TokenTree::Punct(hash)) = before.last() else {
        return None;
    };
    if hash.as_char() != '#' || group.delimiter() != Delimiter::Bracket {
        return None;
    }
    let name = group.stream().into_iter().next()?.to_string();
    Some(if inner { format!("!{name}") } else { name })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::new("layout/src/spec.rs".to_owned(), text.to_owned()).unwrap()
    }

    #[track_caller]
    fn check(text: &str, expected: &[(&str, usize, Part)]) {
        let found = source(text);
        for (what, line, part) in expected {
            let (what, line, part) = ((*what).to_owned(), *line, *part);
            let mention = Mention { what, line, part };
            assert!(
                found.mentions.contains(&mention),
                "{mention:?} in {:#?}",
                found.mentions
            );
        }
    }

    #[test]
    fn groups_of_uses_are_written_out() {
        let text = "use std::{net::{self, IpAddr}, thread as t};\nfn f() { a::b(); c }";
        let used = ["std::net", "std::net::IpAddr", "std::thread"];
        check(text, &used.map(|path| (path, 1, Part::Product)));
        check(text, &[("a::b", 2, Part::Product), ("c", 2, Part::Product)]);
        let mention = |what: &str| source(text).mentions.iter().any(|mention| mention.is(what));
        assert!(mention("IpAddr") && !mention("Addr") && !mention("std::c"));
    }

    #[test]
    fn comments_and_literals_mention_nothing() {
        let text = "//! tokio\n/// tokio\nconst A: &str = \"tokio\"; /* tokio */";
        assert!(
            source(text)
                .mentions
                .iter()
                .all(|mention| !mention.is("tokio"))
        );
    }

    #[test]
    fn macros_attributes_and_unsafe_blocks_are_mentioned() {
        let text = "#![forbid(unsafe_code)]\n#[ignore = \"slow\"]\nfn f() {\n todo!();\n if todo != 1 {}\n unsafe { g() }\n}";
        let expected = [
            ("#[!forbid", 1),
            ("#[ignore", 2),
            ("todo!", 4),
            ("unsafe {", 6),
        ];
        check(
            text,
            &expected.map(|(what, line)| (what, line, Part::Product)),
        );
        let todos = source(text)
            .mentions
            .iter()
            .filter(|mention| mention.is("todo!"))
            .count();
        assert_eq!(todos, 1);
    }

    #[test]
    fn what_stands_in_for_something_else_is_mentioned() {
        let text = "fn f() {\n a.unwrap_or(0);\n a.unwrap_or(u64::MAX);\n a.unwrap_or_default();\n \
                    a.unwrap_or_else(|_| b());\n let Some(a) = b else {\n return Ok(());\n };\n \
                    match a {\n 1 => a,\n _ => ReduceOp::Sum,\n }\n}";
        let expected = [
            ("unwrap_or(constant)", 2),
            ("unwrap_or(constant)", 3),
            ("unwrap_or_default()", 4),
            ("unwrap_or_else(|_| ..)", 5),
            ("else { return Ok(()) }", 6),
            ("_ => constant", 11),
        ];
        check(
            text,
            &expected.map(|(what, line)| (what, line, Part::Product)),
        );
        let harmless = "fn f() {\n a.unwrap_or(b);\n a.unwrap_or_else(|e| panic!());\n \
                        let Some(a) = b else {\n return Err(c);\n };\n \
                        match a {\n _ => Err(c),\n _ => None,\n _ if a => 0,\n _ => b.c(),\n _ => d = false,\n }\n}";
        let found = source(harmless);
        let forms = ["(constant)", "()", "..)", "return Ok(()) }", "=> constant"];
        let is_form = |mention: &Mention| forms.iter().any(|end| mention.what.ends_with(end));
        assert!(!found.mentions.iter().any(is_form), "{:#?}", found.mentions);
    }

    #[test]
    fn items_for_tests_are_told_apart_and_their_lines_do_not_count() {
        let text =
            "use a;\n#[cfg(test)]\nmod tests;\nuse b;\n#[cfg(test)]\nmod more {\n use c;\n}\n";
        let expected = [
            ("a", 1, Part::Product),
            ("b", 4, Part::Product),
            ("c", 7, Part::Test),
        ];
        check(text, &expected);
        assert_eq!(source(text).production_lines(), 2);
        let whole = Source::new("cli/tests/run.rs".to_owned(), text.to_owned()).unwrap();
        assert_eq!(whole.production_lines(), 0);
        assert!(
            whole
                .mentions
                .iter()
                .all(|mention| mention.part == Part::Test)
        );
    }

    #[test]
    fn the_comment_above_is_that_of_the_statement() {
        let text =
            "// SAFETY: no.\nf();\n// SAFETY: first,\n// second.\nlet x =\n    unsafe { g() };\n";
        assert_eq!(
            source(text).comment_above(6),
            "// SAFETY: first,\n// second."
        );
        assert_eq!(source(text).comment_above(3), "");
        assert_eq!(source(text).comment_above(1), "");
    }

    #[test]
    fn what_is_no_rust_is_refused_by_name() {
        let refused = Source::new("a/b.rs".to_owned(), "fn (".to_owned()).unwrap_err();
        assert!(refused.to_string().starts_with("a/b.rs: "));
    }
}
