//! The dump of one rank, as JSON that [`crate::diagnosis`] reads.

use std::time::Instant;

use serde_json::{Value, json};

use super::ring::{Carrier, Ending, Record};
use super::{Afterwards, Recorder, State};
use crate::contract::{Call, Contract, site};
use crate::{Error, LossCause, Rank};

impl Recorder {
    pub(super) fn text(&self, state: &State) -> String {
        let address = self.members[self.rank.index()].address();
        let operations = state.ring.records().map(|record| self.operation(record));
        let dump = json!({
            "version": 1,
            "rank": self.rank.number(),
            "world": self.members.len(),
            "address": address,
            "process": std::process::id(),
            "written": self.micros(Instant::now()),
            "failure": state.failure.as_ref().map(failure),
            "afterwards": self.afterwards_value(&state.afterwards),
            "operations": operations.collect::<Vec<_>>(),
        });
        // One value to a line is read by people, too.
        format!("{dump:#}\n")
    }

    fn operation(&self, record: &Record) -> Value {
        let waits = record.waits.iter().map(|waited| {
            let long = waited.until.saturating_duration_since(waited.from);
            json!({
                "rank": waited.rank.number(),
                "micros": u64::try_from(long.as_micros()).unwrap_or(u64::MAX),
            })
        });
        let mut value = call(&Call::new(record.contract, site(record.caller)));
        value["began"] = self.micros(record.began).into();
        value["ended"] = record.ended.map(|(ended, _)| self.micros(ended)).into();
        value["well"] = record.ended.map(|(_, how)| how == Ending::Well).into();
        value["carrier"] = match record.carrier {
            Carrier::Memory => "memory",
            Carrier::Links => "quic",
        }
        .into();
        value["waits"] = waits.collect::<Vec<_>>().into();
        value
    }

    fn afterwards_value(&self, afterwards: &Afterwards) -> Value {
        match afterwards {
            Afterwards::Nothing => Value::Null,
            Afterwards::Called(late, at) => json!({ "called": call(late), "at": self.micros(*at) }),
            Afterwards::Dropped(at) => json!({ "dropped": true, "at": self.micros(*at) }),
        }
    }
}

/// A call in parts: `what` is the same on all ranks that make the same call.
fn call(call: &Call) -> Value {
    let contract = *call.contract();
    // A sequence number of its own field: `what` of the next round is that of this one.
    let what = Call::new(
        Contract {
            sequence: 0,
            group: 0,
            epoch: 0,
            algorithm: None,
            ..contract
        },
        "",
    );
    json!({
        "group": format!("{:016x}", contract.group),
        "epoch": contract.epoch,
        "sequence": contract.sequence,
        "what": what.to_string().replacen(" #0", "", 1),
        "by": contract.algorithm.map(|algorithm| algorithm.to_string()),
        "site": call.site(),
    })
}

fn failure(error: &Error) -> Value {
    let mut value = json!({ "kind": "other", "text": error.to_string() });
    match error {
        Error::RankLost {
            peer,
            cause,
            reporter,
        } => {
            value["kind"] = "lost".into();
            value["peer"] = peer.rank().number().into();
            value["reporter"] = reporter.map(Rank::number).into();
            value["cause"] = match cause {
                LossCause::Died => "died",
                LossCause::Silent(_) => "silent",
                LossCause::Stopped => "stopped",
                LossCause::Disconnected => "disconnected",
                LossCause::Left => "left",
            }
            .into();
        }
        Error::Disagreement {
            rank,
            mine,
            peer,
            theirs,
        } => {
            value["kind"] = "disagreement".into();
            value["calls"] = json!([
                { "rank": rank.number(), "call": call(mine) },
                { "rank": peer.number(), "call": call(theirs) },
            ]);
        }
        Error::TimedOut { rank, peer, .. } => {
            value["kind"] = "timed out".into();
            value["rank"] = rank.number().into();
            value["peer"] = peer.number().into();
        }
        _ => {}
    }
    value
}
