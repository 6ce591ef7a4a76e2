//! Who sends which pieces of a unit to whom, and in which order: the same on all workers, from what
//! each of them misses.

use std::collections::BTreeMap;

use super::pieces::Piece;
use crate::sharded::held::Whose;
use crate::sharded::partition::Partition;
use crate::sharded::survivors::Source;

/// Pieces that one worker sends another at once.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in crate::sharded) struct Message {
    pub(super) giver: usize,
    pub(super) taker: usize,
    /// Each with the part of the giver that it is in.
    pub(super) pieces: Vec<(Whose, Piece)>,
}

impl Message {
    pub(in crate::sharded) fn len(&self) -> usize {
        self.pieces.iter().map(|(_, piece)| piece.len()).sum()
    }
}

/// Messages of at most so many elements, with all that each worker misses of a unit that is divided
/// so, by turns from all who have it. Each worker takes part in them in their order: in a round, no
/// worker has two to send or two to take.
pub(super) fn messages(
    missing: &[Vec<Piece>],
    from: &Partition,
    holders: &[Vec<Source>],
    most: usize,
) -> Vec<Message> {
    let world = missing.len();
    let mut all = Vec::new();
    for (taker, pieces) in missing.iter().enumerate() {
        let mut by_giver: BTreeMap<usize, Vec<Message>> = BTreeMap::new();
        for (turn, (part, piece)) in cuts(pieces, from, most).enumerate() {
            let others = holders[part].iter().filter(|source| source.worker != taker);
            let others: Vec<&Source> = others.collect();
            // Who has all that there is of a part does not say that it misses it.
            let Some(source) = others.get(turn % others.len().max(1)) else {
                continue;
            };
            let given = (source.whose, piece);
            let to_send = by_giver.entry(source.worker).or_default();
            match to_send.last_mut() {
                Some(last) if last.len() + given.1.len() <= most => last.pieces.push(given),
                Some(_) | None => to_send.push(Message {
                    giver: source.worker,
                    taker,
                    pieces: vec![given],
                }),
            }
        }
        let rounds = by_giver
            .into_values()
            .flat_map(|of| of.into_iter().enumerate());
        all.extend(rounds);
    }
    let distance = |message: &Message| (message.giver + world - message.taker) % world;
    all.sort_by_key(|(round, message)| (*round, distance(message), message.taker));
    all.into_iter().map(|(_, message)| message).collect()
}

/// Pieces by the parts that they are in.
fn cuts<'a>(
    pieces: &'a [Piece],
    from: &'a Partition,
    most: usize,
) -> impl Iterator<Item = (usize, Piece)> + 'a {
    pieces.iter().flat_map(move |piece| {
        (0..from.workers()).flat_map(move |part| {
            let of_part = piece.within(&from.elements(piece.tensor, part));
            let cut = of_part.into_iter().flat_map(move |of_part| {
                let cut: Vec<Piece> = of_part.cut(most).collect();
                cut
            });
            cut.map(move |piece| (part, piece))
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::VariableSpec;
    use crate::sharded::held::Kind;

    /// What a worker misses: every so many elements of each tensor.
    fn missing(partition: &Partition, tensors: usize, gaps: usize) -> Vec<Piece> {
        let of = |tensor: usize| {
            let len = partition.whole(tensor).len();
            let starts = (0..len).step_by(gaps + 1);
            starts.map(move |start| Piece {
                kind: Kind::State(tensor % 2),
                tensor,
                elements: start..(start + gaps).min(len).max(start + 1),
            })
        };
        (0..tensors).flat_map(of).collect()
    }

    proptest! {
        #[test]
        fn all_that_is_missing_comes_once_from_one_who_has_it_and_rounds_are_pairs(
            lengths in prop::collection::vec(0_usize..40, 0..4), parts in 1_usize..5,
            newcomers in 1_usize..3, gaps in 1_usize..9, most in 1_usize..12,
        ) {
            let spec = |len: &usize| VariableSpec::new("v", &[*len]).unwrap();
            let specs: Vec<_> = lengths.iter().map(spec).collect();
            let from = Partition::new(&specs, specs.len(), parts);
            let source = |worker, whose| Source { worker, whose };
            let neighbour = |part: usize| (part + 1) % parts;
            let holders: Vec<Vec<Source>> = (0..parts)
                .map(|part| {
                    let own = source(part, Whose::Own);
                    let copy = source(neighbour(part), Whose::Neighbours);
                    if parts == 1 { vec![own] } else { vec![own, copy] }
                })
                .collect();
            let mut of_all = vec![Vec::new(); parts];
            of_all.extend(vec![missing(&from, lengths.len(), gaps); newcomers]);
            let planned = messages(&of_all, &from, &holders, most);
            let mut came = vec![BTreeSet::new(); parts + newcomers];
            for message in &planned {
                prop_assert!(message.len() <= most && message.giver < parts);
                for (whose, piece) in &message.pieces {
                    let part = match whose {
                        Whose::Own => message.giver,
                        Whose::Neighbours => (message.giver + parts - 1) % parts,
                    };
                    let own = from.elements(piece.tensor, part);
                    for at in piece.elements.clone() {
                        prop_assert!(own.contains(&at));
                        prop_assert!(came[message.taker].insert((piece.tensor, at)));
                    }
                }
            }
            for (worker, came) in came.iter().enumerate() {
                let wanted = of_all[worker].iter();
                let wanted = wanted.flat_map(|piece| {
                    piece.elements.clone().map(|at| (piece.tensor, at))
                });
                prop_assert!(wanted.collect::<BTreeSet<_>>() == *came);
            }
        }

        #[test]
        fn a_piece_comes_back_from_its_words_and_what_no_worker_says_does_not(
            words in prop::array::uniform4(0_u64..9),
        ) {
            let spec = VariableSpec::new("v", &[4, 2]).unwrap();
            let partition = Partition::new(&[spec.clone(), spec], 1, 3);
            let [kind, tensor, start, end] = words;
            // The second is not trained, and has no state.
            let is_tensor = tensor < if kind == 0 { 2 } else { 1 };
            let is_piece = kind < 3 && is_tensor && start < end && end <= 8;
            let piece = Piece::read(&words, &partition, 2);
            prop_assert_eq!(piece.map(|piece| piece.words()), is_piece.then_some(words));
        }
    }

    #[test]
    fn parts_that_several_have_come_from_all_of_them() {
        let spec = VariableSpec::new("v", &[12]).unwrap();
        let from = Partition::new(&[spec], 1, 1);
        let source = |worker| Source {
            worker,
            whose: Whose::Own,
        };
        let holders = vec![(0..3).map(source).collect()];
        let mut of_all = vec![Vec::new(); 3];
        of_all.push(vec![Piece {
            kind: Kind::Parameters,
            tensor: 0,
            elements: 0..12,
        }]);
        let givers = messages(&of_all, &from, &holders, 2);
        let givers: Vec<usize> = givers.iter().map(|message| message.giver).collect();
        // In a round each gives one: of the same distance, one after the other.
        assert_eq!(givers, [0, 1, 2, 0, 1, 2]);
    }
}
