//! All tensors of a generation in one file, as any reader of safetensors takes them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use safetensors::tensor;

use super::block::byte_count;
use super::head::head_of;
use super::{SavedTensors, TensorInfo};
use crate::Error;

impl SavedTensors<'_> {
    /// Hands the bytes of one safetensors file with all tensors, whole and under their names, to
    /// `write`, some megabytes at a time. The step stands in its metadata as `step`.
    ///
    /// # Errors
    /// Those of [`read`](Self::read), [`Error::BlockSize`], and those of `write`.
    pub fn merge<E: From<Error>>(
        &self,
        mut write: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut tensors: Vec<(&str, &TensorInfo)> = self.index().tensors().collect();
        // Larger elements first, so that all are aligned.
        tensors.sort_by_key(|(_, info)| Reverse(info.dtype()));
        let step = self.index().step().map(|step| ("step", step.to_string()));
        let metadata: BTreeMap<_, _> = step.into_iter().collect();
        write(&head_of(&placed(&tensors)?, &metadata))?;
        let mut memory = Vec::new();
        for (name, info) in tensors {
            for region in slabs(info) {
                let bytes = byte_count(info.dtype(), &region).ok_or_else(|| too_large(name))?;
                memory.resize(bytes, 0);
                self.read(name, &region, &mut memory)?;
                write(&memory)?;
            }
        }
        Ok(())
    }
}

/// Where the file has each tensor.
fn placed(tensors: &[(&str, &TensorInfo)]) -> Result<Vec<(String, tensor::TensorInfo)>, Error> {
    let mut end = 0_usize;
    let place = |(name, info): &(&str, &TensorInfo)| {
        let start = end;
        let bytes = byte_count(info.dtype(), &info.region());
        let after = bytes.and_then(|bytes| start.checked_add(bytes));
        end = after.ok_or_else(|| too_large(name))?;
        let info = tensor::TensorInfo {
            dtype: info.dtype(),
            shape: info.shape().to_vec(),
            data_offsets: (start, end),
        };
        Ok(((*name).to_owned(), info))
    };
    tensors.iter().map(place).collect()
}

fn too_large(name: &str) -> Error {
    Error::BlockSize {
        block: name.to_owned(),
    }
}

/// Rows of a tensor that are read together; all of one without rows, nothing of one without
/// elements.
fn slabs(info: &TensorInfo) -> impl Iterator<Item = Vec<Range<usize>>> {
    let whole = info.region();
    let (rows, row) = match whole.split_first() {
        // There may be more rows of nothing than can be counted through.
        Some(_) if whole.iter().any(Range::is_empty) => (0, Some(0)),
        Some((first, rest)) => (first.len(), byte_count(info.dtype(), rest)),
        None => (1, Some(1)),
    };
    // A row that memory cannot have is said to be so when it is read.
    let bytes = row.unwrap_or(usize::MAX);
    let step = (SLAB / bytes.max(1)).max(1);
    (0..rows).step_by(step).map(move |start| {
        let mut region = whole.clone();
        if let Some(first) = region.first_mut() {
            *first = start..rows.min(start + step);
        }
        region
    })
}

/// Bytes that are read together, if rows are not larger.
const SLAB: usize = 8 << 20;
