//! Blocks of tensors as files have them.

use std::cmp::Reverse;

use meshwork_accel::ElementType;
use meshwork_checkpoint::tensors::{Block, BlockFile, Dtype, TensorInfo};
use meshwork_layout::Ranges;
use ndarray::ArrayViewD;

use crate::{Error, Scalar};

/// A block that is to be written.
#[derive(Debug)]
#[expect(unnameable_types, reason = "part of a sealed trait")]
pub struct Stored {
    block: Block,
    bytes: Vec<u8>,
}

impl Stored {
    pub(super) fn of<T: Scalar>(name: &str, held: &Ranges, block: &ArrayViewD<'_, T>) -> Self {
        let elements: Vec<T> = block.iter().copied().collect();
        Self {
            block: Block::new(name, held.to_vec(), dtype_of(T::TYPE)),
            bytes: bytemuck::cast_slice(&elements).to_vec(),
        }
    }
}

/// A tensor, without its elements.
pub(super) fn info_of<T: Scalar>(shape: &[usize]) -> TensorInfo {
    TensorInfo::new(dtype_of(T::TYPE), shape)
}

/// The file of the blocks of one client, and the length of its head. Larger elements come first, so
/// that all are aligned.
pub(super) fn to_bytes(stored: &[Stored]) -> Result<(Vec<u8>, usize), Error> {
    let mut all: Vec<&Stored> = stored.iter().collect();
    all.sort_by_key(|one| Reverse(one.block.dtype()));
    let blocks: Vec<Block> = all.iter().map(|one| one.block.clone()).collect();
    let mut file = BlockFile::new(&blocks, Vec::new())?;
    all.iter().for_each(|one| file.put(&one.bytes));
    Ok(file.seal())
}

fn dtype_of(element: ElementType) -> Dtype {
    let known = TYPES.iter().find(|(known, _)| *known == element);
    known.expect("a test goes through all types of elements").1
}

/// The type of elements in a file; `None` for one that no tensor has.
pub(super) fn element_of(dtype: Dtype) -> Option<ElementType> {
    let known = TYPES.iter().find(|(_, known)| *known == dtype);
    known.map(|(element, _)| *element)
}

const TYPES: [(ElementType, Dtype); 13] = [
    (ElementType::Bool, Dtype::BOOL),
    (ElementType::I8, Dtype::I8),
    (ElementType::I16, Dtype::I16),
    (ElementType::I32, Dtype::I32),
    (ElementType::I64, Dtype::I64),
    (ElementType::U8, Dtype::U8),
    (ElementType::U16, Dtype::U16),
    (ElementType::U32, Dtype::U32),
    (ElementType::U64, Dtype::U64),
    (ElementType::F16, Dtype::F16),
    (ElementType::Bf16, Dtype::BF16),
    (ElementType::F32, Dtype::F32),
    (ElementType::F64, Dtype::F64),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_of_elements_is_read_as_the_one_that_was_written() {
        for element in ElementType::ALL {
            assert_eq!(element_of(dtype_of(element)), Some(element));
        }
    }
}
