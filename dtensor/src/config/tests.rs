//! The `DTENSOR_*` environment: job lists, client numbers, the order of job names, and the
//! preferred device type, with TensorFlow's rules.

use super::*;

fn config(variables: &[(&str, &str)]) -> Config {
    let variables = variables.iter().copied();
    Config::new(Environment::new(variables), DeviceCounts::cpus(2))
}

fn jobs(list: &str) -> Result<Vec<String>, Error> {
    config(&[(JOBS, list)]).jobs()
}

#[test]
fn a_process_without_a_list_is_alone_and_one_with_an_empty_list_is_not() {
    let alone = config(&[]);
    assert_eq!(alone.is_local_mode(), Ok(true));
    assert_eq!(
        alone.full_job_name().as_deref(),
        Ok("localhost/replica:0/task:0")
    );
    let empty = config(&[(JOBS, "")]);
    assert_eq!(
        (empty.is_local_mode(), empty.num_clients()),
        (Ok(false), Ok(1))
    );
    assert_eq!(empty.jobs(), Ok(vec![String::new()]));
}

#[test]
fn numbers_are_read_as_python_does() {
    let cases = [
        ("7", Some(7)),
        (" -1\n", Some(-1)),
        ("+1_000", Some(1000)),
        ("99999999999999999999", Some(i64::MAX)),
        ("", None),
        ("1_", None),
        ("__1", None),
        ("1.0", None),
        ("0x1", None),
        ("- 1", None),
    ];
    for (text, expected) in cases {
        assert_eq!(whole_number(text), expected, "{text:?}");
    }
}

#[test]
fn names_of_bns_are_sorted_and_others_need_not_be() {
    assert!(jobs("b:2,a:1").is_ok());
    assert!(jobs("/bns/l/9:80,/bns/l/10:80").is_ok());
    assert!(jobs("/bns/l/a,/bns/l/b").is_ok());
    assert_eq!(
        jobs("/bns/l/0,/bns/l/2,/bns/l/1"),
        Err(Error::JobsUnsorted {
            first: "/bns/l/2".into(),
            second: "/bns/l/1".into(),
            place: 1
        })
    );
    assert_eq!(
        jobs("/bns/l/1,host:1"),
        Err(Error::JobsMixed {
            first: "/bns/l/1".into(),
            second: "host:1".into()
        })
    );
}

#[test]
fn the_number_of_this_process_is_below_how_many_there_are() {
    let id = |id: &str| config(&[(JOBS, "a:1,b:2"), (CLIENT_ID, id)]).client_id();
    assert_eq!(id(" 1 "), Ok(1));
    for outside in [2, -1] {
        let expected = Error::ClientIdOutside {
            id: outside,
            clients: 2,
        };
        assert_eq!(id(&outside.to_string()), Err(expected));
    }
    let value = "one".to_owned();
    assert_eq!(id("one"), Err(Error::ClientIdText { value }));
    let task = 1;
    assert_eq!(
        config(&[]).full_job_name_of(1),
        Err(Error::TaskOfOne { task })
    );
}

#[test]
fn a_client_has_the_devices_of_the_process() {
    let client = config(&[(JOBS, "a:1,b:2"), (CLIENT_ID, "1")])
        .client()
        .unwrap();
    assert_eq!(client.host().to_string(), "/job:worker/replica:0/task:1");
    assert_eq!(client.devices("cpu").unwrap().len(), 2);
    assert!(client.devices("GPU").is_err());
}

#[test]
fn the_fastest_devices_are_preferred() {
    let with = |kind| {
        let devices = DeviceCounts::cpus(1).with(kind, 2);
        Config::new(Environment::default(), devices).preferred_device_type()
    };
    for kind in [DeviceType::Cpu, DeviceType::Gpu, DeviceType::Tpu] {
        assert_eq!(with(kind), kind);
    }
}

#[test]
fn pathways_is_asked_for_by_its_name_only() {
    let executor = |name| config(&[(USE_PARALLEL_EXECUTOR, name)]).backend_is_pw();
    assert!(executor("pw"));
    assert!(!executor("streaming"));
    assert!(!executor("PW"));
}
