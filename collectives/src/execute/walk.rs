//! The rounds of a schedule, one after the other, on one buffer.

use std::collections::BTreeMap;
use std::ops::Range;

use meshwork_accel::{Element, Reduction};

use super::{Inlet, Operation, Scratch, Stopped};
use crate::links::{Links, Outlets};
use crate::schedule::{Blocks, OnReceive, Receive, Round, Schedule};
use crate::{Error, Rank};

impl Operation<'_> {
    /// Walks a schedule on `buffer`, which holds unspecified values if it stops.
    ///
    /// Takes memory of its own for what is received only where a round reduces from several ranks
    /// at once: as much as all that they send.
    pub(crate) async fn run<T: Element>(
        &self,
        schedule: Schedule,
        links: &mut Links,
        scratch: &mut Scratch,
        buffer: &mut [T],
    ) -> Result<(), Stopped> {
        let reduction = self.contract.op.map(Reduction::new).transpose();
        let reduction = reduction.map_err(Error::from)?;
        let Links { outgoing, incoming } = links;
        self.announce(outgoing).await?;
        let mut inlet = Inlet::new(self, incoming, scratch);
        if first_sender(&schedule) != Some(self.predecessor()) {
            inlet.check_predecessor().await?;
        }
        let blocks = Blocks::even(buffer.len(), schedule.blocks());
        for round in schedule.rounds() {
            let mut walk = Walk {
                operation: self,
                blocks: &blocks,
                outgoing,
                inlet: &mut inlet,
            };
            match reduction {
                Some(reduction) if meets_several(&round) => {
                    walk.fold(&round, buffer, reduction).await?;
                }
                _ => walk.pass(&round, buffer, reduction).await?,
            }
        }
        self.finish(reduction, buffer);
        Ok(())
    }
}

/// One round of one rank.
struct Walk<'a, 'b> {
    operation: &'a Operation<'a>,
    blocks: &'a Blocks,
    outgoing: &'a mut Outlets,
    inlet: &'a mut Inlet<'b>,
}

impl Walk<'_, '_> {
    /// Sends and receives at once, straight from the buffer and into it.
    async fn pass<T: Element>(
        &mut self,
        round: &Round,
        buffer: &mut [T],
        reduction: Option<Reduction<T>>,
    ) -> Result<(), Stopped> {
        let ranges = round.receives().iter();
        let ranges: Vec<_> = ranges
            .map(|receive| self.elements(&receive.blocks))
            .collect();
        let (rest, into) = parts(buffer, &ranges);
        if let (Some(send), []) = (round.sends().first(), round.receives()) {
            self.operation.waits_for.set(send.to);
        }
        let send = async {
            for send in round.sends() {
                let part = rest.get(self.blocks.elements(send.blocks.clone()));
                self.operation
                    .send_chunk(self.outgoing, send.to, part)
                    .await?;
            }
            Ok(())
        };
        let receive = async {
            for (receive, into) in round.receives().iter().zip(into) {
                let reduction = reduction.filter(|_| receive.then == OnReceive::Reduce);
                self.inlet.chunk(receive.from, into, reduction).await?;
            }
            Ok(())
        };
        tokio::try_join!(send, receive).map(drop)
    }

    /// Sends from the buffer and receives beside it, then reduces what came for each part at once.
    async fn fold<T: Element>(
        &mut self,
        round: &Round,
        buffer: &mut [T],
        reduction: Reduction<T>,
    ) -> Result<(), Stopped> {
        let mut arrived = Vec::new();
        let send = async {
            for send in round.sends() {
                let part = &buffer[self.blocks.elements(send.blocks.clone())];
                self.operation
                    .send_chunk(self.outgoing, send.to, part)
                    .await?;
            }
            Ok::<(), Stopped>(())
        };
        let receive = async {
            for Receive { from, blocks, .. } in round.receives() {
                let elements = self.blocks.elements(blocks.clone());
                let mut part = vec![T::default(); elements.len()];
                self.inlet.chunk(*from, &mut part, None).await?;
                arrived.push((elements, *from, part));
            }
            Ok(())
        };
        tokio::try_join!(send, receive)?;
        let folded = fold_arrived((self.operation.me, &arrived), buffer, reduction);
        Ok(folded.map_err(Error::from)?)
    }

    fn elements(&self, blocks: &Range<usize>) -> Range<usize> {
        self.blocks.elements(blocks.clone())
    }
}

/// Elements that were received, from whom, and what they are.
type Arrived<T> = (Range<usize>, Rank, Vec<T>);

/// Reduces, in the order of the ranks, all that came for each part of the buffer with what is there.
fn fold_arrived<T: Element>(
    (me, arrived): (Rank, &[Arrived<T>]),
    buffer: &mut [T],
    reduction: Reduction<T>,
) -> Result<(), meshwork_accel::Error> {
    let mut parts: BTreeMap<(usize, usize), BTreeMap<Rank, &[T]>> = BTreeMap::new();
    for (elements, from, part) in arrived {
        let range = (elements.start, elements.end);
        parts.entry(range).or_default().insert(*from, part);
    }
    for ((start, end), mut sources) in parts {
        let own = buffer[start..end].to_vec();
        sources.insert(me, &own);
        let sources: Vec<&[T]> = sources.into_values().collect();
        reduction.fold(&mut buffer[start..end], &sources)?;
    }
    Ok(())
}

/// Whether what is received cannot be reduced as it comes: several ranks' in their order, or into
/// what is being sent.
fn meets_several(round: &Round) -> bool {
    let mut reduced: Vec<usize> = round
        .receives()
        .iter()
        .filter(|receive| receive.then == OnReceive::Reduce)
        .map(|receive| receive.blocks.start)
        .collect();
    reduced.sort_unstable();
    reduced.windows(2).any(|pair| pair[0] == pair[1]) || round.exchanges()
}

/// Whom the first chunk comes from, if any does.
fn first_sender(schedule: &Schedule) -> Option<Rank> {
    let mut rounds = schedule.rounds();
    rounds.find_map(|round| round.receives().first().map(|receive| receive.from))
}

/// What lies between the parts that are written, each with where it starts.
struct Rest<'a, T>(Vec<(usize, &'a [T])>);

impl<'a, T> Rest<'a, T> {
    /// A part that does not overlap what is written, as the checker proves of every round.
    fn get(&self, range: Range<usize>) -> &'a [T] {
        let holds = |(start, part): &&(usize, &[T])| {
            *start <= range.start && range.end <= start + part.len()
        };
        let found = self.0.iter().find(holds);
        found.map_or(&[], |(start, part)| {
            &part[range.start - start..range.end - start]
        })
    }
}

/// Cuts `buffer` into the ranges that are written, in the order given, and the rest. Of ranges that
/// overlap, which no round has, the later ones lose their beginning.
fn parts<'a, T>(buffer: &'a mut [T], written: &[Range<usize>]) -> (Rest<'a, T>, Vec<&'a mut [T]>) {
    let mut order: Vec<usize> = (0..written.len()).collect();
    order.sort_by_key(|index| (written[*index].start, written[*index].end));
    let mut rest = Vec::new();
    let mut into: Vec<&mut [T]> = written.iter().map(|_| &mut [][..]).collect();
    let (mut tail, mut start) = (buffer, 0);
    for index in order {
        let range = &written[index];
        let (gap, behind) = tail.split_at_mut(range.start.max(start) - start);
        rest.push((start, &*gap));
        start += gap.len();
        let (part, behind) = behind.split_at_mut(range.end.max(start) - start);
        start += part.len();
        into[index] = part;
        tail = behind;
    }
    rest.push((start, &*tail));
    (Rest(rest), into)
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn parts_are_those_asked_for_in_any_order_and_when_empty() {
        let ends = (0..=5).flat_map(|start| (start..=5).map(move |end| start..end));
        let ranges: Vec<_> = ends.collect();
        for first in &ranges {
            for second in &ranges {
                if first.start < second.end && second.start < first.end {
                    continue;
                }
                let mut buffer = [0, 1, 2, 3, 4];
                let values = buffer;
                let (rest, into) = parts(&mut buffer, &[first.clone(), second.clone()]);
                assert_eq!(*into[0], values[first.clone()]);
                assert_eq!(*into[1], values[second.clone()]);
                for read in &ranges {
                    let apart = |written: &std::ops::Range<usize>| {
                        read.end <= written.start || written.end <= read.start
                    };
                    if apart(first) && apart(second) {
                        assert_eq!(*rest.get(read.clone()), values[read.clone()]);
                    }
                }
            }
        }
    }
}
