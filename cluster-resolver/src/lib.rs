//! Who is in the cluster, and which task of it this process is.
//!
//! This crate does not know meshes or tensors, and opens no connection to the tasks: it reads
//! descriptions, and asks services for them where a feature says so.
//!
//! ```text
//!   TF_CONFIG ──┐             snapshot         ┌─▶ ClusterSpec   chief  0  c:2222
//!   Slurm ──────┼─▶ ClusterResolver ─▶ Cluster ┤                 worker 0  w0:2222
//!   a list ─────┤                              │                        1  w1:2222
//!   …           ┘                              ├─▶ Task          worker:1
//!                                              └─▶ WorkerPlacement   rank 2 of 3, not the chief
//! ```
//!
//! # When not to use it
//!
//! To wait for others, or to find out who is alive: a resolver reads what a launcher or a service
//! says, and connects to no task.
//!
//! # Examples
//!
//! ## A resolver is asked once
//!
//! ```
//! use meshwork_cluster_resolver::{ClusterResolver, TfConfigResolver};
//!
//! let resolver = TfConfigResolver::from_json(
//!     r#"{"cluster": {"chief": ["c:2222"], "worker": ["w0:2222", "w1:2222"]},
//!         "task": {"type": "worker", "index": 1}}"#,
//! );
//! let cluster = resolver.snapshot()?;
//! assert_eq!(cluster.task()?.to_string(), "worker:1");
//! assert_eq!(cluster.master(None, None, Some("grpc"))?, "grpc://w1:2222");
//!
//! let placement = cluster.placement()?;
//! assert_eq!((placement.rank(), placement.world()), (2, 3));
//! assert_eq!(placement.addresses()[0], "c:2222");
//! # Ok::<(), meshwork_cluster_resolver::Error>(())
//! ```
//!
//! ## What the program knows better
//!
//! ```
//! use meshwork_cluster_resolver::{ClusterResolver, ClusterSpec, SimpleResolver};
//!
//! let resolver = SimpleResolver::new(ClusterSpec::from_addresses(["w0:2222", "w1:2222"])?)
//!     .with_task_type("worker")
//!     .with_task_id(1);
//! assert_eq!(resolver.snapshot()?.placement()?.rank(), 1);
//! # Ok::<(), meshwork_cluster_resolver::Error>(())
//! ```
//!
//! ## Why an answer is what it is
//!
//! ```
//! use meshwork_cluster_resolver::{ClusterResolver, SlurmResolver, Variables};
//!
//! let resolver = SlurmResolver::from_variables(Variables::fixed([("SLURM_JOB_ID", "7")]));
//! let cluster = resolver.snapshot()?;
//! assert_eq!(
//!     cluster.spec().unwrap_err().to_string(),
//!     "SLURM_PROCID is not set, though job 7 runs here: start this process as a task, by srun"
//! );
//! assert!(cluster.explanation().to_string().contains("nothing in variable SLURM_PROCID"));
//! # Ok::<(), meshwork_cluster_resolver::Error>(())
//! ```
//!
//! ## When the cluster changes
//!
//! ```
//! use std::time::Duration;
//! use meshwork_cluster_resolver::{ClusterResolver, ClusterSpec, SimpleResolver, UnionResolver};
//!
//! let one = SimpleResolver::new(ClusterSpec::from_addresses(["a:1"])?);
//! let other = SimpleResolver::new(ClusterSpec::from_addresses(["b:1"])?);
//! let union = UnionResolver::new(one).and(other);
//! let mut watch = union.watch(Duration::from_secs(5));
//! let first = watch.next().expect("the first look is made at once")?;
//! assert_eq!(first.difference().added().len(), 2);
//! # Ok::<(), meshwork_cluster_resolver::Error>(())
//! ```
//!
//! # Common calls
//!
//! | call | for |
//! |---|---|
//! | [`EnvironmentResolver::from_env`] | whatever started this process |
//! | [`TfConfigResolver`], [`SlurmResolver`], [`SimpleResolver`], … | one source |
//! | [`ClusterResolver::snapshot`] | one look, and then from it: |
//! | [`Cluster::spec`], [`Cluster::task`] | who is there, and who this process is |
//! | [`Cluster::placement`] | rank, number of ranks and addresses, for training |
//! | [`Cluster::explanation`] | where each answer comes from |
//! | [`ClusterResolver::watch`] | what changes |
//! | [`UnionResolver::and`] | several sources as one |
//!
//! # Crate features
//!
//! Only `protobuf` is on by default: without the others nothing opens a connection.
//!
//! | feature | adds |
//! |---|---|
//! | `etcd` | where members of a job register, and newcomers find them: `EtcdMembers` |
//! | `gce` | instance groups of Google Compute Engine: `GceResolver` |
//! | `kubernetes` | pods of Kubernetes: `KubernetesResolver` |
//! | `protobuf` | TensorFlow's messages: `ClusterSpec::to_proto` and `from_proto`, `ServerDef`, `DeviceFilters` |
//! | `tpu` | nodes of Cloud TPU: `TpuResolver` |
//! | `google`, `service` | what these share; nothing by themselves |
//!
//! # Errors
//!
//! [`Error`] names the variable, file or service, and what it should say; those of a source have
//! types of their own, such as [`SlurmError`]. What a source cannot tell is the error of that
//! answer, not of the snapshot.
//!
//! # Costs
//!
//! A snapshot reads the environment or a file at once. Those that ask a service or a program block
//! for a bounded time, most with a thread that ends with the call. Nothing is kept between two.
//!
//! # Map of the crate
//!
//! Each module imports from those before it: `text` (pieces of messages), `address` (what can be
//! connected to), `task` (the name of one task), `error`, `variables` (where the environment is
//! read), `spec` (jobs, tasks, addresses), `difference` (what changed), `proto` (message forms),
//! `explanation` (how answers came about), `cluster` (all that one look told), `resolver` (the
//! trait, what the program says in place of a source, and the watch), [`multi_worker`] (what a
//! cluster means for one process of a training job), `command` (asks a scheduler's own client),
//! `ports` (which ones the tasks of a job have where nobody lists them); then the sources:
//! `simple`, `tf_config`, [`slurm`], `schedulers` (PBS, LSF and Flux), `sagemaker`, `launcher`
//! (torchrun, Open MPI, MPICH), `skypilot`, `environment` (whoever started this process) and
//! `union`, and the services, each a feature: `gce`, `kubernetes` and `tpu` over `google` and
//! `service` (what they share: credentials, deadlines, answers), and `etcd`, where newcomers find
//! the members of a job that runs.
#![forbid(unsafe_code)]

mod address;
mod cluster;
mod command;
mod difference;
mod environment;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
mod explanation;
#[cfg(feature = "gce")]
mod gce;
#[cfg(feature = "google")]
#[cfg_attr(
    not(feature = "tpu"),
    allow(dead_code, reason = "each resolver needs its part")
)]
mod google;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod launcher;
pub mod multi_worker;
mod ports;
#[cfg(feature = "protobuf")]
mod proto;
mod resolver;
mod sagemaker;
mod schedulers;
#[cfg(feature = "service")]
#[cfg_attr(
    not(all(
        feature = "etcd",
        feature = "gce",
        feature = "kubernetes",
        feature = "tpu"
    )),
    allow(dead_code, reason = "each resolver needs its part")
)]
mod service;
mod simple;
mod skypilot;
pub mod slurm;
mod spec;
mod task;
mod text;
mod tf_config;
#[cfg(feature = "tpu")]
mod tpu;
mod union;
mod variables;

pub use address::AddressProblem;
pub use cluster::{Accelerators, Cluster, RendezvousEndpoint};
pub use difference::{Difference, Moved};
pub use environment::EnvironmentResolver;
pub use error::{
    AccessProblem, CommandProblem, CoordinatorProblem, CredentialsProblem, Error, EtcdError,
    EtcdOperation, Expected, FluxProblem, JsonProblem, LauncherError, SageMakerError,
    SchedulerError, ServiceError, ServiceErrorKind, SlurmError, TaskPart,
};
#[cfg(feature = "etcd")]
pub use etcd::{EtcdMembers, EtcdRegistration};
pub use explanation::{Explanation, Finding, Origin, Question, Source, Step};
#[cfg(feature = "gce")]
pub use gce::GceResolver;
#[cfg(feature = "google")]
pub use google::{GoogleCredentials, metadata_url};
#[cfg(feature = "kubernetes")]
pub use kubernetes::{KubernetesAccess, KubernetesResolver};
pub use launcher::{Launcher, LauncherResolver};
pub use multi_worker::WorkerPlacement;
#[cfg(feature = "protobuf")]
pub use proto::{DeviceFilters, ServerDef};
pub use resolver::{ClusterResolver, Overridden, Stop, Update, Watch, WatchSignal};
pub use sagemaker::SageMakerResolver;
pub use schedulers::{FluxResolver, LsfResolver, PbsResolver};
#[cfg(feature = "service")]
pub use service::retry::RetryPolicy;
pub use simple::SimpleResolver;
pub use skypilot::SkyPilotResolver;
pub use slurm::{SlurmResolver, TasksPerNode};
pub use spec::{ClusterSpec, Tasks};
pub use task::{MAX_TASK_INDEX, Task};
pub use tf_config::{TfConfig, TfConfigResolver};
#[cfg(feature = "tpu")]
pub use tpu::{
    FatalMemory, Readiness, ReadyWait, RestartType, TpuDevices, TpuKind, TpuName, TpuNode,
    TpuResolver, TpuSymptom, TpuTarget, tpu_cores_of_topology, tpu_cores_of_type, tpu_master_job,
};
pub use union::UnionResolver;
pub use variables::Variables;
