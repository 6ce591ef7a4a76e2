//! Batches from anywhere, dealt to the replicas of all workers.

mod context;
mod cursor;
mod distributed;
mod pieces;
mod prefetch;
mod rows;
mod source;

pub use context::{InputContext, Shard};
pub use cursor::Cursor;
pub use distributed::{DistributedBatches, Share};
pub use pieces::{Pieces, piece_sizes};
pub use prefetch::Prefetch;
pub use rows::Rows;
pub use source::{AutoShard, Input};
