//! Initialization, reset and shutdown of a `System`, alone and with two clients over the loopback,
//! and requests that are refused without a change of state.

use meshwork_collectives::JobSecret;
use meshwork_testing::{free_addresses, in_threads};

use super::*;
use crate::{CLIENT_ID, JOBS, USE_PARALLEL_EXECUTOR};

fn system() -> System {
    System::new(DeviceCounts::cpus(1))
}

fn alone() -> Environment {
    Environment::default()
}

fn cpus(count: u32) -> Initialize {
    Initialize::new().logical_cpu_devices(NonZeroU32::new(count).unwrap())
}

#[test]
fn a_system_is_initialised_once_until_it_is_shut_down() {
    let mut system = system();
    assert_eq!(system.shutdown(), Err(Error::NotInitialized));
    for _ in 0..2 {
        assert_eq!(system.initialize(&alone(), cpus(4)), Ok(DeviceType::Cpu));
        assert_eq!(
            system.config(&alone()).num_local_devices(DeviceType::Cpu),
            4
        );
        let device_type = DeviceType::Cpu;
        let again = system.initialize(&alone(), Initialize::new());
        assert_eq!(again, Err(Error::AlreadyInitialized { device_type }));
        assert_eq!(system.shutdown(), Ok(()));
        assert!(!system.is_initialized());
        assert_eq!(
            system.config(&alone()).num_local_devices(DeviceType::Cpu),
            1
        );
    }
}

#[test]
fn a_system_that_was_used_is_initialised_by_a_reset_only() {
    let mut system = system();
    let context = system.context(&alone()).unwrap();
    assert_eq!(context.client().devices("CPU").unwrap().len(), 1);
    assert_eq!(system.initialize(&alone(), cpus(2)), Err(Error::UsedBefore));
    let reset = system.initialize(&alone(), cpus(2).reset_context());
    assert_eq!(reset, Ok(DeviceType::Cpu));
    assert_eq!(
        system
            .initialized()
            .unwrap()
            .client()
            .devices("CPU")
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn what_cannot_be_had_is_refused_and_changes_nothing() {
    let refused = |environment: &Environment, asked| {
        let mut system = system();
        let error = system.initialize(environment, asked).unwrap_err();
        assert!(!system.is_initialized());
        assert_eq!(
            system.config(&alone()).num_local_devices(DeviceType::Cpu),
            1
        );
        error
    };
    let pathways = Environment::new([(USE_PARALLEL_EXECUTOR, "pw")]);
    assert_eq!(refused(&pathways, Initialize::new()), Error::Pathways);
    let device_type = DeviceType::Tpu;
    let tpu = Initialize::new().device_type(device_type).megacore();
    assert_eq!(refused(&alone(), tpu), Error::NoDevices { device_type });
    for (list, place) in [("", 0), ("a:1,b", 1), ("a:1,:2", 1), ("a:65536", 0)] {
        let address = list.split(',').nth(place).unwrap().to_owned();
        let environment = Environment::new([(JOBS, list)]);
        let expected = Error::JobAddress { address, place };
        assert_eq!(refused(&environment, cpus(2)), expected);
    }
}

#[test]
fn accelerators_need_a_cpu_each_and_a_backend() {
    let devices = DeviceCounts::cpus(1).with(DeviceType::Gpu, 2);
    let mut system = System::new(devices);
    let (cpus, accelerators) = (1, 2);
    let one = self::cpus(1).device_type(DeviceType::Gpu);
    assert_eq!(
        system.initialize(&alone(), one),
        Err(Error::TooFewCpus { cpus, accelerators })
    );
    let (device_type, count) = (DeviceType::Gpu, 2);
    assert_eq!(
        system.initialize(&alone(), Initialize::new()),
        Err(Error::NoBackend { device_type, count })
    );
    assert_eq!(
        system.initialize(&alone(), Initialize::new().device_type(DeviceType::Cpu)),
        Ok(DeviceType::Cpu)
    );
}

#[test]
fn one_listed_job_needs_no_secret_and_can_be_shut_down() {
    let environment = Environment::new([(JOBS, "localhost:1")]);
    let mut system = system();
    assert_eq!(
        system.initialize(&environment, cpus(2)),
        Ok(DeviceType::Cpu)
    );
    assert_eq!(system.shutdown(), Ok(()));
}

/// Initialises two clients that meet over the loopback, each as asked, and runs something on each.
fn two_clients<R: Send>(
    asked: [Initialize; 2],
    run: impl Fn(System, Result<DeviceType, Error>) -> R + Sync,
) -> Vec<R> {
    let jobs = free_addresses(2).join(",");
    let secret = JobSecret::generate().unwrap();
    in_threads(asked.into_iter().enumerate(), |(client, asked)| {
        let environment = [(JOBS, jobs.clone()), (CLIENT_ID, client.to_string())];
        let mut system = system();
        let asked = asked.secret(secret.clone());
        let outcome = system.initialize(&Environment::new(environment), asked);
        run(system, outcome)
    })
}

#[test]
fn clients_meet_and_part() {
    let parted = two_clients([cpus(2), cpus(2)], |mut system, outcome| {
        assert_eq!(outcome, Ok(DeviceType::Cpu));
        system.initialized().unwrap().barrier("both").unwrap();
        system.shutdown()
    });
    assert_eq!(parted, [Ok(()), Ok(())]);
}

#[test]
fn clients_that_ask_for_different_devices_are_told_the_same() {
    let asked = [cpus(2), cpus(2).device_type(DeviceType::Gpu)];
    let told = two_clients(asked, |system, outcome| {
        assert!(!system.is_initialized());
        outcome.unwrap_err()
    });
    let names_the_job = |error: &Error| {
        matches!(
            error,
            Error::ClientsDisagree {
                subject: Subject::Job,
                ..
            }
        )
    };
    let text = told[0].to_string();
    assert!(text.contains("client 0 has \"CPU of "), "{text}");
    assert!(text.contains("client 1 has \"GPU of "), "{text}");
    assert!(told.iter().all(names_the_job), "{told:?}");
    assert_eq!(told[0], told[1]);
}
