//! Blocks, and where a file has them.

use std::fmt::{self, Display};
use std::ops::Range;

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

use super::{CHUNK, TensorIndex};

/// The elements of a tensor in a range of indices along each axis, row-major.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Block {
    tensor: String,
    region: Vec<Range<usize>>,
    dtype: Dtype,
}

/// A block in a file.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) block: Block,
    /// Where its elements are, from the start of the file.
    pub(super) bytes: Range<u64>,
    /// Of each chunk of them.
    pub(super) hashes: Vec<u64>,
}

impl Block {
    /// Elements of this tensor; one without axes has a single one.
    #[must_use]
    pub fn new(
        tensor: impl Into<String>,
        region: impl Into<Vec<Range<usize>>>,
        dtype: Dtype,
    ) -> Self {
        let (tensor, region) = (tensor.into(), region.into());
        Self {
            tensor,
            region,
            dtype,
        }
    }

    /// The name of the tensor.
    #[must_use]
    pub fn tensor(&self) -> &str {
        &self.tensor
    }

    /// The indices, a range for each axis.
    #[must_use]
    pub fn region(&self) -> &[Range<usize>] {
        &self.region
    }

    /// The type of its elements.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Its bytes, as of [`byte_count`].
    pub(super) fn len(&self) -> Option<usize> {
        byte_count(self.dtype, &self.region)
    }

    pub(super) fn sizes(&self) -> Vec<usize> {
        self.region.iter().map(Range::len).collect()
    }

    /// The block that a file has under a name; `None` if it is none.
    fn named(name: &str, dtype: Dtype) -> Option<Self> {
        let (tensor, ranges) = name.rsplit_once('@')?;
        let range = |axis: &str| {
            let (start, end) = axis.split_once(':')?;
            let (start, end) = (start.parse().ok()?, end.parse().ok()?);
            (start <= end).then_some(start..end)
        };
        let region = match ranges {
            "" => Vec::new(),
            ranges => ranges.split(',').map(range).collect::<Option<_>>()?,
        };
        let block = Self::new(tensor, region, dtype);
        (block.to_string() == name).then_some(block)
    }
}

/// The name that it has in a file.
impl Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@", self.tensor)?;
        for (axis, range) in self.region.iter().enumerate() {
            let comma = if axis > 0 { "," } else { "" };
            write!(f, "{comma}{}:{}", range.start, range.end)?;
        }
        Ok(())
    }
}

/// Bytes of the elements in a region; `None` where those are parts of bytes, or too many to count.
pub(super) fn byte_count(dtype: Dtype, region: &[Range<usize>]) -> Option<usize> {
    let bits = dtype.bitsize();
    let mut sizes = region.iter().map(ExactSizeIterator::len);
    let element = bits.is_multiple_of(8).then_some(bits / 8)?;
    sizes.try_fold(element, usize::checked_mul)
}

/// The indices that two regions have in common; `None` where there are none.
pub(super) fn common(one: &[Range<usize>], other: &[Range<usize>]) -> Option<Vec<Range<usize>>> {
    let both = one.iter().zip(other);
    let common = both.map(|(a, b)| a.start.max(b.start)..a.end.min(b.end));
    let common: Vec<_> = common.collect();
    (!common.iter().any(Range::is_empty)).then_some(common)
}

/// The blocks in a file of `length` bytes with this head; `None` if one of them is in no right
/// form, or of none of the tensors.
pub(super) fn stored(head: &[u8], length: u64, tensors: &TensorIndex) -> Option<Vec<Stored>> {
    let (stated, json) = head.split_first_chunk::<8>()?;
    if u64::from_le_bytes(*stated) != json.len() as u64 {
        return None;
    }
    let metadata: Metadata = serde_json::from_slice(json).ok()?;
    let one = |(name, info): (&String, &&TensorInfo)| {
        let block = Block::named(name, info.dtype)?;
        let tensor = tensors.get(block.tensor())?;
        let place = |offset: usize| (head.len() as u64).checked_add(offset as u64);
        let (start, end) = info.data_offsets;
        let bytes = end.checked_sub(start)?;
        let hashes = hashes_of(metadata.metadata().as_ref()?.get(name)?)?;
        let stored = Stored {
            bytes: place(start)?..place(end)?,
            block,
            hashes,
        };
        let is_whole = tensor.contains(stored.block.region())
            && tensor.dtype() == info.dtype
            && stored.block.sizes() == info.shape
            && stored.block.len() == Some(bytes)
            && stored.bytes.end <= length
            && stored.hashes.len() == bytes.div_ceil(CHUNK);
        is_whole.then_some(stored)
    };
    metadata.tensors().iter().map(one).collect()
}

/// The hashes of all chunks, as a head has them.
fn hashes_of(text: &str) -> Option<Vec<u64>> {
    let hash = |digits: &[u8]| u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok();
    let (all, rest) = text.as_bytes().as_chunks::<DIGITS>();
    let hashes = all.iter().map(|digits| hash(digits));
    hashes.collect::<Option<_>>().filter(|_| rest.is_empty())
}

/// Digits of a hash.
pub(super) const DIGITS: usize = 16;
