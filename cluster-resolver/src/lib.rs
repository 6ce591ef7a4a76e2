//! Who is in the cluster, and which task of it this process is.
//!
//! This crate does not know meshes or tensors, and opens no connection to the tasks: it reads
//! descriptions, and asks services for them where a feature says so.
//!
//! ```text
//!   TF_CONFIG ──┐
//!   a list ─────┼─▶ ClusterResolver ─▶ ClusterSpec ────────────▶ WorkerPlacement of worker:1
//!   …           │                      chief  0  c:2222          rank 2 of 3, not the chief
//!               └─▶ task worker:1      worker 0  w0:2222         c:2222, w0:2222, w1:2222
//!                                             1  w1:2222
//! ```
//!
//! ```
//! use meshwork_cluster_resolver::{ClusterResolver, TfConfigResolver, WorkerPlacement};
//!
//! let resolver = TfConfigResolver::from_json(
//!     r#"{"cluster": {"chief": ["c:2222"], "worker": ["w0:2222", "w1:2222"]},
//!         "task": {"type": "worker", "index": 1}}"#,
//! );
//! assert_eq!(resolver.master(None, None, Some("grpc"))?, "grpc://w1:2222");
//!
//! let placement = WorkerPlacement::resolve(&resolver)?;
//! assert_eq!((placement.rank(), placement.world()), (2, 3));
//! assert_eq!(placement.addresses()[0], "c:2222");
//! # Ok::<(), meshwork_cluster_resolver::Error>(())
//! ```
//!
//! Map of the crate: `spec` (jobs, tasks, addresses), `task` (the name of one task), `resolver`
//! (the trait), `simple`, `tf_config`, [`slurm`], `sagemaker` and `union` (the sources), `proto`
//! (message forms), `gce`, `kubernetes` and `tpu` (services that are asked, each a feature),
//! `google` and `service` (what they share: credentials, deadlines, answers), `variables` (where
//! the environment is read), `explanation` (how answers came about), `watch` and `difference` (what
//! changed), [`multi_worker`] (what a cluster means for one process of a training job), `error`.
#![forbid(unsafe_code)]

mod difference;
mod error;
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
pub mod multi_worker;
mod proto;
mod resolver;
mod sagemaker;
#[cfg_attr(
    not(all(feature = "gce", feature = "kubernetes", feature = "tpu")),
    allow(dead_code, reason = "each resolver needs its part")
)]
mod service;
mod simple;
pub mod slurm;
mod spec;
mod task;
mod text;
mod tf_config;
#[cfg(feature = "tpu")]
mod tpu;
mod union;
mod variables;
mod watch;

pub use difference::{Difference, Moved};
pub use error::{Error, TaskPart};
pub use explanation::{Explanation, Finding, Origin, Question, Source, Step};
#[cfg(feature = "gce")]
pub use gce::GceResolver;
#[cfg(feature = "google")]
pub use google::{GoogleCredentials, metadata_url};
#[cfg(feature = "kubernetes")]
pub use kubernetes::{KubernetesAccess, KubernetesResolver};
pub use multi_worker::{AddressProblem, WorkerPlacement};
pub use proto::{DeviceFilters, ServerDef};
pub use resolver::{Accelerators, ClusterResolver};
pub use sagemaker::{SageMakerError, SageMakerResolver};
pub use service::error::{
    AccessProblem, CoordinatorProblem, CredentialsProblem, ServiceError, Trouble,
};
#[cfg(feature = "service")]
pub use service::patience::Patience;
pub use simple::SimpleResolver;
pub use slurm::{SlurmError, SlurmResolver, TasksPerNode};
pub use spec::{ClusterSpec, MAX_TASK_INDEX, Tasks};
pub use task::Task;
pub use tf_config::{Expected, JsonProblem, TfConfig, TfConfigResolver};
#[cfg(feature = "tpu")]
pub use tpu::{
    FatalMemory, Readiness, ReadyWait, RestartType, TpuDevices, TpuKind, TpuName, TpuNode,
    TpuResolver, TpuSymptom, TpuTarget, tpu_cores_of_topology, tpu_cores_of_type, tpu_master_job,
};
pub use union::UnionResolver;
pub use variables::Variables;
pub use watch::{Signal, Stop, Update, Watch};
