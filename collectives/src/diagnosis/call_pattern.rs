//! What a rank usually calls next: programs train in loops, so the past tells what was due.

use super::dump::{Dump, PastCall};

/// Calls before the one in question that are compared with earlier ones.
const CONTEXT: usize = 8;

/// How a rank's call compares with what it has called before.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum CallPattern {
    /// It followed what it did before.
    Kept,
    /// It left this call out, and made the one after it.
    Skipped(PastCall),
    /// It made another call than ever before.
    Left,
    /// It has not been here before.
    Unknown,
}

/// Whether `call` is what the rank has called before after the same calls.
pub(super) fn call_pattern(dump: &Dump, call: &PastCall) -> CallPattern {
    let before: Vec<&PastCall> = dump
        .operations
        .iter()
        .map(|operation| &operation.call)
        .filter(|previous_epoch| {
            previous_epoch.group == call.group && previous_epoch.sequence < call.sequence
        })
        .collect();
    // The earlier place whose past is most like the present, the latest of several.
    let likeness = |place: usize| {
        let now = before.iter().rev();
        let then = before[..place].iter().rev();
        let pairs = now.zip(then).take(CONTEXT);
        pairs.take_while(|(now, then)| now.is_like(then)).count()
    };
    let best = (1..before.len())
        .map(|place| (likeness(place), place))
        .filter(|(likeness, _)| *likeness > 0)
        .max();
    let Some((_, place)) = best else {
        return CallPattern::Unknown;
    };
    let due = before[place];
    if due.is_like(call) {
        return CallPattern::Kept;
    }
    // Behind the last call of a loop comes its first.
    match before.get(place + 1) {
        Some(next) if next.is_like(call) => CallPattern::Skipped(due.clone()),
        _ => CallPattern::Left,
    }
}
