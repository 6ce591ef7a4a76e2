//! The Slurm resolver as a task of a step sees it.

use super::*;

/// The variables of one rank of a step on n8 (2 tasks), n9 and n10, with these added.
fn variables(rank: &str, more: &[(&str, &str)]) -> Variables {
    let step = [
        ("SLURM_PROCID", rank),
        ("SLURM_STEP_NUM_TASKS", "4"),
        ("SLURM_STEP_NODELIST", "n[8-10]"),
        ("SLURM_STEP_TASKS_PER_NODE", "2,1(x2)"),
    ];
    Variables::fixed(step.iter().chain(more).copied())
}

fn resolver(rank: &str, more: &[(&str, &str)]) -> SlurmResolver {
    SlurmResolver::from_variables(variables(rank, more)).without_scontrol()
}

fn addresses(resolver: &SlurmResolver, job: &str) -> Vec<String> {
    let spec = resolver.cluster_spec().unwrap();
    let tasks = spec.job_tasks(job).unwrap();
    tasks.map(|address| address.unwrap().to_owned()).collect()
}

#[test]
fn ranks_are_workers_in_the_order_of_the_node_list() {
    let resolver = resolver("3", &[]);
    assert_eq!(
        addresses(&resolver, "worker"),
        ["n8:8888", "n8:8889", "n9:8888", "n10:8888"]
    );
    assert_eq!(resolver.task_type(), Ok(Some("worker".to_owned())));
    assert_eq!(resolver.task_id(), Ok(Some(3)));
    assert_eq!(resolver.num_accelerators(), Ok(Accelerators::new()));
}

#[test]
fn jobs_take_ranks_in_the_order_of_their_names() {
    let jobs = [("worker", 2), ("chief", 1), ("ps", 1), ("evaluator", 0)];
    let resolver = resolver("2", &[]).with_jobs(jobs);
    let spec = resolver.cluster_spec().unwrap();
    assert!(spec.jobs().eq(["chief", "evaluator", "ps", "worker"]));
    assert_eq!(addresses(&resolver, "ps"), ["n8:8889"]);
    assert_eq!(addresses(&resolver, "worker"), ["n9:8888", "n10:8888"]);
    let own = (resolver.task_type(), resolver.task_id());
    assert_eq!(own, (Ok(Some("worker".to_owned())), Ok(Some(0))));
}

#[test]
fn a_master_is_that_of_the_task_asked_for_or_of_this_one() {
    let resolver = resolver("1", &[]);
    let master = |job, id, layer| resolver.master(job, id, layer).unwrap();
    assert_eq!(master(None, None, None), "grpc://n8:8889");
    assert_eq!(master(Some("worker"), Some(2), Some("x")), "x://n9:8888");
    assert_eq!(master(None, Some(3), Some("")), "n10:8888");
    assert!(matches!(
        resolver.master(Some("worker"), Some(4), None),
        Err(Error::UnknownTask { .. })
    ));
}

#[test]
fn nodes_may_have_other_hosts_and_ports() {
    let hosts = [("n8", "fd00::8"), ("n9", "node9.example")];
    let resolver = resolver("0", &[]).with_hosts(hosts).with_port_base(60_000);
    assert_eq!(
        addresses(&resolver, "worker"),
        [
            "[fd00::8]:60000",
            "[fd00::8]:60001",
            "node9.example:60000",
            "n10:60000"
        ]
    );
    let resolver = resolver.with_port_base(u16::MAX);
    let (node, tasks, base) = ("n8".to_owned(), 2, u16::MAX);
    let expected = SlurmError::Ports { node, tasks, base };
    assert_eq!(resolver.cluster_spec(), Err(expected.into()));
}

#[test]
fn gpus_are_those_of_each_task() {
    let gpus = |resolver: SlurmResolver| resolver.num_accelerators();
    let of = |count| Ok(Accelerators::from([("GPU".to_owned(), count)]));
    let visible = [("CUDA_VISIBLE_DEVICES", "0,1,2,3,4")];
    assert_eq!(gpus(resolver("0", &visible)), of(2));
    assert_eq!(gpus(resolver("0", &visible).with_gpus_per_task(1)), of(1));
    assert_eq!(gpus(resolver("0", &visible).with_gpus_per_node(8)), of(4));
    let few = resolver("0", &visible).with_gpus_per_task(3);
    assert!(matches!(
        few.num_accelerators(),
        Err(Error::Slurm(SlurmError::TooFewGpus { tasks: 2, .. }))
    ));
    assert!(few.cluster_spec().is_ok());
}

#[test]
fn the_explanation_says_why_this_is_the_rank() {
    let told = [
        ("SLURMD_NODENAME", "n9"),
        ("SLURM_NTASKS", "64"),
        ("OMPI_COMM_WORLD_RANK", "0"),
        ("SLURM_DISTRIBUTION", "cyclic"),
    ];
    let shown = resolver("1", &told).explain().to_string();
    assert_eq!(
        shown,
        "cluster: worker 4
    port base in the default: 8888
    variable SLURM_STEP_NODELIST: n[8-10]
    variable SLURM_STEP_TASKS_PER_NODE: 2,1(x2)
    variable SLURM_STEP_NUM_TASKS: 4
    variable SLURM_DISTRIBUTION: cyclic
    not variable SLURM_NTASKS: 64 (it describes the whole job, not this step)
task: worker:1
    variable SLURM_PROCID: 1
    variable SLURMD_NODENAME: n9
    not variable OMPI_COMM_WORLD_RANK: 0 (the rank that another launcher gave)
master: grpc://n9:8888
rpc layer: grpc
accelerators: not known
"
    );
}

#[cfg(unix)]
#[test]
fn the_explanation_names_the_command_that_was_asked() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("scontrol");
    std::fs::write(
        &program,
        "#!/bin/sh\necho asked >> \"$0.log\"\necho StepId=$3\necho \" Dist=Cyclic\"\n",
    )
    .unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o700)).unwrap();
    let told = [
        ("SLURM_JOB_ID", "7"),
        ("SLURM_STEP_ID", "1"),
        ("SLURM_GTIDS", "0,3"),
    ];
    let resolver = resolver("0", &told).with_scontrol(&program);
    let cluster = resolver.snapshot().unwrap();
    assert_eq!(cluster.placement().unwrap().addresses()[1], "n9:8888");
    assert_eq!(cluster.master(None, None, None).unwrap(), "grpc://n8:8888");
    let shown = cluster.explanation().to_string();
    let expected = "Dist in `scontrol show step 7.1`: Cyclic";
    assert!(shown.contains(expected), "{shown}");
    let log = std::fs::read_to_string(program.with_extension("log")).unwrap();
    assert_eq!(log, "asked\n");
}

#[test]
fn a_host_file_is_read_for_a_snapshot_and_not_for_its_answers() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "n10\nn8\nn9\nn8\n").unwrap();
    let path = file.path().display().to_string();
    let told = [
        ("SLURM_DISTRIBUTION", "arbitrary"),
        ("SLURM_HOSTFILE", path.as_str()),
    ];
    let cluster = resolver("0", &told).snapshot().unwrap();
    file.close().unwrap();
    assert_eq!(cluster.placement().unwrap().addresses()[0], "n10:8888");
    let master = cluster.master(None, None, None);
    assert_eq!(master.as_deref(), Ok("grpc://n10:8888"));
    let shown = cluster.explanation().to_string();
    let read = format!("file {path}: the node of each rank");
    assert_eq!(shown.matches(&read).count(), 1, "{shown}");
}
