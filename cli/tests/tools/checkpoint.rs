//! `meshwork checkpoint` from outside, on what writers of tensors and a single process save.

use std::fs;
use std::path::Path;

use meshwork_checkpoint::tensors::{Block, BlockFile, Dtype, TensorIndex, TensorInfo};
use meshwork_checkpoint::{Generation, Index, Series};
use serde_json::{Value, json};

use super::says;

fn checkpoint(args: &[&Path]) -> (String, String, Option<i32>) {
    says("checkpoint", args)
}

/// A tensor of bytes 0 to 7, of which two writers have two rows each.
fn save(series: &Series) -> Generation {
    let generation = series.begin().unwrap();
    let mut entries = Vec::new();
    for (writer, rows) in [0..2, 2..4].into_iter().enumerate() {
        let first = u8::try_from(2 * rows.start).unwrap();
        let block = Block::new("layer.weight", [rows, 0..2], Dtype::U8);
        let mut file = BlockFile::new(&[block], Vec::new()).unwrap();
        file.put(&[first, first + 1, first + 2, first + 3]);
        let (bytes, head) = file.seal();
        let part = format!("{writer:05}-of-00002.safetensors");
        let written = series.write(generation, &part, &bytes, head).unwrap();
        entries.push(written.entry().clone());
    }
    let mut tensors = TensorIndex::default().with_step(12);
    let info = TensorInfo::new(Dtype::U8, [4, 2]);
    tensors.insert("layer.weight", info).unwrap();
    let index = Index::new(generation, entries, tensors.to_bytes()).unwrap();
    series.finish(&index).unwrap();
    generation
}

#[test]
fn tensors_and_their_parts_are_shown_and_later_damage_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let series = Series::new(folder.path(), "model");
    let generation = save(&series);
    let cut = save(&series);
    let damaged = series.path(cut, "00001-of-00002.safetensors");
    fs::write(&damaged, "short").unwrap();
    let inspect = Path::new("inspect");
    let (text, stderr, status) = checkpoint(&[inspect, folder.path()]);
    assert_eq!((stderr.as_str(), status), ("", Some(0)));
    let first = format!("{generation}, step 12: 1 tensors\n");
    assert!(text.contains(&first), "{text}");
    let tensor = "layer.weight  u8    [4, 2]  [0:2,0:2] in 0  [2:4,0:2] in 1\n";
    assert!(text.contains(tensor), "{text}");
    let told = format!("passed over: {}: it has 5 bytes", damaged.display());
    assert!(text.contains(&told), "{text}");

    let prefix = folder.path().join("model");
    let (text, _, _) = checkpoint(&[inspect, &prefix, Path::new("--json")]);
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["step"], 12);
    let tensor = &value["tensors"][0];
    assert_eq!(tensor["shape"], json!([4, 2]));
    let second = json!({"file": 1, "region": "2:4,0:2"});
    assert_eq!(tensor["parts"][1], second);
    assert_eq!(value["files"].as_array().unwrap().len(), 2);
    assert_eq!(value["damaged"].as_array().unwrap().len(), 1);
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_whose_name_is_no_text_is_shown_as_json_too() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
    fs::create_dir(&folder).unwrap();
    save(&Series::new(&folder, "model"));
    let (text, stderr, status) = checkpoint(&[Path::new("inspect"), &folder, Path::new("--json")]);
    assert_eq!((stderr.as_str(), status), ("", Some(0)));
    let value: Value = serde_json::from_str(&text).unwrap();
    let path = value["files"][0]["path"].as_str().unwrap();
    assert!(path.contains("caf\u{fffd}/model"), "{path}");
}

#[test]
fn all_tensors_go_into_one_file_that_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("saved");
    fs::create_dir(&saved).unwrap();
    let series = Series::new(&saved, "model");
    let generation = save(&series);
    let file = folder.path().join("whole.safetensors");
    let merge = Path::new("merge");
    let merged = checkpoint(&[merge, &saved, &file]);
    assert_eq!(merged, (String::new(), String::new(), Some(0)));
    let bytes = fs::read(&file).unwrap();
    let read = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let tensor = read.tensor("layer.weight").unwrap();
    assert_eq!(tensor.data(), [0, 1, 2, 3, 4, 5, 6, 7]);
    // It is refused before anything is read: else this would be told.
    let part = series.path(generation, "00001-of-00002.safetensors");
    let mut damaged = fs::read(&part).unwrap();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(&part, damaged).unwrap();
    let (_, stderr, status) = checkpoint(&[merge, &saved, &file]);
    assert_eq!(status, Some(1));
    assert!(
        stderr.contains("whole.safetensors cannot be written: "),
        "{stderr}"
    );
    assert_eq!(fs::read(&file).unwrap(), bytes);
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn the_file_of_one_process_is_shown_and_needs_no_merging() {
    let folder = tempfile::tempdir().unwrap();
    let series = Series::new(folder.path(), "snapshot");
    let data = [1, 2, 3];
    let view = safetensors::tensor::TensorView::new(Dtype::U8, vec![3], &data);
    let bytes = safetensors::serialize([("a", view.unwrap())], None).unwrap();
    let generation = series.begin().unwrap();
    let written = series
        .write(generation, "step-3.safetensors", &bytes, bytes.len())
        .unwrap();
    let index = Index::new(generation, [written.entry().clone()], Vec::new()).unwrap();
    series.finish(&index).unwrap();
    let (text, _, _) = checkpoint(&[Path::new("inspect"), folder.path()]);
    assert!(text.contains("  a  u8    [3]\n"), "{text}");
    let whole = folder.path().join("whole");
    let (_, stderr, status) = checkpoint(&[Path::new("merge"), folder.path(), &whole]);
    assert_eq!(status, Some(1));
    assert!(
        stderr.contains("all tensors in one file already"),
        "{stderr}"
    );
}

#[test]
fn what_is_no_checkpoint_is_said_to_be_none() {
    let folder = tempfile::tempdir().unwrap();
    let inspect = |path: &Path| {
        let (_, stderr, status) = checkpoint(&[Path::new("inspect"), path]);
        assert_eq!(status, Some(1));
        stderr
    };
    let nothing = inspect(folder.path());
    assert!(
        nothing.contains("has no checkpoint: name the folder"),
        "{nothing}"
    );
    for stem in ["one", "two"] {
        save(&Series::new(folder.path(), stem));
    }
    let several = inspect(folder.path());
    let named = "2 checkpoints: name one, as folder/one or folder/two";
    assert!(several.contains(named), "{several}");
    let absent = inspect(&folder.path().join("three"));
    assert!(absent.contains("three is whole"), "{absent}");
}
