//! The text and protobuf forms of meshes: round trips, TensorFlow's abbreviations, refusals by
//! cause, and no panic on arbitrary text or bytes.

use proptest::prelude::*;

use super::*;
use crate::{DeviceIds, Devices, proto::MeshProto};

const TWO_GPUS: &str = "/job:w/task:0/device:GPU:0,/job:w/task:0/device:GPU:1";

#[track_caller]
fn check(text: &str) {
    let mesh = AnyMesh::parse(text).unwrap();
    assert_eq!(mesh.to_string(), text);
    assert_eq!(AnyMesh::decode(&mesh.encode()), Ok(mesh));
}

#[track_caller]
fn check_read(text: &str, written: &str) {
    assert_eq!(AnyMesh::parse(text).unwrap().to_string(), written);
    check(written);
}

#[test]
fn texts_are_written_as_they_were_read() {
    check("empty_mesh");
    check("/job:a/task:0/device:CPU:0");
    check("job:localhost/replica:0/task:0/TPU:0");
    check("||0|0|/job:w/task:0/gpu:0");
    check(&format!("m|x=2|0,1|0,1|{TWO_GPUS}"));
    check(&format!("a,b=c d| x=1,y z=2|-3,7|7,-3|{TWO_GPUS}"));
    check("|x=2|1,0||");
    check(&format!("|x=2|0,1|||{TWO_GPUS}"));
    check(&format!("|x=2|0,1|||{TWO_GPUS}|use_xla_spmd"));
    check("|x=2|0,1|1|/job:w/task:1/device:TPU:0|use_xla_spmd");
}

#[test]
fn texts_with_nothing_in_their_last_parts_are_read() {
    let mesh = format!("m|x=2|0,1|0,1|{TWO_GPUS}");
    check_read(&format!("{mesh}|"), &mesh);
    check_read(&format!("{mesh}||"), &mesh);
    let spmd = format!("{mesh}|use_xla_spmd");
    check_read(&format!("{mesh}||use_xla_spmd"), &spmd);
    let global = format!("m|x=2|0,1|||{TWO_GPUS}");
    check_read(&format!("{global}|"), &global);
}

#[test]
fn a_star_stands_for_all_devices_of_one_host() {
    check_read(
        "n|x=2|*cpu",
        "n|x=2|0,1|0,1|/job:localhost/task:0/device:cpu:0,/job:localhost/task:0/device:cpu:1",
    );
    for text in ["||*CPU", "|x=2,y=0|*CPU", "m|x=2|||", "||||"] {
        assert_eq!(AnyMesh::parse(text), Ok(AnyMesh::Empty), "{text}");
    }
    let large = AnyMesh::parse("|x=2147483647|*cpu").unwrap();
    assert_eq!(large.mesh().map(Mesh::size), Some(2_147_483_647));
}

#[test]
fn texts_that_are_no_mesh_are_refused_by_what_is_wrong() {
    let refused = |text: &str| AnyMesh::parse(text).unwrap_err();
    let part = |part: &str| part.to_owned();
    assert_eq!(refused("a|b"), Error::TextParts { found: 2 });
    assert_eq!(refused("||||||||"), Error::TextParts { found: 9 });
    assert_eq!(
        refused("|x=2|CPU"),
        Error::TextGenerator { part: part("CPU") }
    );
    assert_eq!(
        refused("|x=2|*C*"),
        Error::TextGenerator { part: part("*C*") }
    );
    assert_eq!(refused("|x|*CPU"), Error::TextDim { part: part("x") });
    assert_eq!(
        refused("|x=-1|*CPU"),
        Error::TextNumber { part: part("x=-1") }
    );
    for number in ["", "a", "2abc", "2.5", "2=3", "2147483648"] {
        let text = format!("|x={number}|*CPU");
        assert_eq!(refused(&text), Error::TextNumber { part: part(number) });
    }
    for text in ["", "CPU:0", "/device:CPU:0", "/job:a/device:CPU:0", "empty"] {
        assert_eq!(refused(text), Error::SingleDeviceText { text: part(text) });
    }
    assert!(matches!(refused("a:b:c:d:e"), Error::DevicePart { .. }));
    let mesh = format!("|x=2|0,1|0,1|{TWO_GPUS}");
    let flag = Error::TextFlag {
        part: part("other"),
    };
    assert_eq!(refused(&format!("{mesh}||other")), flag);
}

#[test]
fn texts_of_meshes_that_cannot_be_are_refused() {
    let refused = |text: &str| AnyMesh::parse(text).unwrap_err();
    let counts = |ids, local_ids, local_devices| Error::TextLocalCount {
        ids,
        local_ids,
        local_devices,
    };
    assert_eq!(refused(&format!("|x=2||0,1|{TWO_GPUS}")), counts(0, 2, 2));
    assert_eq!(refused("|x=2|0,1|0,1|"), counts(2, 2, 0));
    let uneven = Error::UnevenLocalDevices { local: 2, size: 3 };
    assert_eq!(refused(&format!("|x=3|0,1,2|0,1|{TWO_GPUS}")), uneven);
    assert_eq!(
        refused(&format!("|x=3|0,1|0,1|{TWO_GPUS}")),
        Error::IdCount {
            found: 2,
            expected: 3
        }
    );
    assert!(matches!(
        refused("|x=1|0|0|/device:CPU:0"),
        Error::DeviceWithoutHost { position: 0, .. }
    ));
    assert_eq!(
        refused("|x=1|0|1|/job:w/task:0/device:CPU:0"),
        Error::ForeignLocalId { id: 1 }
    );
}

#[test]
fn a_device_alone_may_be_any_that_is_one() {
    let alone = AnyMesh::from_device("CPU:0").unwrap();
    assert!(alone.is_single_device() && alone.mesh().is_none());
    assert_eq!(
        (alone.to_string().as_str(), alone.device_type()),
        ("CPU:0", Some("CPU"))
    );
    assert_eq!(alone.encode(), b"\x42\x05CPU:0");
    assert_eq!(AnyMesh::decode(b"\x42\x05CPU:0"), Ok(alone.clone()));
    assert_eq!(alone.host_mesh(), Ok(AnyMesh::Empty));
    assert_eq!(AnyMesh::from_device(""), Err(Error::EmptySingleDevice));
    assert!(matches!(
        AnyMesh::from_device("nonsense"),
        Err(Error::DevicePart { .. })
    ));
    let device = "CPU:0".to_owned();
    assert_eq!(Mesh::try_from(alone), Err(Error::OnlyOneDevice { device }));
    assert_eq!("empty_mesh".parse::<Mesh>(), Err(Error::EmptyMesh));
}

#[test]
fn what_is_sent_is_held_to_what_a_mesh_keeps_to() {
    let sent = || MeshProto::from(&AnyMesh::parse("m|x=2|0,1||").unwrap());
    let read = |message: MeshProto| AnyMesh::try_from(message);
    assert_eq!(read(sent()).unwrap().to_string(), "m|x=2|0,1||");
    let mut message = sent();
    message.mesh_dimensions[0].size = -1;
    let name = "x".to_owned();
    assert_eq!(read(message), Err(Error::ProtoSize { name, size: -1 }));
    let mut message = sent();
    message.global_device_ids.clear();
    let (found, expected) = (0, 2);
    assert_eq!(
        read(message.clone()),
        Err(Error::IdCount { found, expected })
    );
    message.mesh_dimensions[0].size = 0;
    assert_eq!(read(message), Ok(AnyMesh::Empty));
    let mut message = sent();
    message.single_device = "CPU:0".to_owned();
    message.use_xla_spmd = true;
    let alone = read(message).unwrap();
    assert_eq!(alone.encode(), b"\x38\x01\x42\x05CPU:0");
    assert!(matches!(
        AnyMesh::decode(b"\xff"),
        Err(Error::Decode { .. })
    ));
}

/// Meshes whose text can be read: every device says where it is, and processes have as many.
fn any_mesh() -> impl Strategy<Value = Mesh> {
    let dims = proptest::collection::vec(1_usize..4, 0..4);
    (dims, "[ -{}~]{0,4}", -9_i64..9, 0_usize..8, any::<bool>()).prop_map(
        |(sizes, name, first, local, global)| {
            let dims = sizes
                .iter()
                .zip('a'..)
                .map(|(&size, name)| (name.to_string(), size));
            let size: usize = sizes.iter().product();
            let local = if local > 0 && size.is_multiple_of(local) {
                local
            } else {
                0
            };
            let host = DeviceSpec::parse("/job:w/replica:0").unwrap();
            let tpu = DeviceSpec::parse("TPU").unwrap();
            let devices = |count: usize| {
                Devices::of_tasks(&host, 1, &tpu, u32::try_from(count).unwrap()).unwrap()
            };
            let mut builder = Mesh::builder(dims)
                .name(name.replace('|', ""))
                .global_device_ids(DeviceIds::consecutive(first, size).unwrap());
            if local > 0 {
                builder = builder.local(
                    DeviceIds::consecutive(first, local).unwrap(),
                    devices(local),
                );
            }
            if global {
                builder = builder.global_devices(devices(size)).xla_spmd();
            }
            builder.build().unwrap()
        },
    )
}

proptest! {
    #[test]
    fn every_mesh_that_text_can_hold_is_read_back(mesh in any_mesh()) {
        prop_assert_eq!(&mesh.to_string().parse::<Mesh>()?, &mesh);
        let any = AnyMesh::from(mesh);
        prop_assert_eq!(AnyMesh::decode(&any.encode())?, any);
    }

    #[test]
    fn no_text_makes_reading_panic(
        text in "[a-z]{0,2}\\|([xy]=[0-9a-]{0,2},?){0,3}\\|[0-9,*C-]{0,6}(\\|[0-9,]{0,4}\\|[/a-zA-Z:0-9,]{0,20}){0,1}\\|?\\|?|\\PC{0,30}",
    ) {
        if let Err(error) = AnyMesh::parse(&text) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn no_bytes_make_reading_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(mesh) = AnyMesh::decode(&bytes) {
            prop_assert_eq!(AnyMesh::decode(&mesh.encode())?, mesh);
        }
    }
}
