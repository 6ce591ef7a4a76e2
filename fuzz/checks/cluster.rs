//! What holds for clusters, whatever is read: shared by the fuzz targets and by the test that
//! replays their corpus. A check panics when it does not hold.
#![allow(dead_code, reason = "a fuzz target has one of them")]

use meshwork_cluster_resolver::{
    Cluster, ClusterResolver, ClusterSpec, LsfResolver, SageMakerResolver, SlurmResolver, TfConfig,
    TfConfigResolver, Variables, slurm,
};

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

/// Lines of `NAME=VALUE`, in which a scheduler says who is in the cluster: each resolver reads a
/// cluster of which every task has a master, or says on one line why it does not.
pub(crate) fn environment(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let variables = text.lines().filter_map(|line| line.split_once('='));
    // The variables that name a file, which is not among what is read here.
    let variables =
        variables.filter(|(name, _)| !["SLURM_HOSTFILE", "LSB_DJOB_HOSTFILE"].contains(name));
    let variables = Variables::fixed(variables);
    let resolvers: [Box<dyn ClusterResolver>; 4] = [
        Box::new(TfConfigResolver::from_variables(variables.clone())),
        Box::new(SlurmResolver::from_variables(variables.clone()).without_scontrol()),
        Box::new(LsfResolver::from_variables(variables.clone())),
        Box::new(SageMakerResolver::from_variables(variables)),
    ];
    for resolver in resolvers {
        let cluster = resolver.snapshot().unwrap_or_else(Cluster::unknown);
        let spec = one_line(cluster.spec());
        let tasks = spec.into_iter().flat_map(ClusterSpec::tasks);
        for (job, index, _) in tasks.take(64) {
            let master = cluster.master(Some(job), Some(index), None);
            assert!(master.is_ok(), "{text}");
        }
        one_line(cluster.task_type());
        one_line(cluster.task_id());
        one_line(cluster.num_accelerators());
        assert!(!cluster.explanation().to_string().is_empty());
    }
}

fn one_line<T>(answer: Result<T, meshwork_cluster_resolver::Error>) -> Option<T> {
    if let Err(error) = &answer {
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    answer.ok()
}
