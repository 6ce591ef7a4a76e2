//! From what the ranks left behind to what is wrong.

use std::collections::BTreeMap;

use super::call_pattern::{CallPattern, call_pattern};
use super::dump::{Afterwards, Dump, Kind, Loss, Operation, PastCall};
use super::{Cause, Death, Diagnosis};
use crate::Rank;

/// Finds out why a job failed from the dumps of its ranks, in any order; those of ranks that could
/// not leave one are missing, and that counts too.
#[must_use]
pub fn diagnose(dumps: &[Dump]) -> Diagnosis {
    let case = Case {
        dumps: dumps.iter().map(|dump| (dump.rank, dump)).collect(),
    };
    Diagnosis {
        cause: case.cause(),
        evidence: case.evidence(),
    }
}

/// Finds out why a job that runs does not get on, from what its ranks would leave now, in any
/// order. Of the ranks that were asked, so many gave no answer.
#[must_use]
pub fn diagnose_live(dumps: &[Dump], unanswered: usize) -> Diagnosis {
    let failed = dumps.iter().any(|dump| dump.failure.is_some());
    if failed || dumps.is_empty() {
        return diagnose(dumps);
    }
    let case = Case {
        dumps: dumps.iter().map(|dump| (dump.rank, dump)).collect(),
    };
    Diagnosis {
        cause: case.stall(unanswered).unwrap_or(Cause::Running),
        evidence: case.evidence(),
    }
}

/// From when on whoever waits has a reason, in microseconds.
const STALL: u64 = 50_000;

/// The dumps by rank; the last of two of one rank.
struct Case<'a> {
    dumps: BTreeMap<Rank, &'a Dump>,
}

impl Case<'_> {
    /// What explains most comes first: a death makes others silent, silence makes others wait.
    fn cause(&self) -> Cause {
        let rules: [fn(&Self) -> Option<Cause>; 6] = [
            Self::disagreement,
            Self::death,
            Self::departure,
            Self::delay,
            Self::silence,
            Self::other,
        ];
        let found = rules.iter().find_map(|rule| rule(self));
        found.unwrap_or(Cause::Unknown)
    }

    fn disagreement(&self) -> Option<Cause> {
        let [one, other] = self.failures().find_map(|(_, kind)| match kind {
            Kind::Disagreement(calls) => Some((**calls).clone()),
            _ => None,
        })?;
        let habit_of = |(rank, call): &(Rank, PastCall)| match self.dumps.get(rank) {
            Some(dump) => call_pattern(dump, call),
            None => CallPattern::Unknown,
        };
        let (one, other) = match (habit_of(&one), habit_of(&other)) {
            (CallPattern::Skipped(missing), CallPattern::Kept | CallPattern::Unknown) => {
                return Some(missing_call(one.0, one.1, missing));
            }
            (CallPattern::Kept | CallPattern::Unknown, CallPattern::Skipped(missing)) => {
                return Some(missing_call(other.0, other.1, missing));
            }
            (CallPattern::Left, CallPattern::Kept) => (other, one),
            _ => (one, other),
        };
        Some(Cause::Mismatch { one, other })
    }

    fn death(&self) -> Option<Cause> {
        let (_, rank, _) = self.losses().find(|(_, _, how)| *how == Loss::Died)?;
        let seen = Death::Ended;
        Some(Cause::DeadRank { rank, seen })
    }

    fn departure(&self) -> Option<Cause> {
        let (_, rank, _) = self.losses().find(|(_, _, how)| *how == Loss::Left)?;
        Some(Cause::MissingCall {
            rank,
            missing: self.awaited_call(rank).cloned(),
            instead: None,
        })
    }

    /// A call of another rank that this one did not come to.
    fn awaited_call(&self, rank: Rank) -> Option<&PastCall> {
        let others = self.dumps.values().filter(|dump| dump.rank != rank);
        let mut stuck = others.filter_map(|dump| dump.stuck());
        stuck.next().map(|operation| &operation.call)
    }

    fn delay(&self) -> Option<Cause> {
        let (waiter, peer) = self.failures().find_map(|(_, kind)| match kind {
            Kind::TimedOut { rank, peer } => Some((*rank, *peer)),
            _ => None,
        })?;
        let last = self.end_of_the_line(waiter, peer);
        let stuck = self.dumps.get(&waiter).and_then(|dump| dump.stuck());
        let waited = |until: u64| stuck.map_or(0, |stuck| until.saturating_sub(stuck.began));
        let Some(dump) = self.dumps.get(&last) else {
            return Some(Cause::SlowRank {
                rank: last,
                micros: waited(self.written(waiter)),
            });
        };
        let missing = stuck.map(|stuck| stuck.call.clone());
        let same = |operation: &&Operation| {
            let call = &operation.call;
            missing
                .as_ref()
                .is_some_and(|missing| call.is_like(missing) && call.sequence == missing.sequence)
        };
        // What the others had left behind may even have been enough for it to finish.
        if let Some(late) = dump.operations.iter().find(same) {
            return Some(Cause::SlowRank {
                rank: last,
                micros: waited(late.began),
            });
        }
        Some(match (&dump.afterwards, &missing) {
            (Afterwards::CallOutcome(late, at), Some(call)) if late.is_like(call) => {
                Cause::SlowRank {
                    rank: last,
                    micros: waited(*at),
                }
            }
            (Afterwards::CallOutcome(instead, _), _) => Cause::MissingCall {
                rank: last,
                missing,
                instead: Some(instead.clone()),
            },
            (Afterwards::Dropped, _) => Cause::MissingCall {
                rank: last,
                missing,
                instead: None,
            },
            (Afterwards::Nothing, _) => Cause::SlowRank {
                rank: last,
                micros: waited(dump.written.max(self.written(waiter))),
            },
        })
    }

    /// Who is waited for in the end: the awaited rank may itself wait.
    fn end_of_the_line(&self, waiter: Rank, peer: Rank) -> Rank {
        let mut seen = vec![waiter];
        let mut last = peer;
        while !seen.contains(&last) {
            seen.push(last);
            let stuck = self.dumps.get(&last).and_then(|dump| dump.stuck());
            // What it was in later says nothing about the time that counts.
            let stuck = stuck.filter(|stuck| stuck.began < self.written(waiter));
            match stuck.and_then(|stuck| stuck.waits.last()) {
                Some((next, _)) => last = *next,
                None => break,
            }
        }
        last
    }

    fn silence(&self) -> Option<Cause> {
        let unheard = self.losses().filter(|(_, _, how)| *how == Loss::Unheard);
        // Who says so itself knows better than who was told.
        let first_hand = |witness: &Rank| {
            let dump = self.dumps.get(witness);
            let kind = dump.and_then(|dump| Some(&dump.failure.as_ref()?.kind));
            matches!(kind, Some(Kind::Lost { reporter: None, .. }))
        };
        let (witness, rank, _) = unheard.max_by_key(|(witness, _, _)| first_hand(witness))?;
        let Some(dump) = self.dumps.get(&rank) else {
            let seen = Death::Silent;
            return Some(Cause::DeadRank { rank, seen });
        };
        // Told of its own loss it could be reached by somebody: unless it was waiting itself
        // meanwhile, it was only away for a while.
        let told = dump.failure.as_ref().map(|failure| &failure.kind);
        let told = matches!(told, Some(Kind::Lost { peer, .. }) if *peer == rank);
        if told && !waited(dump) {
            let micros = self.written(witness).saturating_sub(last_end(dump));
            return Some(Cause::SlowRank { rank, micros });
        }
        let (one, other) = (witness.min(rank), witness.max(rank));
        Some(Cause::DeadLink { one, other })
    }

    /// Whom the rank that has waited longest waits for in the end, while nothing has failed.
    fn stall(&self, unanswered: usize) -> Option<Cause> {
        let waits = self.dumps.values().filter_map(|dump| {
            let stuck = dump.stuck().filter(|stuck| stuck.ended.is_none())?;
            let waited = dump.written.saturating_sub(stuck.began);
            Some((waited, dump.rank, stuck.waits.last()?.0))
        });
        let (micros, waiter, peer) = waits.max().filter(|(waited, ..)| *waited >= STALL)?;
        let rank = self.end_of_the_line(waiter, peer);
        // A rank without a dump may only not have been asked.
        let missing = (self.world() as usize).saturating_sub(self.dumps.len());
        let seen = Death::Silent;
        Some(match self.dumps.contains_key(&rank) {
            false if missing <= unanswered => Cause::DeadRank { rank, seen },
            _ => Cause::SlowRank { rank, micros },
        })
    }

    fn other(&self) -> Option<Cause> {
        let failure = self.dumps.values().find_map(|dump| dump.failure.as_ref())?;
        let text = failure.text.clone();
        Some(Cause::Other { text })
    }

    fn failures(&self) -> impl Iterator<Item = (Rank, &Kind)> {
        let failures = self.dumps.values().map(|dump| (dump.rank, &dump.failure));
        failures.filter_map(|(rank, failure)| Some((rank, &failure.as_ref()?.kind)))
    }

    /// Who says that whom was lost, how; whoever saw it first, where that is told.
    fn losses(&self) -> impl Iterator<Item = (Rank, Rank, Loss)> {
        self.failures().filter_map(|(rank, kind)| match kind {
            Kind::Lost {
                peer,
                how,
                reporter,
            } => Some((reporter.unwrap_or(rank), *peer, *how)),
            _ => None,
        })
    }

    fn written(&self, rank: Rank) -> u64 {
        self.dumps.get(&rank).map_or(0, |dump| dump.written)
    }

    /// How many ranks there are, by any of the dumps.
    fn world(&self) -> u32 {
        let worlds = self.dumps.values().map(|dump| dump.world);
        worlds.max().unwrap_or(0)
    }

    fn evidence(&self) -> Vec<String> {
        Rank::all(self.world().min(WORLD))
            .map(|rank| match self.dumps.get(&rank) {
                Some(dump) => line(dump),
                None => format!("{rank} left no dump"),
            })
            .collect()
    }
}

/// Ranks that evidence is given of; beyond it nobody reads.
const WORLD: u32 = 1024;

fn missing_call(rank: Rank, instead: PastCall, missing: PastCall) -> Cause {
    // The missing call's number is that of the one made in its place.
    let missing = PastCall {
        sequence: instead.sequence,
        ..missing
    };
    Cause::MissingCall {
        rank,
        missing: Some(missing),
        instead: Some(instead),
    }
}

/// Whether the rank spent most of the operation that it was in on waiting, awake.
fn waited(dump: &Dump) -> bool {
    dump.stuck().is_some_and(|stuck| {
        let all = dump.written.saturating_sub(stuck.began);
        let waits = stuck.waits.iter().map(|(_, micros)| *micros);
        // A file may say anything.
        let awake = waits.fold(0, u64::saturating_add);
        awake > 0 && awake >= all / 2
    })
}

fn last_end(dump: &Dump) -> u64 {
    let ends = dump.operations.iter().map(|operation| operation.ended);
    ends.flatten().max().unwrap_or(0)
}

/// What one rank's dump says, in one line.
fn line(dump: &Dump) -> String {
    let mut line = format!("{} ({})", dump.rank, dump.address);
    match dump.stuck() {
        Some(Operation {
            call, began, waits, ..
        }) => {
            let seconds = dump.written.saturating_sub(*began) as f64 / 1e6;
            line += &format!(" was in {call} for {seconds:.2} s");
            if let Some((rank, _)) = waits.last() {
                line += &format!(", waiting for {rank}");
            }
        }
        None => {
            line += " was in no call";
            if let Some(last) = dump.operations.last() {
                line += &format!("; its last was {}", last.call);
            }
        }
    }
    match &dump.afterwards {
        Afterwards::Nothing => {}
        Afterwards::CallOutcome(call, _) => line += &format!("; then it called {call}"),
        Afterwards::Dropped => line += "; then it dropped its group",
    }
    if let Some(failure) = &dump.failure {
        line += &format!("; it says: {}", failure.text);
    }
    line
}
