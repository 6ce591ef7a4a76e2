//! A rank's last operations in few bytes, for a time line of many ranks.

use serde_json::{Value, json};

use crate::snapshot::{number_of, text_of};

/// One line of JSON from what [`StatusSource::dump`](crate::StatusSource::dump) says; nothing from
/// anything else. Operations are `[began, ended or null, call, [[rank waited for, microseconds],
/// …]]`, with times in microseconds since 1970 and calls by their places in a list.
pub(crate) fn line(dump: &str) -> String {
    let value = serde_json::from_str(dump).ok();
    let short = value.and_then(|value| shortened(&value));
    short.map_or_else(String::new, |short| format!("{short}\n"))
}

fn shortened(dump: &Value) -> Option<Value> {
    let mut calls = Vec::new();
    let operations = dump["operations"].as_array()?.iter();
    let operations: Option<Vec<_>> = operations
        .map(|operation| one(operation, &mut calls))
        .collect();
    Some(json!({
        "rank": number_of(&dump["rank"])?,
        "now": dump["written"].as_u64()?,
        "operations": operations?,
        "calls": calls,
    }))
}

fn one(operation: &Value, calls: &mut Vec<String>) -> Option<Value> {
    let (what, site) = (text_of(&operation["what"])?, text_of(&operation["site"])?);
    let call = format!("{what} at {site}");
    let place = calls.iter().position(|known| *known == call);
    let place = place.unwrap_or_else(|| {
        calls.push(call);
        calls.len() - 1
    });
    let waits = operation["waits"].as_array()?.iter();
    let waits: Vec<_> = waits
        .map(|wait| json!([wait["rank"], wait["micros"]]))
        .collect();
    Some(json!([
        operation["began"].as_u64()?,
        operation["ended"],
        place,
        waits
    ]))
}

#[cfg(test)]
mod tests {
    use meshwork_collectives::{Group, ReduceOp};

    use super::*;

    #[test]
    fn operations_of_a_dump_are_all_there_and_calls_are_told_once() {
        let mut group = Group::local(1).unwrap().remove(0);
        for _ in 0..5 {
            group.all_reduce(&mut [1.0_f32; 4], ReduceOp::Sum).unwrap();
        }
        group.barrier().unwrap();
        let line = line(&group.observer().dump());
        assert_eq!(line.matches('\n').count(), 1);
        let value: Value = serde_json::from_str(&line).unwrap();
        let operations = value["operations"].as_array().unwrap();
        let last = &operations[operations.len() - 6..];
        assert_eq!(value["rank"], 0);
        assert!(last[..5].iter().all(|operation| operation[2] == last[0][2]));
        assert_ne!(last[5][2], last[0][2]);
        for operation in last {
            assert!(operation[0].as_u64() <= operation[1].as_u64());
        }
        let place = usize::try_from(last[5][2].as_u64().unwrap()).unwrap();
        let call = value["calls"][place].as_str();
        assert!(call.unwrap().starts_with("barrier"), "{value}");
        assert_eq!(super::line("{}"), "");
        assert_eq!(super::line("no dump"), "");
    }
}
