//! Tensors in the files of a generation, in blocks that their writers hold: safetensors files,
//! whose heads have a hash of each chunk of the rest, so that whoever needs a part reads and checks
//! only that.
//!
//! ```text
//!   model.g00000007-5b1c22f09ad3e781.index
//!     {"step": 7, "tensors": {"w": {"shape": [4, 4], "element": "f32"}}}
//!   model.g00000007-5b1c22f09ad3e781.00000-of-00002.safetensors
//!     "w@0:2,0:4", the first two rows of w
//!   model.g00000007-5b1c22f09ad3e781.00001-of-00002.safetensors
//!     "w@2:4,0:4", the others
//! ```
//!
//! ```
//! use meshwork_checkpoint::tensors::{Block, BlockFile, Dtype, SavedTensors, TensorIndex, TensorInfo};
//! use meshwork_checkpoint::{Error, Index, Series};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! let series = Series::new(folder.path(), "model");
//! let generation = series.begin()?;
//! let mut file = BlockFile::new(&[Block::new("w", vec![0..2, 0..2], Dtype::U8)], Vec::new())?;
//! file.put(&[1, 2, 3, 4]);
//! let (bytes, head) = file.seal();
//! let written = series.write(generation, "0.safetensors", &bytes, head)?;
//! let mut tensors = TensorIndex::default();
//! tensors.insert("w", TensorInfo::new(Dtype::U8, [2, 2]))?;
//! series.finish(&Index::new(generation, [written.entry().clone()], tensors.to_bytes())?)?;
//!
//! let saved = SavedTensors::open(&series, generation)?;
//! let mut column = [0; 2];
//! saved.read("w", &[0..2, 1..2], &mut column)?;
//! assert_eq!(column, [2, 4]);
//! # Ok::<(), Error>(())
//! ```

mod block;
mod block_file;
mod head;
mod index;
mod merge;
mod saved;

pub use safetensors::Dtype;

pub use block::Block;
pub use block_file::BlockFile;
pub use index::{TensorIndex, TensorInfo};
pub use saved::SavedTensors;

/// Decodes what an index says of tensors, or the head of a file of blocks, whatever the bytes are.
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub fn decode(bytes: &[u8]) {
    let mut tensors = TensorIndex::default();
    if let Some(read) = TensorIndex::from_bytes(bytes) {
        assert_eq!(TensorIndex::from_bytes(&read.to_bytes()), Some(read));
    }
    let info = TensorInfo::new(Dtype::F32, [4, 2]);
    tensors.insert("t", info).expect("it has one name");
    block::stored(bytes, 1 << 20, &tensors);
}

/// Bytes that are hashed together.
pub(crate) const CHUNK: usize = 1 << 20;

#[cfg(test)]
mod tests;
