//! Chunks that pass through three stages, of which the middle one goes on beside the others.
//!
//! ```text
//!   this thread    load 0 | load 1 | store 0, load 2 | store 1, load 3 | …
//!   the other               pass 0 |          pass 1 |          pass 2 | …
//! ```

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::mpsc;
use std::thread;

use super::ends::Ends;

/// Why a chunk did not arrive.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Stop<E, F> {
    /// Its way from or to the device.
    Here(E),
    /// Its way between ranks.
    Between(F),
}

/// Sends all chunks through: loaded and stored by `ends`, passed on in between by `pass`. Each
/// takes a slot, and gives it back when it is stored. Chunks keep their order in every stage. After
/// the first failure no other chunk is loaded.
///
/// `pass` must come to an end by itself.
pub(super) fn run<S, E, F>(
    slots: &mut Vec<S>,
    chunks: &[Range<usize>],
    ends: &mut impl Ends<S, E>,
    mut pass: impl FnMut(&mut S, Range<usize>) -> Result<(), F> + Send,
) -> Result<(), Stop<E, F>>
where
    S: Send,
    F: Send,
{
    if let ([chunk], Some(slot)) = (chunks, slots.first_mut()) {
        ends.load(slot, chunk.clone()).map_err(Stop::Here)?;
        pass(slot, chunk.clone()).map_err(Stop::Between)?;
        return ends.store(slot, chunk.clone()).map_err(Stop::Here);
    }
    thread::scope(|threads| {
        let (loaded, to_pass) = mpsc::channel::<(S, Range<usize>)>();
        let (passed, to_store) = mpsc::channel();
        threads.spawn(move || {
            for (mut slot, chunk) in to_pass {
                let done = pass(&mut slot, chunk.clone());
                let failed = done.is_err();
                // The other end waits for it, or has failed itself.
                let _ = passed.send((slot, chunk, done));
                if failed {
                    break;
                }
            }
        });
        let mut waiting: VecDeque<_> = chunks.iter().cloned().collect();
        let mut under_way = 0_usize;
        let mut outcome = Ok(());
        while under_way > 0 || (outcome.is_ok() && !waiting.is_empty()) {
            let next = match outcome {
                Ok(()) if !slots.is_empty() => waiting.pop_front(),
                _ => None,
            };
            if let Some((chunk, mut slot)) = next.and_then(|chunk| Some((chunk, slots.pop()?))) {
                match ends.load(&mut slot, chunk.clone()) {
                    Ok(()) if loaded.send((slot, chunk)).is_ok() => under_way += 1,
                    Ok(()) => {}
                    Err(error) => outcome = Err(Stop::Here(error)),
                }
                continue;
            }
            // The other thread ends after a failure, and what it has not passed on is dropped.
            let Ok((mut slot, chunk, done)) = to_store.recv() else {
                break;
            };
            under_way -= 1;
            let stored = done
                .map_err(Stop::Between)
                .and_then(|()| ends.store(&mut slot, chunk).map_err(Stop::Here));
            slots.push(slot);
            outcome = outcome.and(stored);
        }
        outcome
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// Loads numbers, notes what it does, and fails at one stage of one chunk.
    struct Noted {
        steps: Vec<(&'static str, usize)>,
        fails: (&'static str, usize),
    }

    impl Noted {
        fn step(&mut self, stage: &'static str, at: usize) -> Result<(), usize> {
            self.steps.push((stage, at));
            verdict(self.fails, (stage, at))
        }

        fn of(&self, stage: &str) -> Vec<usize> {
            let of_stage = self.steps.iter().filter(|(name, _)| *name == stage);
            of_stage.map(|(_, at)| *at).collect()
        }
    }

    fn verdict(fails: (&str, usize), step: (&str, usize)) -> Result<(), usize> {
        if fails == step { Err(step.1) } else { Ok(()) }
    }

    impl Ends<usize, usize> for Noted {
        fn load(&mut self, slot: &mut usize, chunk: Range<usize>) -> Result<(), usize> {
            *slot = chunk.start;
            self.step("load", chunk.start)
        }

        fn store(&mut self, slot: &mut usize, chunk: Range<usize>) -> Result<(), usize> {
            assert_eq!(*slot, chunk.start + 1000, "another portion is stored");
            self.step("store", chunk.start)
        }
    }

    /// Passes chunks of one element through three slots.
    fn walk(count: usize, fails: (&'static str, usize)) -> (Result<(), Stop<usize, usize>>, Noted) {
        let chunks: Vec<_> = (0..count).map(|at| at..at + 1).collect();
        let steps = Vec::new();
        let mut ends = Noted { steps, fails };
        let mut passed = Vec::new();
        let done = run(
            &mut vec![usize::MAX; 3],
            &chunks,
            &mut ends,
            |slot, chunk| {
                assert_eq!(*slot, chunk.start, "a slot was loaded again too early");
                passed.push(("pass", chunk.start));
                *slot += 1000;
                verdict(fails, ("pass", chunk.start))
            },
        );
        ends.steps.extend(passed);
        (done, ends)
    }

    #[test]
    fn all_chunks_pass_all_stages_in_order() {
        for count in 0..20 {
            let (done, ends) = walk(count, ("", 0));
            assert_eq!(done, Ok(()));
            for stage in ["load", "pass", "store"] {
                assert!(ends.of(stage).into_iter().eq(0..count), "{stage}, {count}");
            }
        }
    }

    #[test]
    fn a_failure_in_any_stage_of_any_chunk_is_told_and_ends_the_walk() {
        for count in 1..8 {
            for at in 0..count {
                let (done, ends) = walk(count, ("pass", at));
                assert_eq!(done, Err(Stop::Between(at)));
                assert!(ends.of("pass").into_iter().eq(0..=at));
                assert!(ends.of("store").into_iter().eq(0..at));
                let (done, ends) = walk(count, ("load", at));
                assert_eq!(done, Err(Stop::Here(at)));
                assert!(ends.of("load").into_iter().eq(0..=at));
                let (done, ends) = walk(count, ("store", at));
                assert_eq!(done, Err(Stop::Here(at)));
                assert!(ends.of("load").len() <= at + 3);
            }
        }
    }

    /// Says when the second chunk is loaded.
    struct Telling(Sender<()>);

    impl Ends<(), ()> for Telling {
        fn load(&mut self, _: &mut (), chunk: Range<usize>) -> Result<(), ()> {
            if chunk.start == 1 {
                self.0.send(()).unwrap();
            }
            Ok(())
        }

        fn store(&mut self, _: &mut (), _: Range<usize>) -> Result<(), ()> {
            Ok(())
        }
    }

    #[test]
    fn one_chunk_is_loaded_while_the_one_before_is_between_ranks() {
        let (second_is_loaded, wait) = channel();
        let chunks = [0..1, 1..2, 2..3];
        let done = run(
            &mut vec![(); 2],
            &chunks,
            &mut Telling(second_is_loaded),
            move |(), chunk| {
                if chunk.start == 0 {
                    // Would never come if stages did not overlap.
                    wait.recv().map_err(drop)?;
                }
                Ok::<(), ()>(())
            },
        );
        assert_eq!(done, Ok(()));
    }
}
