//! Spans of a group's operations arrive at a collector of OpenTelemetry, which is played here.

use std::collections::BTreeMap;
use std::env;
use std::process::{Command, Output};

use meshwork_collectives::{Group, ReduceOp};
use meshwork_status::{SpanExport, SpanOrigin};
use meshwork_testing::in_threads;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use prost::Message;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::prelude::*;

use crate::loopback::{Loopback, Reply};

/// Tells this program that it is a job, of two ranks that reduce so often.
const JOB: &str = "MESHWORK_TEST_SPANS";

/// What is run with the variables of an exporter in its environment.
#[test]
fn job() {
    let Ok(times) = env::var(JOB) else { return };
    let times = times.parse().unwrap();
    in_threads(Group::local(2).unwrap(), |group| reduce(group, times));
}

/// Each rank has a subscriber and an exporter of its own, as each process of a job has.
fn reduce(mut group: Group, times: usize) {
    let rank = group.rank().number();
    let origin = SpanOrigin {
        rank: Some(rank),
        world: Some(2),
        job: Some("bert-7".to_owned()),
    };
    let export = SpanExport::from_env(&origin).unwrap_or_else(|error| panic!("{error}"));
    let export = export.expect("a collector is named");
    let log = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .with_filter(LevelFilter::WARN);
    let subscriber = tracing_subscriber::registry()
        .with(export.layer())
        .with(log);
    let _log = subscriber.set_default();
    for _ in 0..times {
        group
            .all_reduce(&mut [1.0_f32; 256], ReduceOp::Sum)
            .unwrap();
    }
    drop(export);
}

fn run(times: usize, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["spans::job", "--exact", "--nocapture"]);
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("OTEL_") || name.to_lowercase().ends_with("_proxy") {
            command.env_remove(&*name);
        }
    }
    command.env(JOB, times.to_string());
    command.envs(variables.iter().copied()).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// Attributes as text.
fn texts(attributes: &[KeyValue]) -> BTreeMap<&str, String> {
    let text = |attribute: &KeyValue| match attribute.value.clone()?.value? {
        Value::StringValue(text) => Some(text),
        Value::IntValue(number) => Some(number.to_string()),
        other => Some(format!("{other:?}")),
    };
    let named = attributes.iter();
    named
        .filter_map(|attribute| Some((&*attribute.key, text(attribute)?)))
        .collect()
}

#[test]
fn an_all_reduce_arrives_as_a_span_of_the_rank_that_called_it() {
    let collector = Loopback::start(|_| Reply::text(""));
    let ended = run(
        3,
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url()),
            ("OTEL_SERVICE_NAME", "training"),
            ("OTEL_RESOURCE_ATTRIBUTES", "cluster=blue"),
        ],
    );
    assert!(ended.status.success(), "{}", said(&ended));
    let mut spans = BTreeMap::new();
    for asked in collector.asked() {
        assert_eq!((&*asked.method, &*asked.path), ("POST", "/v1/traces"));
        let request = ExportTraceServiceRequest::decode(&asked.bytes[..]).unwrap();
        for of_rank in request.resource_spans {
            let resource = of_rank.resource.unwrap();
            let resource = texts(&resource.attributes);
            assert_eq!(resource["service.name"], "training");
            assert_eq!(resource["meshwork.world"], "2");
            assert_eq!(resource["meshwork.job"], "bert-7");
            assert_eq!(resource["cluster"], "blue");
            let rank = resource["meshwork.rank"].clone();
            let scopes = of_rank.scope_spans.into_iter();
            let of_rank: &mut Vec<_> = spans.entry(rank).or_default();
            of_rank.extend(scopes.flat_map(|scope| scope.spans));
        }
    }
    assert!(spans.keys().eq(["0", "1"]), "{spans:?}");
    for span in spans.values().flatten() {
        assert_eq!(span.name, "operation");
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
        let attributes = texts(&span.attributes);
        assert_eq!(attributes["kind"], "AllReduce", "{attributes:?}");
        assert_eq!(attributes["element"], "F32");
        assert_eq!(attributes["count"], "256");
        assert!(attributes["caller"].contains("spans.rs:"), "{attributes:?}");
    }
    assert!(
        spans.values().all(|of_rank| of_rank.len() == 3),
        "{spans:?}"
    );
}

#[test]
fn a_collector_that_does_not_answer_costs_spans_and_no_step() {
    let collector = Loopback::start(|_| Reply::Silence);
    let ended = run(
        200,
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url()),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "64"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "16"),
            // Longer than a job that did wait for its spans would be given.
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "600000"),
        ],
    );
    let said = said(&ended);
    assert!(ended.status.success(), "{said}");
    let mut counts = said.split("dropped_span_count=").skip(1);
    for _ in 0..2 {
        let digits = counts.next().unwrap_or_else(|| panic!("{said}"));
        let digits = digits.split(|letter: char| !letter.is_ascii_digit()).next();
        // Of 200, at most 64 are in the queue and 16 on their way.
        let dropped: usize = digits.unwrap().parse().unwrap();
        assert!((120..200).contains(&dropped), "{said}");
    }
}

#[test]
fn a_collector_without_an_address_is_said_at_the_start() {
    let ended = run(1, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://[")]);
    let said = said(&ended);
    assert!(!ended.status.success());
    assert!(said.contains("no spans can be exported"), "{said}");
    assert!(said.contains("OTEL_EXPORTER_OTLP_ENDPOINT"), "{said}");
}
