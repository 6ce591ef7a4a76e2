//! Dumps as their ranks wrote them.

use std::fmt::{self, Display};

use serde_json::Value;

use crate::Rank;

/// The only format of dumps that there is.
const FORMAT: u64 = 1;

/// What one rank left behind.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Dump {
    pub(super) rank: Rank,
    pub(super) world: u32,
    pub(super) address: String,
    /// What all ranks of its run and view share, if they had met.
    pub(super) run: Option<String>,
    /// When the rank began to join; 0 where that is not told.
    pub(super) joined: u64,
    /// When it was written, like all times in microseconds since 1970 by that host's clock.
    pub(super) written: u64,
    pub(super) failure: Option<Failure>,
    pub(super) afterwards: Afterwards,
    /// The oldest first.
    pub(super) operations: Vec<Operation>,
}

/// A file that should be a dump cannot be read as one.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// It is not JSON from some place on.
    #[error("not JSON from line {line}, column {column} on: was the file cut off?")]
    NotJson {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
    /// Another release wrote it.
    #[error(
        "a dump of format {found}, but this program reads format {FORMAT}: use the release that wrote it"
    )]
    Version {
        /// Its format.
        found: u64,
    },
    /// A field is missing, or has a value that no rank writes there.
    #[error("no dump of a rank: its {field} cannot be used; was the file edited?")]
    Field {
        /// The first such field.
        field: &'static str,
    },
}

/// A call that a rank made: what, and from which line of its program.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PastCall {
    pub(super) group: String,
    pub(super) sequence: u64,
    pub(super) what: String,
    /// The algorithm, where one was chosen.
    pub(super) by: Option<String>,
    pub(super) site: String,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Operation {
    pub(super) call: PastCall,
    pub(super) began: u64,
    pub(super) ended: Option<u64>,
    pub(super) well: bool,
    pub(super) data_transport: String,
    /// The ranks that it waited for at length, and for how long.
    pub(super) waits: Vec<(Rank, u64)>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Failure {
    pub(super) text: String,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Lost {
        peer: Rank,
        how: Loss,
        reporter: Option<Rank>,
    },
    Disagreement(Box<[(Rank, PastCall); 2]>),
    TimedOut {
        rank: Rank,
        peer: Rank,
    },
    Other,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Loss {
    Died,
    Left,
    /// Nothing was heard of it, or its connection ended.
    Unheard,
}

/// What the rank did after the failure.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Afterwards {
    Nothing,
    CallOutcome(PastCall, u64),
    Dropped,
}

impl Dump {
    /// Reads a dump.
    ///
    /// # Errors
    /// [`DumpError`], of the first thing that is not as this version writes it.
    pub fn from_json(text: &str) -> Result<Self, DumpError> {
        let value: Value = serde_json::from_str(text).map_err(|error| DumpError::NotJson {
            line: error.line(),
            column: error.column(),
        })?;
        let version = value["version"]
            .as_u64()
            .ok_or_else(|| unusable("version"))?;
        if version != FORMAT {
            return Err(DumpError::Version { found: version });
        }
        let rank = rank(&value["rank"]).ok_or_else(|| unusable("rank"))?;
        let world = rank_number(&value["world"]).ok_or_else(|| unusable("world"))?;
        if rank.number() >= world {
            return Err(unusable("rank"));
        }
        let operations = value["operations"].as_array();
        let operations = operations.ok_or_else(|| unusable("operations"))?;
        Ok(Self {
            rank,
            world,
            address: string(&value["address"]).ok_or_else(|| unusable("address"))?,
            run: string(&value["run"]),
            joined: value["joined"].as_u64().unwrap_or_default(),
            written: value["written"]
                .as_u64()
                .ok_or_else(|| unusable("written"))?,
            failure: match &value["failure"] {
                Value::Null => None,
                failure => Some(read_failure(failure).ok_or_else(|| unusable("failure"))?),
            },
            afterwards: read_afterwards(&value["afterwards"])
                .ok_or_else(|| unusable("afterwards"))?,
            operations: operations
                .iter()
                .map(|operation| read_operation(operation).ok_or_else(|| unusable("operations")))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Whose dump it is.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// How many ranks the job had.
    #[must_use]
    pub fn world(&self) -> u32 {
        self.world
    }

    /// When it was written, in microseconds since 1970 by the clock of its host.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// When its rank began to join the group that failed, by the same clock; 0 if it does not tell.
    #[must_use]
    pub fn joined(&self) -> u64 {
        self.joined
    }

    /// Whether both are of one run of a job and one membership in it. Where a rank had not met the
    /// others yet, that goes by the time and by how many there were.
    #[must_use]
    pub fn is_of_same_run(&self, other: &Self) -> bool {
        match (&self.run, &other.run) {
            (Some(run), Some(others)) => run == others,
            _ => {
                let overlap = self.joined <= other.written && other.joined <= self.written;
                overlap && self.world == other.world
            }
        }
    }

    /// The operation that the rank was in when its group failed: the last that did not end well.
    pub(super) fn stuck(&self) -> Option<&Operation> {
        self.operations
            .iter()
            .rev()
            .find(|operation| !operation.well)
    }
}

impl PastCall {
    /// What was called, as in `all_reduce of 64 f32, sum`.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.what
    }

    /// The `file:line` of the caller; empty where it is not known.
    #[must_use]
    pub fn site(&self) -> &str {
        &self.site
    }

    /// The operation's number in its group, from 1.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether both are the same line of the program doing the same, whenever that was.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (&self.group, &self.what, &self.site) == (&other.group, &other.what, &other.site)
    }
}

impl Display for PastCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(algorithm) = &self.by {
            write!(f, ", by {algorithm}")?;
        }
        write!(f, " (#{}", self.sequence)?;
        if self.group.bytes().any(|digit| digit != b'0') {
            write!(f, " of split group {}", self.group)?;
        }
        f.write_str(")")?;
        match self.site.as_str() {
            "" => Ok(()),
            site => write!(f, " at {site}"),
        }
    }
}

fn unusable(field: &'static str) -> DumpError {
    DumpError::Field { field }
}

fn read_operation(value: &Value) -> Option<Operation> {
    let waits = value["waits"].as_array()?.iter();
    Some(Operation {
        call: read_call(value)?,
        began: value["began"].as_u64()?,
        ended: value["ended"].as_u64(),
        // Nobody knows yet of one that goes on.
        well: value["well"].as_bool() == Some(true),
        data_transport: string(&value["carrier"])?,
        waits: waits
            .map(|wait| Some((rank(&wait["rank"])?, wait["micros"].as_u64()?)))
            .collect::<Option<_>>()?,
    })
}

fn read_call(value: &Value) -> Option<PastCall> {
    Some(PastCall {
        group: string(&value["group"])?,
        sequence: value["sequence"].as_u64()?,
        what: string(&value["what"])?,
        by: string(&value["by"]),
        site: string(&value["site"])?,
    })
}

fn read_failure(value: &Value) -> Option<Failure> {
    let kind = match value["kind"].as_str()? {
        "lost" => Kind::Lost {
            peer: rank(&value["peer"])?,
            how: match value["cause"].as_str()? {
                "died" | "port closed" => Loss::Died,
                "left" => Loss::Left,
                "silent" | "stopped" | "disconnected" => Loss::Unheard,
                _ => return None,
            },
            reporter: rank(&value["reporter"]),
        },
        "disagreement" => {
            let called = |place: usize| {
                let call = &value["calls"][place];
                Some((rank(&call["rank"])?, read_call(&call["call"])?))
            };
            Kind::Disagreement(Box::new([called(0)?, called(1)?]))
        }
        "timed out" => Kind::TimedOut {
            rank: rank(&value["rank"])?,
            peer: rank(&value["peer"])?,
        },
        _ => Kind::Other,
    };
    let text = string(&value["text"])?;
    Some(Failure { text, kind })
}

fn read_afterwards(value: &Value) -> Option<Afterwards> {
    if value.is_null() {
        return Some(Afterwards::Nothing);
    }
    let at = value["at"].as_u64()?;
    match &value["called"] {
        Value::Null => Some(Afterwards::Dropped),
        called => Some(Afterwards::CallOutcome(read_call(called)?, at)),
    }
}

/// Text without line feeds and the like, whoever wrote the file.
fn string(value: &Value) -> Option<String> {
    Some(value.as_str()?.replace(char::is_control, " "))
}

fn rank(value: &Value) -> Option<Rank> {
    rank_number(value).map(Rank::new)
}

fn rank_number(value: &Value) -> Option<u32> {
    u32::try_from(value.as_u64()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A dump of this run, from when its rank joined to when it was written.
    fn dump(run: Option<&str>, joined: u64, written: u64, world: u32) -> Dump {
        let value = serde_json::json!({
            "version": 1, "rank": 0, "world": world, "address": "a:1", "run": run,
            "joined": joined, "written": written, "operations": [],
        });
        Dump::from_json(&value.to_string()).unwrap()
    }

    #[test]
    fn dumps_are_of_one_run_by_what_it_is_called_or_else_by_time_and_size() {
        let last = dump(Some("b"), 500, 900, 4);
        assert_eq!((last.joined(), last.written()), (500, 900));
        let cases = [
            (dump(Some("b"), 500, 900, 4), true),
            // Clocks of hosts differ.
            (dump(Some("b"), 100, 400, 4), true),
            (dump(Some("a"), 500, 900, 4), false),
            (dump(None, 400, 700, 4), true),
            (dump(None, 400, 700, 3), false),
            (dump(None, 100, 499, 4), false),
            (dump(None, 901, 999, 4), false),
        ];
        for (other, same) in cases {
            assert_eq!(last.is_of_same_run(&other), same, "{other:?}");
            assert_eq!(other.is_of_same_run(&last), same, "{other:?}");
        }
    }

    #[test]
    fn a_dump_that_tells_nothing_of_its_run_is_read_as_before() {
        let older = r#"{ "version": 1, "rank": 1, "world": 4, "address": "b:1", "written": 700,
            "operations": [] }"#;
        let older = Dump::from_json(older).unwrap();
        assert_eq!(older.joined(), 0);
        assert!(older.is_of_same_run(&dump(Some("b"), 500, 900, 4)));
    }

    #[test]
    fn a_loss_of_an_unknown_cause_is_not_read() {
        let lost = |cause: &str| {
            let text = "rank 1 is lost";
            serde_json::json!({ "kind": "lost", "peer": 1, "cause": cause, "text": text })
        };
        for cause in [
            "died",
            "left",
            "silent",
            "stopped",
            "port closed",
            "disconnected",
        ] {
            assert!(read_failure(&lost(cause)).is_some(), "{cause}");
        }
        assert!(read_failure(&lost("bored")).is_none());
    }
}
