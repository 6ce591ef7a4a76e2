//! A report as OpenMetrics text.

use std::fmt;

use meshwork_collectives::{ConnectionCounts, Peer, Statistics};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::report::{MetricKind, Report};

/// The type of the text.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What `/metrics` says.
pub(crate) fn text(report: Report) -> Result<String, fmt::Error> {
    let rank = report.group.rank.number().to_string();
    let labels = [("rank".into(), rank.into())].into_iter();
    let mut registry = Registry::with_prefix_and_labels("meshwork", labels);
    registry.register_collector(Box::new(Metrics(report)));
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Metrics(Report);

/// What is told of one metric, before its values.
struct Family {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    kind: MetricKind,
}

/// One value, and what tells it from others of its metric.
struct Sample {
    label: Option<(&'static str, String)>,
    value: f64,
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Self(Report { group, numbers }) = self;
        group_metrics(&mut encoder, group)?;
        traffic_metrics(&mut encoder, group)?;
        connection_metrics(&mut encoder, group.connections)?;
        peer_metrics(&mut encoder, &group.peers)?;
        for number in numbers {
            let family = Family {
                name: number.name,
                help: number.help,
                unit: None,
                kind: number.kind,
            };
            family.encode(&mut encoder, [Sample::only(number.value)])?;
        }
        Ok(())
    }
}

fn group_metrics(encoder: &mut DescriptorEncoder<'_>, group: &Statistics) -> fmt::Result {
    let failed = if group.failure.is_some() { 1.0 } else { 0.0 };
    let call = group.current.as_ref().map(|call| call.since);
    let singles = [
        (
            gauge("world_size", "Ranks in the group"),
            f64::from(group.world),
        ),
        (
            gauge(
                "view",
                "Number of the view, which grows when members change",
            ),
            group.view as f64,
        ),
        (gauge("failed", "Whether the group has failed"), failed),
        (
            counter("departures", "Views that ended by the loss of a rank"),
            group.departures.len() as f64,
        ),
        (
            gauge("age", "Time since the rank joined").in_seconds(),
            group.age.as_secs_f64(),
        ),
        (
            counter(
                "in_operations",
                "Time that the rank has spent in operations",
            )
            .in_seconds(),
            group.in_operations.as_secs_f64(),
        ),
        (
            gauge(
                "current_call",
                "Time since the operation that goes on was called, or 0",
            )
            .in_seconds(),
            call.map_or(0.0, |since| since.as_secs_f64()),
        ),
    ];
    for (family, value) in singles {
        family.encode(encoder, [Sample::only(value)])?;
    }
    let awaited = group.awaited.iter();
    counter("awaited", "Time for which a rank was waited for at length")
        .in_seconds()
        .encode(
            encoder,
            awaited.map(|awaited| {
                Sample::of(
                    "awaited",
                    awaited.rank.number(),
                    awaited.waited.as_secs_f64(),
                )
            }),
        )
}

fn traffic_metrics(encoder: &mut DescriptorEncoder<'_>, group: &Statistics) -> fmt::Result {
    let all = |value: fn(&meshwork_collectives::Traffic) -> Option<f64>| {
        let traffic = group.traffic.iter();
        traffic.filter_map(move |traffic| {
            Some(Sample::of("transport", traffic.transport, value(traffic)?))
        })
    };
    counter("operations", "Operations that have ended")
        .encode(encoder, all(|traffic| Some(traffic.operations as f64)))?;
    counter("operation_bytes", "Bytes of the buffers of operations")
        .encode(encoder, all(|traffic| Some(traffic.bytes as f64)))?;
    gauge(
        "recent_bytes_per_second",
        "Bytes of the last operations by the time that they took",
    )
    .encode(
        encoder,
        all(|traffic| Some(traffic.recent_gigabytes_per_second? * 1e9)),
    )
}

fn connection_metrics(
    encoder: &mut DescriptorEncoder<'_>,
    connections: ConnectionCounts,
) -> fmt::Result {
    let ends = [
        ("dialled", connections.dialled),
        ("answered", connections.answered),
    ];
    counter("handshakes", "Handshakes of the rank's connections").encode(
        encoder,
        ends.map(|(end, count)| Sample::of("end", end, count as f64)),
    )?;
    counter(
        "connections_kept",
        "Connections that one view has left to the next",
    )
    .encode(encoder, [Sample::only(connections.kept as f64)])
}

fn peer_metrics(encoder: &mut DescriptorEncoder<'_>, peers: &[Peer]) -> fmt::Result {
    let all = |value: fn(&Peer) -> f64| {
        let peers = peers.iter();
        peers.map(move |peer| Sample::of("peer", peer.rank.number(), value(peer)))
    };
    gauge("round_trip", "Time for a packet and its confirmation")
        .in_seconds()
        .encode(encoder, all(|peer| peer.round_trip.as_secs_f64()))?;
    counter(
        "wire_sent_bytes",
        "Bytes of packets to a rank, headers and all",
    )
    .encode(encoder, all(|peer| peer.bytes_sent as f64))?;
    counter(
        "wire_received_bytes",
        "Bytes of packets from a rank, headers and all",
    )
    .encode(encoder, all(|peer| peer.bytes_received as f64))?;
    counter("packets_sent", "Packets to a rank")
        .encode(encoder, all(|peer| peer.packets_sent as f64))?;
    counter(
        "packets_lost",
        "Packets to a rank whose contents were sent again",
    )
    .encode(encoder, all(|peer| peer.packets_lost as f64))
}

fn counter(name: &'static str, help: &'static str) -> Family {
    Family::new(name, help, MetricKind::Counter)
}

fn gauge(name: &'static str, help: &'static str) -> Family {
    Family::new(name, help, MetricKind::Gauge)
}

impl Family {
    fn new(name: &'static str, help: &'static str, kind: MetricKind) -> Self {
        Self {
            name,
            help,
            unit: None,
            kind,
        }
    }

    fn in_seconds(mut self) -> Self {
        self.unit = Some(Unit::Seconds);
        self
    }

    /// Nothing at all where there are no values.
    fn encode(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        samples: impl IntoIterator<Item = Sample>,
    ) -> fmt::Result {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let kind = match self.kind {
            MetricKind::Counter => MetricType::Counter,
            MetricKind::Gauge => MetricType::Gauge,
        };
        let mut family =
            encoder.encode_descriptor(self.name, self.help, self.unit.as_ref(), kind)?;
        for Sample { label, value } in samples {
            let labels = Vec::from_iter(label);
            let encoder = family.encode_family(&labels)?;
            match self.kind {
                MetricKind::Counter => ConstCounter::new(value).encode(encoder)?,
                MetricKind::Gauge => ConstGauge::new(value).encode(encoder)?,
            }
        }
        Ok(())
    }
}

impl Sample {
    fn only(value: f64) -> Self {
        Self { label: None, value }
    }

    fn of(label: &'static str, name: impl ToString, value: f64) -> Self {
        Self {
            label: Some((label, name.to_string())),
            value,
        }
    }
}
