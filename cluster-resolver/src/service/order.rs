use std::cmp::Ordering;

/// Orders names as people count: runs of digits by their value, everything else as text, so that
/// `w9` comes before `w10`.
pub(crate) fn natural(left: &str, right: &str) -> Ordering {
    let (mut a, mut b) = (left, right);
    while !a.is_empty() && !b.is_empty() {
        let order = match (digits(a), digits(b)) {
            (0, _) | (_, 0) => {
                let (x, y) = (a.chars().next(), b.chars().next());
                let width = x.map_or(1, char::len_utf8);
                (a, b) = (&a[width..], &b[y.map_or(1, char::len_utf8)..]);
                x.cmp(&y)
            }
            (in_a, in_b) => {
                let ((x, rest_a), (y, rest_b)) = (a.split_at(in_a), b.split_at(in_b));
                (a, b) = (rest_a, rest_b);
                let (x, y) = (x.trim_start_matches('0'), y.trim_start_matches('0'));
                x.len().cmp(&y.len()).then_with(|| x.cmp(y))
            }
        };
        if order.is_ne() {
            return order;
        }
    }
    // Names that count alike, such as w1 and w01, are still two names.
    a.len().cmp(&b.len()).then_with(|| left.cmp(right))
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every name cut into runs, each a number or a character, compared as lists.
    fn runs(name: &str) -> Vec<Result<u128, char>> {
        let mut runs = Vec::new();
        for character in name.chars() {
            match (character.to_digit(10), runs.last_mut()) {
                (Some(digit), Some(Ok(number))) => *number = *number * 10 + u128::from(digit),
                (Some(digit), _) => runs.push(Ok(u128::from(digit))),
                (None, _) => runs.push(Err(character)),
            }
        }
        runs
    }

    fn oracle(left: &str, right: &str) -> Ordering {
        let key = |run: &Result<u128, char>| match run {
            Ok(number) => (u32::from('0'), *number),
            Err(character) => (u32::from(*character), 0),
        };
        let keys = |name: &str| runs(name).iter().map(key).collect::<Vec<_>>();
        keys(left).cmp(&keys(right)).then_with(|| left.cmp(right))
    }

    #[test]
    fn numbers_count_by_value() {
        let mut names = ["w10", "w9", "w1", "a2", "w", "w01", "w9a", "w9-3", "w9-20"];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(
            names,
            ["a2", "w", "w01", "w1", "w9", "w9-3", "w9-20", "w9a", "w10"]
        );
    }

    proptest! {
        #[test]
        fn it_agrees_with_comparing_run_by_run(
            left in "[a-b0-2.-]{0,8}",
            right in "[a-b0-2.-]{0,8}",
        ) {
            // The oracle gives every number the place of '0', which only a digit can stand at.
            prop_assert_eq!(natural(&left, &right), oracle(&left, &right));
        }
    }
}
