//! What a save has, as text and as JSON.

use std::fmt::Write;

use meshwork_checkpoint::tensors::{SavedTensors, TensorInfo};
use serde_json::{Value, json};

use super::{CheckpointError, Latest};

/// A tensor, and the parts of it with the number of the file that has each.
struct Tensor {
    name: String,
    element: String,
    shape: Vec<usize>,
    parts: Vec<Part>,
}

struct Part {
    file: usize,
    region: String,
}

impl Latest {
    fn tensors(&self) -> Result<Vec<Tensor>, CheckpointError> {
        match self.one_file() {
            Some(_) => self.whole_tensors(),
            None => self.tensors_in_parts(),
        }
    }

    fn tensors_in_parts(&self) -> Result<Vec<Tensor>, CheckpointError> {
        let saved = SavedTensors::open(&self.series, self.index.generation())?;
        let mut tensors: Vec<_> = saved
            .index()
            .tensors()
            .map(|(name, info)| Tensor::new(name, info))
            .collect();
        for (file, entry) in self.index.files().iter().enumerate() {
            for block in saved.blocks(entry) {
                let at = tensors.binary_search_by(|one| one.name.as_str().cmp(block.tensor()));
                let tensor = &mut tensors[at.expect("a block is of a tensor in the index")];
                let ranges = block.region().iter();
                let ranges = ranges.map(|range| format!("{}:{}", range.start, range.end));
                let region = ranges.collect::<Vec<_>>().join(",");
                tensor.parts.push(Part { file, region });
            }
        }
        Ok(tensors)
    }

    /// Those of a file that says itself what it has.
    fn whole_tensors(&self) -> Result<Vec<Tensor>, CheckpointError> {
        let mut tensors = Vec::new();
        for entry in self.index.files() {
            let opened = self.series.open(self.index.generation(), entry)?;
            let form = || meshwork_checkpoint::Error::TensorForm {
                path: opened.path().to_owned(),
            };
            let head = TensorInfo::of_file(opened.head()).ok_or_else(form)?;
            tensors.extend(head.iter().map(|(name, info)| Tensor::new(name, info)));
        }
        Ok(tensors)
    }

    fn step(&self) -> Option<u64> {
        let body = self.index.body();
        meshwork_checkpoint::tensors::TensorIndex::from_bytes(body)?.step()
    }
}

impl Tensor {
    fn new(name: &str, info: &TensorInfo) -> Self {
        Self {
            name: name.to_owned(),
            element: format!("{:?}", info.dtype()).to_lowercase(),
            shape: info.shape().to_vec(),
            parts: Vec::new(),
        }
    }
}

pub(super) fn json(latest: &Latest) -> Result<Value, CheckpointError> {
    let tensor = |tensor: &Tensor| {
        let parts = tensor.parts.iter();
        let parts = parts.map(|part| json!({"file": part.file, "region": part.region}));
        json!({
            "name": tensor.name,
            "element": tensor.element,
            "shape": tensor.shape,
            "parts": parts.collect::<Vec<_>>(),
        })
    };
    let file = |entry: &meshwork_checkpoint::Entry| {
        let path = latest.series.path(latest.index.generation(), entry.part());
        json!({
            // A path may be no text, and then is no value of JSON.
            "path": path.display().to_string(),
            "bytes": entry.length(),
            "hash": format!("{:016x}", entry.hash()),
        })
    };
    Ok(json!({
        "generation": latest.index.generation().to_string(),
        "step": latest.step(),
        "tensors": latest.tensors()?.iter().map(tensor).collect::<Vec<_>>(),
        "files": latest.index.files().iter().map(file).collect::<Vec<_>>(),
        "damaged": latest.damaged,
    }))
}

pub(super) fn text(latest: &Latest) -> Result<String, CheckpointError> {
    let tensors = latest.tensors()?;
    let generation = latest.index.generation();
    let mut text = format!("{}.{generation}", latest.series.prefix().display());
    if let Some(step) = latest.step() {
        text += &format!(", step {step}");
    }
    text += &format!(": {} tensors\n", tensors.len());
    let width = tensors.iter().map(|tensor| tensor.name.chars().count());
    let width = width.max().unwrap_or(0);
    for tensor in &tensors {
        let Tensor { name, element, .. } = tensor;
        let parts: String = tensor.parts.iter().fold(String::new(), |mut text, part| {
            // A string takes all that is written to it.
            let _ = write!(text, "  [{}] in {}", part.region, part.file);
            text
        });
        text += &format!("  {name:width$}  {element:4}  {:?}{parts}\n", tensor.shape);
    }
    for (number, entry) in latest.index.files().iter().enumerate() {
        let path = latest.series.path(generation, entry.part());
        let (bytes, hash) = (entry.length(), entry.hash());
        text += &format!(
            "  file {number}: {}, {bytes} bytes, hash {hash:016x}\n",
            path.display()
        );
    }
    for damaged in &latest.damaged {
        text += &format!("  passed over: {damaged}\n");
    }
    Ok(text)
}
