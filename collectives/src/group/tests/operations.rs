//! Every operation against what it should give, worked out from all inputs at once.

use super::*;
use crate::medium::Medium;
use std::ops::Range;

/// The input of a rank: values that differ by rank, element and operation, and are not 0 where the
/// salt is not.
fn input(rank: usize, len: usize, salt: usize) -> Vec<i64> {
    part_of_input(rank, 0..len, salt)
}

/// These elements of it.
fn part_of_input(rank: usize, elements: Range<usize>, salt: usize) -> Vec<i64> {
    let first = rank * 1_000_003 + salt + 17 * elements.start;
    ramp(first, 17, elements.len())
}

/// The blocks of all ranks, one after the other.
fn joined(world: usize, block: impl FnMut(usize) -> Vec<i64>) -> Vec<i64> {
    (0..world).map(block).collect::<Vec<_>>().concat()
}

fn sum_of_all(world: usize, len: usize, salt: usize) -> Vec<i64> {
    let first = (0..world).map(|rank| rank * 1_000_003 + salt).sum();
    ramp(first, 17 * world, len)
}

fn ramp(first: usize, step: usize, len: usize) -> Vec<i64> {
    // Zeros cost nothing, where other values are written one by one: tests are not optimised.
    let mut values = vec![0; len];
    let (step, mut next) = (i64::try_from(step).unwrap(), i64::try_from(first).unwrap());
    for value in &mut values {
        *value = next;
        next += step;
    }
    values
}

fn blocks(lengths: &[usize]) -> Vec<Range<usize>> {
    let mut end = 0;
    let range = |len: &usize| {
        end += len;
        end - len..end
    };
    lengths.iter().map(range).collect()
}

/// One rank of a group, and what it makes of lengths.
struct Trial<'a> {
    group: &'a mut Group,
    me: usize,
    world: usize,
    over: Over,
}

impl Trial<'_> {
    #[track_caller]
    fn check(&self, what: &str, len: usize, got: &[i64], expected: &[i64]) {
        if got == expected {
            return;
        }
        let Self {
            me, world, over, ..
        } = self;
        let wrong = got.iter().zip(expected).position(|(a, b)| a != b);
        panic!("{what} of {len} on rank {me} of {world} over {over:?}: wrong from {wrong:?}");
    }

    fn reductions(&mut self, len: usize) {
        let (me, world) = (self.me, self.world);
        let sum = sum_of_all(world, len, 1);
        let mut buffer = input(me, len, 1);
        self.group.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
        self.check("all_reduce", len, &buffer, &sum);
        let mut output = vec![0; len];
        let own = input(me, len, 1);
        self.group
            .all_reduce_into(&own, &mut output, ReduceOp::Sum)
            .unwrap();
        self.check("all_reduce_into", len, &output, &sum);
        for root in [0, world - 1] {
            let mut buffer = own.clone();
            let to = Rank::new(u32::try_from(root).unwrap());
            self.group.reduce(&mut buffer, ReduceOp::Sum, to).unwrap();
            let expected = if me == root { &sum } else { &own };
            self.check("reduce", len, &buffer, expected);
        }
        let whole = input(me, len * world, 2);
        let mut output = vec![0; len];
        self.group
            .reduce_scatter(&whole, &mut output, ReduceOp::Sum)
            .unwrap();
        let sum = sum_of_all(world, len * world, 2);
        self.check(
            "reduce_scatter",
            len,
            &output,
            &sum[me * len..(me + 1) * len],
        );
    }

    fn gathers(&mut self, len: usize) {
        let (me, world) = (self.me, self.world);
        let own = input(me, len, 3);
        let all = joined(world, |rank| input(rank, len, 3));
        let mut output = vec![0; len * world];
        self.group.all_gather(&own, &mut output).unwrap();
        self.check("all_gather", len, &output, &all);
        let root = self.world / 2;
        let to = Rank::new(u32::try_from(root).unwrap());
        let mut output = vec![0; if me == root { len * world } else { 0 }];
        self.group.gather(&own, &mut output, to).unwrap();
        let expected = if me == root { all.as_slice() } else { &[] };
        self.check("gather", len, &output, expected);
        let mut output = vec![0; len];
        let whole = input(root, len * world, 4);
        let given = if me == root { whole.as_slice() } else { &[] };
        self.group.scatter(given, &mut output, to).unwrap();
        self.check("scatter", len, &output, &whole[me * len..(me + 1) * len]);
        let mut buffer = input(me, len, 5);
        self.group.broadcast(&mut buffer, to).unwrap();
        self.check("broadcast", len, &buffer, &input(root, len, 5));
    }

    fn exchanges(&mut self, len: usize) {
        let (me, world) = (self.me, self.world);
        let mut output = vec![0; len * world];
        self.group
            .all_to_all(&input(me, len * world, 6), &mut output)
            .unwrap();
        let own = me * len..(me + 1) * len;
        let expected = joined(world, |from| part_of_input(from, own.clone(), 6));
        self.check("all_to_all", len, &output, &expected);
        for step in [1, world - 1] {
            let targets: Vec<Rank> = (0..world)
                .map(|rank| Rank::new(u32::try_from((rank + step) % world).unwrap()))
                .collect();
            let mut output = vec![0; len];
            self.group
                .permute(&input(me, len, 7), &mut output, &targets)
                .unwrap();
            let source = (me + world - step % world) % world;
            self.check("permute", len, &output, &input(source, len, 7));
        }
        if let (0 | 1, true) = (me, world > 1) {
            let other = Rank::new(u32::try_from(1 - me).unwrap());
            let mut output = vec![0; len];
            if me == 0 {
                self.group.send(&input(me, len, 8), other).unwrap();
                self.group.receive(&mut output, other).unwrap();
            } else {
                self.group.receive(&mut output, other).unwrap();
                self.group.send(&input(me, len, 8), other).unwrap();
            }
            self.check("send and receive", len, &output, &input(1 - me, len, 8));
        }
    }

    /// Blocks of 0, len, 0, 2·len … elements.
    fn uneven(&mut self, len: usize) {
        let (me, world) = (self.me, self.world);
        let lengths: Vec<usize> = (0..world)
            .map(|rank| rank % 2 * (rank + 1) / 2 * len)
            .collect();
        let blocks = blocks(&lengths);
        let total = blocks[world - 1].end;
        let to = Rank::new(u32::try_from(world - 1).unwrap());
        let all = joined(world, |rank| input(rank, lengths[rank], 9));
        let own = input(me, lengths[me], 9);
        let mut output = vec![0; total];
        self.group
            .all_gather_uneven(&own, &mut output, &lengths)
            .unwrap();
        self.check("all_gather_uneven", len, &output, &all);
        output.fill(0);
        self.group
            .gather_uneven(&own, &mut output, &lengths, to)
            .unwrap();
        let untouched = vec![0; total];
        let expected = if me == world - 1 { &all } else { &untouched };
        self.check("gather_uneven", len, &output, expected);
        let mut output = vec![0; lengths[me]];
        let whole = input(world - 1, total, 10);
        self.group
            .scatter_uneven(&whole, &mut output, &lengths, to)
            .unwrap();
        self.check("scatter_uneven", len, &output, &whole[blocks[me].clone()]);
        self.group
            .reduce_scatter_uneven(&input(me, total, 11), &mut output, &lengths, ReduceOp::Sum)
            .unwrap();
        let sum = sum_of_all(world, total, 11);
        self.check(
            "reduce_scatter_uneven",
            len,
            &output,
            &sum[blocks[me].clone()],
        );
        self.blocks_with_gaps(&lengths);
        self.uneven_exchange(len);
    }

    /// The blocks of higher ranks come first, and there are elements between them.
    fn blocks_with_gaps(&mut self, lengths: &[usize]) {
        let (me, total) = (self.me, lengths.iter().sum::<usize>() + 7 * lengths.len());
        let mut end = total;
        let place = |len: &usize| {
            end -= len + 7;
            end + 3..end + 3 + len
        };
        let blocks: Vec<Range<usize>> = lengths.iter().map(place).collect();
        let mut output = vec![0; lengths[me]];
        let given = input(me, total, 13);
        self.group
            .reduce_scatter_at(&given, &blocks, &mut output, ReduceOp::Sum)
            .unwrap();
        let sum = sum_of_all(self.world, total, 13);
        let expected = &sum[blocks[me].clone()];
        self.check("reduce_scatter_at", total, &output, expected);
    }

    /// Rank a sends rank b (a + 2·b) mod 3 times `len` elements.
    fn uneven_exchange(&mut self, len: usize) {
        let (me, world) = (self.me, self.world);
        let count = |from: usize, to: usize| (from + 2 * to) % 3 * len;
        let sent = |from: usize| {
            (0..world)
                .map(move |to| count(from, to))
                .collect::<Vec<_>>()
        };
        let received: Vec<usize> = (0..world).map(|from| count(from, me)).collect();
        let give = |from: usize| input(from, sent(from).iter().sum(), 12);
        let mut output = vec![0; received.iter().sum()];
        self.group
            .all_to_all_uneven(&give(me), &sent(me), &mut output, &received)
            .unwrap();
        let expected = joined(world, |from| {
            part_of_input(from, blocks(&sent(from))[me].clone(), 12)
        });
        self.check("all_to_all_uneven", len, &output, &expected);
    }
}

fn every_operation(over: Over, world: u32, lengths: &[usize]) {
    over.run(world, |mut group| {
        try_every_operation(&mut group, over, lengths);
        group.leave().unwrap();
    });
}

fn try_every_operation(group: &mut Group, over: Over, lengths: &[usize]) {
    let (me, world) = (group.rank().index(), group.world() as usize);
    let mut trial = Trial {
        group,
        me,
        world,
        over,
    };
    for len in lengths {
        trial.reductions(*len);
        trial.gathers(*len);
        trial.exchanges(*len);
        trial.uneven(*len);
    }
}

#[test]
fn every_operation_gives_what_it_should_between_threads() {
    for world in 1..=9 {
        every_operation(Over::Local, world, &lengths(world));
    }
}

#[test]
fn every_operation_gives_what_it_should_through_memory() {
    for world in 2..=9 {
        every_operation(Over::Memory, world, &lengths(world));
    }
}

#[test]
fn every_operation_gives_what_it_should_between_connections() {
    for world in [2, 3, 5] {
        every_operation(Over::Quic, world, &lengths(world));
    }
}

#[test]
fn every_operation_gives_what_it_should_over_two_hosts() {
    for world in [2, 3, 4, 5] {
        every_operation(Over::Hosts, world, &lengths(world));
    }
}

/// With memory inside the hosts, and with links, by which each rank is sent what is meant for it.
#[test]
fn every_operation_gives_what_it_should_over_hosts_whose_ranks_stand_in_any_order() {
    for hosts in ["abba", "ababa", "abcbca"] {
        let names: Vec<_> = hosts.chars().map(String::from).collect();
        let world = u32::try_from(names.len()).unwrap();
        let named = |config: GroupConfig| {
            let place = config.rank().index();
            config.with_host(&names[place])
        };
        each(connected(world, named), |mut group| {
            group.set_operation_timeout(PATIENCE);
            group.set_communication(Communication::Hierarchical);
            try_every_operation(&mut group, Over::Hosts, &lengths(world));
            let mut session = group.settled();
            session.may_share_memory = false;
            session.find_hosts().unwrap();
            drop(session);
            try_every_operation(&mut group, Over::Hosts, &lengths(world));
            group.leave().unwrap();
        });
    }
}

/// How long operations wait is a setting of their parts across hosts, too: of ranks 0 and 2 here.
#[test]
fn parts_of_an_operation_wait_as_long_as_it_does() {
    let parts = Over::Hosts.run(3, |mut group| {
        group.set_operation_timeout(PATIENCE / 2);
        let mut session = group.settled();
        let Medium::Links(links) = &mut session.medium else {
            panic!("two hosts share no memory");
        };
        let part = links.across().map(|part| part.timeouts.operation());
        drop(session);
        group.leave().unwrap();
        part
    });
    assert_eq!(parts, [Some(PATIENCE / 2), None, Some(PATIENCE / 2)]);
}

/// Where blocks pass through other ranks: short ones and those that are too long for some ways.
#[test]
fn every_operation_gives_what_it_should_among_more_ranks_than_are_neighbours() {
    every_operation(Over::Quic, 10, &[0, 3, 9_001]);
    every_operation(Over::Tls, 17, &[2, 300]);
    every_operation(Over::Hosts, 19, &[5]);
}

/// The sum of the lengths is the same, so no message of several blocks is too long or too short.
#[test]
fn other_lengths_are_found_where_blocks_pass_through_other_ranks() {
    let ended = Over::Quic.run(10, |mut group| {
        let me = group.rank().index();
        let mut lengths = [1; 10];
        if me == 4 {
            (lengths[7], lengths[8]) = (0, 2);
        }
        let mut output = [0_u8; 10];
        group
            .all_gather_uneven(&[1], &mut output, &lengths)
            .and_then(|()| group.barrier())
    });
    assert!(ended.iter().all(Result::is_err), "{ended:?}");
    for place in [4, 5] {
        let error = &ended[place];
        let named = matches!(error, Err(OperationError::Disagreement { .. }));
        assert!(named, "rank {place}: {error:?}");
    }
}

/// Long enough to go through slots, to be fetched by the kernel, or to be worked on in place.
#[test]
fn long_buffers_arrive_whole_whatever_the_way() {
    for over in Over::ALL {
        // Over links what is longer than some pieces is nothing new.
        let lengths = match over {
            Over::Local | Over::Memory | Over::Hosts => &[5_001, 70_001, 270_011][..],
            Over::Quic | Over::Tls => &[5_001, 70_001],
        };
        for world in [2, 3] {
            every_operation(over, world, lengths);
        }
    }
}

#[test]
fn registered_buffers_are_reduced_in_place_and_with_private_ones_among_them() {
    // Private ones go through slots, or are fetched.
    for (registered, len) in [0b111, 0b101, 0b001, 0b000]
        .into_iter()
        .flat_map(|registered| [(registered, 100_003), (registered, 270_011)])
    {
        Over::Memory.run(3, |mut group| {
            let me = group.rank().index();
            let mut buffer = group.alloc::<i64>(len).unwrap();
            let mut private = input(me, len, 1);
            buffer.copy_from_slice(&private);
            for round in 0..3 {
                let chosen: &mut [i64] = if registered >> me & 1 == 1 {
                    &mut buffer
                } else {
                    &mut private
                };
                chosen.copy_from_slice(&input(me, len, round));
                group.all_reduce(&mut chosen[1..], ReduceOp::Sum).unwrap();
                assert_eq!(chosen[0], input(me, 1, round)[0]);
                assert_eq!(chosen[1..], sum_of_all(3, len, round)[1..]);
            }
            group.leave().unwrap();
        });
    }
}

/// Any byte may come from another process, and only two are truth values.
#[test]
fn long_truth_values_are_looked_at_before_they_are_taken() {
    Over::Memory.run(2, |mut group| {
        let own = group.rank().index() == 0;
        let mut values = vec![own; 3 << 20];
        group.broadcast(&mut values, Rank::CHIEF).unwrap();
        assert!(values.iter().all(|value| *value));
        values.fill(own);
        group.all_reduce(&mut values, ReduceOp::And).unwrap();
        assert!(values.iter().all(|value| !*value));
        group.leave().unwrap();
    });
}

/// Mappings of this process with so many bytes, of memory that has no name in a file system.
#[cfg(all(target_os = "linux", not(meshwork_portable)))]
fn mappings_of(bytes: usize) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let ours = maps
        .lines()
        .filter(|line| line.ends_with("/memfd:meshwork (deleted)"));
    let long = ours.filter(|line| {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let address = |text| usize::from_str_radix(text, 16).unwrap();
        address(end) - address(start) == bytes
    });
    long.count()
}

#[cfg(all(target_os = "linux", not(meshwork_portable)))]
#[test]
fn registered_memory_that_was_freed_is_not_kept_mapped_by_others() {
    // A length that nothing else in this process has.
    const PAGES: usize = 777;
    Over::Memory.run(2, |mut group| {
        let expected = vec![2; PAGES * 4096];
        for turn in 0..40 {
            let mut buffer = group.alloc::<u8>(PAGES * 4096).unwrap();
            buffer.fill(1);
            group.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
            assert!(buffer[..] == expected, "turn {turn}");
        }
        let mut buffer = group.alloc::<u8>(100_000).unwrap();
        group.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
        group.barrier().unwrap();
        assert_eq!(mappings_of(PAGES * 4096), 0);
        group.leave().unwrap();
    });
}

#[test]
fn operations_that_were_started_are_done_in_order_and_with_blocking_ones_between() {
    for over in Over::ALL {
        over.run(3, |mut group| {
            let me = group.rank().index();
            let started: Vec<_> = (0..20)
                .map(|salt| {
                    let buffer = input(me, 1000, salt);
                    group.start_all_reduce(buffer, ReduceOp::Sum).unwrap()
                })
                .collect();
            let mut blocking = input(me, 1000, 77);
            group.all_reduce(&mut blocking, ReduceOp::Sum).unwrap();
            assert_eq!(blocking, sum_of_all(3, 1000, 77));
            for (salt, pending) in started.into_iter().enumerate() {
                assert_eq!(pending.wait().unwrap(), sum_of_all(3, 1000, salt));
            }
            let scattered =
                group.start_reduce_scatter(input(me, 300, 1), vec![0; 100], ReduceOp::Sum);
            let gathered = group.start_all_gather(input(me, 100, 2), vec![0; 300]);
            let exchanged = group.start_all_to_all(input(me, 300, 3), vec![0; 300]);
            let own = me * 100..(me + 1) * 100;
            let (_, output) = scattered.unwrap().wait().unwrap();
            assert_eq!(output, sum_of_all(3, 300, 1)[own.clone()]);
            let (_, output) = gathered.unwrap().wait().unwrap();
            let all = (0..3).flat_map(|rank| input(rank, 100, 2));
            assert!(output.into_iter().eq(all));
            let (_, output) = exchanged.unwrap().wait().unwrap();
            let all = (0..3).flat_map(|rank| input(rank, 300, 3)[own.clone()].to_vec());
            assert!(output.into_iter().eq(all));
            group.leave().unwrap();
        });
    }
}

#[test]
fn an_op_that_elements_do_not_have_is_refused_and_nothing_has_happened() {
    let mut group = Group::local(1).unwrap().remove(0);
    let (mut buffer, mut output) = ([1.0_f32], [2.0_f32]);
    let refused = [
        group.all_reduce(&mut buffer, ReduceOp::And),
        group.all_reduce_into(&[3.0], &mut output, ReduceOp::And),
        group.reduce(&mut buffer, ReduceOp::And, Rank::CHIEF),
        group.reduce_scatter(&[3.0], &mut output, ReduceOp::And),
    ];
    let unsupported = |refused: &Result<(), OperationError>| {
        matches!(refused, Err(OperationError::Unsupported(_)))
    };
    assert!(refused.iter().all(unsupported), "{refused:?}");
    assert_eq!((buffer, output), ([1.0], [2.0]));
    assert_eq!(group.barrier(), Ok(()));
}

#[test]
fn pairs_that_disagree_on_a_length_are_named() {
    for over in Over::ALL {
        let errors = over.run(2, |mut group| {
            let mut output = [0_u8; 4];
            let (sent, received) = match group.rank().number() {
                0 => ([0, 3], [0, 2]),
                _ => ([4, 0], [3, 0]),
            };
            let input = vec![1; sent.iter().sum()];
            let output = &mut output[..received.iter().sum()];
            group
                .all_to_all_uneven(&input, &sent, output, &received)
                // Rank 1 gets what it expects, and hears of it in its next call.
                .and_then(|()| group.barrier())
                .unwrap_err()
        });
        let uneven = |error: &OperationError| error.to_string().contains("4 elements");
        assert!(errors.iter().all(uneven), "{over:?}: {errors:?}");
    }
}

/// A sender does not get ahead of whoever has not seen its empty messages yet.
#[test]
fn empty_messages_arrive_one_after_the_other_between_others() {
    for over in Over::ALL {
        over.run(2, |mut group| {
            let other = Rank::at(1 - group.rank().index());
            for turn in 0_u8..50 {
                let mut number = [0_u8];
                match group.rank() {
                    Rank::CHIEF => {
                        group.send(&[turn], other).unwrap();
                        group.send::<u8>(&[], other).unwrap();
                        group.send::<u8>(&[], other).unwrap();
                    }
                    _ => {
                        group.receive(&mut number, other).unwrap();
                        assert_eq!(number, [turn]);
                        thread::yield_now();
                        group.receive::<u8>(&mut [], other).unwrap();
                        group.receive::<u8>(&mut [], other).unwrap();
                    }
                }
            }
            group.leave().unwrap();
        });
    }
}

/// Rows of a grid that is two ranks wide, and its columns from the bottom up.
#[test]
fn ranks_of_one_colour_are_a_group_in_the_order_of_their_keys() {
    for over in Over::ALL {
        over.run(6, |mut group| {
            let me = group.rank().number();
            let mut row = group.split(Some(me / 2), 0).unwrap().unwrap();
            let mut column = group.split(Some(me % 2), -i64::from(me)).unwrap().unwrap();
            assert_eq!((row.rank().number(), row.world()), (me % 2, 2));
            assert_eq!((column.rank().number(), column.world()), (2 - me / 2, 3));
            for len in [1, 10_000] {
                let mut all = vec![0; 2 * len];
                row.all_gather(&vec![me; len], &mut all).unwrap();
                assert_eq!(all[..len], vec![me / 2 * 2; len]);
                assert_eq!(all[len..], vec![me / 2 * 2 + 1; len]);
                let mut sum = vec![me; len];
                column.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
                assert_eq!(sum, vec![[2 + 4, 1 + 3 + 5][me as usize % 2]; len]);
            }
            let nobody = group.split(None, 0).unwrap();
            assert!(nobody.is_none());
            // Split again, and used by another thread while the first goes on.
            let mut alone = row.split(Some(me), 0).unwrap().unwrap();
            thread::scope(|scope| {
                scope.spawn(move || {
                    alone.barrier().unwrap();
                    column.barrier().unwrap();
                });
                row.barrier().unwrap();
            });
            group.leave().unwrap();
        });
    }
}

#[test]
fn a_rank_that_leaves_a_split_group_is_named_by_those_who_wait_for_it_there() {
    let in_memory = [Over::Local, Over::Memory];
    // Over links they hear of it where they are together again.
    for &over in &in_memory[..1 + usize::from(SHARES_MEMORY)] {
        let errors = over.run(4, |mut group| {
            let me = group.rank().number();
            let mut half = group.split(Some(me % 2), 0).unwrap().unwrap();
            group.barrier().unwrap();
            let error = match me {
                3 => None,
                _ => half.barrier().err(),
            };
            drop(half);
            // The others hear of it where they are together again.
            error.or_else(|| group.barrier().err())
        });
        for error in errors.into_iter().flatten() {
            let OperationError::RankLost { peer, cause, .. } = error else {
                panic!("{over:?}: {error}");
            };
            assert_eq!((peer.rank(), cause), (Rank::new(3), LossCause::Left));
        }
    }
}
