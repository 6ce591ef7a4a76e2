//! Who is in the cluster, and which task of it this process is.
//!
//! This crate does not know meshes, tensors or sockets: it reads descriptions and opens no
//! connection to what they describe.
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
//! (message forms), `variables` (where the environment is read),
//! `explanation` (how answers came about), `watch` and `difference` (what changed),
//! [`multi_worker`] (what a cluster means for one process of a training job), `error`.
#![forbid(unsafe_code)]

mod difference;
mod error;
mod explanation;
pub mod multi_worker;
mod proto;
mod resolver;
mod sagemaker;
mod simple;
pub mod slurm;
mod spec;
mod task;
mod text;
mod tf_config;
mod union;
mod variables;
mod watch;

pub use difference::{Difference, Moved};
pub use error::{Error, TaskPart};
pub use explanation::{Explanation, Finding, Origin, Question, Source, Step};
pub use multi_worker::{AddressProblem, WorkerPlacement};
pub use proto::{DeviceFilters, ServerDef};
pub use resolver::{Accelerators, ClusterResolver};
pub use sagemaker::{SageMakerError, SageMakerResolver};
pub use simple::SimpleResolver;
pub use slurm::{SlurmError, SlurmResolver, TasksPerNode};
pub use spec::{ClusterSpec, MAX_TASK_INDEX, Tasks};
pub use task::Task;
pub use tf_config::{Expected, JsonProblem, TfConfig, TfConfigResolver};
pub use union::UnionResolver;
pub use variables::Variables;
pub use watch::{Signal, Stop, Update, Watch};
