//! Exchanges in which ranks pass on what is not for them, so that each talks to few others.

use std::ops::Range;

use super::bytes::{AlignedBytes, BytesTransfer};
use super::walk::CutBuffer;
use super::{ChunkReader, LinkOperation, Scratch};
use crate::Rank;
use crate::failure::Failure;
use crate::links::Links;
use crate::operation::ReceiveBlock;
use crate::schedule::{Blocks, Collective, Schedule};

impl LinkOperation<'_> {
    /// Gives every rank the blocks of all, of which all know the lengths.
    pub(super) async fn all_gather(
        &self,
        links: &mut Links,
        scratch: &mut Scratch,
        transfer: BytesTransfer<'_>,
    ) -> Result<(), Failure> {
        let BytesTransfer {
            outgoing_blocks,
            receives,
            output,
            ..
        } = transfer;
        self.agree_on_lengths(links, scratch).await?;
        let schedule = self.schedule(Collective::AllGather);
        let own = outgoing_blocks
            .block_for(self.me.index())
            .expect("one block, for every rank");
        let mut lengths = vec![0; self.world as usize];
        lengths[self.me.index()] = own.len();
        for take in &receives {
            lengths[take.from] = take.into.len();
        }
        let blocks = blocks(lengths);
        let place = |rank: usize| blocks.elements(rank..rank + 1);
        let stands = |take: &ReceiveBlock| place(take.from) == take.into;
        if blocks.len() == output.len() && receives.iter().all(stands) {
            output[place(self.me.index())].copy_from_slice(own);
            let whole = CutBuffer::new(output, blocks);
            return self.walk_cut(schedule, links, scratch, whole).await;
        }
        let mut gathered = vec![0; blocks.len()];
        gathered[place(self.me.index())].copy_from_slice(own);
        let whole = CutBuffer::new(&mut gathered, blocks.clone());
        self.walk_cut(schedule, links, scratch, whole).await?;
        for take in receives {
            output[take.into.clone()].copy_from_slice(&gathered[place(take.from)]);
        }
        Ok(())
    }

    /// Leaves each rank with its block of the reduction; all know the lengths of blocks.
    pub(super) async fn reduce_scatter(
        &self,
        links: &mut Links,
        scratch: &mut Scratch,
        transfer: BytesTransfer<'_>,
    ) -> Result<(), Failure> {
        let BytesTransfer {
            outgoing_blocks,
            output,
            ..
        } = transfer;
        self.agree_on_lengths(links, scratch).await?;
        let blocks = blocks(outgoing_blocks.blocks.iter().map(Range::len));
        // The caller keeps its input.
        let mut partial = AlignedBytes::zeroed(blocks.len());
        for (rank, block) in outgoing_blocks.blocks.into_iter().enumerate() {
            partial[blocks.elements(rank..rank + 1)].copy_from_slice(&outgoing_blocks.input[block]);
        }
        let schedule = self.schedule(Collective::ReduceScatter);
        let whole = CutBuffer::new(&mut partial, blocks.clone());
        self.walk_cut(schedule, links, scratch, whole).await?;
        let own = self.me.index();
        output.copy_from_slice(&partial[blocks.elements(own..own + 1)]);
        Ok(())
    }

    /// Gives the root the blocks of all, which have one length.
    pub(super) async fn gather(
        &self,
        links: &mut Links,
        scratch: &mut Scratch,
        transfer: BytesTransfer<'_>,
        root: Rank,
    ) -> Result<(), Failure> {
        let BytesTransfer {
            outgoing_blocks,
            output,
            ..
        } = transfer;
        let schedule = self.schedule(Collective::Gather { root });
        if root == self.me {
            let blocks = Blocks::even(output.len(), self.world as usize);
            let whole = CutBuffer::new(output, blocks);
            return self.walk_cut(schedule, links, scratch, whole).await;
        }
        let own = outgoing_blocks
            .block_for(root.index())
            .expect("one block, for the root");
        let blocks = self.passing(&schedule, own.len());
        let mut passing = vec![0; blocks.len()];
        let place = self.me.index();
        passing[blocks.elements(place..place + 1)].copy_from_slice(own);
        let whole = CutBuffer::new(&mut passing, blocks);
        self.walk_cut(schedule, links, scratch, whole).await
    }

    /// Gives each rank its block of the root's, which have one length.
    pub(super) async fn scatter(
        &self,
        links: &mut Links,
        scratch: &mut Scratch,
        transfer: BytesTransfer<'_>,
        root: Rank,
    ) -> Result<(), Failure> {
        let BytesTransfer {
            outgoing_blocks,
            output,
            ..
        } = transfer;
        let schedule = self.schedule(Collective::Scatter { root });
        if root == self.me {
            let mut passing = outgoing_blocks.input.to_vec();
            let blocks = Blocks::even(passing.len(), self.world as usize);
            let whole = CutBuffer::new(&mut passing, blocks);
            return self.walk_cut(schedule, links, scratch, whole).await;
        }
        let blocks = self.passing(&schedule, output.len());
        let mut passing = vec![0; blocks.len()];
        let whole = CutBuffer::new(&mut passing, blocks.clone());
        self.walk_cut(schedule, links, scratch, whole).await?;
        let place = self.me.index();
        output.copy_from_slice(&passing[blocks.elements(place..place + 1)]);
        Ok(())
    }

    /// Gives every rank a block from every rank, all of one length, in as many rounds as a rank's
    /// number has bits: a block that has `d` ranks to go takes a step of `2^r` in round `r` if `d`
    /// has that bit. Contributions are moved, not reduced (Bruck et al., "Efficient algorithms for
    /// all-to-all communications", 1997).
    pub(super) async fn all_to_all(
        &self,
        links: &mut Links,
        scratch: &mut Scratch,
        transfer: BytesTransfer<'_>,
    ) -> Result<(), Failure> {
        let BytesTransfer {
            outgoing_blocks,
            receives,
            output,
            ..
        } = transfer;
        let (me, world) = (self.me.index(), self.world as usize);
        // By how far they have to go in all.
        let mut by_way: Vec<u8> = Vec::with_capacity(outgoing_blocks.input.len());
        for way in 0..world {
            let block = outgoing_blocks.block_for((me + way) % world);
            by_way.extend_from_slice(block.expect("a block for each rank"));
        }
        let blocks = Blocks::even(by_way.len(), world);
        let Links {
            outgoing, incoming, ..
        } = links;
        self.announce(outgoing).await?;
        let mut chunk_reader = ChunkReader::new(self, incoming, scratch);
        chunk_reader.check_all(|_| false).await?;
        for step in steps(world) {
            let (to, from) = ((me + step) % world, (me + world - step) % world);
            let moving = || (1..world).filter(move |way| way & step != 0);
            let moved: Vec<&[u8]> = moving()
                .map(|way| &by_way[blocks.elements(way..way + 1)])
                .collect();
            let packed = moved.concat();
            let mut arrived = vec![0; packed.len()];
            tokio::try_join!(
                self.send_chunk(outgoing, Rank::at(to), &packed),
                chunk_reader.chunk(Rank::at(from), &mut arrived),
            )?;
            let mut rest = &arrived[..];
            for way in moving() {
                let place = &mut by_way[blocks.elements(way..way + 1)];
                let (block, behind) = rest.split_at(place.len());
                place.copy_from_slice(block);
                rest = behind;
            }
        }
        for take in receives {
            let way = (me + world - take.from) % world;
            let block = &by_way[blocks.elements(way..way + 1)];
            output[take.into.clone()].copy_from_slice(block);
        }
        Ok(())
    }

    /// Messages of several blocks do not tell that ranks have other lengths in mind.
    async fn agree_on_lengths(
        &self,
        links: &mut Links,
        scratch: &mut Scratch,
    ) -> Result<(), Failure> {
        match self.request.digest {
            0 => Ok(()),
            _ => self.agree(links, scratch).await,
        }
    }

    /// The blocks, all of this length, that this rank ever holds; of others it keeps nothing.
    fn passing(&self, schedule: &Schedule, length: usize) -> Blocks {
        let mut lengths = vec![0; self.world as usize];
        lengths[self.me.index()] = length;
        for round in schedule.rounds() {
            let sends = round.sends().iter().map(|send| &send.blocks);
            let receives = round.receives().iter().map(|receive| &receive.blocks);
            for held in sends.chain(receives) {
                lengths[held.clone()].fill(length);
            }
        }
        blocks(lengths)
    }
}

/// The distances that blocks are moved by in [`LinkOperation::all_to_all`].
pub(super) fn steps(world: usize) -> impl Iterator<Item = usize> {
    let bits = world.next_power_of_two().trailing_zeros();
    (0..bits).map(|bit| 1 << bit)
}

fn blocks(lengths: impl IntoIterator<Item = usize>) -> Blocks {
    Blocks::uneven(lengths).expect("as many elements as some rank has in memory")
}
