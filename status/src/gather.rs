//! Asks the other ranks on behalf of whoever looks at this one.
//!
//! ```text
//!   page ──> rank asked ──> last rank ─┬─> last rank of a 32nd of the others ─┬─> rank
//!                                      ├─> …                                  └─> …
//!                                      └─> …
//! ```
//!
//! Up to 32 other ranks are asked at once, and more by way of 32 of them, which put the lines of
//! theirs together unread. Of more, a job is put together by its last rank, whose answer the rank
//! asked hands on unread: people open the page of the chief, which has enough to do. Only while
//! somebody looks, one gathering of a kind at a time, and what was gathered a moment ago is said
//! again.

mod scope;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use serde_json::{Value, json};

use crate::client::{Ask, ask_all};
use crate::directory::Directory;
use crate::job::JobWatch;
use crate::look::{Look, Unanswered};
use crate::report::StatusSource;
use crate::settings::Settings;
use crate::{json, operations, process};

use scope::aggregator;
pub(crate) use scope::{Asker, Part, Scope, Subject};

/// How long a rank may take that speaks for itself: one that works answers at once.
const PATIENCE: Duration = Duration::from_millis(700);
/// How long one may take that asks others.
const PART_PATIENCE: Duration = Duration::from_millis(1600);
/// How long one may take that puts the whole job together.
const AGGREGATOR_PATIENCE: Duration = Duration::from_millis(2500);
/// How long all of it may take, so that whoever looks has an answer in the time of a request.
const ALL: Duration = Duration::from_secs(3);
/// The same after an aggregator has given none.
const WITHOUT_AGGREGATOR: Duration = Duration::from_secs(2);
/// How long what was gathered is said again.
const FRESH: Duration = Duration::from_millis(450);
/// Answers of one kind that are kept.
const KEPT: usize = 4;

/// Puts together what ranks say.
pub(crate) struct Gatherer {
    settings: Settings,
    source: Arc<dyn StatusSource>,
    began: Instant,
    known: Mutex<Known>,
    gatherings: Gatherings,
}

/// What is known from gatherings before.
#[derive(Default)]
struct Known {
    watch: JobWatch,
    /// Ranks that have not answered last: they speak for no part.
    silent: HashSet<u32>,
}

/// One gathering of each kind at a time. Those for which one waits are further down: no rank waits
/// for itself by way of others.
#[derive(Default)]
struct Gatherings {
    for_looker: Gathering,
    for_rank: Gathering,
    of_parts: Gathering,
    of_ranks: Gathering,
}

type Gathering = tokio::sync::Mutex<Answers>;

/// What was gathered a moment ago, the last one last.
#[derive(Default)]
struct Answers(Vec<Kept>);

struct Kept {
    /// `None` for the whole job.
    scope: Option<Scope>,
    at: Instant,
    text: Bytes,
}

impl Gatherer {
    pub(crate) fn new(settings: Settings, source: Arc<dyn StatusSource>) -> Self {
        Self {
            settings,
            source,
            began: Instant::now(),
            known: Mutex::default(),
            gatherings: Gatherings::default(),
        }
    }

    /// How the whole job fares, as JSON.
    pub(crate) async fn job(&self, asker: Asker) -> Bytes {
        let gathering = match asker {
            Asker::Looker => &self.gatherings.for_looker,
            Asker::Rank => &self.gatherings.for_rank,
        };
        let mut answers = gathering.lock().await;
        if let Some(text) = answers.fresh(None) {
            return text;
        }
        let members = self.source.members();
        let aggregator = match asker {
            Asker::Looker => aggregator(self.me(), members.len(), &self.known().silent),
            Asker::Rank => None,
        };
        let mut until = Instant::now() + ALL;
        if let Some(aggregator) = aggregator {
            match self.by_way_of(aggregator, &members).await {
                Some(text) => return answers.keep(None, text),
                None => self.known().silent.insert(aggregator),
            };
            until = Instant::now() + WITHOUT_AGGREGATOR;
        }
        let lines = self.gather(&Scope::ALL, until).await;
        let mut value = self.see(&lines);
        value["asked"] = self.source.report().group.rank.number().into();
        answers.keep(None, format!("{value}\n"))
    }

    /// How the job fares by what its ranks say now, and have said before.
    fn see(&self, lines: &str) -> Value {
        let mut known = self.known();
        let at = self.began.elapsed().as_secs_f64();
        let look = Look::from_lines(at, lines.lines().map(Ok));
        let unanswered = look.unanswered().iter();
        known.silent = unanswered.filter_map(|one| one.rank).collect();
        known.watch.see(look).json()
    }

    /// What the ranks of a scope say, a line of JSON each, in any order.
    pub(crate) async fn lines(&self, scope: Scope) -> Bytes {
        if scope.hops == 0 {
            // It costs no other rank anything.
            let own = scope.ranks.contains(&self.me());
            return if own {
                self.own_line(scope.subject)
            } else {
                String::new()
            }
            .into();
        }
        let gathering = match scope.hops {
            1 => &self.gatherings.of_ranks,
            _ => &self.gatherings.of_parts,
        };
        let mut answers = gathering.lock().await;
        if let Some(text) = answers.fresh(Some(&scope)) {
            return text;
        }
        let lines = self.gather(&scope, Instant::now() + ALL).await;
        answers.keep(Some(scope), lines)
    }

    /// Never held while others are asked. Nothing that holds it panics half-way through a change.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn me(&self) -> u32 {
        self.source.report().group.rank.number()
    }

    fn own_line(&self, subject: Subject) -> String {
        match subject {
            Subject::Status => json::line(&self.source.report(), process::cpu_times().as_ref()),
            Subject::Operations => operations::line(&self.source.dump()),
        }
    }

    async fn gather(&self, scope: &Scope, until: Instant) -> String {
        let (me, members) = (self.me(), self.source.members());
        let mut lines = match scope.ranks.contains(&me) {
            true => self.own_line(scope.subject),
            false => String::new(),
        };
        let directory = self.directory(&members);
        let parts = scope.parts(me, members.len(), &self.known().silent);
        let mut left = Vec::new();
        for (part, said) in self.ask(scope, parts, &directory, until).await {
            match said {
                Ok(text) => lines.push_str(&text),
                Err(one) => {
                    lines += &unanswered(part.speaker, &one);
                    left.extend(part.without_speaker());
                }
            }
        }
        for (part, said) in self.ask(scope, left, &directory, until).await {
            match said {
                Ok(text) => lines.push_str(&text),
                Err(one) => lines += &unanswered(part.speaker, &one),
            }
        }
        lines
    }

    fn directory<'a>(&'a self, members: &'a [String]) -> Directory<'a> {
        let group = self.source.report().group;
        Directory {
            first: self.settings.address,
            folder: self.settings.folder.as_deref(),
            members,
            me: group.rank.number(),
            view: group.view,
        }
    }

    /// What another has put together, or nothing if it does not answer.
    async fn by_way_of(&self, aggregator: u32, members: &[String]) -> Option<String> {
        let ask = Ask {
            target: self.directory(members).find(aggregator)?,
            path: Asker::RELAYED.to_owned(),
            patience: AGGREGATOR_PATIENCE,
            until: None,
        };
        let said = ask_all(self.settings.token.as_ref(), vec![ask]).await;
        let said = said.into_iter().next()?.ok();
        // Whoever else listens there by now is not passed on.
        said.filter(|text| text.starts_with('{'))
    }

    /// Asks the speakers of parts at the same time.
    async fn ask(
        &self,
        scope: &Scope,
        parts: Vec<Part>,
        directory: &Directory<'_>,
        until: Instant,
    ) -> Vec<(Part, Result<String, Unanswered>)> {
        let (mut answers, mut asked) = (Vec::new(), Vec::new());
        for part in parts {
            match directory.find(part.speaker) {
                Some(target) => asked.push((part, target)),
                None => answers.push((part, Err(Unanswered::unasked()))),
            }
        }
        let asks = asked.iter().map(|(part, target)| Ask {
            target: target.clone(),
            path: scope.path_of(part),
            patience: match part.ranks.len() > 1 {
                true => PART_PATIENCE,
                false => PATIENCE,
            },
            until: Some(until),
        });
        let said = ask_all(self.settings.token.as_ref(), asks.collect()).await;
        for ((part, target), said) in asked.into_iter().zip(said) {
            answers.push((part, said.map_err(|error| target.unanswered(&error))));
        }
        answers
    }
}

fn unanswered(rank: u32, one: &Unanswered) -> String {
    let line = json!({
        "rank": rank,
        "unanswered": one.why,
        "silence": one.silence.name(),
    });
    format!("{line}\n")
}

impl Answers {
    fn fresh(&self, scope: Option<&Scope>) -> Option<Bytes> {
        let mut kept = self.0.iter().rev();
        let kept = kept.find(|kept| kept.scope.as_ref() == scope)?;
        (kept.at.elapsed() < FRESH).then(|| kept.text.clone())
    }

    fn keep(&mut self, scope: Option<Scope>, text: String) -> Bytes {
        let text = Bytes::from(text);
        self.0.retain(|kept| kept.scope != scope);
        let surplus = (self.0.len() + 1).saturating_sub(KEPT);
        self.0.drain(..surplus);
        self.0.push(Kept {
            scope,
            at: Instant::now(),
            text: text.clone(),
        });
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::culprit::culprit;
    use crate::look::Silence;
    use crate::snapshot::{RankCall, RankStatus};

    /// Who is named of two ranks after five looks, a second apart, in which rank 0 waits for the
    /// other.
    fn named(silences: [Silence; 5]) -> Option<u32> {
        let looks = (0_u32..).zip(silences).map(|(at, silence)| {
            let one = Unanswered {
                silence,
                ..Unanswered::unasked()
            };
            let line = unanswered(1, &one);
            let read = Look::from_lines(0.0, line.lines().map(Ok));
            assert_eq!(read.unanswered()[0].silence, silence);
            let waits = RankStatus {
                world: 2,
                current: Some(RankCall {
                    seconds: 1.0,
                    awaited: Some(1),
                    ..RankCall::default()
                }),
                ..RankStatus::default()
            };
            Look::new(f64::from(at), vec![waits], read.unanswered().to_vec())
        });
        let looks: Vec<_> = looks.collect();
        culprit(&looks).map(|culprit| culprit.rank)
    }

    #[test]
    fn a_rank_that_nobody_could_ask_is_not_accused() {
        use Silence::{Unasked, Unknown};
        assert_eq!(Unanswered::unasked().silence, Unasked);
        assert_eq!(named([Unasked; 5]), None);
        assert_eq!(named([Unknown; 5]), Some(1));
        // The time in which it was not asked does not count.
        assert_eq!(named([Unasked, Unasked, Unasked, Unknown, Unknown]), None);
    }
}
