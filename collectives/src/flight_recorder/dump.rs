//! The dump of one rank, as JSON that [`crate::diagnosis`] reads.

use std::sync::Arc;

use serde_json::{Value, json};

use super::clock::{Scale, whole_micros};
use super::journal::{Ending, LENGTH, MediumKind, Record};
use super::{Afterwards, FlightRecorder, Log, State, locked};
use crate::contract::{Call, Contract, site};
use crate::{LossCause, OperationError, Rank};

impl FlightRecorder {
    pub(super) fn text(&self, state: &State) -> String {
        let address = self.members[self.rank.index()].address();
        let scale = self.clock.scale();
        let last = last_operations(&state.logs);
        let operations = last
            .iter()
            .map(|(log, record)| self.operation(log, record, scale));
        let dump = json!({
            "version": 1,
            "rank": self.rank.number(),
            "world": self.members.len(),
            "address": address,
            "process": std::process::id(),
            "run": self.run.get().map(|run| format!("{run:016x}")),
            "joined": self.clock.micros(self.clock.began(), scale),
            "written": self.clock.micros(self.clock.now(), scale),
            "failure": state.failure.as_ref().map(failure),
            "afterwards": self.afterwards_value(&state.afterwards, scale),
            "operations": operations.collect::<Vec<_>>(),
        });
        // One value to a line is read by people, too.
        format!("{dump:#}\n")
    }

    fn operation(&self, log: &Log, record: &Record, scale: Scale) -> Value {
        let micros = |tick| self.clock.micros(tick, scale);
        let waits = locked(&log.long).of(record).into_iter().map(|waited| {
            json!({
                "rank": waited.rank.number(),
                "micros": whole_micros(scale.between(waited.from, waited.until)),
            })
        });
        let waits = waits.collect::<Vec<_>>();
        let mut value = call(&Call::new(record.contract, site(record.caller)));
        value["began"] = micros(record.began).into();
        value["ended"] = record.ended.map(|(ended, _)| micros(ended)).into();
        value["well"] = record.ended.map(|(_, how)| how == Ending::Well).into();
        value["carrier"] = match record.medium {
            MediumKind::Memory => "memory",
            MediumKind::Links => "quic",
        }
        .into();
        value["waits"] = waits.into();
        value
    }

    fn afterwards_value(&self, afterwards: &Afterwards, scale: Scale) -> Value {
        let micros = |tick| self.clock.micros(tick, scale);
        match afterwards {
            Afterwards::Nothing => Value::Null,
            Afterwards::CallOutcome(late, at) => json!({ "called": call(late), "at": micros(*at) }),
            Afterwards::Dropped(at) => json!({ "dropped": true, "at": micros(*at) }),
        }
    }
}

/// The last operations of all groups in the order in which they began, and all that are not over.
fn last_operations(logs: &[Arc<Log>]) -> Vec<(&Log, Record)> {
    let mut all = Vec::new();
    for log in logs {
        all.extend(log.journal.records().map(|record| (&**log, record)));
    }
    all.sort_by_key(|(_, record)| (record.began, record.serial));
    let old = all.len().saturating_sub(LENGTH);
    let mut place = 0;
    all.retain(|(_, record)| {
        place += 1;
        place > old || record.ended.is_none()
    });
    all
}

/// A call in parts: `what` is the same on all ranks that make the same call.
fn call(call: &Call) -> Value {
    let contract = *call.contract();
    json!({
        "group": format!("{:016x}", contract.group),
        "epoch": contract.epoch,
        "sequence": contract.sequence,
        "what": what(contract),
        "by": contract.algorithm.map(|algorithm| algorithm.to_string()),
        "site": call.site(),
    })
}

/// A call without its number, which has a field of its own: that of the next round is the same.
pub(super) fn what(contract: Contract) -> String {
    let call = Call::new(
        Contract {
            sequence: 0,
            group: 0,
            epoch: 0,
            algorithm: None,
            ..contract
        },
        "",
    );
    call.to_string().replacen(" #0", "", 1)
}

fn failure(error: &OperationError) -> Value {
    let mut value = json!({ "kind": "other", "text": error.to_string() });
    match error {
        OperationError::RankLost {
            peer,
            cause,
            reporter,
            heard,
            completed,
        } => {
            value["kind"] = "lost".into();
            value["peer"] = peer.rank().number().into();
            value["reporter"] = reporter.map(Rank::number).into();
            value["heard"] = heard.map(whole_micros).into();
            value["completed"] = (*completed).into();
            value["cause"] = match cause {
                LossCause::Died => "died",
                LossCause::Silent(_) => "silent",
                LossCause::Stopped => "stopped",
                LossCause::PortClosed => "port closed",
                LossCause::Disconnected => "disconnected",
                LossCause::Left => "left",
            }
            .into();
        }
        OperationError::Disagreement {
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
        OperationError::TimedOut { rank, peer, .. } => {
            value["kind"] = "timed out".into();
            value["rank"] = rank.number().into();
            value["peer"] = peer.number().into();
        }
        _ => {}
    }
    value
}
