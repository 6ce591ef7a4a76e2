//! What one rank said of itself at one moment, read from its `/status.json`.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::process::CpuTimes;

/// How one rank fares. Times are in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RankStatus {
    /// Its rank.
    pub rank: u32,
    /// Its address, as the others know it.
    pub address: String,
    /// Its process, on its host.
    pub process: Option<u32>,
    /// How many ranks there are.
    pub world: u32,
    /// The number of the view.
    pub view: u64,
    /// Since it joined.
    pub age: f64,
    /// That it has spent in operations.
    pub in_operations: f64,
    /// The share of its time that this is.
    pub waiting_share: f64,
    /// The operation that it is in.
    pub current: Option<RankCall>,
    /// Operations so far, by all transports.
    pub operations: u64,
    /// Bytes of their buffers.
    pub bytes: u64,
    /// The fastest transport's.
    pub gigabytes_per_second: Option<f64>,
    /// Its connections.
    pub links: Vec<PeerLink>,
    /// What the program adds, by names.
    pub numbers: BTreeMap<String, f64>,
    /// How much of the processor it has had.
    pub cpu: Option<CpuTimes>,
    /// Who left and came, in order.
    pub changes: Vec<MemberChange>,
    /// Why its group is over.
    pub failure: Option<String>,
}

/// An operation that a rank is in.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RankCall {
    /// What was called.
    pub what: String,
    /// The `file:line` of the caller.
    pub site: String,
    /// Since it was called.
    pub seconds: f64,
    /// Whom it waits for, where it has waited at length.
    pub awaited: Option<u32>,
}

/// The connections with another rank.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PeerLink {
    /// The other rank.
    pub to: u32,
    /// For a packet and its confirmation, in seconds.
    pub round_trip: f64,
    /// Bytes of packets to it.
    pub bytes_sent: u64,
    /// Bytes of packets from it.
    pub bytes_received: u64,
    /// Packets to it.
    pub packets_sent: u64,
    /// Those of them that were lost.
    pub packets_lost: u64,
}

/// A rank that left or came.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MemberChange {
    /// The view that ended by it, or began with it.
    pub view: u64,
    /// Its address.
    pub address: Option<String>,
    /// Why the view ended; `None` of a rank that came.
    pub reason: Option<String>,
    /// Since then, in seconds.
    pub ago: f64,
}

impl RankStatus {
    /// `None` for anything that no rank says.
    #[must_use]
    pub fn from_json(text: &str) -> Option<Self> {
        Self::from_value(&serde_json::from_str(text).ok()?)
    }

    pub(crate) fn from_value(value: &Value) -> Option<Self> {
        if value["version"] != 1 {
            return None;
        }
        let traffic = value["traffic"].as_array()?;
        let sum = |field: &str| {
            let mut numbers = traffic.iter().map(|item| item[field].as_u64());
            numbers.try_fold(0_u64, |sum, number| sum.checked_add(number?))
        };
        let speeds = traffic
            .iter()
            .filter_map(|item| item["recent_gigabytes_per_second"].as_f64());
        Some(Self {
            rank: number_of(&value["rank"])?,
            address: text_of(&value["address"])?,
            process: number_of(&value["process"]),
            world: number_of(&value["world"])?,
            view: value["view"].as_u64()?,
            age: value["age_seconds"].as_f64()?,
            in_operations: value["in_operations_seconds"].as_f64()?,
            waiting_share: value["waiting_share"].as_f64()?,
            current: match &value["current"] {
                Value::Null => None,
                call => Some(RankCall::from_value(call)?),
            },
            operations: sum("operations")?,
            bytes: sum("bytes")?,
            gigabytes_per_second: speeds.max_by(f64::total_cmp),
            links: all(&value["peers"], PeerLink::from_value)?,
            numbers: numbers(&value["numbers"])?,
            cpu: cpu_times(&value["cpu"]),
            changes: changes(value)?,
            failure: text_of(&value["failure"]),
        })
    }

    /// One of the program's numbers.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        self.numbers.get(name).copied()
    }

    /// The host's part of its address.
    #[must_use]
    pub fn host(&self) -> &str {
        self.address
            .rsplit_once(':')
            .map_or(&self.address, |parts| parts.0)
    }

    /// The longest round trip, in seconds.
    #[must_use]
    pub fn round_trip(&self) -> Option<f64> {
        let all = self.links.iter().map(|link| link.round_trip);
        all.max_by(f64::total_cmp)
    }

    /// Packets lost, on all its links.
    #[must_use]
    pub fn packets_lost(&self) -> u64 {
        let all = self.links.iter().map(|link| link.packets_lost);
        all.fold(0, u64::saturating_add)
    }
}

impl RankCall {
    fn from_value(value: &Value) -> Option<Self> {
        Some(Self {
            what: text_of(&value["what"])?,
            site: text_of(&value["site"])?,
            seconds: value["seconds"].as_f64()?,
            awaited: number_of(&value["awaited"]),
        })
    }
}

impl PeerLink {
    fn from_value(value: &Value) -> Option<Self> {
        Some(Self {
            to: number_of(&value["rank"])?,
            round_trip: value["round_trip_seconds"].as_f64()?,
            bytes_sent: value["bytes_sent"].as_u64()?,
            bytes_received: value["bytes_received"].as_u64()?,
            packets_sent: value["packets_sent"].as_u64()?,
            packets_lost: value["packets_lost"].as_u64()?,
        })
    }
}

impl MemberChange {
    fn from_value(value: &Value) -> Option<Self> {
        Some(Self {
            view: value["view"].as_u64()?,
            address: text_of(&value["address"]),
            reason: text_of(&value["reason"]),
            ago: value["ago_seconds"].as_f64()?,
        })
    }
}

/// Departures and arrivals in the order of their times.
fn changes(value: &Value) -> Option<Vec<MemberChange>> {
    let mut changes = all(&value["departures"], MemberChange::from_value)?;
    changes.extend(all(&value["arrivals"], MemberChange::from_value)?);
    changes.sort_by(|one, other| other.ago.total_cmp(&one.ago));
    Some(changes)
}

fn all<T>(items: &Value, read: fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    items.as_array()?.iter().map(read).collect()
}

fn numbers(value: &Value) -> Option<BTreeMap<String, f64>> {
    let numbers = value.as_object()?.iter();
    // What is no number in JSON, such as an infinite loss, is null.
    let known = numbers.filter_map(|(name, value)| Some((plain(name), value.as_f64()?)));
    Some(known.collect())
}

fn cpu_times(value: &Value) -> Option<CpuTimes> {
    Some(CpuTimes {
        used: value["used_seconds"].as_f64()?,
        queued: value["queued_seconds"].as_f64()?,
        throttled: value["throttled_seconds"].as_f64(),
        stolen: value["stolen_seconds"].as_f64(),
    })
}

pub(crate) fn number_of(value: &Value) -> Option<u32> {
    value.as_u64()?.try_into().ok()
}

pub(crate) fn text_of(value: &Value) -> Option<String> {
    value.as_str().map(plain)
}

/// What is shown in a terminal has no control characters, whoever sent it.
fn plain(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use meshwork_collectives::{Group, ReduceOp};
    use serde_json::json;

    use super::*;
    use crate::job::JobWatch;
    use crate::look::Look;
    use crate::report::StatusSource;

    /// Every place in a value, as JSON pointers have it.
    fn places(value: &Value, at: &str, all: &mut Vec<String>) {
        all.push(at.to_owned());
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    places(value, &format!("{at}/{name}"), all);
                }
            }
            Value::Array(items) => {
                for (place, value) in items.iter().enumerate() {
                    places(value, &format!("{at}/{place}"), all);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn said() -> Value {
        let mut group = Group::local(1).unwrap().remove(0);
        group.all_reduce(&mut [1.0_f32; 8], ReduceOp::Sum).unwrap();
        let times = CpuTimes::default();
        let line = crate::json::line(&group.observer().report(), Some(&times));
        let mut value: Value = serde_json::from_str(&line).unwrap();
        value["peers"] = json!([{
            "rank": 0, "round_trip_seconds": 0.1, "bytes_sent": 1, "bytes_received": 1,
            "packets_sent": 100, "packets_lost": 1,
        }]);
        value["current"] = json!({ "what": "a", "site": "b", "seconds": 1.0, "awaited": 0 });
        value["departures"] =
            json!([{ "view": 1, "address": "c", "reason": "d", "ago_seconds": 1.0 }]);
        value
    }

    #[test]
    fn what_is_told_is_read() {
        let found = RankStatus::from_value(&said()).unwrap();
        assert_eq!((found.rank, found.world, found.operations), (0, 1, 1));
        assert_eq!((found.links.len(), found.changes.len()), (1, 1));
        assert_eq!(found.cpu, Some(CpuTimes::default()));
    }

    #[test]
    fn whatever_is_said_instead_is_read_or_passed_over() {
        let (value, mut all) = (said(), Vec::new());
        places(&value, "", &mut all);
        assert!(all.len() > 40, "{all:?}");
        let instead = [
            Value::Null,
            json!(-1),
            json!(u64::MAX),
            json!(1e308),
            json!("\u{1b}[2J"),
            json!([]),
            json!({}),
        ];
        for place in &all {
            for other in &instead {
                let mut changed = value.clone();
                *changed.pointer_mut(place).unwrap() = other.clone();
                let line = changed.to_string();
                let mut watch = JobWatch::default();
                for at in [0.0, 1.0] {
                    let look = Look::from_lines(at, [Ok(&*line), Ok(&*line)]);
                    let told = watch.see(look).json().to_string();
                    assert!(!told.contains("\\u001b"), "{place}: {told}");
                }
            }
        }
    }
}
