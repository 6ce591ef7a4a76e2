use std::time::Instant;

use meshwork_collectives::bf16;

use crate::{Error, ReplicaContext};

/// The element type of gradients on the wire.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[doc(alias = "bf16_compress_hook")]
pub enum CommunicationDtype {
    /// As they are.
    #[default]
    F32,
    /// Rounded to `bf16`, which halves the bytes: 8 bits of a number are kept, and its range.
    /// Contributions are rounded, their sum is formed in `f32`, and rounded once more. Numbers
    /// beside the gradients, such as a loss, are not rounded.
    Bf16,
}

/// Send buffers, allocated when first used.
#[derive(Debug, Default)]
pub(super) struct Bf16Buffers {
    sent: Vec<bf16>,
    received: Vec<bf16>,
}

impl Bf16Buffers {
    /// Sums by an exchange of blocks, a sum of each rank's own block, and an all-gather of those.
    #[track_caller]
    pub(super) fn all_reduce(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        values: &mut [f32],
    ) -> Result<(), Error> {
        let (group, communication_stats) = replica.only_worker()?;
        let world = group.world() as usize;
        if world == 1 || values.is_empty() {
            return Ok(());
        }
        let began = Instant::now();
        let block = values.len().div_ceil(world);
        self.sent.resize(block * world, bf16::ZERO);
        self.received.resize(block * world, bf16::ZERO);
        for (sent, value) in self.sent.iter_mut().zip(values.iter()) {
            *sent = bf16::from_f32(*value);
        }
        group.all_to_all(&self.sent, &mut self.received)?;
        for at in 0..block {
            let contributions = self.received[at..].iter().step_by(block.max(1));
            let sum: f32 = contributions.map(|value| value.to_f32()).sum();
            self.sent[at] = bf16::from_f32(sum);
        }
        group.all_gather(&self.sent[..block], &mut self.received)?;
        for (value, received) in values.iter_mut().zip(&self.received) {
            *value = received.to_f32();
        }
        communication_stats.count(values.len() * size_of::<bf16>(), began.elapsed());
        Ok(())
    }
}
