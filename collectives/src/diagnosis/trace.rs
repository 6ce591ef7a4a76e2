//! Operations of all ranks on one time line.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::dump::{Dump, Operation};

/// The operations of all dumps in the JSON form of the Trace Event Format, which Perfetto and
/// Chrome's `about:tracing` show: a process for each rank, a thread for each of its groups.
///
/// Times are those of each host's own clock.
#[must_use]
pub fn trace(dumps: &[Dump]) -> String {
    let events: Vec<Value> = dumps.iter().flat_map(events).collect();
    json!({ "displayTimeUnit": "ms", "traceEvents": events }).to_string()
}

fn events(dump: &Dump) -> Vec<Value> {
    let rank = dump.rank.number();
    let groups: BTreeSet<&str> = dump
        .operations
        .iter()
        .map(|operation| operation.call.group.as_str())
        .collect();
    let thread = |group: &str| groups.iter().position(|known| *known == group);
    let mut events = vec![json!({
        "ph": "M", "name": "process_name", "pid": rank,
        "args": { "name": format!("rank {rank} ({})", dump.address) },
    })];
    events.extend(groups.iter().map(|group| {
        json!({
            "ph": "M", "name": "thread_name", "pid": rank, "tid": thread(group),
            "args": { "name": format!("group {group}") },
        })
    }));
    let operations = dump.operations.iter();
    events.extend(operations.map(|operation| {
        let mut event = complete(operation, dump.written);
        event["pid"] = rank.into();
        event["tid"] = thread(&operation.call.group).into();
        event
    }));
    if let Some(failure) = &dump.failure {
        events.push(json!({
            "ph": "i", "s": "p", "name": "failed", "pid": rank, "ts": dump.written,
            "args": { "error": failure.text },
        }));
    }
    events
}

fn complete(operation: &Operation, written: u64) -> Value {
    let Operation {
        call,
        began,
        ended,
        well,
        data_transport,
        waits,
    } = operation;
    let waits = waits
        .iter()
        .map(|(rank, micros)| json!({ "rank": rank.number(), "micros": micros }));
    json!({
        "ph": "X",
        "name": call.what,
        "cat": data_transport,
        "ts": began,
        "dur": ended.unwrap_or(written).saturating_sub(*began),
        "args": {
            "sequence": call.sequence,
            "site": call.site,
            "well": well,
            "finished": ended.is_some(),
            "waits": waits.collect::<Vec<_>>(),
        },
    })
}
