//! Connections that are closed because nothing needs them, in whole groups.

use super::*;

/// Of 12 ranks, 0 and 3 are no neighbours.
const PAIR: [usize; 2] = [0, 3];

impl World {
    /// These two come to be connected, or are no longer.
    fn both(&mut self, event: fn(Rank) -> Event) {
        for [one, other] in [PAIR, [PAIR[1], PAIR[0]]] {
            self.happens(one, event(Rank::at(other)));
        }
    }

    fn knows(&self, [one, other]: [usize; 2]) -> bool {
        self.ranks[one].is_here(Rank::at(other))
    }
}

fn begun(hosts: Hosts) -> World {
    let mut world = World::joined(12, MS, hosts);
    world.run(Duration::from_secs(1));
    assert_eq!(world.begun, vec![true; 12]);
    world.both(Event::Joined);
    assert!(world.knows(PAIR));
    world
}

#[test]
fn the_death_of_a_rank_is_named_by_those_that_have_closed_their_connection_with_it() {
    let second = Duration::from_secs(1);
    for (hosts, patience) in [
        (Hosts::One, Duration::ZERO),
        (Hosts::Each, TIMEOUTS.silence + TIMEOUTS.heartbeat),
    ] {
        let mut world = begun(hosts);
        world.both(Event::Released);
        assert!(!world.knows(PAIR));
        world.kill(PAIR[1]);
        world.run(Duration::from_secs(9));
        // Each word takes a logarithm of hops.
        world.all_blame(PAIR[1], second + patience + GRACE + 4 * MS);
    }
}

#[test]
fn what_is_said_late_of_a_connection_that_is_closed_is_no_loss() {
    let mut world = begun(Hosts::Each);
    world.both(Event::Released);
    world.both(Event::Disconnected);
    world.both(Event::Died);
    world.run(Duration::from_secs(2));
    assert_eq!(world.ends, vec![None; 12]);
    // It is one again once they are connected again.
    world.both(Event::Joined);
    world.happens(PAIR[0], Event::Disconnected(Rank::at(PAIR[1])));
    world.run(Duration::from_secs(3));
    assert!(world.ends[PAIR[0]].is_some());
}

#[test]
fn neighbours_stay_whatever_is_said() {
    let mut world = begun(Hosts::Each);
    world.happens(0, Event::Released(Rank::new(1)));
    assert!(world.knows([0, 1]));
}

#[test]
fn nobody_waits_for_the_goodbye_of_a_rank_whose_connection_is_closed() {
    let mut world = begun(Hosts::Each);
    // One has left before the last word on the connection reaches the other.
    world.happens(PAIR[0], Event::Released(Rank::at(PAIR[1])));
    world.post(MS, PAIR[1], Event::Released(Rank::at(PAIR[0])));
    for rank in 0..12 {
        world.happens(rank, Event::Leave);
    }
    world.run(Duration::from_secs(2));
    let is_over = |end: &Option<(Duration, End)>| matches!(end, Some((_, End::Over)));
    assert!(world.ends.iter().all(is_over), "{:?}", world.ends);
}

#[test]
fn a_goodbye_that_is_lost_with_its_host_is_not_waited_for_for_ever() {
    let mut world = begun(Hosts::Each);
    // The last word on the connection never comes, as its host is gone once its process has left.
    world.cut.insert(PAIR);
    world.happens(PAIR[1], Event::Released(Rank::at(PAIR[0])));
    for rank in 0..12 {
        world.happens(rank, Event::Leave);
    }
    let limit = Duration::from_secs(1) + 2 * TIMEOUTS.silence;
    world.run(limit - TIMEOUTS.heartbeat);
    assert_eq!(world.ends[PAIR[0]], None);
    world.run(limit + TIMEOUTS.heartbeat);
    let is_over = |end: &Option<(Duration, End)>| matches!(end, Some((_, End::Over)));
    assert!(world.ends.iter().all(is_over), "{:?}", world.ends);
}
