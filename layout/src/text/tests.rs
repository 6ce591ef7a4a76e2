//! The text form of layouts: round trips, TensorFlow's spellings, refusals by cause, and no panic
//! on arbitrary text.

use proptest::prelude::*;

use super::*;
use crate::arbitrary::any_pattern;

const MESH_TEXT: &str =
    "m|x=2,y=4,z=3|0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23||";

fn mesh() -> Mesh {
    MESH_TEXT.parse().unwrap()
}

#[track_caller]
fn check_specs(text: &str, shown: &str) {
    let layout = Layout::from_specs(text, &mesh()).unwrap();
    assert_eq!(layout.to_specs(), shown, "{text:?}");
    assert_eq!(Layout::from_specs(shown, &mesh()), Ok(layout), "{shown:?}");
}

#[test]
fn specs_are_read_with_and_without_the_last_comma() {
    check_specs("", "");
    check_specs("x", "x");
    check_specs("x,unsharded,", "x,unsharded");
    check_specs("z|x,y", "z|x,y");
    check_specs(" partial:max:z", " partial:max:z");
    check_specs(" partial:sum:y,x,", " partial:sum:x,y");
    check_specs("x,unsharded, partial:min:y", "x,unsharded partial:min:y");
}

#[test]
fn what_is_no_spec_is_refused() {
    let refused = |text| Layout::from_specs(text, &mesh()).unwrap_err();
    for text in [
        "x,,y",
        ",",
        "x|",
        "|x",
        "x|unsharded",
        "match",
        "any,x",
        "q",
        "X",
        "x y",
    ] {
        assert!(matches!(refused(text), Error::Mesh(_)), "{text:?}");
    }
    assert!(matches!(refused("x,x"), Error::RepeatedDim { .. }));
    assert!(matches!(refused("x|x"), Error::RepeatedDim { .. }));
    assert!(matches!(
        refused("x, partial:sum:x"),
        Error::CutAndPartial { .. }
    ));
}

#[test]
fn what_is_partial_says_how_it_is_reduced() {
    let refused = |text| Layout::from_specs(text, &mesh()).unwrap_err().to_string();
    assert_eq!(
        refused("x partial:y"),
        "partial mesh dimensions \"y\" have no reduction: write them such as partial:sum:y"
    );
    assert_eq!(
        refused("x partial:mean:y"),
        "\"mean\" is no reduction: use one of sum, product, min, max"
    );
}

#[track_caller]
fn check(head: &str, shown: &str) {
    let read = AnyLayout::parse(&format!("{head} mesh:{MESH_TEXT}")).unwrap();
    let expected = format!("{shown} mesh:{MESH_TEXT}");
    assert_eq!(read.to_string(), expected);
    assert_eq!(AnyLayout::parse(&expected), Ok(read));
}

#[test]
fn texts_are_written_as_they_were_read() {
    for head in [
        "sharding_specs:",
        "parted:",
        "sharding_specs:x,unsharded,",
        "parted:unsharded,z,",
        "sharding_specs:x,match,any,any,",
        "sharding_specs:z|x,y,",
        "sharding_specs:unsharded, partial:sum:x,",
        "parted:match, partial:product:x,z,",
        "sharding_specs: partial:max:y,",
    ] {
        check(head, head);
    }
    check("sharding_specs:scalar,", "sharding_specs:");
    check(
        "sharding_specs: partial:min:z,y,",
        "sharding_specs: partial:min:y,z,",
    );
}

#[test]
fn a_mesh_may_go_without_its_word() {
    let read = AnyLayout::parse("parted:x, m|x=2|0,1||").unwrap();
    assert_eq!(read.to_string(), "parted:x, mesh:m|x=2|0,1||");
}

#[test]
fn blanks_in_names_are_kept() {
    for text in [
        "sharding_specs:x, mesh:my mesh|x=2|0,1||",
        "sharding_specs: x,a b, mesh:| x=2,a b=1|0,1||",
        "sharding_specs: mesh: mesh:|x=2|0,1||",
    ] {
        assert_eq!(AnyLayout::parse(text).unwrap().to_string(), text);
    }
}

#[test]
fn a_dimension_named_scalar_is_one() {
    let text = "sharding_specs:scalar, mesh:|scalar=2|0,1||";
    let layout: Layout = text.parse().unwrap();
    assert_eq!((layout.rank(), layout.to_string().as_str()), (1, text));
}

#[test]
fn one_device_or_none_has_its_own_text() {
    let text = "maximal:true, mesh:/job:w/replica:0/task:0/device:GPU:1";
    let alone = AnyLayout::parse(text).unwrap();
    assert_eq!(alone.to_string(), text);
    assert_eq!(
        AnyLayout::from_single_device_mesh(&alone.mesh()),
        Ok(alone.clone())
    );
    assert!(matches!(Layout::try_from(alone), Err(Error::Mesh(_))));
    let none = AnyLayout::parse("empty_layout").unwrap();
    assert_eq!(
        (none.to_string().as_str(), none.mesh()),
        ("empty_layout", AnyMesh::Empty)
    );
    assert_eq!(Layout::try_from(none), Err(Error::EmptyLayout));
    assert_eq!(
        AnyLayout::from_device("CPU:0").unwrap().to_string(),
        "maximal:true, mesh:CPU:0"
    );
    assert!(AnyLayout::from_device("").is_err());
}

#[test]
fn texts_that_are_no_layout_are_refused_by_what_is_wrong() {
    let refused = |text: &str| AnyLayout::parse(text).unwrap_err();
    for text in [
        "",
        "x",
        "sharding_specs:x,",
        "sharding_specs:x,mesh:|x=2|0,1||",
        "a b c",
    ] {
        let text = text.to_owned();
        assert_eq!(refused(&text), Error::LayoutText { text: text.clone() });
    }
    for (text, head) in [
        (" ", ""),
        ("x, mesh:|x=2|0,1||", "x,"),
        ("Parted:x, mesh:|x=2|0,1||", "Parted:x,"),
        (
            "maximal:false, mesh:/job:w/replica:0/task:0/device:GPU:1",
            "maximal:false,",
        ),
    ] {
        let head = head.to_owned();
        assert_eq!(refused(text), Error::LayoutTypeText { text: head });
    }
    let specs = "x,y".to_owned();
    assert_eq!(
        refused("sharding_specs:x,y mesh:|x=1,y=1|0||"),
        Error::LastComma { specs }
    );
    assert_eq!(
        refused("maximal:true, mesh:|x=2|0,1||"),
        Error::NotOneDevice
    );
    for text in [
        "sharding_specs:x, mesh:",
        "sharding_specs: mesh:empty_mesh",
        "parted:x, mesh:/job:w/replica:0/task:0/device:GPU:1",
        "sharding_specs:q, mesh:|x=2|0,1||",
        "sharding_specs:, mesh:|x=2|0,1||",
        "sharding_specs: x, mesh:|x=2|0,1||",
        "sharding_specs:scalar,x, mesh:|x=2|0,1||",
    ] {
        assert!(matches!(refused(text), Error::Mesh(_)), "{text:?}");
    }
    assert!(matches!(
        refused("sharding_specs:match,match, mesh:|x=2|0,1||"),
        Error::RepeatedMatch {
            first: 0,
            second: 1
        }
    ));
}

proptest! {
    #[test]
    fn every_layout_is_read_back_from_its_text(pattern in any_pattern()) {
        prop_assert_eq!(&pattern.to_string().parse::<LayoutPattern>()?, &pattern);
        if let Ok(layout) = Layout::try_from(pattern) {
            prop_assert_eq!(&layout.to_string().parse::<Layout>()?, &layout);
            let specs = Layout::from_specs(&layout.to_specs(), layout.mesh())?;
            prop_assert_eq!(specs.specs().collect::<Vec<_>>(), layout.specs().collect::<Vec<_>>());
            prop_assert!(specs.partial().eq(layout.partial()));
            prop_assert_eq!(specs.reduction(), layout.reduction());
        }
    }

    #[test]
    fn no_text_makes_reading_panic(
        text in "(sharding_specs|parted|maximal)?:?([xyma|]{0,2},?){0,4} ?(partial:(sum)?:?[xy,]{0,3})? ?(mesh:)?(a?\\|(x=2|y=1)?(,y=2)?\\|[0,1]{0,3}\\|\\||\\PC{0,9})",
    ) {
        match AnyLayout::parse(&text) {
            Ok(layout) => prop_assert_eq!(AnyLayout::parse(&layout.to_string()), Ok(layout)),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
