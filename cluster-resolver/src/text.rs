//! Pieces of messages: what a user wrote appears on one line and at a readable length.

use std::fmt::{self, Display, Write as _};

/// Text with invisible characters escaped, cut after [`LONGEST`] characters.
pub(crate) struct Shortened<'a>(pub(crate) &'a str);

impl Display for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_shortened(f, self.0, LONGEST)
    }
}

/// [`Shortened`] at a length that leaves room for the end of a URL, which says what was asked for.
pub(crate) struct ShortenedUrl<'a>(pub(crate) &'a str);

impl Display for ShortenedUrl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_shortened(f, self.0, LONGEST_URL)
    }
}

fn write_shortened(f: &mut fmt::Formatter<'_>, text: &str, longest: usize) -> fmt::Result {
    for (position, character) in text.chars().enumerate() {
        if position == longest {
            return f.write_char('…');
        }
        if is_invisible(character) {
            write!(f, "{}", character.escape_default())?;
        } else {
            f.write_char(character)?;
        }
    }
    Ok(())
}

/// [`Shortened`] text between double quotes.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", Shortened(self.0))
    }
}

/// The jobs of a cluster: `no jobs`, `the job worker`, `the jobs chief, worker`.
pub(crate) struct Jobs<'a>(pub(crate) &'a [String]);

impl Display for Jobs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => f.write_str("no jobs"),
            [only] => write!(f, "the job {}", Shortened(only)),
            several => {
                f.write_str("the jobs ")?;
                write_list(f, several.iter().map(|job| Shortened(job)))
            }
        }
    }
}

/// The tasks of one job: `no worker tasks`, `1 worker (0)`, `4 workers (0..=3)`, `2 ps tasks (0,
/// 5)`.
pub(crate) struct TasksOf<'a> {
    pub(crate) job: &'a str,
    /// Ascending and distinct.
    pub(crate) indices: &'a [u32],
}

impl Display for TasksOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let job = Shortened(self.job);
        match self.indices {
            [] => write!(f, "no {job} tasks"),
            [only] if self.job == "worker" => write!(f, "1 worker ({only})"),
            [only] => write!(f, "1 {job} task ({only})"),
            [first, .., last] => {
                let count = self.indices.len();
                let noun = if self.job == "worker" { "s" } else { " tasks" };
                write!(f, "{count} {job}{noun} (")?;
                if usize::try_from(last - first) == Ok(count - 1) {
                    write!(f, "{first}..={last}")?;
                } else {
                    write_list(f, self.indices.iter())?;
                }
                f.write_char(')')
            }
        }
    }
}

pub(crate) fn write_list(
    f: &mut fmt::Formatter<'_>,
    items: impl ExactSizeIterator<Item = impl Display>,
) -> fmt::Result {
    let unseen = items.len().saturating_sub(MOST_ITEMS);
    for (position, item) in items.take(MOST_ITEMS).enumerate() {
        let separator = if position == 0 { "" } else { ", " };
        write!(f, "{separator}{item}")?;
    }
    if unseen > 0 {
        write!(f, " and {unseen} more")?;
    }
    Ok(())
}

/// Characters that break a line, reorder it or leave no trace in it.
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
        )
}

/// Characters of user text shown in a message.
const LONGEST: usize = 60;
const LONGEST_URL: usize = 240;

/// Items of a list shown in a message.
const MOST_ITEMS: usize = 8;

/// The URL without user name, password and query, any of which may be secret.
pub(crate) fn url_without_secrets(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_tasks(job: &str, indices: &[u32], expected: &str) {
        assert_eq!(TasksOf { job, indices }.to_string(), expected);
    }

    #[test]
    fn tasks_read_as_a_count_and_a_range_or_a_list() {
        check_tasks("worker", &[], "no worker tasks");
        check_tasks("worker", &[0], "1 worker (0)");
        check_tasks("worker", &[0, 1, 2, 3], "4 workers (0..=3)");
        check_tasks("ps", &[2, 5], "2 ps tasks (2, 5)");
        check_tasks("ps", &[7], "1 ps task (7)");
    }

    #[test]
    fn a_long_list_says_how_much_it_leaves_out() {
        let indices: Vec<u32> = (0..20).step_by(2).collect();
        check_tasks(
            "worker",
            &indices,
            "10 workers (0, 2, 4, 6, 8, 10, 12, 14 and 2 more)",
        );
    }

    #[test]
    fn user_text_stays_on_one_line_and_short() {
        assert_eq!(Quoted("a\nb\u{202e}").to_string(), r#""a\nb\u{202e}""#);
        assert_eq!(Shortened(&"é".repeat(61)).to_string(), "é".repeat(60) + "…");
        assert_eq!(Shortened(&"é".repeat(60)).to_string(), "é".repeat(60));
    }

    #[test]
    fn a_url_is_shown_without_user_password_and_query() {
        let check = |url: &str, shown: &str| assert_eq!(url_without_secrets(url), shown);
        check("https://me:pass@host:1/a@b?key=c#d", "https://host:1/a@b");
        check("http://host/x", "http://host/x");
        check("http://a@b@host", "http://host");
        check("http://u:p@host?key=c", "http://host");
        check("no url", "no url");
    }
}
