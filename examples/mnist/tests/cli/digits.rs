//! A data set of a few made-up images, and the log of a run.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

/// A folder with 40 training and 10 test images, plain files: digit d is a bright row at height 2
/// d.
pub(crate) fn data_folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a new folder");
    for (name, count) in [("train", 40u8), ("t10k", 10)] {
        let digits: Vec<u8> = (0..count).map(|index| index % 10).collect();
        let mut images = header(0x0803, &[count.into(), 28, 28]);
        for &digit in &digits {
            let row = |y: u8| [if y / 2 == digit { 255 } else { 0 }; 28];
            images.extend((0..28).flat_map(row));
        }
        let labels = [header(0x0801, &[count.into()]), digits].concat();
        fs::write(
            folder.path().join(format!("{name}-images-idx3-ubyte")),
            images,
        )
        .expect("a new file");
        fs::write(
            folder.path().join(format!("{name}-labels-idx1-ubyte")),
            labels,
        )
        .expect("a new file");
    }
    folder
}

pub(crate) fn header(magic: u32, dims: &[u32]) -> Vec<u8> {
    std::iter::once(&magic)
        .chain(dims)
        .flat_map(|word| word.to_be_bytes())
        .collect()
}

/// The steps in a log, and the result.
pub(crate) fn logged(log: &Path) -> (Vec<Value>, Value) {
    let log = fs::read_to_string(log).expect("a log");
    let lines = log.lines().map(serde_json::from_str::<Value>);
    let mut lines: Vec<Value> = lines.collect::<Result<_, _>>().expect("lines of JSON");
    let last = lines.pop().expect("a result");
    (lines, last)
}

pub(crate) fn losses(steps: &[Value]) -> Vec<f64> {
    let losses = steps.iter().filter_map(|step| step["loss"].as_f64());
    losses.collect()
}
