//! Checkpoints of tensors: every layout saved and restored into every other, by one client and
//! several; damaged, missing and mixed files; and a simulated disk that crashes at every call.

use std::fs;
use std::sync::Arc;

use meshwork_checkpoint::Error as Saved;
use meshwork_checkpoint::testing::{Fault, Survival, TestDisk};
use meshwork_core::{CreateMesh, Mesh};
use ndarray::{Array, ArrayD, IxDyn, array};

use super::*;
use crate::testing::{clients, context, mesh};

fn layout(names: &[&str], mesh: &Mesh) -> Layout {
    Layout::from_names(names, mesh).unwrap()
}

fn numbered(shape: &[usize]) -> ArrayD<i64> {
    let count: usize = shape.iter().product();
    let numbers = Array::from_iter(0..i64::try_from(count).unwrap());
    numbers.into_shape_with_order(IxDyn(shape)).unwrap()
}

#[test]
fn every_element_is_written_once_and_read_into_any_layout() {
    let folder = tempfile::tempdir().unwrap();
    let all = [
        ["unsharded", "unsharded"],
        ["x", "y"],
        ["y", "unsharded"],
        ["unsharded", "x"],
    ];
    for (number, from) in all.iter().enumerate() {
        let prefix = folder.path().join(number.to_string());
        let tensor = context()
            .copy_to_mesh(numbered(&[5, 3]), &layout(from, &mesh()))
            .unwrap();
        context().save(&prefix, &[("t", &tensor)]).unwrap();
        let bytes = fs::read(file_of(&prefix, "00000-of-00001.safetensors")).unwrap();
        let (header, _) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
        assert_eq!(bytes.len() - header - 8, 15 * size_of::<i64>());
        for to in all {
            let to = layout(&to, &mesh());
            let read = context().restore::<i64>(&prefix, "t", &to).unwrap();
            assert_eq!(read.layout(), &to);
            assert_eq!(read.to_host().unwrap(), numbered(&[5, 3]));
        }
    }
}

#[test]
fn clients_write_together_and_one_reads_alone() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("ck");
    let whole = numbered(&[3, 4]);
    clients(4, 1, |context| {
        let mesh = CreateMesh::new().dims([("x", 2), ("y", 2)]);
        let mesh = context.create_distributed_mesh(mesh).unwrap();
        let tensor = context
            .copy_to_mesh(whole.clone(), &layout(&["x", "y"], &mesh))
            .unwrap();
        let scalar = context
            .full(&[], &Layout::replicated(&mesh, 0), 7_u8)
            .unwrap();
        context
            .save(&prefix, &[("t", &tensor), ("scalar", &scalar)])
            .unwrap();
        // Any client reads what all have written.
        let rows = layout(&["unsharded", "x"], &mesh);
        let read = context.restore::<i64>(&prefix, "t", &rows).unwrap();
        assert_eq!(read.to_host().unwrap(), whole);
    });
    let read = context()
        .restore::<i64>(&prefix, "t", &layout(&["y", "x"], &mesh()))
        .unwrap();
    assert_eq!(read.to_host().unwrap(), whole);
    let scalar = context().restore::<u8>(&prefix, "scalar", &Layout::replicated(&mesh(), 0));
    assert_eq!(
        scalar.unwrap().to_host().unwrap(),
        ndarray::arr0(7).into_dyn()
    );
}

#[test]
fn a_client_that_cannot_write_is_named_on_all() {
    let folder = tempfile::tempdir().unwrap();
    let there = folder.path().join("ck");
    // The path is the beginning of the error's text, whatever that begins with.
    let places = [&there, Path::new("+missing/ck")];
    let told = clients(2, 1, |context| {
        let mesh = context.create_distributed_mesh(CreateMesh::new()).unwrap();
        let tensor = context.zeros::<f32>(&[2], &layout(&["x"], &mesh)).unwrap();
        let prefix = places[context.index() as usize];
        context.save(prefix, &[("t", &tensor)]).unwrap_err()
    });
    let [
        Error::OtherClient { client: 1, message },
        Error::Checkpoint(error),
    ] = &told[..]
    else {
        panic!("{told:?}");
    };
    assert!(message.starts_with("+missing/"), "{message}");
    assert_eq!(*message, error.to_string());
}

#[test]
fn variables_may_be_rounded_and_are_made_wider_again() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("ck");
    let rows = layout(&["x"], &mesh());
    let value = context()
        .copy_to_mesh(array![1.0_f32, 1.0 + 1.0 / 1024.0], &rows)
        .unwrap();
    let variable = DVariable::new(value).save_as(SavedAs::Bf16);
    context().save(&prefix, &[("v", &variable)]).unwrap();
    let read = context().restore::<f32>(&prefix, "v", &rows).unwrap();
    assert_eq!(read.to_host().unwrap(), array![1.0, 1.0].into_dyn());
    let read = context().restore::<i32>(&prefix, "v", &rows).unwrap_err();
    assert!(matches!(read, Error::SavedElement { .. }));
}

#[test]
fn what_is_not_there_or_broken_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("ck");
    let rows = layout(&["x", "unsharded"], &mesh());
    let tensor = context().copy_to_mesh(numbered(&[4, 2]), &rows).unwrap();
    let restore = |name: &str| context().restore::<i64>(&prefix, name, &rows).unwrap_err();
    assert!(matches!(
        restore("t"),
        Error::NoCheckpoint { damaged: None, .. }
    ));
    let name = "t".to_owned();
    let twice = context().save(&prefix, &[("t", &tensor), ("t", &tensor)]);
    assert_eq!(twice, Err(Saved::TensorTwice { name }.into()));
    context().save(&prefix, &[("t", &tensor)]).unwrap();
    let no_tensor = restore("u");
    assert!(
        matches!(no_tensor, Error::Checkpoint(Saved::NoTensor { .. })),
        "{no_tensor}"
    );
    let file = file_of(&prefix, "00000-of-00001.safetensors");
    let whole = fs::read(&file).unwrap();
    for length in [0, 7, 20, whole.len() - 1] {
        fs::write(&file, &whole[..length]).unwrap();
        let Error::NoCheckpoint {
            damaged: Some((path, damage)),
            ..
        } = restore("t")
        else {
            panic!("cut at {length}")
        };
        let (stated, found) = (whole.len() as u64, length as u64);
        assert_eq!(
            (path, damage),
            (file.clone(), FileDamage::Length { stated, found })
        );
    }
    fs::write(&file, &whole).unwrap();
    context().restore::<i64>(&prefix, "t", &rows).unwrap();
}

#[test]
fn an_index_without_all_blocks_is_a_hole_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("ck");
    let rows = layout(&["x", "unsharded"], &mesh());
    let series = Series::at(&prefix).unwrap();
    let generation = series.begin().unwrap();
    let mut tensors = TensorIndex::default();
    let tensor = context().copy_to_mesh(numbered(&[4, 2]), &rows).unwrap();
    let mut stored = Vec::new();
    let info = sealed::Store::store(&tensor, "t", &mut stored).unwrap();
    tensors.insert("t", info).unwrap();
    stored.pop();
    let written = context().write(&series, generation, &stored).unwrap();
    finish(
        &series,
        generation,
        &[written.entry().to_string()],
        &tensors,
    )
    .unwrap();
    let hole = context().restore::<i64>(&prefix, "t", &rows).unwrap_err();
    assert!(
        matches!(&hole, Error::Checkpoint(Saved::TensorHole { name, .. }) if name == "t"),
        "{hole}"
    );
}

#[test]
fn a_changed_element_is_refused_and_the_save_before_it_can_be_gone_back_to() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("ck");
    let rows = layout(&["x", "unsharded"], &mesh());
    // Chunks end within rows.
    let shape = [6, (1 << 20) / 16 + 1];
    let save = |number: i64| {
        let tensor = context().full(&shape, &rows, number).unwrap();
        context().save(&prefix, &[("t", &tensor)]).unwrap();
    };
    let columns = layout(&["unsharded", "y"], &mesh());
    let restore = || {
        let read = context().restore::<i64>(&prefix, "t", &columns)?;
        Ok::<_, Error>(read.to_host()?[[5, 0]])
    };
    save(1);
    let before = files(&prefix);
    save(2);
    assert_eq!(restore(), Ok(2));
    let mut new = files(&prefix);
    new.retain(|path| !before.contains(path));
    let data = new
        .iter()
        .find(|path| path.extension().unwrap() != "index")
        .unwrap();
    let mut bytes = fs::read(data).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(data, bytes).unwrap();
    let Err(Error::Checkpoint(Saved::BlockDamaged { path, block, index })) = restore() else {
        panic!("{:?}", restore())
    };
    assert!(&path == data && block.starts_with("t@"), "{path:?} {block}");
    fs::remove_file(index).unwrap();
    assert_eq!(restore(), Ok(1));
}

#[test]
fn a_link_in_the_place_of_a_file_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("ck");
    saved_by_two(&prefix, 1);
    let file = file_of(&prefix, "00001-of-00002.safetensors");
    let moved = folder.path().join("moved");
    fs::rename(&file, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, &file).unwrap();
    let refused = Saved::Link { path: file };
    assert_eq!(numbers(&prefix), Err(Error::Checkpoint(refused)));
}

/// On a mesh of all clients, which read together.
#[test]
fn what_is_read_of_one_save_was_saved_together_until_that_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("ck");
    clients(2, 1, |context| {
        let mesh = context.create_distributed_mesh(CreateMesh::new().dims([("x", 2)]));
        let rows = layout(&["x"], &mesh.unwrap());
        let save = |number: i64| {
            let [t, u] = [number, -number].map(|own| context.full(&[4], &rows, own).unwrap());
            context.save(&prefix, &[("t", &t), ("u", &u)]).unwrap();
        };
        let none = context.saved(&prefix).unwrap_err();
        let is_none = matches!(none, Error::NoCheckpoint { .. } | Error::OtherClient { .. });
        assert!(is_none, "{none}");
        save(1);
        let saved = context.saved(&prefix).unwrap();
        let read = |name: &str| {
            let read = saved.restore::<i64>(name, &rows)?.to_host()?;
            Ok::<_, Error>(read[[3]])
        };
        assert_eq!(read("t"), Ok(1));
        save(2);
        assert_eq!(read("u"), Ok(-1));
        let last = context.restore::<i64>(&prefix, "u", &rows).unwrap();
        assert_eq!(last.to_host().unwrap()[[3]], -2);
        save(3);
        let index = saved.series.index_path(saved.generation);
        let removed = Saved::Removed { index };
        assert_eq!(read("u"), Err(removed.into()));
    });
}

fn file_of(prefix: &Path, end: &str) -> PathBuf {
    let files = files(prefix).into_iter();
    let stem = prefix.file_name().unwrap().to_str().unwrap();
    let mut files = files.filter(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with(&format!("{stem}.")) && name.ends_with(end)
    });
    files.next().unwrap()
}

/// Saves a tensor of one number from two clients, and says which file each has written.
fn saved_by_two(prefix: &Path, number: i64) -> [PathBuf; 2] {
    let before = files(prefix);
    clients(2, 1, |context| {
        let mesh = context
            .create_distributed_mesh(CreateMesh::new().dims([("x", 2)]))
            .unwrap();
        let tensor = context.full(&[4], &layout(&["x"], &mesh), number).unwrap();
        context.save(prefix, &[("t", &tensor)]).unwrap();
    });
    let written = files(prefix);
    ["00000-of-00002.safetensors", "00001-of-00002.safetensors"].map(|end| {
        let mut own = written
            .iter()
            .filter(|path| path.to_str().unwrap().ends_with(end));
        let fresh = own.clone().find(|path| !before.contains(path));
        fresh.or_else(|| own.next()).unwrap().clone()
    })
}

fn files(prefix: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(prefix.parent().unwrap()).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn numbers(prefix: &Path) -> Result<Vec<i64>, Error> {
    let mesh = mesh();
    let whole = layout(&["unsharded"], &mesh);
    let read = context().restore::<i64>(prefix, "t", &whole)?;
    Ok(read.to_host()?.into_iter().collect())
}

#[test]
fn a_prefix_saved_again_by_one_of_two_clients_only_is_what_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let [prefix, other] = ["ck", "other"].map(|name| folder.path().join(name).join("ck"));
    for prefix in [&prefix, &other] {
        fs::create_dir(prefix.parent().unwrap()).unwrap();
        saved_by_two(prefix, 1);
    }
    // The second client and the index never came.
    let [first, _] = saved_by_two(&other, 2);
    fs::copy(&first, prefix.with_file_name(first.file_name().unwrap())).unwrap();
    assert_eq!(numbers(&prefix), Ok(vec![1; 4]));
}

#[test]
fn the_file_of_another_save_in_the_place_of_one_is_never_mixed_in() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("ck");
    let [_, of_first] = saved_by_two(&prefix, 1);
    let of_first = (fs::read(&of_first).unwrap(), of_first);
    let [_, of_second] = saved_by_two(&prefix, 2);
    assert_eq!(numbers(&prefix), Ok(vec![2; 4]));
    fs::write(&of_second, &of_first.0).unwrap();
    assert_eq!(numbers(&prefix), Ok(vec![1; 4]));
    let passed_over = context().passed_over(&prefix).unwrap();
    assert_eq!(passed_over[0].0, of_second);
}

/// What a disk has when a tensor was saved from two clients, and the outcomes.
fn saved_on(disks: &[TestDisk; 2], number: i64) -> Vec<Result<(), Error>> {
    clients(2, 1, |context| {
        let mesh = CreateMesh::new().dims([("x", 2)]);
        let mesh = context.create_distributed_mesh(mesh).unwrap();
        let rows = layout(&["x"], &mesh);
        let [t, u] = [number, -number].map(|number| context.full(&[4], &rows, number).unwrap());
        let disk = &disks[context.index() as usize];
        let series = Series::on(Arc::new(disk.clone()), "/", "ck");
        context.save_in(&series, &[("t", &t), ("u", &u)])
    })
}

/// The number that both tensors were saved with.
#[track_caller]
fn found_on(disk: &TestDisk) -> Option<i64> {
    let series = Series::on(Arc::new(disk.clone()), "/", "ck");
    let whole = layout(&["unsharded"], &mesh());
    assert!(series.latest().unwrap().damaged().is_empty());
    let read = |name| {
        let read = context().restore_from::<i64>(series.clone(), name, &whole)?;
        Ok::<_, Error>(read.to_host()?.into_iter().collect::<Vec<_>>())
    };
    match read("t") {
        Err(Error::NoCheckpoint { .. }) => None,
        numbers => {
            let number = numbers.as_ref().unwrap()[0];
            assert_eq!(numbers, Ok(vec![number; 4]));
            assert_eq!(read("u"), Ok(vec![-number; 4]));
            Some(number)
        }
    }
}

#[test]
fn at_every_call_of_either_client_and_after_every_crash_the_old_or_the_new_is_there() {
    let survivals = [Survival::Everything, Survival::Synced].into_iter();
    let survivals = survivals.chain((0..8).map(Survival::Chance));
    for failing in 0..2 {
        for fault in [Fault::Refused, Fault::Unheard, Fault::Death] {
            for call in 0.. {
                let disk = TestDisk::new();
                let disks = [disk.another_process(), disk.another_process()];
                for number in 1..=2 {
                    let saved = saved_on(&disks, number);
                    assert_eq!(saved, [Ok(()), Ok(())]);
                }
                disks[failing].fail_at(call, fault);
                let saved = saved_on(&disks, 3);
                let has_failed = disks[failing].has_failed();
                let case = format!("client {failing}, call {call}, {fault:?}: {saved:?}");
                for survival in survivals.clone() {
                    let disk = disk.crashed(survival);
                    let now = found_on(&disk);
                    let is_right = now == Some(3) || (now == Some(2) && saved[0].is_err());
                    assert!(is_right, "{survival:?}, {case}: {now:?}");
                }
                assert_eq!(saved[0].is_ok(), saved[1].is_ok(), "{case}");
                let disks = [disk.another_process(), disk.another_process()];
                assert_eq!(saved_on(&disks, 4), [Ok(()), Ok(())]);
                for survival in survivals.clone() {
                    assert_eq!(found_on(&disk.crashed(survival)), Some(4), "{case}");
                }
                // Two saves of three files, and of one that had failed none.
                assert_eq!(disk.list(Path::new("/")).len(), 6, "{case}");
                if !has_failed {
                    break;
                }
            }
        }
    }
}
