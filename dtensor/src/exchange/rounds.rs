//! What goes between clients, in rounds: the next piece of every message is packed, sent, and put
//! where it belongs while it is still in a cache.

use std::ops::Range;

use meshwork_accel::{ReduceOp, Reduction};
use meshwork_layout::PartialReduction;

use crate::context::{Connected, Context};
use crate::transfer_plan::{BlockSource, Exchange, LocalPart, Message, TermSource};
use crate::{Error, Scalar};

/// The most bytes that the pieces of one round take, however long the messages are.
const STAGE: usize = 1 << 20;

/// Elements that are reduced at a time, so that gathered ones stay in a cache.
const TILE: usize = 8192;

/// The elements of all messages that one round carries, and where arriving ones are.
pub(super) struct Round {
    elements: Range<usize>,
    /// For each client and message from there, its place among the elements that arrive.
    arriving: Vec<Vec<Range<usize>>>,
    /// How many elements arrive from each client.
    received: Vec<usize>,
}

impl Round {
    /// The round for these elements of each message, by their numbers.
    pub(super) fn of(exchange: &Exchange, elements: Range<usize>) -> Self {
        let mut end = 0;
        let mut place = |message: &Message| {
            let start = end;
            end += within(message.len, &elements).len();
            start..end
        };
        let arriving: Vec<Vec<Range<usize>>> = exchange
            .received
            .iter()
            .map(|messages| messages.iter().map(&mut place).collect())
            .collect();
        let received = arriving
            .iter()
            .map(|ranges| ranges.iter().map(Range::len).sum());
        Self {
            received: received.collect(),
            arriving,
            elements,
        }
    }
}

/// Gives all clients their messages, and puts those of this one into its new blocks.
#[track_caller]
pub(super) fn exchange_messages<T: Scalar>(
    context: &Context,
    exchange: &Exchange,
    held: &[&[T]],
    made: &mut [Vec<T>],
) -> Result<(), Error> {
    let traffic = &exchange.traffic;
    let most = STAGE / size_of::<T>() / traffic.messages.max(1);
    let piece = most.max(1).min(traffic.longest);
    let mut process_group = context.process_group();
    let Connected { group, staging } = process_group.connected()?;
    let staging = staging.elements::<T>(group, piece * traffic.messages)?;
    let leaving = exchange.sent.iter().map(Vec::len).sum::<usize>() * piece;
    let (leaving, arrived) = staging.split_at_mut(leaving);
    let mut start = 0;
    while start < traffic.longest {
        let round = Round::of(exchange, start..start + piece);
        start += piece;
        let sent = pack(exchange, &round, held, leaving);
        let arrived = &mut arrived[..round.received.iter().sum()];
        let leaving = &leaving[..sent.iter().sum()];
        let copies = match traffic.is_gather {
            true => {
                group.all_gather_uneven(leaving, arrived, &round.received)?;
                round.received.len() - 1
            }
            false => {
                group.all_to_all_uneven(leaving, &sent, arrived, &round.received)?;
                1
            }
        };
        context.count_sent(copies * size_of_val(leaving));
        unpack(exchange, &round, arrived, made);
        reduce(exchange, &round, held, arrived, made)?;
    }
    Ok(())
}

/// Concatenates what a round carries to the other clients; returns how much each gets.
fn pack<T: Scalar>(
    exchange: &Exchange,
    round: &Round,
    held: &[&[T]],
    leaving: &mut [T],
) -> Vec<usize> {
    let mut rest = leaving;
    let sent = exchange.sent.iter().map(|messages| {
        let mut sent = 0;
        for LocalPart { place, runs } in messages {
            let elements = within(runs.count(), &round.elements);
            let (message, behind) = std::mem::take(&mut rest).split_at_mut(elements.len());
            sent += message.len();
            runs.take(elements, held[*place], message);
            rest = behind;
        }
        sent
    });
    sent.collect()
}

fn unpack<T: Scalar>(exchange: &Exchange, round: &Round, arrived: &[T], made: &mut [Vec<T>]) {
    let messages = exchange.received.iter().flatten();
    for (message, place) in messages.zip(round.arriving.iter().flatten()) {
        let elements = within(message.len, &round.elements);
        for (target, runs) in &message.uses {
            runs.put(
                elements.clone(),
                &mut made[*target],
                &arrived[place.clone()],
            );
        }
    }
}

/// Reduces the terms that are here and those that have arrived in a round, in the order of a
/// balanced tree over them.
pub(super) fn reduce<T: Scalar>(
    exchange: &Exchange,
    round: &Round,
    held: &[&[T]],
    arrived: &[T],
    made: &mut [Vec<T>],
) -> Result<(), Error> {
    for (target, made) in exchange.targets.iter().zip(made) {
        let BlockSource::Reduced(terms, reduction) = &target.source else {
            continue;
        };
        let reduction = Reduction::new(operation(*reduction))?;
        let elements = within(made.len(), &round.elements);
        for start in elements.clone().step_by(TILE) {
            let tile = start..elements.end.min(start + TILE);
            let gathered = terms.iter().map(|term| scattered(term, &tile, held));
            let gathered: Vec<Vec<T>> = gathered.collect();
            let terms = terms.iter().zip(&gathered);
            let terms = terms.map(|(term, gathered)| match term {
                TermSource::There(client, number) => {
                    let start = tile.start - elements.start;
                    let message = &arrived[round.arriving[*client][*number].clone()];
                    &message[start..start + tile.len()]
                }
                TermSource::Here(taken) => match taken.runs.as_span() {
                    Some(span) => &held[taken.place][span][tile.clone()],
                    None => gathered,
                },
            });
            reduction.fold(&mut made[tile.clone()], &terms.collect::<Vec<_>>())?;
        }
    }
    Ok(())
}

/// Elements of a term that are here, but not contiguous.
fn scattered<T: Scalar>(term: &TermSource, elements: &Range<usize>, held: &[&[T]]) -> Vec<T> {
    match term {
        TermSource::Here(taken) if taken.runs.as_span().is_none() => {
            let mut gathered = vec![T::default(); elements.len()];
            let elements = elements.clone();
            taken.runs.take(elements, held[taken.place], &mut gathered);
            gathered
        }
        TermSource::Here(_) | TermSource::There(..) => Vec::new(),
    }
}

pub(super) fn operation(reduction: PartialReduction) -> ReduceOp {
    match reduction {
        PartialReduction::Product => ReduceOp::Product,
        PartialReduction::Min => ReduceOp::Min,
        PartialReduction::Max => ReduceOp::Max,
        PartialReduction::Sum => ReduceOp::Sum,
    }
}

/// Those of `len` elements that are among these.
fn within(len: usize, elements: &Range<usize>) -> Range<usize> {
    elements.start.min(len)..elements.end.min(len)
}
