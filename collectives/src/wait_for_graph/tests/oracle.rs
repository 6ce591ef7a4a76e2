//! Deadlocks as one finds them who knows all waits at once.

use super::*;

/// What may be said of each cycle of these waits that is not one operation.
pub(super) fn deadlocks(waits: &[WaitEdge]) -> Vec<Deadlock> {
    let mut found = Vec::new();
    for start in waits {
        follow(waits, &[start], &mut found);
    }
    found
}

/// All ways on from the last of these waits, which lead from one to the next.
fn follow(waits: &[WaitEdge], way: &[&WaitEdge], found: &mut Vec<Deadlock>) {
    let (Some(first), Some(last)) = (way.first(), way.last()) else {
        return;
    };
    for next in waits.iter().filter(|next| last.depends_on(next)) {
        if std::ptr::eq(*first, next) {
            found.extend(named(way));
        } else if !way.iter().any(|wait| std::ptr::eq(*wait, next)) {
            follow(waits, &[way, &[next]].concat(), found);
        }
    }
}

/// The neighbours of a cycle whose calls differ, best in their lines too, of the lowest ranks.
fn named(cycle: &[&WaitEdge]) -> Option<Deadlock> {
    let next = cycle.iter().cycle().skip(1);
    let mut pairs: Vec<_> = cycle.iter().zip(next).collect();
    pairs.retain(|(one, other)| one.call.contract() != other.call.contract());
    pairs.sort_by_key(|(one, other)| (one.waiter, other.waiter));
    let in_other_lines = pairs
        .iter()
        .find(|(one, other)| one.call.site() != other.call.site());
    let (one, other) = in_other_lines.or_else(|| pairs.first())?;
    Some(Deadlock {
        one: (one.waiter, one.call.clone()),
        other: (other.waiter, other.call.clone()),
    })
}
