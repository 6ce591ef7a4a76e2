//! Batches from anywhere, distributed to the replicas of all workers.

mod common;
mod context;
mod distributed;
mod prefetch;
mod replica_shards;
mod source;

pub use context::{InputContext, InputShard};
pub use distributed::{DistributedBatches, StepShards};
pub use prefetch::Prefetch;
pub use replica_shards::{ReplicaShards, replica_batch_sizes};
pub use source::{AutoShard, Input};
