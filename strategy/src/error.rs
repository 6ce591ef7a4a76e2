//! `Error` of this crate.

mod conversions;
mod difference;
mod display;
mod low_communication;
mod queries;
mod saved_otherwise;
mod shard_group;
mod snapshot_damage;
mod state;

use meshwork_collectives::{ElementType, Rank};

use crate::{Readers, VariableSpec};

pub use difference::DifferenceError;
use display::{Found, Known, Listed};
pub use low_communication::{LowCommunicationError, Part};
pub use saved_otherwise::SavedOtherwise;
use saved_otherwise::Tensors;
pub use shard_group::ShardGroupError;
pub use snapshot_damage::SnapshotDamage;
pub use state::StateError;

/// Errors of a strategy. After `Group` and `VariablesDiffer` the group is over on all workers.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The description of the cluster is wrong, or does not fit this process.
    #[error(transparent)]
    Cluster(#[from] meshwork_cluster_resolver::Error),
    /// The workers could not meet, or one of them was lost.
    #[error(transparent)]
    Group(#[from] meshwork_collectives::Error),
    /// A device refused an operation.
    #[error(transparent)]
    Device(#[from] meshwork_accel::Error),
    /// A worker has something else than the chief that has to be the same on all.
    #[error(transparent)]
    Difference(#[from] DifferenceError),
    /// A training with little communication cannot be made so, or a worker's numbers are none.
    #[error(transparent)]
    LowCommunication(#[from] LowCommunicationError),
    /// The state of a training was not given as it should be, or is not there.
    #[error(transparent)]
    State(#[from] StateError),
    /// The status that `MESHWORK_STATUS` asks for cannot be served.
    #[cfg(feature = "status")]
    #[error(transparent)]
    Status(#[from] meshwork_status::Error),
    /// The environment asks for a status that this program does not serve.
    #[error(
        "MESHWORK_STATUS asks for the status of this worker, which this program does not serve: build it with the feature status of meshwork-strategy, or unset MESHWORK_STATUS"
    )]
    WithoutStatus,
    /// The environment sends workers to etcd, which this program cannot ask.
    #[error(
        "{variable} sends this worker to etcd, which this program cannot ask: build it with the feature etcd of meshwork-strategy, or unset {variable} and name host:port of some workers in MESHWORK_SEEDS"
    )]
    WithoutEtcd {
        /// `MESHWORK_SEEDS` or `MESHWORK_ETCD`.
        variable: &'static str,
    },
    /// The names of jobs, tasks and devices do not make a mesh.
    #[error(transparent)]
    Mesh(#[from] meshwork_core::Error),
    /// A global batch would leave workers without samples in every step.
    #[error(
        "a global batch of {global_batch} samples cannot be split among {workers} workers: use a global batch of at least {workers}, or fewer workers"
    )]
    BatchTooSmall {
        /// Samples in a global batch.
        global_batch: usize,
        /// Workers.
        workers: usize,
    },
    /// A dataset without samples.
    #[error("the data set has no samples: there is nothing to train on")]
    NoSamples,
    /// A global batch that was to be split evenly does not.
    #[error(
        "a global batch of {global_batch} samples does not split evenly among {replicas} replicas: use a multiple of {replicas}"
    )]
    BatchNotDivisible {
        /// Samples in a global batch.
        global_batch: usize,
        /// Replicas of all workers.
        replicas: usize,
    },
    /// There is no input of that number, or the replicas do not split evenly among the inputs.
    #[error(
        "input {pipeline} of {pipelines} cannot feed {replicas} replicas: inputs are numbered from 0, and each feeds as many replicas"
    )]
    NoSuchInput {
        /// The number of the input.
        pipeline: usize,
        /// Inputs of all workers.
        pipelines: usize,
        /// Replicas of all workers.
        replicas: usize,
    },
    /// An input of files was given none.
    #[error("the input has no files: was a pattern without a match?")]
    NoFiles,
    /// An input was to be split by file, and is not made of any.
    #[error(
        "the input is not made of files, so {workers} workers cannot share it by file: share it by data, or make it with Input::files"
    )]
    NotFiles {
        /// Workers.
        workers: usize,
    },
    /// An input was to be split by file, and some workers would have none.
    #[error(
        "{files} files cannot be shared by {workers} workers: write at least {workers} files, or share the input by data"
    )]
    TooFewFiles {
        /// Files of the input.
        files: usize,
        /// Workers.
        workers: usize,
    },
    /// The position in the data was saved by other replicas or workers, which read other shares.
    #[error(
        "the position in the data was saved by {saved}, and means nothing to {readers}: resume with as many, or share the input by data"
    )]
    CursorElsewhere {
        /// Those that saved it.
        saved: Readers,
        /// Those of now.
        readers: Readers,
    },
    /// A text is no position in the data.
    #[error("{text:?} is no position in the data: it takes three numbers, such as 0:1200:0")]
    CursorText {
        /// The text.
        text: String,
    },
    /// A position lies past the end of its epoch.
    #[error(
        "position {position} lies outside the data set of {samples} samples: was it saved for another one?"
    )]
    CursorOutside {
        /// The position, in samples.
        position: u64,
        /// Samples in the data set.
        samples: usize,
    },
    /// No thread could be started.
    #[error("no thread can be started: {kind}; are there too many?")]
    NoThread {
        /// The error of the operating system.
        kind: std::io::ErrorKind,
    },
    /// NCCL was asked to reduce host memory.
    #[error(
        "NCCL reduces buffers of CUDA devices, and these options are for host memory: use AUTO or RING here, and direct_on for buffers on devices"
    )]
    HostMemoryOverNccl,
    /// An implementation of collective operations that has no such name.
    #[error("{name:?} is no implementation of collective operations: it takes AUTO or RING")]
    NoSuchImplementation {
        /// The name that was given.
        name: String,
    },
    /// A worker was to have no replica, or more than there is room for.
    #[error("a worker cannot have {replicas} replicas: it takes 1 to {most}")]
    LocalReplicas {
        /// Replicas asked for.
        replicas: usize,
        /// The most there can be.
        most: usize,
    },
    /// A step for one replica was to be run on several.
    #[error(
        "this worker has {replicas} replicas, and a step that changes what it captures runs on one: use run_each or run_with"
    )]
    SeveralReplicas {
        /// Replicas of this worker.
        replicas: usize,
    },
    /// There is not one value for each replica.
    #[error("{found} values were given for {needed} replicas of this worker: give one for each")]
    ReplicaCount {
        /// Values that were given.
        found: usize,
        /// Replicas of this worker.
        needed: usize,
    },
    /// A replica waits for one whose step has ended.
    #[error(
        "replica {left} of this worker has ended its step, while replica {replica} waits for it in {call}: all replicas make the same calls"
    )]
    ReplicaLeft {
        /// The replica that has ended its step.
        left: usize,
        /// The replica that waits.
        replica: usize,
        /// Its call, and from where.
        call: String,
    },
    /// Two replicas of a worker make different calls.
    #[error(
        "replica {replica} of this worker calls {call}, but replica 0 calls {first}: all replicas make the same calls with values of the same type"
    )]
    ReplicasDisagree {
        /// The replica that differs.
        replica: usize,
        /// Its call, and from where.
        call: String,
        /// The call of replica 0, and from where.
        first: String,
    },
    /// A replica waited too long for the others of its worker.
    #[error(
        "replica {replica} of this worker waited {waited:?} in {call} for the others: does one hang, or is the time for operations too short?"
    )]
    ReplicaLate {
        /// The replica that waited.
        replica: usize,
        /// Its call, and from where.
        call: String,
        /// How long it waited.
        waited: std::time::Duration,
    },
    /// Replicas have values of different shapes.
    #[error(
        "replica {replica} has a value of shape {found:?}, but replica 0 one of shape {first:?}: only the length of an axis that is reduced or gathered may differ"
    )]
    ShapesDiffer {
        /// The replica that differs.
        replica: usize,
        /// Its value's shape.
        found: Vec<usize>,
        /// The first value's shape.
        first: Vec<usize>,
    },
    /// An axis that an array does not have, or one named twice.
    #[error(
        "axis {axis} cannot be used: the array has {dimensions} axes, numbered from 0, each of which is named once"
    )]
    NoSuchAxis {
        /// The axis.
        axis: usize,
        /// Axes of the array.
        dimensions: usize,
    },
    /// The mean of integers, which is not defined.
    #[error(
        "the mean of {found:?} numbers is no {found:?}: convert them to f64 first, or sum them"
    )]
    IntegerMean {
        /// The type of the numbers.
        found: ElementType,
    },
    /// The elements that another worker sent do not fill the shape it named.
    #[error(
        "an array of shape {shape:?} came with {found} elements: do all workers run one program?"
    )]
    ArrayTorn {
        /// The shape.
        shape: Vec<usize>,
        /// Elements that came with it.
        found: usize,
    },
    /// Shapes and sizes from other workers end before the last shape does. The workers do not run
    /// the same program.
    #[error(
        "a shape of {dimensions} dimensions came with {found} sizes: do all workers run one program?"
    )]
    ShapeTorn {
        /// Dimensions of the shape.
        dimensions: u64,
        /// Sizes that came with it.
        found: usize,
    },
    /// Arrays of other workers came with more elements than their shapes have. The workers do not
    /// run the same program.
    #[error("{elements} elements came beside arrays: do all workers run one program?")]
    ElementsLeft {
        /// Elements that are in no array.
        elements: usize,
    },
    /// What all workers together gave to a gather does not fit into memory.
    #[error("a gather of {elements} elements from all workers does not fit into memory")]
    GatherTooLarge {
        /// Elements of all workers, [`u64::MAX`] for more than that.
        elements: u64,
    },
    /// As many indices as rows are needed.
    #[error("{rows} rows have {indices} indices: give one for each row")]
    RowCount {
        /// Rows that were given.
        rows: usize,
        /// Indices that were given.
        indices: usize,
    },
    /// A value of another shape than the variable.
    #[error("variable {} has shape {}, but the value has {found:?}", spec.name(), spec.dims())]
    ValueShape {
        /// The variable.
        spec: VariableSpec,
        /// The value's shape.
        found: Vec<usize>,
    },
    /// The copies of a variable stay apart, so it has no one value.
    #[error(
        "variable {name} is never brought together: give it an aggregation, or use each replica's copy"
    )]
    NotAggregated {
        /// The variable.
        name: String,
    },
    /// Something was to be added to a sum of copies outside of a step.
    #[error(
        "variable {name} is the sum of its copies, and has no copy of its own to add to: add in a step, or assign the new sum"
    )]
    SumChanged {
        /// The variable.
        name: String,
    },
    /// A file of a checkpoint, or its folder, could not be used.
    #[error(transparent)]
    Checkpoint(#[from] meshwork_checkpoint::Error),
    /// A snapshot cannot be written in the format of its file.
    #[error("the snapshot fits no safetensors file: is a text too long, or a name __metadata__?")]
    CheckpointForm,
    /// The bytes of a snapshot are damaged.
    #[error("a checkpoint cannot be used")]
    Damaged(#[from] SnapshotDamage),
    /// There are checkpoints, and none of them is whole.
    #[error("{} cannot be used: {damage}; no other save there can either, so restore one from a copy, or begin anew in another folder", path.display())]
    NoWholeCheckpoint {
        /// The file of the latest one.
        path: std::path::PathBuf,
        /// What is wrong with it.
        damage: SnapshotDamage,
    },
    /// A checkpoint does not hold a variable of this name and shape.
    #[error(
        "the checkpoint should hold {spec}, but has {} under that name: is it of another model?",
        Found(found)
    )]
    NotInCheckpoint {
        /// The variable.
        spec: Box<VariableSpec>,
        /// The shape that it has in the checkpoint, if it is there.
        found: Option<Vec<usize>>,
    },
    /// A checkpoint of a sharded model is not of this one.
    #[error("the checkpoint is of another model: {}", Tensors(.0))]
    CheckpointOfAnother(Vec<SavedOtherwise>),
    /// No thread could be started that writes a checkpoint.
    #[error("the thread that writes a checkpoint cannot be started: {kind}")]
    NoWriter {
        /// What the system says.
        kind: std::io::ErrorKind,
    },
    /// The thread that wrote a checkpoint has panicked.
    #[error("the thread that wrote the checkpoint of step {step} panicked: what it said is above")]
    WriterPanicked {
        /// The step that was to be saved.
        step: u64,
    },
    /// A gradient was to be used while it is reduced.
    #[error("the gradient of {name} is being reduced: finish the step first")]
    GradientInFlight {
        /// The variable.
        name: String,
    },
    /// A gradient was said to be ready more than once in a step.
    #[error(
        "the gradient of {name} was ready already: add several passes up, and say once that it is ready"
    )]
    GradientTwice {
        /// The variable.
        name: String,
    },
    /// A unit of a sharded model has had another number of backward passes than a step has.
    #[error(
        "unit {unit} has had {found} backward passes in this step, which has {needed}: make as many for each unit, and say how many by Sharding::with_accumulation"
    )]
    UnitPasses {
        /// The unit.
        unit: String,
        /// Passes that it has had, with the one that was to be made.
        found: u32,
        /// Passes of a step.
        needed: u32,
    },
    /// The numbers of a unit went with an operation that failed.
    #[error(
        "what this worker had of unit {unit} is lost, as an operation on it failed: load the model from a checkpoint"
    )]
    UnitLost {
        /// The unit.
        unit: String,
    },
    /// Parameters in parts were asked for where a model library computes with whole ones.
    #[error(
        "variables that a model library keeps are whole in every worker: shard the optimizer or gradients, or run the model unit by unit to shard its parameters"
    )]
    VariablesAreWhole,
    /// A model cannot be kept in such parts by these workers.
    #[error(transparent)]
    ShardGroup(#[from] ShardGroupError),
    /// A model is sharded among other workers than are there.
    #[error(
        "the model is sharded among {sharded} workers, and {now} are there: call `regroup`, or make it anew among these, from a checkpoint"
    )]
    WorkersChanged {
        /// Workers when it was made.
        sharded: u32,
        /// Workers now.
        now: u32,
    },
    /// The values of a variable do not fill its shape.
    #[error("variable {} of shape {} takes {} values, but {found} were given", spec.name(), spec.dims(), spec.len())]
    ValueCount {
        /// The variable.
        spec: VariableSpec,
        /// Values that were given.
        found: usize,
    },
    /// The dimensions of a variable multiply to more elements than memory can hold.
    #[error("variable {name} has more elements than memory can hold: check its shape")]
    TooLarge {
        /// The variable's name.
        name: String,
    },
    /// Two variables of one scope share a name.
    #[error("variable {name} was given twice: variables of one model need different names")]
    DuplicateVariable {
        /// The shared name.
        name: String,
    },
    /// The buffer of a gradient has another length than its variable.
    #[error("variable {} holds {} values, but its gradient holds {found}", spec.name(), spec.len())]
    GradientLength {
        /// The variable.
        spec: VariableSpec,
        /// Values in the gradient.
        found: usize,
    },
    /// Two workers built different models.
    #[error(
        "variable number {index} is {} on {rank} but {} on rank 0: build the same model, with the same sizes, in every worker",
        Known(mine),
        Known(chiefs)
    )]
    VariablesDiffer {
        /// The variable's place in the model, from 0.
        index: usize,
        /// This worker.
        rank: Rank,
        /// This worker's variable in that place.
        mine: Option<Box<VariableSpec>>,
        /// The chief's variable in that place.
        chiefs: Option<Box<VariableSpec>>,
    },
    /// A buffer has no room for the check of copies at its end.
    #[error(
        "a buffer of {found} numbers has no room for a check, which takes {needed} at its end: make it longer by check_len"
    )]
    NoRoomForCheck {
        /// Numbers in the buffer.
        found: usize,
        /// Numbers that the check takes.
        needed: usize,
    },
    /// Copies that must be equal are not.
    #[error(
        "the copies of the model are not equal any more: those of {} differ from rank 0's; was a variable changed outside a step, or by different values?",
        Listed(ranks)
    )]
    ReplicasDiverged {
        /// The ranks whose copies differ from rank 0's.
        ranks: Vec<Rank>,
    },
}

#[cfg(test)]
mod tests;
