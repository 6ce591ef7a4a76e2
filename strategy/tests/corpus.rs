//! The corpus of the fuzz target for snapshots.

#[path = "../../fuzz/checks/replay.rs"]
mod replay;
#[path = "../../fuzz/checks/snapshot.rs"]
mod snapshot;

#[test]
fn snapshots_are_read_or_refused() {
    replay::replay("snapshot", snapshot::snapshot);
}
