//! What a subscriber of `tracing` is told of a training.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set the scene has failed"
)]

use std::sync::{Arc, Mutex};

use meshwork_collectives::{Group, GroupConfig, JobSecret, Rank};
use meshwork_strategy::{Checkpoints, Cursor, Error, MultiWorkerMirroredStrategy, Snapshot};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Notes which spans begin and end, and which is in which by the order.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Noted>>);

#[derive(Default)]
struct Noted {
    names: Vec<&'static str>,
    told: Vec<String>,
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("meshwork")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut noted = self.0.lock().unwrap();
        noted.names.push(span.metadata().name());
        Id::from_u64(noted.names.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, span: &Id) {
        let mut noted = self.0.lock().unwrap();
        let name = noted.names[usize::try_from(span.into_u64()).unwrap() - 1];
        noted.told.push(format!("begin {name}"));
    }

    fn exit(&self, span: &Id) {
        let mut noted = self.0.lock().unwrap();
        let name = noted.names[usize::try_from(span.into_u64()).unwrap() - 1];
        noted.told.push(format!("end {name}"));
    }
}

#[test]
fn joins_steps_and_checkpoints_are_spans_with_operations_inside() {
    let spans = Spans::default();
    let folder = tempfile::tempdir().unwrap();
    tracing::subscriber::with_default(spans.clone(), || {
        let secret = JobSecret::generate().unwrap();
        let members = vec!["127.0.0.1:1".to_owned()];
        let config = GroupConfig::new(members, Rank::CHIEF, secret).unwrap();
        drop(Group::connect(&config).unwrap());
        let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
        strategy.run(|_| Ok::<_, Error>(())).unwrap();
        let snapshot = Snapshot::new(1, Cursor::start());
        let checkpoints = Checkpoints::new(folder.path());
        strategy.save_checkpoint(&checkpoints, &snapshot).unwrap();
    });
    let told = spans.0.lock().unwrap().told.join(", ");
    let step = "begin join, end join, begin step, end step";
    let checkpoint = "begin checkpoint, begin operation, end operation, end checkpoint";
    assert!(told.contains(step), "{told}");
    assert!(told.contains(checkpoint), "{told}");
}
