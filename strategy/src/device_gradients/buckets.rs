//! Which gradients become one tensor, and where each is in it.

use std::ops::Range;

use crate::VariableSpec;

/// Variables whose gradients become one tensor, in its order.
#[derive(Debug)]
pub(super) struct Bucket<T> {
    pub(super) variables: Vec<usize>,
    /// The gradients that are there, in the same order.
    pub(super) gradients: Vec<Option<T>>,
}

/// A tensor with what belongs to some variables, one after the other.
#[derive(Clone, Debug)]
pub struct Packed<T> {
    pub(super) tensor: T,
    pub(super) parts: Vec<(usize, Range<usize>)>,
}

impl<T> Packed<T> {
    /// The tensor, of one axis.
    #[must_use]
    pub fn tensor(&self) -> &T {
        &self.tensor
    }

    /// The numbers of the variables, each with the elements that are its own.
    pub fn parts(&self) -> impl Iterator<Item = (usize, Range<usize>)> + '_ {
        self.parts.iter().cloned()
    }
}

impl<T> Bucket<T> {
    /// Of `variables` variables those that are `reversed` ones when counted from the last.
    pub(super) fn new(variables: usize, reversed: Range<usize>) -> Self {
        let variables: Vec<_> = reversed.map(|at| variables - 1 - at).collect();
        let gradients = variables.iter().map(|_| None).collect();
        Self {
            variables,
            gradients,
        }
    }

    /// Where a variable of this bucket is in it.
    pub(super) fn place_of(&self, variable: usize) -> usize {
        // They are consecutive numbers, the largest first.
        self.variables[0] - variable
    }

    pub(super) fn is_complete(&self) -> bool {
        self.gradients.iter().all(Option::is_some)
    }

    /// The tensors of its variables.
    fn of(&self, all: &[T]) -> Vec<T>
    where
        T: Clone,
    {
        let own = self.variables.iter().map(|variable| all[*variable].clone());
        own.collect()
    }

    /// Which elements of the packed tensor belong to which variable.
    pub(super) fn parts(&self, specs: &[VariableSpec]) -> Vec<(usize, Range<usize>)> {
        let mut end = 0;
        let part = |variable: &usize| {
            let start = end;
            end += specs[*variable].len();
            (*variable, start..end)
        };
        self.variables.iter().map(part).collect()
    }
}

/// All buckets, each with the tensors of its variables.
///
/// # Panics
/// When there are not as many tensors as variables.
#[track_caller]
pub(super) fn with_tensors<'a, T: Clone>(
    buckets: &'a [Bucket<T>],
    all: &'a [T],
) -> impl Iterator<Item = (&'a Bucket<T>, Vec<T>)> {
    let variables: usize = buckets.iter().map(|bucket| bucket.variables.len()).sum();
    let found = all.len();
    assert!(
        found == variables,
        "{found} tensors were given for {variables} variables: give one for each"
    );
    buckets.iter().map(move |bucket| (bucket, bucket.of(all)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_tile_the_tensors_of_all_buckets_from_the_last_variable_to_the_first() {
        for count in 0..6 {
            let specs: Vec<_> = (0..count)
                .map(|at| VariableSpec::new(format!("v{at}"), &[at % 3]).unwrap())
                .collect();
            for middle in 0..=count {
                let mut expected = (0..count).rev();
                for range in [0..middle, middle..count] {
                    let bucket: Bucket<()> = Bucket::new(count, range);
                    let mut end = 0;
                    for (place, (variable, part)) in bucket.parts(&specs).into_iter().enumerate() {
                        assert_eq!(Some(variable), expected.next());
                        assert_eq!(bucket.place_of(variable), place);
                        assert_eq!((part.start, part.len()), (end, specs[variable].len()));
                        end = part.end;
                    }
                }
                assert_eq!(expected.next(), None);
            }
        }
    }

    #[test]
    fn a_bucket_is_complete_with_the_last_of_its_gradients() {
        let mut bucket = Bucket::new(3, 0..2);
        let places = [1, 2].map(|variable| bucket.place_of(variable));
        bucket.gradients[places[0]] = Some('b');
        assert!(!bucket.is_complete());
        bucket.gradients[places[1]] = Some('c');
        assert!(bucket.is_complete());
        assert_eq!(bucket.of(&['a', 'b', 'c']), ['c', 'b']);
    }

    #[test]
    fn each_bucket_takes_its_tensors_of_all() {
        let buckets = [0..2, 2..3].map(|range| Bucket::new(3, range));
        let taken = with_tensors(&buckets, &['a', 'b', 'c']).map(|(_, own)| own);
        assert_eq!(taken.collect::<Vec<_>>(), [vec!['c', 'b'], vec!['a']]);
    }

    #[test]
    #[should_panic(expected = "3 tensors were given for 2 variables: give one for each")]
    fn more_tensors_than_variables_are_refused() {
        let buckets = [Bucket::new(2, 0..2)];
        let _ = with_tensors(&buckets, &['a', 'b', 'c']);
    }
}
