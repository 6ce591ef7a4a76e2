//! Lists of hosts as PBS, LSF and Flux write them.

use super::MOST_TASKS;
use crate::error::FluxProblem;

/// The hosts of a file with one on each line.
pub(super) fn lines(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

/// The hosts of `a 2 b 1`, each as often as it has slots.
pub(super) fn counted(pairs: &str) -> Option<Vec<String>> {
    let words: Vec<_> = pairs.split_whitespace().collect();
    let (pairs, []) = words.as_chunks() else {
        return None;
    };
    let mut hosts = Vec::new();
    for [host, slots] in pairs {
        let slots: usize = slots.parse().ok()?;
        if slots > MOST_TASKS as usize - hosts.len() {
            return None;
        }
        hosts.extend(std::iter::repeat_n((*host).to_owned(), slots));
    }
    Some(hosts)
}

/// The host of each task, in lines such as `n1: 0-3,8`.
pub(super) fn mapped(answer: &str, size: u32) -> Result<Vec<String>, FluxProblem> {
    let mut hosts = vec![None; size as usize];
    for line in answer.lines() {
        let wrong = || FluxProblem::Line {
            line: line.to_owned(),
        };
        let (host, tasks) = line.split_once(": ").ok_or_else(wrong)?;
        for part in tasks.trim().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: usize = first.parse().map_err(|_| wrong())?;
            let last: usize = last.parse().map_err(|_| wrong())?;
            // An empty range, such as 1-0, is one that can be had too.
            let places = hosts.get_mut(first..=last).filter(|_| first <= last);
            let places = places.ok_or_else(wrong)?;
            for place in places {
                if place.replace(host.to_owned()).is_some() {
                    return Err(wrong());
                }
            }
        }
    }
    let missing = hosts.iter().position(Option::is_none);
    match missing {
        Some(task) => Err(FluxProblem::Nowhere { task }),
        None => Ok(hosts.into_iter().flatten().collect()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_is_a_host_and_an_empty_one_is_none() {
        assert_eq!(lines("a\n\n b \r\na"), ["a", "b", "a"]);
    }

    #[test]
    fn counts_are_pairs() {
        assert_eq!(counted("a 2 b 1").unwrap(), ["a", "a", "b"]);
        for wrong in [
            "a",
            "a 2 b",
            "a b",
            "a -1",
            "a 65536 b 1",
            "a 1 b 18446744073709551615",
        ] {
            assert_eq!(counted(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn tasks_are_where_flux_says_in_any_order() {
        assert_eq!(mapped("a: 0-1\nb: 2\n", 3).unwrap(), ["a", "a", "b"]);
        assert_eq!(
            mapped("a: 0,2\nb: 1,3-4\n", 5).unwrap(),
            ["a", "b", "a", "b", "b"]
        );
        assert_eq!(mapped("", 1), Err(FluxProblem::Nowhere { task: 0 }));
        assert_eq!(mapped("a: 0\n", 2), Err(FluxProblem::Nowhere { task: 1 }));
    }

    #[test]
    fn a_line_that_is_no_set_of_tasks_is_named() {
        for wrong in [
            "a",
            "a: ",
            "a: x",
            "a: 0-",
            "a: 1-0",
            "a: 0-9",
            "a: 0,0",
            "a: 99999999999999999999",
        ] {
            let line = wrong.to_owned();
            assert_eq!(mapped(wrong, 2), Err(FluxProblem::Line { line }), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_flux_would_write_is_read_back(places in prop::collection::vec(0..5_usize, 1..40)) {
            let line = |host| {
                let tasks = places.iter().enumerate().filter(|(_, place)| **place == host);
                let tasks: Vec<_> = tasks.map(|(task, _)| task.to_string()).collect();
                (!tasks.is_empty()).then(|| format!("n{host}: {}\n", tasks.join(",")))
            };
            let text: String = (0..5).filter_map(line).collect();
            let expected: Vec<_> = places.iter().map(|place| format!("n{place}")).collect();
            let size = u32::try_from(places.len()).unwrap();
            prop_assert_eq!(mapped(&text, size), Ok(expected));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[ab0-9:, \n-]{0,40}", size in 1..9_u32) {
            if let Ok(hosts) = mapped(&text, size) {
                prop_assert_eq!(hosts.len(), size as usize);
            }
            counted(&text);
        }
    }
}
