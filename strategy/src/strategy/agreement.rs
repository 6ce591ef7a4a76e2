//! What all workers have to have alike and no operation compares by itself: settings of a program,
//! and what they share of their inputs.

use meshwork_collectives::{Group, Rank};

use super::MultiWorkerMirroredStrategy;
use crate::replica::{gather_bytes, gather_words};
use crate::{DifferenceError, Error};

impl MultiWorkerMirroredStrategy {
    /// Checks that all workers have the same `settings`: a text with what decides the result and is
    /// compared nowhere else, such as the number of samples, the batch, the seed, a checksum of the
    /// data. Where it has lines, an error shows the first that differs; of a long one, what is
    /// around the first difference.
    ///
    /// All workers call it together, before the first step. In an elastic job that is in
    /// [`Training::regroup`](crate::Training::regroup), which all are in when a worker comes: in
    /// `main` it would wait there for others that train. It costs two small operations.
    ///
    /// ```
    /// use meshwork_strategy::{Error, MultiWorkerMirroredStrategy};
    ///
    /// let mut strategy = MultiWorkerMirroredStrategy::alone()?;
    /// let (samples, batch, seed) = (1000, 50, 1);
    /// strategy.agree(&format!("{samples} samples, {batch} in a batch, seed {seed}"))?;
    /// let numbers = strategy.distribute_dataset(samples, batch)?.shuffled(seed);
    /// # let _ = numbers;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`DifferenceError::Settings`], which ends the training on all workers; in an elastic job it
    /// is that of a worker that differs, and the others go on without it. [`Error::Group`].
    #[doc(alias("assert_equal", "broadcast_one_to_all", "manual_seed"))]
    #[track_caller]
    pub fn agree(&mut self, settings: &str) -> Result<(), Error> {
        let all = gather_bytes(self.joined(), settings.as_bytes())?;
        self.refuse_unlike(&all, |rank, mine, chiefs| {
            let [mine, chiefs] = differing_lines(mine, chiefs);
            DifferenceError::Settings { rank, mine, chiefs }
        })
    }

    /// Compares what the workers share of an input, the number of files first. All call it
    /// together, also those that compute one replica.
    #[track_caller]
    pub(crate) fn compare_inputs(&mut self, own: [u64; 3]) -> Result<(), Error> {
        let all = gather_words(self.joined(), own)?;
        let (all, _) = all.as_chunks::<3>();
        self.refuse_unlike(all, |rank, [files, ..], [chiefs, ..]| {
            let (files, chiefs) = (*files, *chiefs);
            DifferenceError::Inputs {
                rank,
                files,
                chiefs,
            }
        })
    }

    /// The group of all workers, also where several compute one replica.
    fn joined(&mut self) -> &mut Group {
        match &mut self.split {
            Some(split) => &mut split.joined,
            None => &mut self.group,
        }
    }

    /// Refuses the first worker that has something else than the chief. In an elastic job the chief
    /// is no newcomer, and each looks at what it has itself: the others go on without it.
    pub(super) fn refuse_unlike<T: PartialEq>(
        &mut self,
        all: &[T],
        error: impl FnOnce(Rank, &T, &T) -> DifferenceError,
    ) -> Result<(), Error> {
        let (own, is_elastic) = (self.rank().index(), self.is_elastic());
        let differs = |place: &usize| all[*place] != all[0] && (!is_elastic || *place == own);
        match (0..all.len()).find(differs) {
            None => Ok(()),
            Some(place) => {
                let error = error(Rank::at(place), &all[place], &all[0]);
                self.abort_on_error(Err(error.into()))
            }
        }
    }
}

/// The first lines in which two texts differ, as an error shows them: of long ones what is around
/// the difference. What another worker tells need not be text, or have as many lines.
fn differing_lines(mine: &[u8], chiefs: &[u8]) -> [String; 2] {
    let [mine, chiefs] = [mine, chiefs].map(String::from_utf8_lossy);
    let mut lines = mine.lines().zip(chiefs.lines());
    let differing = lines.find(|(mine, chiefs)| mine != chiefs);
    let (mine, chiefs) = differing.unwrap_or((&*mine, &*chiefs));
    let [mine, chiefs] = [mine, chiefs].map(on_one_line);
    let both = mine.bytes().zip(chiefs.bytes());
    let alike = both.take_while(|(mine, chiefs)| mine == chiefs).count();
    // Where one has a boundary before the difference, the other has it too.
    let start = mine.floor_char_boundary(alike.saturating_sub(BEFORE));
    let cut = if start > 0 { "…" } else { "" };
    [mine, chiefs].map(|text| {
        let end = text.floor_char_boundary(start + SHOWN);
        format!("{cut}{}", &text[start..end])
    })
}

/// Without what a terminal would obey. A space in its place would be equal to one of the other
/// text, where a tab or the end of a line is all that differs.
fn on_one_line(text: &str) -> String {
    text.replace('\n', " ")
        .replace(char::is_control, "\u{fffd}")
}

/// The most bytes of a text in an error, of which there are two in what others are told.
const SHOWN: usize = 300;

/// How many of these are alike, where a text is cut at its front.
const BEFORE: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::each;

    #[test]
    fn other_settings_are_named_on_all_workers_with_the_lines_that_differ() {
        let errors = each(3, |mut strategy| {
            let alike = strategy.agree("1000 samples\nseed 1");
            alike.unwrap();
            let seed = 1 + u32::from(strategy.rank() == Rank::new(2));
            let refused = strategy.agree(&format!("1000 samples\nseed {seed}"));
            refused.unwrap_err()
        });
        // Whoever finds it first may end the group before another has looked.
        for error in errors {
            let text = error.to_string();
            assert!(
                text.contains("rank 2 has seed 2, and the chief seed 1: "),
                "{text}"
            );
        }
    }

    #[test]
    fn workers_of_several_replicas_agree_too() {
        let errors = each(2, |strategy| {
            let mut strategy = strategy.with_local_replicas(2).unwrap();
            strategy.agree("seed 1").unwrap();
            let own = format!("seed {}", strategy.rank().index());
            strategy.agree(&own).unwrap_err().to_string()
        });
        for error in errors {
            let both = "rank 1 has seed 1, and the chief seed 0: ";
            assert!(error.contains(both), "{error}");
        }
    }

    #[test]
    fn who_differs_in_an_elastic_job_ends_alone_and_tells_the_others_why() {
        let errors = each(3, |strategy| {
            let mut strategy = strategy.made_elastic();
            let own = format!("seed {}", strategy.rank().index() / 2);
            // The others may hear of it before they have all texts.
            let agreed = strategy.agree(&own);
            let ended = agreed.and_then(|()| strategy.agree("seed 0"));
            ended.unwrap_err()
        });
        let differs = DifferenceError::Settings {
            rank: Rank::new(2),
            mine: "seed 1".to_owned(),
            chiefs: "seed 0".to_owned(),
        };
        assert_eq!(errors[2], Error::from(differs.clone()));
        for error in &errors {
            assert_eq!(error.rank_at_fault(), Some(Rank::new(2)), "{error}");
            assert!(error.to_string().contains(&differs.to_string()), "{error}");
        }
    }

    #[test]
    fn what_a_stranger_tells_is_compared_too_and_shown_as_one_short_line() {
        let shown = |mine: &[u8], chiefs: &[u8]| differing_lines(mine, chiefs).join(" | ");
        for (mine, expected) in [
            (&b"9 epochs\n\"\""[..], "9 epochs | 8 epochs"),
            (b"8 epochs", "8 epochs | 8 epochs \"\""),
            (b"\xff", "\u{fffd} | 8 epochs"),
            (b"", " | 8 epochs \"\""),
        ] {
            assert_eq!(shown(mine, b"8 epochs\n\"\""), expected);
        }
        let long = "é".repeat(1000);
        let [mine, chiefs] = differing_lines(long.as_bytes(), b"short");
        assert_eq!((mine, chiefs), ("é".repeat(SHOWN / 2), "short".to_owned()));
    }

    #[test]
    fn a_difference_behind_many_bytes_that_are_alike_is_shown() {
        let (long, before) = ("a".repeat(1000), "a".repeat(BEFORE));
        let rest = "b".repeat(1000);
        for (mine, chiefs, shown) in [
            ("1", "2", ["1", "2"]),
            ("1", "", ["1", ""]),
            ("\nb", "", [" b", ""]),
            ("\n", "", [" ", ""]),
            (rest.as_str(), "", [&rest[..SHOWN - BEFORE], ""]),
        ] {
            let [mine, chiefs] = [mine, chiefs].map(|end| format!("{long}{end}"));
            let expected = shown.map(|end| format!("…{before}{end}"));
            let shown = differing_lines(mine.as_bytes(), chiefs.as_bytes());
            assert_eq!(shown, expected);
        }
        // The first bytes of the last letters are equal.
        let [mine, chiefs] = ["é", "è"].map(|last| "é".repeat(500) + last);
        let before = "é".repeat(BEFORE / 2);
        let expected = ["é", "è"].map(|last| format!("…{before}{last}"));
        let shown = differing_lines(mine.as_bytes(), chiefs.as_bytes());
        assert_eq!(shown, expected);
    }

    #[test]
    fn what_is_no_letter_makes_a_difference_and_does_not_reach_a_terminal() {
        for (mine, chiefs) in [("a\r\n", "a\n"), ("a\tb", "a b"), ("\x1b[2J", "[2J")] {
            let shown = differing_lines(mine.as_bytes(), chiefs.as_bytes());
            assert_ne!(shown[0], shown[1]);
            assert!(!shown.concat().contains(char::is_control), "{shown:?}");
        }
    }

    #[test]
    fn workers_that_are_split_compare_with_all_others() {
        let mesh = meshwork_core::Mesh::new([("data", 2), ("tensor", 2)]).unwrap();
        let errors = each(4, |strategy| {
            let own = format!("seed {}", strategy.rank().index() / 3);
            let (mut strategy, _tensor) = strategy.split_along(&mesh, "tensor").unwrap();
            strategy.agree(&own).unwrap_err().to_string()
        });
        for error in errors {
            let both = "rank 3 has seed 1, and the chief seed 0: ";
            assert!(error.contains(both), "{error}");
        }
    }
}
