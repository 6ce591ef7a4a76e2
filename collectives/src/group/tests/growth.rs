//! Memory after many operations, of a process that does nothing else.

use meshwork_testing::{child, passed, this_test};

use super::*;

const ALONE: &str = "MESHWORK_TEST_ALONE";

/// Bytes of this process that are in memory.
pub(super) fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.unwrap().split_whitespace().nth(1).unwrap();
    kilobytes.parse::<u64>().unwrap() * 1024
}

/// Whether this process runs nothing but this test. Other tests would be counted too, so if not,
/// this starts one that does.
#[track_caller]
pub(super) fn is_alone() -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let ended = child(&this_test()).env(ALONE, "1").output();
    drop(passed(&ended.unwrap()));
    false
}

fn a_few_operations(group: &mut Group, buffer: &mut [f32]) {
    group.all_reduce(&mut buffer[..256], ReduceOp::Sum).unwrap();
    group.all_reduce(buffer, ReduceOp::Sum).unwrap();
    buffer.fill(1.0);
    let mut all = [0.0; 20];
    group.all_gather(&buffer[..10], &mut all).unwrap();
    let pending = group.start_all_reduce(vec![1_u8; 100], ReduceOp::Max);
    pending.unwrap().wait().unwrap();
}

#[test]
fn thousands_of_operations_take_no_memory() {
    if !is_alone() {
        return;
    }
    for over in [Over::Local, Over::Memory, Over::Quic, Over::Tls] {
        over.run(2, |mut group| {
            let mut buffer = vec![1.0; 10_000];
            let mut operations = |turns| {
                for _ in 0..turns {
                    a_few_operations(&mut group, &mut buffer);
                }
                group.barrier().unwrap();
            };
            operations(100);
            let before = resident();
            operations(400);
            let grown = resident().saturating_sub(before);
            assert!(grown < 400 << 10, "{over:?}: {grown} bytes more");
            group.leave().unwrap();
        });
    }
}
