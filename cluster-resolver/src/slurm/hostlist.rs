//! Host lists as Slurm writes them: `n[1-3,7],login`.

use super::counts::digits;
use crate::error::{HostListProblem, LONGEST_RANGE, MOST_HOSTS};

/// The hosts of a list, in the order in which `scontrol show hostnames` prints them.
///
/// Hosts are separated by commas or blanks. Each may hold bracketed lists of numbers and ranges; it
/// stands for one host for each choice of numbers. The width of the left end of a range is the
/// least width of all its numbers: `n[08-10]` is `n08`, `n09`, `n10`. Repeated hosts are kept.
///
/// Of several brackets the last varies fastest, then the first, then the second, and so on.
/// Refused is what Slurm refuses (text after the last bracket, empty, descending or huge ranges),
/// and what it takes but nobody can mean: brackets without their counterpart, blanks and signs in
/// brackets, `[1-]`, numbers that do not fit 64 bits or have more than 255 digits.
///
/// ```
/// use meshwork_cluster_resolver::slurm::hosts;
///
/// assert_eq!(hosts("n[08-10],login")?, ["n08", "n09", "n10", "login"]);
/// # Ok::<(), meshwork_cluster_resolver::slurm::HostListProblem>(())
/// ```
///
/// # Errors
/// [`HostListProblem`], which names the part of the list.
pub fn hosts(list: &str) -> Result<Vec<String>, HostListProblem> {
    let mut hosts = Vec::new();
    for item in items(list)? {
        expand(item, &mut hosts)?;
    }
    Ok(hosts)
}

/// The parts between separators that stand outside of brackets; empty ones are left out.
fn items(list: &str) -> Result<Vec<&str>, HostListProblem> {
    let mut items = Vec::new();
    let (mut start, mut open) = (0, false);
    for (at, character) in list.char_indices() {
        match character {
            '[' if open => return Err(HostListProblem::Nested { at: at + 1 }),
            '[' => open = true,
            ']' if !open => return Err(HostListProblem::Unopened { at: at + 1 }),
            ']' => open = false,
            ',' | ' ' | '\t' | '\n' if !open => {
                items.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if open {
        return Err(HostListProblem::Unclosed);
    }
    items.push(&list[start..]);
    items.retain(|item| !item.is_empty());
    Ok(items)
}

fn expand(item: &str, hosts: &mut Vec<String>) -> Result<(), HostListProblem> {
    let (parts, rest) = brackets(item, MOST_HOSTS - hosts.len())?;
    if parts.is_empty() {
        return push(hosts, rest.to_owned());
    }
    if !rest.is_empty() {
        let text = rest.to_owned();
        return Err(HostListProblem::AfterBracket { text });
    }
    let mut digits = vec![0; parts.len()];
    loop {
        let texts = parts.iter().zip(&digits);
        let host = texts.fold(String::new(), |host, (part, &digit)| {
            host + part.prefix + &part.numbers[digit]
        });
        hosts.push(host);
        if !advance(&mut digits, &parts) {
            return Ok(());
        }
    }
}

/// Steps to the next choice: the last bracket first, then the others from the left.
fn advance(digits: &mut [usize], parts: &[Part<'_>]) -> bool {
    let last = digits.len() - 1;
    for place in [last].into_iter().chain(0..last) {
        digits[place] += 1;
        if digits[place] < parts[place].numbers.len() {
            return true;
        }
        digits[place] = 0;
    }
    false
}

fn push(hosts: &mut Vec<String>, host: String) -> Result<(), HostListProblem> {
    if hosts.len() == MOST_HOSTS {
        return Err(HostListProblem::TooManyHosts);
    }
    hosts.push(host);
    Ok(())
}

/// A text and the numbers in the bracket that follows it, as they are written.
struct Part<'a> {
    prefix: &'a str,
    numbers: Vec<String>,
}

/// Cuts at the brackets, which are balanced, and stand for hosts that fit the room; also the text
/// after the last one.
fn brackets(item: &str, mut room: usize) -> Result<(Vec<Part<'_>>, &str), HostListProblem> {
    let (mut parts, mut rest) = (Vec::new(), item);
    while let Some((prefix, after)) = rest.split_once('[') {
        let (inside, after) = after.split_once(']').ok_or(HostListProblem::Unclosed)?;
        let mut numbers = Vec::new();
        for range in inside.split(',') {
            numbers.extend(numbers_in(range)?);
            if numbers.len() > room {
                return Err(HostListProblem::TooManyHosts);
            }
        }
        // A bracket has one number at least.
        room /= numbers.len();
        parts.push(Part { prefix, numbers });
        rest = after;
    }
    Ok((parts, rest))
}

fn numbers_in(range: &str) -> Result<impl Iterator<Item = String>, HostListProblem> {
    let wrong = || HostListProblem::Range {
        range: range.to_owned(),
    };
    let (low, high) = range.split_once('-').unwrap_or((range, range));
    let width = low.len();
    if width.max(high.len()) > MOST_DIGITS {
        return Err(wrong());
    }
    let (low, high) = (digits::<u64>(low), digits::<u64>(high));
    let (low, high) = low.zip(high).ok_or_else(wrong)?;
    match high.checked_sub(low) {
        None => Err(wrong()),
        Some(more) if more >= LONGEST_RANGE => Err(HostListProblem::LongRange {
            range: range.to_owned(),
        }),
        Some(_) => Ok((low..=high).map(move |number| format!("{number:0width$}"))),
    }
}

/// Digits of a number, zeros before it among them: a name has no more letters in DNS.
const MOST_DIGITS: usize = 255;

#[cfg(test)]
mod tests;
