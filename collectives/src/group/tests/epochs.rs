//! Groups that go on without a member: what the next epoch owes to those who are not in it.

use super::*;

/// Three members, of which the second has gone: the others are in their second epoch.
struct Shrunk {
    members: Vec<String>,
    secret: JobSecret,
    groups: Vec<Group>,
}

impl Shrunk {
    fn new() -> Self {
        let (members, secret) = (free_addresses(3), JobSecret::generate().unwrap());
        let mut groups = each(Rank::all(3), |rank| {
            let config = config(&members, rank, &secret).with_transport(Transport::Quic);
            Group::connect(&config).unwrap()
        });
        drop(groups.remove(1));
        let groups = each(groups, |mut group| {
            let Err(OperationError::RankLost { peer, .. }) = group.barrier() else {
                panic!("a rank is lost");
            };
            assert_eq!(peer.rank(), Rank::new(1));
            group.shrink().unwrap();
            group
        });
        Self {
            members,
            secret,
            groups,
        }
    }

    /// Tells so many members, as a launcher would, that the one at this place is lost.
    fn announce(&self, told: usize, lost: u32) {
        let members = &self.members[..told];
        quic::announce_loss(members, &self.secret, Rank::new(lost), PATIENCE).unwrap();
    }
}

#[test]
fn survivors_are_told_what_all_of_them_have_completed() {
    let mut groups = each(Over::Quic.groups(3), |mut group| {
        group.barrier().unwrap();
        group.barrier().unwrap();
        group
    });
    drop(groups.remove(1));
    each(groups, |mut group| {
        assert!(group.barrier().is_err());
        group.shrink().unwrap();
        assert_eq!(group.epoch().completed_before(), 2);
        group.barrier().and_then(|()| group.leave()).unwrap();
    });
}

/// A job whose processes do not wait for long to begin, be it a group or an epoch.
struct Hasty {
    members: Vec<String>,
    secret: JobSecret,
    patience: Duration,
}

impl Hasty {
    fn new(world: usize, patience: Duration) -> Self {
        let (members, secret) = (free_addresses(world), JobSecret::generate().unwrap());
        Self {
            members,
            secret,
            patience,
        }
    }

    /// All its members in a group, for which they wait longer where the machine is busy.
    fn met(world: u32) -> (Self, Vec<Group>) {
        let attempt = |time| {
            let job = Self::new(world as usize, 3 * time);
            let groups = each(0..world, |rank| Group::connect(&job.config(rank)));
            (job, groups.into_iter().collect::<Result<Vec<_>, _>>())
        };
        let (job, groups) = in_time(attempt, |(_, groups)| groups.is_ok());
        (job, groups.unwrap())
    }

    fn config(&self, rank: u32) -> GroupConfig {
        let timeouts = Timeouts::default().with_join(self.patience);
        config(&self.members, Rank::new(rank), &self.secret)
            .with_transport(Transport::Quic)
            .with_timeouts(timeouts)
            // Reading the whole of a test's program takes longer than that on a busy machine.
            .with_program("hasty")
    }
}

#[test]
fn a_member_that_begins_anew_without_its_memory_decides_nothing_with_those_who_remember() {
    let (job, mut groups) = Hasty::met(3);
    // The first two are gone, who may have gone on together.
    let mut third = groups.pop().unwrap();
    drop(groups);
    thread::scope(|scope| {
        let again =
            scope.spawn(|| Group::connect_majority(&job.config(1)).map(|group| group.world()));
        assert!(third.barrier().is_err());
        let error = third.shrink().unwrap_err();
        assert!(
            matches!(error, OperationError::NoMajority { .. }),
            "{error}"
        );
        let error = again.join().unwrap().unwrap_err();
        assert!(
            matches!(error, Error::Operation(OperationError::NoMajority { .. })),
            "{error}"
        );
    });
}

#[test]
fn a_process_that_its_launcher_has_started_again_begins_no_group_with_most_of_the_members() {
    let job = Hasty::new(3, PATIENCE);
    let config = job.config(1).with_restarts("2").unwrap();
    let refused = Group::connect_majority(&config).err();
    assert_eq!(
        refused,
        Some(Error::Join(JoinError::StartedAgain { restarts: 2 }))
    );
}

#[test]
fn of_two_that_have_not_met_one_goes_on_when_the_launcher_has_started_the_other_again() {
    // Who goes on needs time for it; who does not waits until all is over.
    for (restarts, goes_on, patience) in [("1", true, 4000), ("0", false, 2000)] {
        let job = Hasty::new(2, Duration::from_millis(patience));
        thread::scope(|scope| {
            let late = job.config(1).with_restarts(restarts).unwrap();
            let late = scope.spawn(move || Group::rejoin(&late));
            let first = Group::connect_majority(&job.config(0));
            match (goes_on, first) {
                (true, Ok(mut group)) => {
                    while group.world() == 1 {
                        group.grow().unwrap();
                    }
                    assert_eq!(late.join().unwrap().unwrap().world(), 2);
                }
                (false, Err(Error::Operation(OperationError::NoMajority { .. }))) => {
                    let error = late.join().unwrap().unwrap_err();
                    assert!(
                        matches!(error, Error::Join(JoinError::NotAdmitted { .. })),
                        "{error}"
                    );
                }
                (_, first) => panic!("{restarts} restarts: {first:?}"),
            }
        });
    }
}

#[test]
fn of_two_a_rank_that_has_left_without_a_word_of_the_kernel_may_live_on() {
    let (_, mut groups) = Hasty::met(2);
    let mut first = groups.remove(0);
    drop(groups);
    assert!(first.barrier().is_err());
    let error = first.shrink().unwrap_err();
    assert!(
        matches!(error, OperationError::NoMajority { .. }),
        "{error}"
    );
}

/// Of six ranks, 0 and 3 are no neighbours.
#[test]
fn a_second_process_with_the_number_of_a_member_that_lives_is_not_let_in_and_disturbs_nobody() {
    let (job, groups) = Hasty::met(6);
    let config = job.config(3).with_bind("127.0.0.1:0".parse().unwrap());
    let error = Group::rejoin(&config).unwrap_err();
    assert!(
        matches!(error, Error::Join(JoinError::NotAdmitted { .. })),
        "{error}"
    );
    each(groups, |mut group| {
        group.barrier().and_then(|()| group.leave()).unwrap();
    });
}

#[test]
fn survivors_keep_their_choice_of_algorithm_and_how_long_they_wait() {
    let mut groups = Over::Quic.groups(3);
    for group in &mut groups {
        group.set_communication(Communication::Tree);
        group.set_operation_timeout(PATIENCE / 2);
    }
    drop(groups.remove(1));
    each(groups, |mut group| {
        assert!(group.barrier().is_err());
        group.shrink().unwrap();
        let session = group.settled();
        assert_eq!(session.communication, Communication::Tree);
        assert_eq!(session.timeouts.operation(), PATIENCE / 2);
        drop(session);
        group.barrier().and_then(|()| group.leave()).unwrap();
    });
}

#[test]
fn the_launchers_word_about_a_member_of_the_last_epoch_blames_nobody_of_this_one() {
    let shrunk = Shrunk::new();
    shrunk.announce(3, 1);
    each(shrunk.groups, |mut group| {
        assert_eq!(group.world(), 2);
        group.barrier().and_then(|()| group.leave()).unwrap();
    });
}

#[test]
fn the_launcher_names_a_place_in_the_member_list_and_the_error_its_rank_in_the_epoch() {
    let mut shrunk = Shrunk::new();
    shrunk.announce(1, 2);
    let Err(OperationError::RankLost { peer, cause, .. }) = shrunk.groups[0].barrier() else {
        panic!("a rank is lost");
    };
    assert_eq!((peer.rank(), cause), (Rank::new(1), LossCause::Died));
}
