//! The corpus of the fuzz target for files of tensors.

#[path = "../../fuzz/checks/replay.rs"]
mod replay;

#[test]
fn files_of_tensors_are_read_or_refused() {
    replay::replay("tensors", meshwork_dtensor::decode_checkpoint);
}
