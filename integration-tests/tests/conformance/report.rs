//! Adds up what came of the cases, and holds it against what came of the project's own before.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use crate::deviations::{self, Deviation};
use crate::harness::{Topic, Vectors, Verdict};

/// What came of all cases.
#[derive(Default)]
pub(crate) struct Report {
    /// One for each topic that has a file.
    tallies: Vec<(&'static str, Tally)>,
    /// The cases that failed.
    failed: Vec<String>,
    deviations: BTreeMap<Deviation, usize>,
    not_askable: BTreeMap<&'static str, usize>,
    missing: Vec<String>,
    unclaimed: Vec<String>,
}

/// How many cases of a topic came to what.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) deviations: usize,
    pub(crate) not_askable: usize,
}

impl Tally {
    pub(crate) fn of<'a>(verdicts: impl IntoIterator<Item = &'a Verdict>) -> Self {
        let mut tally = Self::default();
        for verdict in verdicts {
            *match verdict {
                Verdict::Passed => &mut tally.passed,
                Verdict::Deviates(_) => &mut tally.deviations,
                Verdict::NotAskable(_) => &mut tally.not_askable,
                Verdict::Failed(_) => &mut tally.failed,
            } += 1;
        }
        tally
    }
}

impl Report {
    pub(crate) fn add(&mut self, topic: &Topic, judged: &[(String, Verdict)]) {
        for (case, verdict) in judged {
            match verdict {
                Verdict::Passed => {}
                Verdict::Deviates(rules) => {
                    for rule in rules {
                        *self.deviations.entry(*rule).or_default() += 1;
                    }
                }
                Verdict::NotAskable(why) => *self.not_askable.entry(*why).or_default() += 1,
                Verdict::Failed(how) => self.failed.push(format!("{} {case}: {how}", topic.name)),
            }
        }
        if judged.is_empty() {
            self.failed.push(format!("{} has no case", topic.file));
        }
        let tally = Tally::of(judged.iter().map(|(_, verdict)| verdict));
        self.tallies.push((topic.name, tally));
    }

    pub(crate) fn add_missing(&mut self, topic: &Topic, error: &io::Error) {
        self.missing.push(format!("{}: {error}", topic.file));
    }

    pub(crate) fn add_unclaimed(&mut self, files: Vec<String>) {
        self.unclaimed = files;
    }

    /// The tally of a topic that has a file.
    pub(crate) fn tally(&self, topic: &str) -> Option<Tally> {
        let mut tallies = self.tallies.iter();
        Some(tallies.find(|(name, _)| *name == topic)?.1)
    }

    /// All that must not be: what failed, and of the project's own files what is not accounted for.
    /// Rules that none of their cases fits may have one in `more`.
    pub(crate) fn problems(&self, vectors: &Vectors, more: &Self) -> Vec<String> {
        let mut problems = self.failed.clone();
        match vectors {
            Vectors::Own(_) => problems.extend(self.gaps(more)),
            Vectors::Given(folder) if self.tallies.is_empty() => {
                problems.push(format!("{} has no file of any topic", folder.display()));
            }
            Vectors::Given(_) => {}
        }
        problems
    }

    /// Files without a topic, topics without a file, rules without a case, and topics
    /// whose cases came to something else than before.
    fn gaps(&self, more: &Self) -> Vec<String> {
        let missing = self.missing.iter().map(|file| format!("missing: {file}"));
        let unclaimed = self.unclaimed.iter();
        let unclaimed = unclaimed.map(|file| format!("no topic claims {file}"));
        let fits = |rule: &Deviation| {
            [self, more]
                .iter()
                .any(|it| it.deviations.contains_key(rule))
        };
        let idle = deviations::all().filter(|rule| !fits(rule));
        let idle = idle.map(|Deviation { rule, .. }| format!("no case fits the rule: {rule}"));
        let counts: Vec<String> = self.counts().collect();
        let before: Vec<&str> = COUNTS.lines().collect();
        let moved = (counts != before).then(|| {
            let new = counts
                .iter()
                .filter(|line| !before.contains(&line.as_str()));
            let old = before
                .iter()
                .filter(|line| !counts.iter().any(|count| count.as_str() == **line));
            let signed = old
                .map(|line| format!("- {line}"))
                .chain(new.map(|line| format!("+ {line}")));
            let signed: Vec<String> = signed.collect();
            format!("counts are not those of counts.txt:\n{}", signed.join("\n"))
        });
        missing.chain(unclaimed).chain(idle).chain(moved).collect()
    }

    fn counts(&self) -> impl Iterator<Item = String> {
        let tallies = self.tallies.iter();
        tallies.map(|(topic, tally)| format!("{topic}: {tally}"))
    }
}

/// What the cases that the project carries come to.
const COUNTS: &str = include_str!("counts.txt");

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counts().try_for_each(|line| writeln!(f, "{line}"))?;
        for file in &self.missing {
            writeln!(f, "missing: {file}")?;
        }
        for file in &self.unclaimed {
            writeln!(f, "unclaimed: {file}")?;
        }
        for (Deviation { rule, reason }, times) in &self.deviations {
            writeln!(f, "deviation ({times} cases): {rule}: {reason}")?;
        }
        for (reason, times) in &self.not_askable {
            writeln!(f, "not askable ({times} cases): {reason}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            passed,
            failed,
            deviations,
            not_askable,
        } = self;
        write!(
            f,
            "{passed} passed, {failed} failed, {deviations} deviations, {not_askable} not askable"
        )
    }
}
