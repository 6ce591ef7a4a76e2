//! Device names: short and long forms, the canonical form, merging, refusals, and no panic on
//! arbitrary text.

use proptest::prelude::*;

use super::*;

#[track_caller]
fn check(spec: &str, canonical: &str) {
    let parsed = DeviceSpec::parse(spec).unwrap();
    assert_eq!(parsed.to_string(), canonical, "{spec}");
    assert_eq!(DeviceSpec::parse(canonical), Ok(parsed), "{spec}");
}

#[track_caller]
fn check_merge(base: &str, other: &str, expected: &str) {
    let spec = |text| DeviceSpec::parse(text).unwrap();
    assert_eq!(spec(base).merge(&spec(other)), spec(expected));
}

#[test]
fn parts_may_come_in_any_order_and_with_any_slashes() {
    check("", "");
    check("//", "");
    check(
        "/job:worker/replica:0/task:3/device:GPU:7",
        "/job:worker/replica:0/task:3/device:GPU:7",
    );
    check(
        "device:GPU:7/task:3//job:worker",
        "/job:worker/task:3/device:GPU:7",
    );
    check("/replica:1/task:2", "/replica:1/task:2");
    check("/job:*", "/job:*");
    check("/job:worker/job:b", "/job:b");
    check(
        "/job:a_b-c/device:TPU_SYSTEM:0",
        "/job:a_b-c/device:TPU_SYSTEM:0",
    );
}

#[test]
fn short_forms_are_for_known_types_in_any_case() {
    for spec in ["CPU:0", "/CPU:0/", "//cpu:0", "Cpu:0", "/device:cpu:0"] {
        check(spec, "/device:CPU:0");
    }
    check("/job:w/tpu:1", "/job:w/device:TPU:1");
    check("GPU", "/device:GPU:*");
    check("GPU:*", "/device:GPU:*");
    check("/device:GPU:*", "/device:GPU:*");
}

#[test]
fn other_types_keep_their_case() {
    check("/device:custom:3", "/device:custom:3");
    check("/device:tpu:3", "/device:tpu:3");
}

#[test]
fn a_part_that_says_nothing_is_refused() {
    for part in [
        "foo",
        "foo:1",
        "XLA_CPU:0",
        "device:GPU",
        "job",
        "job:w:1",
        "job:a:b:c:d",
        ":x",
        " CPU:0",
    ] {
        let spec = format!("/task:0/{part}");
        let expected = Error::DevicePart {
            spec: spec.clone(),
            part: part.into(),
        };
        assert_eq!(DeviceSpec::parse(&spec), Err(expected));
    }
}

#[test]
fn a_number_that_is_none_is_refused() {
    for part in [
        "task:*",
        "task:x",
        "replica:",
        "task:-1",
        "CPU:x",
        "device:GPU:4294967296",
    ] {
        let expected = Error::DeviceNumber {
            spec: part.into(),
            part: part.into(),
        };
        assert_eq!(DeviceSpec::parse(part), Err(expected));
    }
}

#[test]
fn a_second_device_is_refused() {
    let (spec, part) = ("/CPU:0/device:GPU:0".to_owned(), "device:GPU:0".to_owned());
    assert_eq!(
        DeviceSpec::parse("/CPU:0/device:GPU:0"),
        Err(Error::TwoDevices { spec, part })
    );
}

#[test]
fn a_word_that_could_not_be_read_back_is_refused() {
    for word in ["", "a/b", "a:b", "a,b", "a|b", "a b", "a\n"] {
        let expected = Error::DeviceWord { word: word.into() };
        assert_eq!(DeviceSpec::default().with_job(word), Err(expected.clone()));
        assert_eq!(DeviceSpec::default().with_device(word, None), Err(expected));
    }
    assert_eq!(
        DeviceSpec::parse("/job:"),
        Err(Error::DeviceWord {
            word: String::new()
        })
    );
}

#[test]
fn merging_takes_part_by_part() {
    let base = "/job:worker/replica:0/task:1";
    check_merge(base, "CPU:0", "/job:worker/replica:0/task:1/device:CPU:0");
    check_merge(
        base,
        "/job:other/device:GPU:2",
        "/job:other/replica:0/task:1/device:GPU:2",
    );
    check_merge("CPU:0", "GPU:1", "GPU:1");
    check_merge("CPU:3", "GPU", "GPU:3");
    check_merge("CPU:3", "/task:1", "/task:1/CPU:3");
    check_merge("", "/cpu:0", "CPU:0");
}

#[test]
fn parts_read_back_as_they_were_given() {
    let spec = DeviceSpec::parse("/job:w/replica:1/task:2/gpu:3").unwrap();
    assert_eq!(
        (spec.job(), spec.replica(), spec.task()),
        (Some("w"), Some(1), Some(2))
    );
    assert_eq!(
        (spec.device_type(), spec.device_index()),
        (Some("GPU"), Some(3))
    );
    let built = DeviceSpec::default()
        .with_job("w")
        .unwrap()
        .with_replica(1)
        .with_task(2);
    assert_eq!(built.with_device("gpu", Some(3)), Ok(spec));
    assert_eq!(DeviceSpec::default().device_type(), None);
}

fn any_spec() -> impl Strategy<Value = DeviceSpec> {
    use proptest::option::of;
    (
        of("[a-z_*-]{1,4}"),
        of(0_u32..3),
        of(any::<u32>()),
        of(("[A-Za-z_]{1,4}", of(0_u32..9))),
    )
        .prop_map(|(job, replica, task, device)| {
            let mut spec = DeviceSpec {
                replica,
                task,
                ..DeviceSpec::default()
            };
            if let Some(job) = job {
                spec = spec.with_job(job).unwrap();
            }
            if let Some((kind, index)) = device {
                spec = spec.with_device(kind, index).unwrap();
            }
            spec
        })
}

proptest! {
    #[test]
    fn the_shown_form_reads_back(spec in any_spec()) {
        prop_assert_eq!(spec.to_string().parse::<DeviceSpec>()?, spec);
    }

    #[test]
    fn merging_is_reading_one_after_the_other(
        base in any_spec(),
        other in any_spec().prop_filter("a second device is refused", |spec| spec.device.is_none()),
    ) {
        prop_assert_eq!(DeviceSpec::parse(&format!("{base}{other}"))?, base.merge(&other));
    }

    #[test]
    fn no_text_makes_it_panic(spec in "[/:*a-zA-Z0-9é]{0,20}|\\PC{0,20}|(?s).{0,8}") {
        if let Err(error) = DeviceSpec::parse(&spec) {
            prop_assert!(!error.to_string().contains(char::is_control));
        }
    }
}
