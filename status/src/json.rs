//! A report as JSON.

use meshwork_collectives::{
    Arrival, AwaitedRank, CurrentCall, Departure, Peer, Rank, Statistics, Traffic,
};
use serde_json::{Map, Value, json};

use crate::process::CpuTimes;
use crate::report::Report;

/// The only format that there is.
const FORMAT: u64 = 1;

/// What `/status.json` says. One value to a line is read by people, too.
pub(crate) fn text(report: &Report, cpu: Option<&CpuTimes>) -> String {
    format!("{:#}\n", value(report, cpu))
}

/// The same on one line.
pub(crate) fn line(report: &Report, cpu: Option<&CpuTimes>) -> String {
    format!("{}\n", value(report, cpu))
}

fn value(report: &Report, cpu: Option<&CpuTimes>) -> Value {
    let Report { group, numbers } = report;
    let numbers: Map<String, Value> = numbers
        .iter()
        .map(|number| (number.name.to_owned(), number.value.into()))
        .collect();
    let mut value = statistics(group);
    value["numbers"] = numbers.into();
    value["cpu"] = cpu.map(cpu_times).into();
    value
}

fn cpu_times(times: &CpuTimes) -> Value {
    json!({
        "used_seconds": times.used,
        "queued_seconds": times.queued,
        "throttled_seconds": times.throttled,
        "stolen_seconds": times.stolen,
    })
}

fn statistics(group: &Statistics) -> Value {
    json!({
        "version": FORMAT,
        "process": std::process::id(),
        "rank": group.rank.number(),
        "address": group.address,
        "world": group.world,
        "local_rank": group.local_rank,
        "view": group.view,
        "age_seconds": group.age.as_secs_f64(),
        "in_operations_seconds": group.in_operations.as_secs_f64(),
        "waiting_share": group.waiting_share(),
        "traffic": all(&group.traffic, traffic),
        "current": group.current.as_ref().map(current),
        "awaited": all(&group.awaited, awaited),
        "peers": all(&group.peers, peer),
        "connections": {
            "dialled": group.connections.dialled,
            "answered": group.connections.answered,
            "kept": group.connections.kept,
        },
        "departures": all(&group.departures, departure),
        "arrivals": all(&group.arrivals, arrival),
        "failure": group.failure,
    })
}

fn all<T>(items: &[T], form: fn(&T) -> Value) -> Value {
    items.iter().map(form).collect()
}

fn traffic(traffic: &Traffic) -> Value {
    json!({
        "transport": traffic.transport,
        "operations": traffic.operations,
        "bytes": traffic.bytes,
        "recent_gigabytes_per_second": traffic.recent_gigabytes_per_second,
    })
}

fn current(call: &CurrentCall) -> Value {
    json!({
        "what": call.what,
        "site": call.site,
        "seconds": call.since.as_secs_f64(),
        "awaited": call.awaited.map(Rank::number),
    })
}

fn awaited(awaited: &AwaitedRank) -> Value {
    json!({
        "rank": awaited.rank.number(),
        "seconds": awaited.waited.as_secs_f64(),
    })
}

fn peer(peer: &Peer) -> Value {
    json!({
        "rank": peer.rank.number(),
        "round_trip_seconds": peer.round_trip.as_secs_f64(),
        "bytes_sent": peer.bytes_sent,
        "bytes_received": peer.bytes_received,
        "packets_sent": peer.packets_sent,
        "packets_lost": peer.packets_lost,
    })
}

fn departure(departure: &Departure) -> Value {
    json!({
        "view": departure.view,
        "address": departure.address,
        "reason": departure.reason,
        "ago_seconds": departure.ago.as_secs_f64(),
    })
}

fn arrival(arrival: &Arrival) -> Value {
    json!({
        "view": arrival.view,
        "address": arrival.address,
        "ago_seconds": arrival.ago.as_secs_f64(),
    })
}
