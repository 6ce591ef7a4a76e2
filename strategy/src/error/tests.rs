use std::io::ErrorKind;

use meshwork_checkpoint::Error as CheckpointError;
use meshwork_cluster_resolver::{
    CommandProblem, Error as ClusterError, FluxProblem, SchedulerError, ServiceError,
};
use meshwork_collectives::ConfigError;

use super::*;

#[test]
fn what_main_prints_is_a_sentence_with_its_causes() {
    let secret = Error::from(ConfigError::SecretMissing);
    assert_eq!(
        format!("{secret:?}"),
        ConfigError::SecretMissing.to_string()
    );
    assert_eq!(secret.exit_status(), 78);
    let damaged = Error::from(SnapshotDamage::Format);
    let cause = SnapshotDamage::Format.to_string();
    assert_eq!(format!("{damaged:?}"), format!("{damaged}: {cause}"));
}

#[test]
fn a_cluster_that_may_be_known_later_is_no_configuration_to_change() {
    let pod = "default/worker-1".to_owned();
    let pending = ServiceError::PodNotRunning {
        pod: pod.clone(),
        phase: "Pending".to_owned(),
    };
    let flux = |problem| SchedulerError::Flux { problem };
    let late = CommandProblem::TimedOut { seconds: 10 };
    let cases: [(ClusterError, bool, u8); 5] = [
        (pending.into(), true, 1),
        (ServiceError::PodWithoutAddress { pod }.into(), true, 1),
        (flux(late.into()).into(), true, 1),
        (flux(FluxProblem::Unknown).into(), false, 78),
        (ServiceError::NoTls.into(), false, 78),
    ];
    for (error, is_retryable, status) in cases {
        let error = Error::from(error);
        assert_eq!(error.is_retryable(), is_retryable, "{error}");
        assert_eq!(error.exit_status(), status, "{error}");
    }
}

#[test]
fn what_says_to_start_or_save_again_is_retryable() {
    let (rank, kind) = (Rank::new(1), ErrorKind::WouldBlock);
    let behind = LowCommunicationError::Behind {
        rank,
        sealed: 2,
        furthest: 5,
    };
    let concurrent = CheckpointError::Concurrent {
        folder: "saves".into(),
    };
    let link = CheckpointError::Link { path: "a".into() };
    let cases: [(Error, bool); 8] = [
        (behind.into(), true),
        (LowCommunicationError::NotStarted.into(), true),
        (LowCommunicationError::Standing.into(), false),
        (concurrent.into(), true),
        (link.into(), false),
        (Error::NoThread { kind }, true),
        (Error::NoWriter { kind }, true),
        (StateError::HalfTaken { rank }.into(), true),
    ];
    for (error, is_retryable) in cases {
        assert_eq!(error.is_retryable(), is_retryable, "{error}");
        assert_eq!(error.exit_status(), 1, "{error}");
    }
}
