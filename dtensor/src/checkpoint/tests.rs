use std::fs;

use meshwork_core::{Client, CreateMesh, Mesh};
use ndarray::{Array, ArrayD, IxDyn, array};

use super::*;
use crate::testing::clients;

fn context() -> Context {
    Context::alone(Client::new("localhost", 0, 1).unwrap())
}

fn mesh() -> Mesh {
    Mesh::new([("x", 2), ("y", 2)]).unwrap()
}

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
        let file = prefix.with_file_name(format!("{number}-00000-of-00001.safetensors"));
        let bytes = fs::read(file).unwrap();
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
    let told = clients(2, 1, |context| {
        let mesh = context.create_distributed_mesh(CreateMesh::new()).unwrap();
        let tensor = context.zeros::<f32>(&[2], &layout(&["x"], &mesh)).unwrap();
        let place = ["", "missing"][context.index() as usize];
        let prefix = folder.path().join(place).join("ck");
        context.save(&prefix, &[("t", &tensor)]).unwrap_err()
    });
    assert!(
        matches!(told[0], Error::OtherClient { client: 1, .. }),
        "{told:?}"
    );
    assert!(matches!(told[1], Error::File { .. }), "{told:?}");
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
    assert!(matches!(restore("t"), Error::File { .. }));
    let name = "t".to_owned();
    let twice = context().save(&prefix, &[("t", &tensor), ("t", &tensor)]);
    assert_eq!(twice, Err(Error::TensorName { name }));
    context().save(&prefix, &[("t", &tensor)]).unwrap();
    assert!(matches!(restore("u"), Error::NotSaved { .. }));
    let file = folder.path().join("ck-00000-of-00001.safetensors");
    let whole = fs::read(&file).unwrap();
    for length in [0, 7, 20, whole.len() - 1] {
        fs::write(&file, &whole[..length]).unwrap();
        let error = restore("t");
        assert!(
            matches!(error, Error::File { .. } | Error::FileForm { .. }),
            "{length}: {error:?}"
        );
    }
    format::write(&file, &[]).unwrap();
    let name = "t".to_owned();
    assert_eq!(restore("t"), Error::SavedHole { name });
}
