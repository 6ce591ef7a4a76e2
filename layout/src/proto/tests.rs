//! The protobuf form of layouts: round trips, exact bytes, refusal of what TensorFlow cannot
//! express, and no panic on arbitrary bytes.

use proptest::prelude::*;

use super::*;
use crate::arbitrary::any_pattern;
use crate::{Layout, PartialReduction};

const MESH: &str = "|x=2,y=1|0,1||";

fn layout(specs: &str) -> AnyLayout {
    let mesh: Mesh = MESH.parse().unwrap();
    Layout::from_specs(specs, &mesh).unwrap().into()
}

#[test]
fn the_bytes_are_those_of_the_schema() {
    let mesh = b"\x12\x12\x0a\x05\x0a\x01x\x10\x02\x0a\x05\x0a\x01y\x10\x01\x12\x02\x00\x01";
    let bytes = [
        b"\x0a\x03\x12\x01x\x0a\x0b\x12\x09unsharded",
        mesh.as_slice(),
        b"\x18\x01",
    ]
    .concat();
    let layout = layout("x,unsharded");
    assert_eq!(layout.encode(), Ok(bytes.clone()));
    assert_eq!(AnyLayout::decode(&bytes), Ok(layout));
    let alone = AnyLayout::from_device("CPU:0").unwrap();
    assert_eq!(
        alone.encode(),
        Ok(b"\x12\x07\x42\x05CPU:0\x18\x03".to_vec())
    );
    assert_eq!(AnyLayout::Empty.encode(), Ok(b"\x12\x00".to_vec()));
    assert_eq!(AnyLayout::decode(b""), Ok(AnyLayout::Empty));
}

#[test]
fn a_type_is_that_of_its_mesh() {
    let message = |layout: &AnyLayout, kind: i32| LayoutProto {
        r#type: kind,
        ..LayoutProto::try_from(layout).unwrap()
    };
    let read = |message: LayoutProto| AnyLayout::try_from(message);
    let vector = layout("x");
    assert_eq!(
        read(message(&vector, 3)),
        Err(Error::SpecsWithoutMesh { count: 1 })
    );
    assert_eq!(
        read(message(&vector, 4)),
        Err(Error::UnknownType { value: 4 })
    );
    assert_eq!(
        read(message(&vector, -1)),
        Err(Error::UnknownType { value: -1 })
    );
    let scalar = layout("");
    for layout in [&vector, &scalar] {
        assert_eq!(read(message(layout, 0)), Err(Error::Untyped));
    }
    assert_eq!(read(message(&scalar, 3)), Err(Error::NotOneDevice));
    let alone = AnyLayout::from_device("CPU:0").unwrap();
    for kind in [1, 2] {
        assert!(matches!(read(message(&alone, kind)), Err(Error::Mesh(_))));
        assert!(matches!(
            read(message(&AnyLayout::Empty, kind)),
            Err(Error::Mesh(_))
        ));
    }
    assert_eq!(read(message(&alone, 0)), Err(Error::Untyped));
    assert_eq!(
        read(message(&AnyLayout::Empty, 3)),
        Err(Error::NotOneDevice)
    );
}

#[test]
fn what_tensorflow_cannot_express_is_not_sent() {
    let error = layout("unsharded,y|x").encode().unwrap_err();
    assert_eq!(
        error.to_string(),
        "tensor dimension 1 is cut by y|x, which the protobuf form cannot say: send the text"
    );
    let whole = Layout::replicated(&MESH.parse().unwrap(), 1);
    let partial = whole.with_partial(["y"], PartialReduction::Sum).unwrap();
    assert_eq!(
        AnyLayout::from(partial).encode().unwrap_err().to_string(),
        "mesh dimension y is partial, which the protobuf form cannot say: send the text"
    );
}

#[test]
fn what_text_adds_is_not_read_either() {
    let mut message = LayoutProto::try_from(&layout("x")).unwrap();
    message.sharding_specs[0].sharding_spec = "x|y".to_owned();
    assert!(matches!(AnyLayout::try_from(message), Err(Error::Mesh(_))));
    assert!(matches!(
        AnyLayout::decode(b"\xff"),
        Err(Error::Decode { .. })
    ));
}

proptest! {
    #[test]
    fn every_layout_that_tensorflow_can_express_is_read_back_from_its_bytes(pattern in any_pattern()) {
        let nested = |spec| matches!(spec, SpecPattern::Exactly(spec) if spec.dims().len() > 1);
        let beyond = pattern.specs().any(nested) || pattern.reduction().is_some();
        let layout = AnyLayout::from(pattern);
        match layout.encode() {
            Ok(bytes) => {
                prop_assert!(!beyond);
                prop_assert_eq!(AnyLayout::decode(&bytes)?, layout);
            }
            Err(error) => prop_assert!(beyond, "{}", error),
        }
    }

    #[test]
    fn no_bytes_make_reading_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        if let Ok(layout) = AnyLayout::decode(&bytes) {
            prop_assert_eq!(AnyLayout::decode(&layout.encode()?), Ok(layout));
        }
    }

    #[test]
    fn no_change_to_bytes_makes_reading_panic(
        pattern in any_pattern(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        if let Ok(mut bytes) = AnyLayout::from(pattern).encode() {
            *at.get_mut(&mut bytes) = byte;
            if let Ok(layout) = AnyLayout::decode(&bytes) {
                prop_assert_eq!(AnyLayout::decode(&layout.encode()?), Ok(layout));
            }
        }
    }
}
