//! All-gather and reduce-scatter over several hosts: a block crosses to another host once, however
//! many ranks it has.
//!
//! ```text
//!   host A: ranks 0 1        host B: ranks 2 3          all-gather of blocks a b | c d
//!
//!   local    0 <-> 1   2 <-> 3     all-gather      0 and 1 have a b, 2 and 3 have c d
//!   across   0 <-> 2   1 <-> 3     all-gather      0 has c too, 1 has d, 2 has a, 3 has b
//!   local    0 <-> 1   2 <-> 3     all-gather      all have a b c d
//! ```
//!
//! A reduce-scatter goes the same ways backwards. Where hosts have more ranks than the smallest,
//! their further blocks are carried in further turns.

use std::ops::Range;

use meshwork_accel::{Element, ReduceOp, Reduction};

use super::{CallOfParts, Hierarchy};
use crate::OperationError;
use crate::contract::Kind;
use crate::operation::{OnArrival, OperationSpec, ReceiveBlock, SendBlocks, Transfer, Work};

impl Hierarchy {
    /// Gives all ranks the blocks of all; all have agreed on the call before.
    pub(super) fn all_gather<T: Element>(
        &mut self,
        call: CallOfParts,
        transfer: Transfer<'_, T>,
    ) -> Result<(), OperationError> {
        let Transfer {
            outgoing_blocks,
            receives,
            output,
            ..
        } = transfer;
        let mut blocks = vec![0..0; self.hosts.world()];
        for take in receives {
            blocks[take.from] = take.into.clone();
        }
        // Blocks stand in the order of the ranks.
        let start = self
            .me
            .checked_sub(1)
            .map_or(0, |before| blocks[before].end);
        blocks[self.me] = start..start + outgoing_blocks.input.len();
        let home: Vec<_> = self.hosts.members(self.home()).collect();
        let into = |from: usize| blocks[home[from]].clone();
        self.gather_here(call, outgoing_blocks.input, into, output)?;
        for turn in 0..self.turns() {
            let wards = self.wards(self.local_rank(), turn);
            let (carried, ranges) = self.gather_across(call, &wards, &blocks, output)?;
            let own_host = self.home();
            for host in (0..self.hosts.count()).filter(|host| *host != own_host) {
                let into: Vec<_> = (0..home.len())
                    .map(|local_rank| range(&blocks, self.ward(host, local_rank, turn)))
                    .collect();
                let own = &carried[ranges[host].clone()];
                if let Some(ward) = wards[host] {
                    output[blocks[ward].clone()].copy_from_slice(own);
                }
                self.gather_here(call, own, |from| into[from].clone(), output)?;
            }
        }
        Ok(())
    }

    /// Gives the ranks of this host what each of them has, and puts that of each `into` its place.
    pub(super) fn gather_here<T: Element>(
        &mut self,
        call: CallOfParts,
        own: &[T],
        into: impl Fn(usize) -> Range<usize>,
        output: &mut [T],
    ) -> Result<(), OperationError> {
        let spec = OperationSpec::new(Kind::AllGather, output.len());
        let receives = self.receives(|_| 0, |_| 0, into);
        let whole = 0..own.len();
        let transfer = Transfer {
            outgoing_blocks: SendBlocks::whole(own, std::slice::from_ref(&whole)),
            receives: &receives,
            output,
            then: OnArrival::Copy,
        };
        call.perform(&mut self.local, spec, Work::Exchange(transfer))
    }

    /// What this rank carries of the other hosts in a turn, and where that of each host is in it.
    fn gather_across<T: Element>(
        &mut self,
        call: CallOfParts,
        wards: &[Option<usize>],
        blocks: &[Range<usize>],
        output: &[T],
    ) -> Result<(Vec<T>, Vec<Range<usize>>), OperationError> {
        let (home, carriers) = (self.home(), self.carrying_hosts());
        let ranges = laid_out(wards.iter().enumerate().map(|(host, ward)| match ward {
            Some(ward) if host != home => blocks[*ward].len(),
            Some(_) | None => 0,
        }));
        let mut carried = vec![T::default(); ranges.last().map_or(0, |last| last.end)];
        let Some(across) = &mut self.across else {
            return Ok((carried, ranges));
        };
        let own = &output[range(blocks, wards[home])];
        let whole = 0..own.len();
        let others = carriers
            .iter()
            .enumerate()
            .filter(|(_, host)| **host != home);
        let receives: Vec<ReceiveBlock> = others
            .map(|(from, host)| ReceiveBlock::new(from, 0, 0, ranges[*host].clone()))
            .collect();
        let transfer = Transfer {
            outgoing_blocks: SendBlocks::whole(own, std::slice::from_ref(&whole)),
            receives: &receives,
            output: &mut carried,
            then: OnArrival::Copy,
        };
        let spec = OperationSpec::new(Kind::AllGather, output.len());
        call.perform(across, spec, Work::Exchange(transfer))?;
        Ok((carried, ranges))
    }

    /// Leaves each rank with its block of the reduction; all have agreed on the call before.
    pub(super) fn reduce_scatter<T: Element>(
        &mut self,
        call: CallOfParts,
        outgoing_blocks: SendBlocks<'_, T>,
        output: &mut [T],
        reduction: Reduction<T>,
    ) -> Result<(), OperationError> {
        // A mean is a sum until all contributions are in.
        let op = match reduction.op() {
            ReduceOp::Mean => ReduceOp::Sum,
            other => other,
        };
        let inner = Reduction::carrying(reduction.element(), op)?;
        for turn in 0..self.turns() {
            let carried = self.fold_here(call, &outgoing_blocks, turn, inner)?;
            let folded = self.fold_across(call, carried, inner)?;
            if self.local_rank() / self.shares == turn && self.local_rank() < self.shares {
                output.copy_from_slice(&folded);
            } else if turn > 0 {
                self.hand_over(call, &folded, turn, &mut *output)?;
            }
        }
        reduction.finish(output, self.world());
        Ok(())
    }

    /// What this rank carries in a turn for the ranks of each host, folded over the ranks of this
    /// one, in the order of the ranks that it exchanges it with.
    fn fold_here<T: Element>(
        &mut self,
        call: CallOfParts,
        outgoing_blocks: &SendBlocks<'_, T>,
        turn: usize,
        inner: Reduction<T>,
    ) -> Result<Carried<T>, OperationError> {
        let (me, hosts) = (self.local_rank(), self.carrying_hosts());
        let wards = self.wards(me, turn);
        let ranges = laid_out(
            hosts
                .iter()
                .map(|host| range(outgoing_blocks.blocks, wards[*host]).len()),
        );
        let mut values = vec![T::default(); ranges.last().map_or(0, |last| last.end)];
        // All ranks of this host make these in one order, whatever that of what each carries.
        let mut parts: Vec<(usize, &Range<usize>)> = hosts.iter().copied().zip(&ranges).collect();
        parts.sort_by_key(|(host, _)| *host);
        for (host, into) in parts {
            let blocks: Vec<Range<usize>> = (0..self.local.world as usize)
                .map(|local_rank| range(outgoing_blocks.blocks, self.ward(host, local_rank, turn)))
                .collect();
            let receives = self.receives(|_| me, |_| blocks[me].start, |_| 0..blocks[me].len());
            let transfer = Transfer {
                outgoing_blocks: SendBlocks::each(outgoing_blocks.input, &blocks),
                receives: &receives,
                output: &mut values[into.clone()],
                then: OnArrival::Fold(inner),
            };
            let spec = OperationSpec::new(Kind::ReduceScatter, outgoing_blocks.input.len())
                .with_op(inner.op());
            call.perform(&mut self.local, spec, Work::Exchange(transfer))?;
        }
        Ok(Carried { values, ranges })
    }

    /// What this rank carries for its own host, folded over all hosts; nothing where it carries
    /// none.
    fn fold_across<T: Element>(
        &mut self,
        call: CallOfParts,
        Carried { values, ranges }: Carried<T>,
        inner: Reduction<T>,
    ) -> Result<Vec<T>, OperationError> {
        let Some(across) = &mut self.across else {
            return Ok(Vec::new());
        };
        let me = across.rank.index();
        let own = ranges[me].clone();
        let mut folded = vec![T::default(); own.len()];
        let others = (0..ranges.len()).filter(|from| *from != me);
        let receives: Vec<ReceiveBlock> = others
            .map(|from| ReceiveBlock::new(from, me, own.start, 0..own.len()))
            .collect();
        let transfer = Transfer {
            outgoing_blocks: SendBlocks::each(&values, &ranges),
            receives: &receives,
            output: &mut folded,
            then: OnArrival::Fold(inner),
        };
        let spec = OperationSpec::new(Kind::ReduceScatter, values.len()).with_op(inner.op());
        call.perform(across, spec, Work::Exchange(transfer))?;
        Ok(folded)
    }

    /// Gives the ranks of this host that carry nothing what others have carried for them in this
    /// turn.
    fn hand_over<T: Element>(
        &mut self,
        call: CallOfParts,
        folded: &[T],
        turn: usize,
        output: &mut [T],
    ) -> Result<(), OperationError> {
        let whole = 0..folded.len();
        let carrier = self.local_rank().checked_sub(turn * self.shares);
        let carrier = carrier.filter(|local_rank| *local_rank < self.shares);
        let receives: Vec<ReceiveBlock> = carrier
            .map(|local_rank| ReceiveBlock::new(local_rank, 0, 0, 0..output.len()))
            .into_iter()
            .collect();
        // Over links nobody else would take it in.
        let of_host = self.local_rank() + turn * self.shares;
        let is_for_another = self.local_rank() < self.shares && of_host < self.local.world as usize;
        let outgoing_blocks = match is_for_another {
            true => SendBlocks::whole(folded, std::slice::from_ref(&whole)).only_for(of_host),
            false => SendBlocks::nothing(1),
        };
        let transfer = Transfer {
            outgoing_blocks,
            receives: &receives,
            output,
            then: OnArrival::Copy,
        };
        let spec = OperationSpec::new(Kind::Scatter, turn);
        call.perform(&mut self.local, spec, Work::Exchange(transfer))
    }

    /// How often each carries something, until all ranks of the largest host have had theirs.
    fn turns(&self) -> usize {
        let sizes = (0..self.hosts.count()).map(|host| self.hosts.size(host));
        let largest = sizes.max().expect("a group has a rank, and it a host");
        largest.div_ceil(self.shares)
    }

    /// The rank of a host whose block is carried in a turn by the ranks of this local rank, if
    /// there is one.
    fn ward(&self, host: usize, local_rank: usize, turn: usize) -> Option<usize> {
        let of_host = local_rank + turn * self.shares;
        let carries = local_rank < self.shares && of_host < self.hosts.size(host);
        carries.then(|| self.hosts.at(host, of_host))
    }

    /// The same for each host.
    fn wards(&self, local_rank: usize, turn: usize) -> Vec<Option<usize>> {
        let hosts = 0..self.hosts.count();
        hosts
            .map(|host| self.ward(host, local_rank, turn))
            .collect()
    }

    /// The hosts in the order of those of their ranks that carry what this one carries.
    fn carrying_hosts(&self) -> Vec<usize> {
        let mut hosts: Vec<usize> = (0..self.hosts.count()).collect();
        hosts.sort_by_key(|host| self.hosts.at(*host, self.local_rank()));
        hosts
    }

    fn home(&self) -> usize {
        self.hosts.host(self.me)
    }

    fn local_rank(&self) -> usize {
        self.hosts.local_rank(self.me)
    }
}

/// What a rank carries for each host.
struct Carried<T> {
    values: Vec<T>,
    ranges: Vec<Range<usize>>,
}

/// The block of a rank, an empty one where there is none.
fn range(blocks: &[Range<usize>], rank: Option<usize>) -> Range<usize> {
    rank.map_or(0..0, |rank| blocks[rank].clone())
}

/// Ranges of these lengths, one after the other.
fn laid_out(lengths: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut end = 0_usize;
    let range = |len| {
        let start = end;
        end = start.saturating_add(len);
        start..end
    };
    lengths.map(range).collect()
}
