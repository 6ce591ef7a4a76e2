//! Exchanges of blocks: straight from rank to rank, or through others, so that each rank needs but
//! a few.

use std::collections::BTreeMap;

use super::bytes::{AlignedBytes, BytesTransfer};
use super::{ChunkReader, LinkOperation, Scratch};
use crate::Rank;
use crate::contract::{Contract, Kind};
use crate::failure::Failure;
use crate::links::{LinkWriters, Links};
use crate::schedule::Algorithm;

/// How blocks come to those that they are for.
#[derive(Clone, Copy, Debug)]
pub(in crate::links) enum Route {
    /// From each rank to each that takes any of its blocks.
    Direct,
    AllGather,
    ReduceScatter,
    Gather(Rank),
    Scatter(Rank),
    /// In steps of powers of two.
    AllToAll,
}

impl Route {
    /// By what all ranks have agreed on; `digest` is 0 where blocks have one length. Ranks that
    /// pass blocks on have to know how long those are.
    pub(in crate::links) fn of(contract: &Contract, digest: u64) -> Self {
        let few_rounds = matches!(
            contract.algorithm,
            Some(Algorithm::Tree | Algorithm::Knomial | Algorithm::Halving)
        );
        if !few_rounds && contract.algorithm != Some(Algorithm::Ring) {
            return Self::Direct;
        }
        let is_even = digest == 0;
        match (contract.kind, contract.root) {
            (Kind::AllGather, _) => Self::AllGather,
            (Kind::ReduceScatter, _) => Self::ReduceScatter,
            (Kind::Gather, Some(root)) if is_even => Self::Gather(root),
            (Kind::Scatter, Some(root)) if is_even => Self::Scatter(root),
            (Kind::AllToAll, _) if is_even && few_rounds => Self::AllToAll,
            (
                Kind::AllReduce
                | Kind::Broadcast
                | Kind::Barrier
                | Kind::Leave
                | Kind::Reduce
                | Kind::Gather
                | Kind::Scatter
                | Kind::AllToAll
                | Kind::Permute
                | Kind::Send,
                _,
            ) => Self::Direct,
        }
    }
}

impl LinkOperation<'_> {
    pub(super) fn route(&self) -> Route {
        Route::of(&self.request.contract, self.request.digest)
    }

    pub(super) async fn exchange(
        &self,
        links: &mut Links,
        scratch: &mut Scratch,
        transfer: BytesTransfer<'_>,
    ) -> Result<(), Failure> {
        match self.route() {
            Route::Direct => self.exchange_directly(links, scratch, transfer).await,
            Route::AllGather => self.all_gather(links, scratch, transfer).await,
            Route::ReduceScatter => self.reduce_scatter(links, scratch, transfer).await,
            Route::Gather(root) => self.gather(links, scratch, transfer, root).await,
            Route::Scatter(root) => self.scatter(links, scratch, transfer, root).await,
            Route::AllToAll => self.all_to_all(links, scratch, transfer).await,
        }
    }

    /// Sends every other rank its block and receives the blocks that are for this one, the nearest
    /// ranks first. Blocks to be reduced are kept until all are here, so that their order is that
    /// of the ranks.
    async fn exchange_directly(
        &self,
        links: &mut Links,
        scratch: &mut Scratch,
        transfer: BytesTransfer<'_>,
    ) -> Result<(), Failure> {
        let BytesTransfer {
            outgoing_blocks,
            receives,
            output,
            fold,
        } = transfer;
        let Links {
            outgoing, incoming, ..
        } = links;
        self.tell_call(outgoing).await?;
        let mut chunk_reader = ChunkReader::new(self, incoming, scratch);
        let mut arrived = BTreeMap::new();
        for distance in 1..self.world {
            let to = Rank::new((self.me.number() + distance) % self.world);
            let from = Rank::new((self.me.number() + self.world - distance) % self.world);
            let taken = receives.iter().find(|take| take.from == from.index());
            let send = async {
                match outgoing_blocks.block_for(to.index()) {
                    Some(block) => self.send_chunk(outgoing, to, block).await,
                    None => Ok(()),
                }
            };
            let receive = async {
                if distance == 1 {
                    // Not with their chunks, which may be held up by whoever makes another call.
                    self.hear_calls(&mut chunk_reader).await?;
                }
                match (taken, &fold) {
                    (Some(take), None) => {
                        chunk_reader
                            .chunk(from, &mut output[take.into.clone()])
                            .await
                    }
                    (Some(take), Some(_)) => {
                        let mut block = AlignedBytes::zeroed(take.into.len());
                        chunk_reader.chunk(from, &mut block).await?;
                        arrived.insert(from, block);
                        Ok(())
                    }
                    (None, _) => Ok(()),
                }
            };
            tokio::try_join!(send, receive)?;
        }
        if let Some(reduction) = fold {
            let own = outgoing_blocks
                .block_for(self.me.index())
                .unwrap_or_default();
            let mut sources: BTreeMap<Rank, &[u8]> = BTreeMap::from([(self.me, own)]);
            sources.extend(arrived.iter().map(|(from, block)| (*from, &**block)));
            let sources: Vec<&[u8]> = sources.into_values().collect();
            reduction.complete(output, &sources)?;
        }
        Ok(())
    }

    /// Whether digests follow the calls. Blocks to be reduced may stand elsewhere on other ranks
    /// and still be as long as expected. Whoever finds that digests differ has sent its blocks to
    /// its successor at most, so that no other rank receives all that it needs. Even blocks have
    /// the digest 0, which is told too: others may have chosen places. The targets of a permutation
    /// say who sends at all: a rank may wait for one that has nothing for it.
    fn compares_digests(&self) -> bool {
        matches!(
            self.request.contract.kind,
            Kind::ReduceScatter | Kind::Permute
        )
    }

    async fn tell_call(&self, outgoing: &mut LinkWriters) -> Result<(), Failure> {
        match self.compares_digests() {
            true => self.tell_digest(outgoing).await,
            false => self.announce(outgoing).await,
        }
    }

    async fn hear_calls(&self, chunk_reader: &mut ChunkReader<'_>) -> Result<(), Failure> {
        match self.compares_digests() {
            true => self.hear_digests(chunk_reader).await,
            false => chunk_reader.check_all(|_| false).await,
        }
    }
}
