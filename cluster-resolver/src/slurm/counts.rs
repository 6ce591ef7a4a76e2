//! How many tasks each node has, as Slurm writes it: `3,1(x2)` for 3, 1, 1.

use crate::error::{MOST_HOSTS, SlurmError};

/// How many tasks each node has, by a list such as `3,1(x2)`.
///
/// ```
/// use meshwork_cluster_resolver::slurm::task_counts;
///
/// assert_eq!(task_counts("3,1(x2)")?, [3, 1, 1]);
/// # Ok::<(), meshwork_cluster_resolver::slurm::SlurmError>(())
/// ```
///
/// # Errors
/// [`SlurmError::TaskCounts`].
pub fn task_counts(text: &str) -> Result<Vec<u32>, SlurmError> {
    let wrong = |item: &str| SlurmError::TaskCounts {
        text: text.to_owned(),
        item: item.to_owned(),
    };
    let mut counts = Vec::new();
    for item in text.split(',') {
        let (count, times) = parse(item).ok_or_else(|| wrong(item))?;
        if times > MOST_HOSTS - counts.len() {
            return Err(wrong(item));
        }
        counts.extend(std::iter::repeat_n(count, times));
    }
    Ok(counts)
}

/// `n` or `n(xk)`.
fn parse(item: &str) -> Option<(u32, usize)> {
    let Some((count, times)) = item.split_once('(') else {
        return Some((digits(item)?, 1));
    };
    let times = times.strip_prefix('x')?.strip_suffix(')')?;
    Some((digits(count)?, digits(times)?))
}

/// A number of digits alone: `parse` by itself takes a sign.
pub(super) fn digits<T: std::str::FromStr>(text: &str) -> Option<T> {
    let all = text.bytes().all(|byte| byte.is_ascii_digit());
    if all { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_may_be_repeated() {
        assert_eq!(task_counts("4"), Ok(vec![4]));
        assert_eq!(task_counts("3(x2),2,1"), Ok(vec![3, 3, 2, 1]));
        assert_eq!(task_counts("10(x2),1(x3)"), Ok(vec![10, 10, 1, 1, 1]));
        assert_eq!(task_counts("2(x0)"), Ok(vec![]));
    }

    #[test]
    fn every_other_form_is_refused_with_the_item() {
        for (text, item) in [
            ("", ""),
            ("2,", ""),
            ("2, 1", " 1"),
            ("a", "a"),
            ("-1", "-1"),
            ("+1", "+1"),
            ("2(x)", "2(x)"),
            ("2(3)", "2(3)"),
            ("2(y3)", "2(y3)"),
            ("2(x 3)", "2(x 3)"),
            ("1,2(x3)x", "2(x3)x"),
            ("1(x4000000000)", "1(x4000000000)"),
            ("4294967296", "4294967296"),
        ] {
            let (text, item) = (text.to_owned(), item.to_owned());
            assert_eq!(
                task_counts(&text.clone()),
                Err(SlurmError::TaskCounts { text, item })
            );
        }
    }
}
