//! What holds for clusters, whatever is read: shared by the fuzz targets and by the test that
//! replays their corpus. A check panics when it does not hold.
#![allow(dead_code, reason = "a fuzz target has one of them")]

use meshwork_cluster_resolver::{ClusterSpec, TfConfig, slurm};

/// A cluster that is read from bytes is written so that it reads the same again.
pub(crate) fn cluster_def(bytes: &[u8]) {
    if let Ok(spec) = ClusterSpec::from_proto(bytes) {
        let written = spec.to_proto();
        assert_eq!(ClusterSpec::from_proto(&written).as_ref(), Ok(&spec));
        assert_eq!(ClusterSpec::new(spec.as_dict()), Ok(spec));
    }
}

/// Every task of a cluster that is read from text has the address that it is listed with.
pub(crate) fn tf_config(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match TfConfig::parse(&text) {
        Ok(config) => {
            let spec = config.cluster();
            for (job, index, address) in spec.tasks() {
                assert_eq!(spec.task_address(job, index), Ok(address));
            }
            assert_eq!(ClusterSpec::new(spec.as_dict()).as_ref(), Ok(spec));
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
}

/// Hosts have neither brackets nor separators in their names, so each reads as itself.
pub(crate) fn host_list(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match slurm::hosts(&text) {
        Ok(hosts) => {
            for host in hosts.into_iter().take(64) {
                assert_eq!(slurm::hosts(&host), Ok(vec![host]), "{text}");
            }
        }
        Err(problem) => assert!(!problem.to_string().contains('\n'), "{problem}"),
    }
}
