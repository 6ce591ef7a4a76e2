//! Lists of devices: spelling is kept, runs are found, memory per device is bounded, and duplicates
//! are found as by pairwise comparison.

use proptest::prelude::*;

use super::*;

fn list(texts: &[String]) -> Devices {
    Devices::parse(texts).unwrap()
}

#[track_caller]
fn check(texts: &[String]) {
    let devices = list(texts);
    assert!(
        devices.texts().eq(texts.iter().map(String::as_str)),
        "{texts:?}"
    );
    assert_eq!(
        (devices.len(), devices.is_empty()),
        (texts.len(), texts.is_empty())
    );
    let specs: Vec<DeviceSpec> = texts
        .iter()
        .map(|text| DeviceSpec::parse(text).unwrap())
        .collect();
    assert!(devices.iter().eq(specs.iter().cloned()), "{texts:?}");
    for (position, spec) in specs.iter().enumerate() {
        assert_eq!(devices.get(position).as_ref(), Some(spec), "{texts:?}");
    }
    for (position, text) in texts.iter().enumerate() {
        assert_eq!(devices.text(position).as_deref(), Some(text.as_str()));
    }
    assert_eq!(devices.get(texts.len()), None);
    let canonical: Devices = specs.into_iter().collect();
    assert!(
        canonical
            .texts()
            .eq(canonical.iter().map(|spec| spec.to_string()))
    );
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

#[test]
fn devices_are_written_as_they_were_read() {
    check(&texts(&[]));
    check(&texts(&[
        "CPU:0",
        "CPU:1",
        "/cpu:2",
        "/device:CPU:3",
        "cpu:3",
    ]));
    check(&texts(&["CPU:0", "CPU:0", "CPU:0"]));
    check(&texts(&["/device:CPU:*", "CPU", "GPU:*"]));
    check(&texts(&["GPU:007", "GPU:8", "gpu:9/", "/gpu:4294967295"]));
    check(&texts(&[
        "GPU:5/task:5",
        "GPU:5/task:6",
        "/task:7/GPU:5",
        "/task:8/GPU:6",
    ]));
    check(&texts(&["/job:w5/task:1/gpu:5", "/job:w5/task:1/gpu:6"]));
    check(&texts(&[
        "/replica:0/job:w/device:GPU:0",
        "/task:0",
        "/job:w",
    ]));
}

#[test]
fn the_devices_of_a_task_take_one_run_however_they_are_written() {
    for host in ["/job:w/replica:0/task:3/device:GPU:", "/gpu:", "GPU:"] {
        let texts: Vec<String> = (0..1000).map(|index| format!("{host}{index}")).collect();
        check(&texts);
        let devices = list(&texts);
        assert_eq!((devices.runs.len(), devices.families.len()), (1, 1));
        assert_eq!(Devices::counted(&texts[0], 1000), Ok(devices));
    }
}

#[test]
fn the_devices_of_many_tasks_share_a_family() {
    let host = DeviceSpec::parse("/job:w/replica:0").unwrap();
    let tpu = DeviceSpec::parse("TPU").unwrap();
    let devices = Devices::of_tasks(&host, 3, &tpu, 2).unwrap();
    let names = (0..3).flat_map(|task| {
        (0..2).map(move |index| format!("/job:w/replica:0/task:{task}/device:TPU:{index}"))
    });
    let names: Vec<String> = names.collect();
    check(&names);
    assert_eq!(list(&names), devices);
    assert_eq!((devices.runs.len(), devices.families.len()), (3, 1));
    assert_eq!(Devices::of_tasks(&host, 0, &tpu, 2).unwrap().len(), 0);
    assert_eq!(Devices::of_tasks(&host, 2, &tpu, 0).unwrap().len(), 0);
    let bare = Devices::of_tasks(&host, 1, &host, 1);
    assert!(matches!(
        bare,
        Err(Error::DeviceWithoutType { position: 0, .. })
    ));
}

#[test]
fn a_device_takes_24_bytes_where_nothing_is_shared() {
    assert_eq!(size_of::<Run>(), 24);
    let (host, gpu) = (
        DeviceSpec::parse("/job:w").unwrap(),
        DeviceSpec::parse("GPU").unwrap(),
    );
    let devices = Devices::of_tasks(&host, 1000, &gpu, 1).unwrap();
    assert_eq!((devices.runs.capacity(), devices.families.len()), (1000, 1));
}

/// The limit is one of the whole process, so the test runs itself in a process of its own.
#[cfg(target_os = "linux")]
#[test]
fn more_tasks_than_memory_holds_are_refused() {
    const ALONE: &str = "MESHWORK_TEST_WITHOUT_MEMORY";
    if std::env::var_os(ALONE).is_some() {
        let [host, gpu] = ["/job:w", "GPU"].map(|text| DeviceSpec::parse(text).unwrap());
        let devices = Devices::of_tasks(&host, u32::MAX, &gpu, 1);
        assert_eq!(devices, Err(Error::TooManyDevices));
        return;
    }
    let (_, module) = module_path!().split_once("::").unwrap();
    let name = format!("{module}::more_tasks_than_memory_holds_are_refused");
    let ended = std::process::Command::new("sh")
        .args(["-c", "ulimit -v 16777216 && exec \"$0\" --exact \"$1\""])
        .arg(std::env::current_exe().unwrap())
        .arg(name)
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(said.contains("1 passed"), "{ended:?}");
}

#[test]
fn indices_are_not_counted_above_the_largest() {
    assert_eq!(
        Devices::counted("GPU:4294967295", 2),
        Err(Error::TooManyDevices)
    );
    assert!(Devices::counted("GPU:4294967295", 1).is_ok());
    assert_eq!(
        Devices::counted("GPU:1", u32::MAX as usize + 1),
        Err(Error::TooManyDevices)
    );
    assert_eq!(Devices::counted("GPU:0", 0), Ok(Devices::default()));
}

#[test]
fn one_device_of_two_spellings_is_given_twice() {
    let twice = |names: &[&str]| list(&texts(names)).check_distinct();
    let device = DeviceSpec::parse("GPU:2").unwrap();
    let (first, second) = (1, 3);
    assert_eq!(
        twice(&["GPU:1", "GPU:2", "GPU:5", "/gpu:2"]),
        Err(Error::DuplicateDevice {
            device,
            first,
            second
        })
    );
    assert_eq!(twice(&["CPU:0", "/cpu:0", "/device:CPU:0"]), Ok(()));
    assert!(twice(&["CPU:0", "CPU:0", "CPU:1"]).is_err());
    assert_eq!(twice(&["/task:1/GPU:0", "/task:0/GPU:0", "GPU:0"]), Ok(()));
}

fn any_device() -> impl Strategy<Value = String> {
    let host = prop_oneof![
        Just(""),
        Just("/job:w"),
        Just("/task:1"),
        Just("/task:2"),
        Just("/job:w/replica:0/task:1")
    ];
    let kind = prop_oneof![Just("/device:GPU"), Just("/gpu"), Just("/device:custom")];
    (host, kind, 0_u32..4).prop_map(|(host, kind, index)| format!("{host}{kind}:{index}"))
}

proptest! {
    #[test]
    fn any_devices_are_written_as_they_were_read(texts in proptest::collection::vec(any_device(), 0..12)) {
        check(&texts);
    }

    #[test]
    fn a_duplicate_is_found_where_pairwise_comparison_finds_one(
        texts in proptest::collection::vec(any_device(), 0..8),
    ) {
        let devices = list(&texts);
        let specs: Vec<DeviceSpec> = devices.iter().collect();
        let twice = (0..specs.len()).any(|i| specs[..i].contains(&specs[i]));
        match devices.check_distinct() {
            Ok(()) => prop_assert!(!twice, "{texts:?}"),
            Err(Error::DuplicateDevice { device, first, second }) => {
                prop_assert!(first < second);
                prop_assert_eq!(&specs[first], &device);
                prop_assert_eq!(&specs[second], &device);
            }
            Err(error) => prop_assert!(false, "{error}"),
        }
    }
}
