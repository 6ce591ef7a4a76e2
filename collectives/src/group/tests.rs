//! The same claims for threads and for connections, then what only connections can do.

mod asynchronous;
mod blocks;
#[cfg(unix)]
mod certificates;
mod compressed;
mod contracts;
#[cfg(all(target_os = "linux", not(meshwork_portable)))]
mod core_sharing;
mod deadlocks;
mod elements;
mod epochs;
mod firewall;
#[cfg(all(target_os = "linux", not(meshwork_portable)))]
mod growth;
mod idle;
mod kept;
mod measure_links;
mod middle;
mod network;
mod newcomers;
#[cfg(all(target_os = "linux", not(meshwork_portable)))]
mod open_files;
mod operations;
mod relay;
mod reproducible;
mod sessions;
mod splits;
mod statistics;
#[cfg(all(target_os = "linux", not(meshwork_portable)))]
mod unauthenticated_peers;

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Instant;

use meshwork_testing::{Need, free_addresses};
use tokio::runtime::Builder;

use super::*;
use crate::quic::testing::{PATIENCE, in_time};
use crate::{
    DataTransport, Error, JobIdentity, JobSecret, JoinError, LossCause, Network, OperationError,
    ReduceOp, Refusal, Timeouts, Transport, UnauthenticatedCause,
};

/// Whether processes of one host share memory here; elsewhere they use QUIC.
const SHARES_MEMORY: bool = cfg!(all(target_os = "linux", not(meshwork_portable)));

/// How the ranks of a group reach each other.
#[derive(Clone, Copy, Debug)]
enum Over {
    /// They are threads of one process.
    Local,
    /// They are processes of one host, which is all that they know of each other.
    Memory,
    /// Two hosts, of which the first has two ranks more than the second if there are that many.
    Hosts,
    Quic,
    /// The same with the bytes of operations over TCP.
    Tls,
}

impl Over {
    const ALL: [Self; 5] = [
        Self::Local,
        Self::Memory,
        Self::Hosts,
        Self::Quic,
        Self::Tls,
    ];

    fn groups(self, world: u32) -> Vec<Group> {
        match self {
            Self::Local => Group::local(world).unwrap(),
            Self::Memory => connected(world, |config| config),
            Self::Hosts => connected(world, |config| {
                let second = config.rank().number() > world / 2;
                config.with_host(if second { "b" } else { "a" })
            }),
            Self::Quic => connected(world, |config| config.with_transport(Transport::Quic)),
            Self::Tls => connected(world, |config| over_tls(config, Network::default())),
        }
    }

    /// Runs `program` on every rank and returns what each returned, by rank.
    fn run<R: Send>(self, world: u32, program: impl Fn(Group) -> R + Sync) -> Vec<R> {
        each(self.groups(world), |mut group| {
            group.set_operation_timeout(PATIENCE);
            if let Self::Hosts = self {
                // Short buffers too.
                group.set_communication(Communication::Hierarchical);
            }
            program(group)
        })
    }
}

/// What the bytes of operations go by.
const DATA_TRANSPORTS: [DataTransport; 2] = [DataTransport::Quic, DataTransport::Tls];

fn over_tls(config: GroupConfig, network: Network) -> GroupConfig {
    let network = network.with_data_transport(DataTransport::Tls);
    config.with_transport(Transport::Quic).with_network(network)
}

fn connected(world: u32, configured: impl Fn(GroupConfig) -> GroupConfig + Sync) -> Vec<Group> {
    let secret = JobSecret::generate().unwrap();
    let members = free_addresses(world as usize);
    each(Rank::all(world), |rank| {
        let config = configured(config(&members, rank, &secret));
        Group::connect(&config).unwrap()
    })
}

fn each<T: Send, R: Send>(
    all: impl IntoIterator<Item = T>,
    program: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    thread::scope(|scope| {
        let threads: Vec<_> = all
            .into_iter()
            .map(|one| scope.spawn(|| program(one)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

/// Whether the same bytes are in both, which is found without a look at each element.
fn same_bits<T: bytemuck::Pod>(one: &[T], other: &[T]) -> bool {
    bytemuck::cast_slice::<T, u8>(one) == bytemuck::cast_slice::<T, u8>(other)
}

fn config(members: &[String], rank: Rank, secret: &JobSecret) -> GroupConfig {
    identified(members, rank, secret.clone())
}

fn identified(members: &[String], rank: Rank, identity: impl Into<JobIdentity>) -> GroupConfig {
    let timeouts = Timeouts::default()
        .with_join(PATIENCE)
        .with_silence(Duration::from_secs(5));
    GroupConfig::new(members.to_vec(), rank, identity)
        .unwrap()
        .with_timeouts(timeouts)
}

/// Some value that differs by rank and element, and sums exactly in every type.
fn value(rank: Rank, element: usize) -> i64 {
    i64::try_from((rank.index() + 1) * 1000 + element * 7 % 1000).unwrap()
}

fn fold(op: ReduceOp, values: impl Iterator<Item = i64>) -> i64 {
    let values: Vec<i64> = values.collect();
    let world = i64::try_from(values.len()).unwrap();
    let combine = |a: i64, b: i64| match op {
        ReduceOp::Sum | ReduceOp::Mean => a.wrapping_add(b),
        ReduceOp::Product => a.wrapping_mul(b),
        ReduceOp::Min => a.min(b),
        ReduceOp::Max => a.max(b),
        ReduceOp::And => a & b,
        ReduceOp::Or => a | b,
        ReduceOp::Xor => a ^ b,
        _ => unreachable!("{op}"),
    };
    let total = values.into_iter().reduce(combine).unwrap();
    if op == ReduceOp::Mean {
        total / world
    } else {
        total
    }
}

fn lengths(world: u32) -> [usize; 6] {
    let world = world as usize;
    [0, 1, world - 1, world, world + 1, 1009]
}

/// All ops, lengths and algorithms in a row in one group.
fn all_reduce_matches_the_fold(over: Over, world: u32) {
    over.run(world, |mut group| {
        for communication in Communication::ALL {
            group.set_communication(communication);
            for op in ReduceOp::ALL {
                for len in lengths(world) {
                    let mut buffer: Vec<i64> = (0..len).map(|at| value(group.rank(), at)).collect();
                    group.all_reduce(&mut buffer, op).unwrap();
                    for (at, got) in buffer.iter().enumerate() {
                        let expected = fold(op, Rank::all(world).map(|rank| value(rank, at)));
                        assert_eq!(
                            *got, expected,
                            "{over:?} {communication:?} {op} {len} elements, world {world}"
                        );
                    }
                }
            }
        }
        group.leave().unwrap();
    });
}

#[test]
fn all_reduce_matches_the_fold_between_threads() {
    for world in 1..=9 {
        all_reduce_matches_the_fold(Over::Local, world);
    }
}

#[test]
fn all_reduce_matches_the_fold_between_connections() {
    for world in 1..=4 {
        all_reduce_matches_the_fold(Over::Quic, world);
    }
}

#[test]
fn all_reduce_matches_the_fold_over_tcp() {
    for world in 1..=4 {
        all_reduce_matches_the_fold(Over::Tls, world);
    }
}

#[test]
fn floats_are_the_same_bits_on_every_rank() {
    for over in Over::ALL {
        let of_ranks = over.run(3, |mut group| {
            let seed = group.rank().number() as f32 + 0.1;
            let own: Vec<f32> = (0..300_001).map(|at| (at as f32 * seed).sin()).collect();
            let bits = Communication::ALL.map(|communication| {
                group.set_communication(communication);
                let mut buffer = own.clone();
                group.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
                buffer.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            });
            group.leave().unwrap();
            bits
        });
        for (place, communication) in Communication::ALL.iter().enumerate() {
            let same =
                |bits: &[Vec<u32>; Communication::ALL.len()]| bits[place] == of_ranks[0][place];
            assert!(of_ranks.iter().all(same), "{over:?} {communication:?}");
        }
    }
}

#[test]
fn truth_values_are_reduced_and_an_op_they_do_not_have_is_refused_without_ending_the_group() {
    for over in Over::ALL {
        let any = over.run(3, |mut group| {
            let mut buffer: Vec<bool> = (0..5).map(|at| at == group.rank().index()).collect();
            let refused = group.all_reduce(&mut buffer, ReduceOp::Sum);
            assert_eq!(
                refused.unwrap_err().to_string(),
                "sum of bool elements is not defined: and, or and xor need integers or bool, sum, product and mean need numbers"
            );
            group.all_reduce(&mut buffer, ReduceOp::Or).unwrap();
            group.broadcast(&mut buffer, Rank::new(2)).unwrap();
            group.leave().unwrap();
            buffer
        });
        assert_eq!(any, vec![[true, true, true, false, false]; 3]);
    }
}

#[test]
fn broadcast_gives_everyone_the_buffer_of_any_root() {
    for over in Over::ALL {
        let world = 5;
        over.run(world, |mut group| {
            for communication in Communication::ALL {
                group.set_communication(communication);
                for root in Rank::all(world) {
                    for len in lengths(world) {
                        let mut buffer: Vec<i64> =
                            (0..len).map(|at| value(group.rank(), at)).collect();
                        group.broadcast(&mut buffer, root).unwrap();
                        let expected: Vec<i64> = (0..len).map(|at| value(root, at)).collect();
                        assert_eq!(buffer, expected);
                    }
                }
            }
            group.leave().unwrap();
        });
    }
}

#[test]
fn nobody_passes_a_barrier_before_the_last_rank_reaches_it() {
    use std::sync::atomic::{AtomicU32, Ordering};
    for over in Over::ALL {
        let arrived = AtomicU32::new(0);
        over.run(4, |mut group| {
            for turn in 1..=20 {
                arrived.fetch_add(1, Ordering::SeqCst);
                group.barrier().unwrap();
                assert!(arrived.load(Ordering::SeqCst) >= 4 * turn);
            }
            group.leave().unwrap();
        });
    }
}

/// Runs `odd` on the last rank and `usual` on the others; all get an error, and it is returned.
fn disagree(
    over: Over,
    usual: impl Fn(&mut Group) -> Result<(), OperationError> + Sync,
    odd: impl Fn(&mut Group) -> Result<(), OperationError> + Sync,
) -> Vec<OperationError> {
    over.run(3, |mut group| {
        let called = if group.rank() == Rank::new(2) {
            odd(&mut group)
        } else {
            usual(&mut group)
        };
        let first = called.and_then(|()| group.barrier()).unwrap_err();
        // The group is over: the same error, at once, whatever is called.
        assert_eq!(group.barrier().unwrap_err(), first);
        first
    })
}

#[track_caller]
fn names_both_calls(errors: &[OperationError], usual: &str, odd: &str) {
    for error in errors {
        let text = error.to_string();
        assert!(
            text.contains(usual) && text.contains(odd) && text.contains("rank 2"),
            "{text}"
        );
    }
}

#[test]
fn ranks_that_call_different_operations_are_named_on_every_rank() {
    let sum = |group: &mut Group| group.all_reduce(&mut [1.0_f32; 64], ReduceOp::Sum);
    for over in Over::ALL {
        let longer = disagree(over, sum, |group| {
            group.all_reduce(&mut [1.0_f32; 65], ReduceOp::Sum)
        });
        names_both_calls(&longer, "64 f32", "65 f32");
        let max = disagree(over, sum, |group| {
            group.all_reduce(&mut [1.0_f32; 64], ReduceOp::Max)
        });
        names_both_calls(&max, "f32, sum", "f32, max");
        let doubles = disagree(over, sum, |group| {
            group.all_reduce(&mut [1.0_f64; 32], ReduceOp::Sum)
        });
        names_both_calls(&doubles, "64 f32", "32 f64");
        let broadcast = disagree(over, sum, |group| {
            group.broadcast(&mut [1.0_f32; 64], Rank::new(1))
        });
        names_both_calls(&broadcast, "all_reduce #1", "broadcast #1");
        let missing = disagree(over, sum, |_| Ok(()));
        names_both_calls(&missing, "all_reduce #1", "barrier #1");
        let left = over.run(2, |mut group| match group.rank() {
            Rank::CHIEF => group.leave().unwrap_err(),
            _ => sum(&mut group).unwrap_err(),
        });
        assert!(left[0].to_string().contains("leave #1"), "{}", left[0]);
    }
}

#[test]
fn a_large_buffer_against_a_small_one_takes_different_algorithms_and_is_still_named() {
    for over in Over::ALL {
        let small = |group: &mut Group| group.all_reduce(&mut [1.0_f32; 4], ReduceOp::Sum);
        let large =
            |group: &mut Group| group.all_reduce(&mut vec![1.0_f32; 1 << 20], ReduceOp::Sum);
        names_both_calls(&disagree(over, small, large), "of 4 f32", "of 1048576 f32");
        names_both_calls(&disagree(over, large, small), "of 1048576 f32", "of 4 f32");
    }
}

#[test]
fn the_callers_line_is_in_the_error() {
    let line = line!() + 2;
    let errors = Over::Local.run(2, |mut group| match group.rank() {
        Rank::CHIEF => group.barrier().unwrap_err(),
        _ => group.all_reduce(&mut [1_u8], ReduceOp::Sum).unwrap_err(),
    });
    assert!(
        errors[1].to_string().contains(&format!("tests.rs:{line}")),
        "{}",
        errors[1]
    );
}

#[test]
fn a_rank_that_drops_its_group_is_named_by_those_who_wait_for_it() {
    for over in Over::ALL {
        let ended = over.run(4, |mut group| match group.rank().number() {
            2 => None,
            _ => Some(group.barrier().unwrap_err()),
        });
        for error in ended.into_iter().flatten() {
            let OperationError::RankLost { peer, cause, .. } = &error else {
                panic!("{over:?}: {error}")
            };
            assert_eq!(
                (peer.rank(), *cause),
                (Rank::new(2), LossCause::Left),
                "{over:?}"
            );
        }
    }
}

#[test]
fn the_reason_of_an_abort_is_the_error_of_every_rank() {
    for over in Over::ALL {
        let errors = over.run(3, |mut group| match group.rank().number() {
            1 => group.abort("the data set is empty"),
            _ => group
                .all_reduce(&mut [0.0_f32; 8], ReduceOp::Sum)
                .unwrap_err(),
        });
        for error in errors {
            let text = error.to_string();
            assert!(
                text.starts_with("rank 1 (")
                    && text.ends_with("ended the group: the data set is empty"),
                "{text}"
            );
        }
    }
}

#[test]
fn an_operation_that_nobody_joins_ends_at_its_deadline() {
    for over in Over::ALL {
        let (done, wait) = mpsc::channel::<()>();
        let (done, wait) = (Mutex::new(Some(done)), Mutex::new(wait));
        let errors = over.run(2, |mut group| {
            group.set_operation_timeout(Duration::from_millis(50));
            if group.rank() == Rank::CHIEF {
                let error = group
                    .all_reduce(&mut [1_u8; 10], ReduceOp::Sum)
                    .unwrap_err();
                done.lock().unwrap().take();
                return Some(error);
            }
            // Alive, but in no call until the other has given up.
            let _ = wait.lock().unwrap().recv();
            None
        });
        let Some(OperationError::TimedOut {
            rank, peer, waited, ..
        }) = &errors[0]
        else {
            panic!("{errors:?}")
        };
        assert_eq!(
            (*rank, *peer, *waited),
            (Rank::CHIEF, Rank::new(1), Duration::from_millis(50))
        );
    }
}

#[test]
fn a_root_outside_the_group_is_refused_before_anything_is_sent() {
    Over::Local.run(2, |mut group| {
        let refused = group.broadcast(&mut [1_u8], Rank::new(2));
        assert_eq!(
            refused,
            Err(OperationError::RankOutside {
                rank: Rank::new(2),
                world: 2
            })
        );
        group.barrier().unwrap();
        group.leave().unwrap();
    });
}

#[test]
fn a_blocking_call_in_asynchronous_code_is_an_error_and_not_a_panic() {
    let mut group = Group::local(1).unwrap().remove(0);
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        assert_eq!(group.barrier(), Err(OperationError::InsideAsync));
        assert_eq!(
            Group::connect(&config(
                &free_addresses(2),
                Rank::CHIEF,
                &JobSecret::generate().unwrap()
            ))
            .err(),
            Some(OperationError::InsideAsync.into())
        );
        drop(group);
    });
}

/// What both ranks of a job with two secrets end with, where rank 0 waits this long.
///
/// Rank 1 hears why at once when its join request is answered, but not if that is after rank 0 has
/// given up.
fn with_two_secrets(members: &[String], patience: Duration) -> Vec<Error> {
    let secrets = [
        JobSecret::generate().unwrap(),
        JobSecret::generate().unwrap(),
    ];
    let join = Timeouts::default().with_join(patience);
    each(Rank::all(2), |rank| {
        Group::connect(&config(members, rank, &secrets[rank.index()]).with_timeouts(join))
            .unwrap_err()
    })
}

#[test]
fn a_process_with_another_secret_is_refused_by_name_on_both_sides() {
    let members = free_addresses(2);
    let refused = |errors: &[Error]| matches!(errors[1], Error::Join(JoinError::OtherJob { .. }));
    let errors = in_time(
        |patience| with_two_secrets(&members, patience),
        |errors| refused(errors),
    );
    let peer = Member::new(Rank::CHIEF, members[0].clone());
    assert_eq!(errors[1], Error::Join(JoinError::OtherJob { peer }));
    let Error::Join(JoinError::NotJoined {
        missing, refused, ..
    }) = &errors[0]
    else {
        panic!("{}", errors[0])
    };
    assert_eq!(missing, &[Member::new(Rank::new(1), members[1].clone())]);
    assert_eq!(refused[0].cause(), UnauthenticatedCause::OtherJob);
    assert_eq!(refused[0].address().to_string(), members[1]);
}

/// Each looks for rank 0 where the other is. Who does so first may be gone when the other does.
#[test]
fn processes_with_one_list_in_two_orders_are_told_so_and_nothing_of_secrets() {
    let (members, secret) = (free_addresses(2), JobSecret::generate().unwrap());
    let reversed = [members[1].clone(), members[0].clone()];
    let lists: [&[String]; 2] = [&members, &reversed];
    let attempt = |patience| {
        let join = Timeouts::default().with_join(patience);
        each(lists, |list| {
            let config = config(list, Rank::new(1), &secret).with_timeouts(join);
            Group::connect(&config).unwrap_err().to_string()
        })
    };
    let is_told = |error: &String| {
        error.contains("the same list of members") || error.contains("another list of members")
    };
    let errors = in_time(attempt, |errors| errors.iter().all(is_told));
    assert!(errors.iter().all(is_told), "{errors:?}");
    let all = errors.join("\n");
    assert!(all.contains("members in the same order"), "{all}");
    assert!(!all.contains("secret"), "{all}");
}

/// As on two machines that have each other's index and use one port.
#[test]
fn a_process_that_finds_itself_in_the_place_of_another_is_told_of_the_index() {
    let address: SocketAddr = free_addresses(1)[0].parse().unwrap();
    let port = address.port();
    let members = [1, 2].map(|host| format!("127.0.0.{host}:{port}"));
    let secret = JobSecret::generate().unwrap();
    let everywhere = format!("0.0.0.0:{port}").parse().unwrap();
    let config = config(&members, Rank::new(1), &secret).with_bind(everywhere);
    let error = Group::connect(&config).unwrap_err();
    let peer = Member::new(Rank::CHIEF, members[0].clone());
    assert_eq!(error, Error::Join(JoinError::OtherRank { peer }));
    assert_eq!((error.is_retryable(), error.rank_at_fault()), (false, None));
}

#[test]
fn processes_of_different_clusters_refuse_each_other() {
    let (members, secret) = (free_addresses(3), JobSecret::generate().unwrap());
    let attempt = |patience| {
        let short = Timeouts::default().with_join(patience);
        each(Rank::all(2), |rank| {
            let seen = if rank == Rank::CHIEF { 3 } else { 2 };
            let config = config(&members[..seen], rank, &secret).with_timeouts(short);
            Group::connect(&config).unwrap_err()
        })
    };
    let is_refused = |error: &Error| matches!(error, Error::Join(JoinError::Refused { .. }));
    let errors = in_time(attempt, |errors| is_refused(&errors[1]));
    let Error::Join(JoinError::Refused { reason, .. }) = &errors[1] else {
        panic!("{}", errors[1])
    };
    assert_eq!(
        *reason,
        Refusal::World {
            expected: 3,
            found: 2
        }
    );
    let Error::Join(JoinError::NotJoined { refused, .. }) = &errors[0] else {
        panic!("{}", errors[0])
    };
    assert_eq!(refused[0].cause(), UnauthenticatedCause::Refused(*reason));
}

/// It ends at the first refusal, and has asked some of the others by then.
#[test]
fn why_a_process_of_another_cluster_was_refused_is_named_on_every_rank() {
    let (members, secret) = (free_addresses(9), JobSecret::generate().unwrap());
    let mut swapped = members.clone();
    swapped.swap(2, 5);
    let attempt = |patience| {
        let join = Timeouts::default().with_join(patience);
        each(Rank::all(9), |rank| {
            let view = match rank.number() {
                8 => &swapped,
                _ => &members,
            };
            let config = config(view, rank, &secret).with_timeouts(join);
            Group::connect(&config).unwrap_err().to_string()
        })
    };
    let is_told = |error: &String| {
        let named = error.contains("rank 8 (") || error.contains("refused rank 8");
        named && error.contains(&Refusal::Members.to_string())
    };
    let errors = in_time(attempt, |errors| errors.iter().all(is_told));
    assert!(errors.iter().all(is_told), "{errors:?}");
}

#[test]
fn a_second_process_of_one_rank_is_refused_and_the_group_goes_on() {
    let (members, secret) = (free_addresses(2), JobSecret::generate().unwrap());
    let groups = each(Rank::all(2), |rank| {
        Group::connect(&config(&members, rank, &secret)).unwrap()
    });
    let double = config(&members, Rank::new(1), &secret).with_bind("127.0.0.1:0".parse().unwrap());
    let Error::Join(JoinError::Refused { reason, .. }) = Group::connect(&double).unwrap_err()
    else {
        panic!("let in")
    };
    assert_eq!(reason, Refusal::RankTaken);
    each(groups, |mut group| {
        group.barrier().and_then(|()| group.leave()).unwrap();
    });
}

#[test]
fn a_member_that_never_appears_is_named_at_the_deadline() {
    let members = free_addresses(3);
    let secret = JobSecret::generate().unwrap();
    let began = Instant::now();
    let config = config(&members, Rank::new(1), &secret)
        .with_timeouts(Timeouts::default().with_join(Duration::from_millis(200)));
    let Error::Join(JoinError::NotJoined { missing, .. }) = Group::connect(&config).unwrap_err()
    else {
        panic!("joined")
    };
    assert_eq!(
        missing.iter().map(Member::rank).collect::<Vec<_>>(),
        [Rank::new(0), Rank::new(2)]
    );
    assert!(began.elapsed() < PATIENCE);
}

#[test]
fn members_may_have_addresses_of_version_6() {
    let Some(socket) = Need::Ipv6.or_skip(UdpSocket::bind("[::1]:0")) else {
        return;
    };
    let other = UdpSocket::bind("[::1]:0").unwrap();
    let members = [&socket, &other].map(|socket| socket.local_addr().unwrap().to_string());
    drop((socket, other));
    let secret = JobSecret::generate().unwrap();
    each(Rank::all(2), |rank| {
        let mut group = Group::connect(&config(&members, rank, &secret)).unwrap();
        group.barrier().unwrap();
        group.leave().unwrap();
    });
}

#[test]
fn a_member_of_the_other_ip_version_is_named() {
    if Need::Ipv6.or_skip(UdpSocket::bind("[::1]:0")).is_none() {
        return;
    }
    let members = [free_addresses(1).remove(0), "127.0.0.1:1".to_owned()];
    let secret = JobSecret::generate().unwrap();
    let config = config(&members, Rank::new(1), &secret).with_bind("[::1]:0".parse().unwrap());
    let refused = Group::connect(&config).unwrap_err();
    let peer = Member::new(Rank::CHIEF, members[0].clone());
    assert_eq!(
        refused,
        Error::Join(JoinError::AddressFamily {
            rank: Rank::new(1),
            family: "IPv6",
            peer
        })
    );
}

#[test]
fn a_taken_port_is_named() {
    let holder = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = holder.local_addr().unwrap();
    let members = [address.to_string(), free_addresses(1).remove(0)];
    let refused = Group::connect(&config(
        &members,
        Rank::CHIEF,
        &JobSecret::generate().unwrap(),
    ));
    assert_eq!(
        refused.err(),
        Some(Error::Join(JoinError::PortTaken {
            rank: Rank::CHIEF,
            address
        }))
    );
}

#[test]
fn a_port_that_is_taken_for_tcp_alone_is_named_where_that_is_the_data_transport() {
    let members = free_addresses(2);
    let holder = TcpListener::bind(&members[0]).unwrap();
    let secret = JobSecret::generate().unwrap();
    let config = over_tls(config(&members, Rank::CHIEF, &secret), Network::default());
    let refused = Group::connect(&config).err();
    let address = holder.local_addr().unwrap();
    let rank = Rank::CHIEF;
    assert_eq!(
        refused,
        Some(Error::Join(JoinError::TcpPortTaken { rank, address }))
    );
}

#[test]
fn the_launchers_word_ends_a_group_that_still_waits_for_the_lost_rank() {
    let (members, secret) = (free_addresses(3), JobSecret::generate().unwrap());
    let lost = Rank::new(2);
    let configs = [0, 1].map(|rank| config(&members, Rank::new(rank), &secret));
    // It goes on dialling a rank that another has told meanwhile, and that has ended: nobody waits
    // for it, as in a launcher.
    thread::spawn(move || quic::announce_loss(&members, &secret, lost, PATIENCE));
    for error in each(configs, |config| Group::connect(&config).unwrap_err()) {
        let Error::Operation(OperationError::RankLost { peer, cause, .. }) = &error else {
            panic!("{error}")
        };
        assert_eq!((peer.rank(), *cause), (lost, LossCause::Died));
    }
}

#[test]
fn nobody_without_the_secret_can_announce_a_loss() {
    let (members, secret) = (free_addresses(2), JobSecret::generate().unwrap());
    let groups = each(Rank::all(2), |rank| {
        Group::connect(&config(&members, rank, &secret)).unwrap()
    });
    let peer = JobSecret::generate().unwrap();
    quic::announce_loss(&members, &peer, Rank::new(1), Duration::from_millis(200)).unwrap();
    each(groups, |mut group| {
        group.barrier().and_then(|()| group.leave()).unwrap();
    });
}
