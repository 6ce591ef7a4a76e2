//! Rows read back from the files of a save, whoever wrote them.

use std::ops::Range;

use meshwork_checkpoint::{Entry, FileDamage, Generation, Series};
use serde_json::{Value, json};
use twox_hash::XxHash3_64;

use super::file::{Block, CHUNK, blocks, row_len};
use crate::{CheckpointError, Error, VariableSpec};

/// What the index of a save says.
#[derive(Debug)]
pub(super) struct Saved<'a> {
    series: &'a Series,
    generation: Generation,
    files: Vec<Entry>,
    tensors: Value,
    step: u64,
}

/// The bytes of the index of a save.
pub(super) fn index_body(step: u64, tensors: &[VariableSpec]) -> Vec<u8> {
    let tensor = |spec: &VariableSpec| {
        let form = json!({"shape": spec.shape(), "element": "f32"});
        (spec.name().to_owned(), form)
    };
    let tensors: serde_json::Map<String, Value> = tensors.iter().map(tensor).collect();
    json!({"step": step, "tensors": tensors})
        .to_string()
        .into_bytes()
}

impl<'a> Saved<'a> {
    pub(super) fn open(series: &'a Series, generation: Generation) -> Result<Self, Error> {
        let index = series.index(generation)?;
        let body: Option<Value> = serde_json::from_slice(index.body()).ok();
        let parsed = body.and_then(|body| {
            let step = body.get("step")?.as_u64()?;
            Some((step, body.get("tensors")?.clone()))
        });
        let Some((step, tensors)) = parsed else {
            let path = series.index_path(generation);
            let damage = FileDamage::Index;
            return Err(CheckpointError::Damaged { path, damage }.into());
        };
        Ok(Self {
            series,
            generation,
            files: index.files().to_vec(),
            tensors,
            step,
        })
    }

    pub(super) fn step(&self) -> u64 {
        self.step
    }

    /// Reads rows of a tensor.
    pub(super) fn read(
        &self,
        spec: &VariableSpec,
        rows: Range<usize>,
        into: &mut [f32],
    ) -> Result<(), Error> {
        self.compare(spec)?;
        // Rows without elements are in no file.
        let mut missing = vec![!into.is_empty(); rows.len()];
        for entry in &self.files {
            if !missing.contains(&true) {
                break;
            }
            let file = self.series.open(self.generation, entry)?;
            let form = || Error::SavedForm {
                path: file.path().to_owned(),
            };
            for block in blocks(file.head(), file.length(), spec).ok_or_else(form)? {
                let start = rows.start.max(block.rows.start);
                let end = rows.end.min(block.rows.end);
                if start >= end {
                    continue;
                }
                let row = row_len(spec);
                let part = &mut into[(start - rows.start) * row..(end - rows.start) * row];
                let from = (start - block.rows.start) * row * size_of::<f32>();
                read_block(&file, &block, from, bytemuck::cast_slice_mut(part))?;
                missing[start - rows.start..end - rows.start].fill(false);
            }
        }
        match missing.contains(&true) {
            false => Ok(()),
            true => Err(Error::SavedRows {
                name: spec.name().to_owned(),
            }),
        }
    }

    fn compare(&self, spec: &VariableSpec) -> Result<(), Error> {
        let saved = self.tensors.get(spec.name());
        let size = |size: &Value| usize::try_from(size.as_u64()?).ok();
        let shape = |saved: &Value| saved.get("shape")?.as_array()?.iter().map(size).collect();
        let found: Option<Vec<usize>> = saved.and_then(shape);
        match found.as_deref() == Some(spec.shape()) {
            true => Ok(()),
            false => Err(Error::NotInCheckpoint {
                spec: Box::new(spec.clone()),
                found,
            }),
        }
    }
}

/// Reads bytes of a block from this one on, by chunks that are checked.
fn read_block(
    file: &meshwork_checkpoint::Opened,
    block: &Block,
    from: usize,
    into: &mut [u8],
) -> Result<(), Error> {
    let wanted = from..from + into.len();
    let mut chunk = Vec::new();
    for number in wanted.start / CHUNK..wanted.end.div_ceil(CHUNK) {
        let origin = number * CHUNK;
        let at = block.bytes.start + origin as u64;
        let len = block.bytes.end.saturating_sub(at).min(CHUNK as u64);
        chunk.resize(usize::try_from(len).expect("at most CHUNK"), 0);
        file.read_at(at, &mut chunk)?;
        if block.hashes.get(number) != Some(&XxHash3_64::oneshot(&chunk)) {
            let (path, block) = (file.path().to_owned(), block.name.clone());
            return Err(Error::SavedBlock { path, block });
        }
        let start = wanted.start.max(origin);
        let end = wanted.end.min(origin + chunk.len());
        let target = &mut into[start - wanted.start..end - wanted.start];
        target.copy_from_slice(&chunk[start - origin..end - origin]);
    }
    Ok(())
}
