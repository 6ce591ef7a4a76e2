//! `Error` of this crate, and what is left after one.

use std::fmt;
use std::path::PathBuf;

use meshwork_accel::ElementType;
use meshwork_checkpoint::FileDamage;
use meshwork_core::Mesh;
use meshwork_layout::Layout;

use crate::DeviceType;

mod apart;
mod disagreement;
mod from;
mod passed;

pub use apart::Apart;
pub use disagreement::{ClientStatement, Subject};
use passed::Passed;

/// Errors of tensors on a mesh.
///
/// After [`Error::Group`], [`Error::ClientsDisagree`] and [`Error::IndexOutside`] the clients no
/// longer compute together. Every other error leaves tensors, variables and the context as they
/// were, but for variables that a step of an optimizer had moved before it.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Names, sizes or devices do not make a mesh.
    #[error(transparent)]
    Mesh(#[from] meshwork_core::Error),
    /// A layout does not fit its mesh or a tensor.
    #[error(transparent)]
    Layout(#[from] meshwork_layout::Error),
    /// An op does not fit its operands, or their layouts.
    #[error(transparent)]
    Op(#[from] meshwork_layout::ops::OpError),
    /// The clients could not meet, or one of them was lost or made another call.
    #[error(transparent)]
    Group(#[from] meshwork_collectives::Error),
    /// The element type does not have the reduction, or an accelerator refused or failed.
    #[error(transparent)]
    Element(#[from] meshwork_accel::Error),
    /// A device type has no such name.
    #[error("device type {found:?} is not known: it takes CPU, GPU or TPU")]
    DeviceType {
        /// The name.
        found: String,
    },
    /// The client number in the environment is not a number.
    #[error("DTENSOR_CLIENT_ID is {value:?}: it takes a whole number from 0")]
    ClientIdText {
        /// Its value.
        value: String,
    },
    /// The number of this process is not below how many there are.
    #[error("DTENSOR_CLIENT_ID is {id}, but DTENSOR_JOBS lists {clients} clients, numbered from 0")]
    ClientIdOutside {
        /// The number.
        id: i64,
        /// How many processes there are.
        clients: u32,
    },
    /// Names of jobs that begin with `/bns/` are not in the order of their numbers.
    #[error("DTENSOR_JOBS lists {first} before {second}, at place {place}: sort it by task")]
    JobsUnsorted {
        /// The name that comes too early.
        first: String,
        /// The one after it.
        second: String,
        /// The place of the first, from 0.
        place: usize,
    },
    /// Some names of jobs end with a number and others do not, so nothing sorts them.
    #[error("DTENSOR_JOBS lists {first} beside {second}: end all names with a number, or none")]
    JobsMixed {
        /// A name.
        first: String,
        /// The one after it.
        second: String,
    },
    /// A job is no `host:port`.
    #[error("DTENSOR_JOBS has {address:?} at place {place}: it takes host:port for each client")]
    JobAddress {
        /// The address as it was given.
        address: String,
        /// Where, from 0.
        place: usize,
    },
    /// More clients or devices than can be counted.
    #[error("the devices of {count} clients are more than can be counted in 32 bits")]
    TooManyClients {
        /// How many clients.
        count: usize,
    },
    /// A process that is alone has task 0 only.
    #[error("task {task} does not exist: this process is alone, as task 0")]
    TaskOfOne {
        /// The task.
        task: u32,
    },
    /// The environment asks for an executor that is not open.
    #[error(
        "DTENSOR_USE_PARALLEL_EXECUTOR=pw asks for Pathways, which is not open: leave it unset, and list all processes in DTENSOR_JOBS"
    )]
    Pathways,
    /// The accelerator system has been initialised before.
    #[error("the accelerator system is initialised already, for {device_type}: shut it down first")]
    AlreadyInitialized {
        /// The device type it was initialised for.
        device_type: DeviceType,
    },
    /// Tensors were made before the accelerator system was initialised.
    #[error(
        "the accelerator system was used before it was initialised: initialise it first, or ask for a reset"
    )]
    UsedBefore,
    /// The accelerator system is not initialised.
    #[error("the accelerator system is not initialised: call initialize_accelerator_system first")]
    NotInitialized,
    /// The system has been shut down.
    #[error("the accelerator system was shut down: tensors of before cannot communicate any more")]
    ShutDown,
    /// This process has no device of a required type.
    #[error("no {device_type} was found: use another device type")]
    NoDevices {
        /// The type.
        device_type: DeviceType,
    },
    /// Devices are there, but no code for them is compiled in.
    #[error("{count} {device_type} devices cannot be used: no backend for them is compiled in")]
    NoBackend {
        /// Their type.
        device_type: DeviceType,
        /// How many there are.
        count: u32,
    },
    /// The backend for a type of device is not compiled in.
    #[error(
        "{device_type} devices cannot be looked for: build meshwork-dtensor with the feature {feature}"
    )]
    NotCompiledIn {
        /// The type.
        device_type: DeviceType,
        /// The cargo feature that is not compiled in.
        feature: &'static str,
    },
    /// A client names more devices than the accelerator that is to compute for them has.
    #[error(
        "{named} devices of type {device_type} cannot be computed for by an accelerator of {available}: open it with as many"
    )]
    TooFewDevices {
        /// Their type.
        device_type: DeviceType,
        /// How many the client has.
        named: usize,
        /// How many the accelerator has.
        available: usize,
    },
    /// Every accelerator has a CPU of its own.
    #[error("{cpus} logical CPUs are too few for {accelerators} accelerators: each takes one")]
    TooFewCpus {
        /// How many logical CPUs were asked for.
        cpus: u32,
        /// How many accelerators there are.
        accelerators: u32,
    },
    /// Clients that should agree do not; all of them get the same error.
    #[error("clients disagree on {subject}: {}", disagreement::listed(views))]
    ClientsDisagree {
        /// The subject.
        subject: Subject,
        /// The statement of each client, in their order.
        views: Vec<ClientStatement>,
    },
    /// A client's statement is too long to be sent to the others.
    #[error("{subject} takes {len} bytes to tell: {most} are the most")]
    TooLong {
        /// The subject of the agreement.
        subject: Subject,
        /// How many bytes it takes.
        len: usize,
        /// How many there may be.
        most: usize,
    },
    /// Devices of a mesh belong to no client, or to several.
    #[error("rank {rank} of the mesh belongs to {owners} clients: each takes one")]
    RankOwners {
        /// The rank.
        rank: usize,
        /// How many clients have it.
        owners: usize,
    },
    /// A mesh with devices elsewhere was given to a process that is alone.
    #[error(
        "the mesh {mesh} has {remote} devices of other clients, but this process is alone: initialise the accelerator system with DTENSOR_JOBS"
    )]
    RemoteMesh {
        /// The mesh.
        mesh: Box<Mesh>,
        /// How many of its devices are not here.
        remote: usize,
    },
    /// A layout whose mesh names devices that this process does not have.
    #[error("device {device} does not exist: this process has {available} of its type")]
    UnknownDevice {
        /// The device's name.
        device: String,
        /// How many there are of its type.
        available: usize,
    },
    /// As many blocks are packed as this client has devices on the mesh.
    #[error("{found} components were packed for {expected} devices: give one for each")]
    ComponentCount {
        /// How many were given.
        found: usize,
        /// How many devices of the mesh are here.
        expected: usize,
    },
    /// A component has another number of axes than the layout.
    #[error("component {place} has {found} axes, but the layout is for {expected}")]
    ComponentRank {
        /// Its place, from 0.
        place: usize,
        /// How many axes it has.
        found: usize,
        /// How many it should.
        expected: usize,
    },
    /// A component has another shape than its rank holds.
    #[error("component {place} has the shape {found:?}, but its device holds {expected:?}")]
    ComponentShape {
        /// Its place, from 0.
        place: usize,
        /// Its shape.
        found: Vec<usize>,
        /// The expected shape.
        expected: Vec<usize>,
    },
    /// An index in a tensor of indices is out of range.
    #[error("index {index} is outside axis {axis} of {size} elements")]
    IndexOutside {
        /// The index.
        index: f64,
        /// The axis it is for.
        axis: usize,
        /// How many elements there are along it.
        size: usize,
    },
    /// An op that cannot be carried out yet.
    #[error("{op} cannot be carried out: its layouts can be inferred only")]
    UnknownOp {
        /// The op.
        op: &'static str,
    },
    /// A plan has a step that is not carried out yet.
    #[error("a step by {kind} cannot be carried out: it can be planned only")]
    UnknownStep {
        /// What the step does.
        kind: meshwork_layout::StepKind,
    },
    /// A tensor was to be made on the default mesh of this thread, but there is none.
    #[error("no default mesh: call default_mesh first, or name a layout")]
    NoDefaultMesh,
    /// A value of another shape was assigned to a variable.
    #[error("a value of shape {found:?} cannot be assigned to a variable of shape {expected:?}")]
    AssignedShape {
        /// Its shape.
        found: Vec<usize>,
        /// The variable's.
        expected: Vec<usize>,
    },
    /// A layout is not for batches of samples.
    #[error(
        "a layout for {found} axes does not fit batches of samples of {sample} axes: give it one axis more than a sample has"
    )]
    BatchRank {
        /// Axes of the layout.
        found: usize,
        /// Axes of a sample.
        sample: usize,
    },
    /// A batch of no samples.
    #[error("a global batch of 0 samples has nothing to iterate over: give 1 at least")]
    EmptyBatch,
    /// A layout does not cut batches by the dimension along which replicas are.
    #[error("{layout} does not cut batches by {dim}: let its first axis be cut by it")]
    BatchDim {
        /// The mesh dimension.
        dim: String,
        /// The layout.
        layout: Box<Layout>,
    },
    /// A batch cannot be distributed evenly.
    #[error(
        "a global batch of {global_batch} samples cannot be dealt evenly to {replicas} replicas: use a multiple"
    )]
    UnevenBatch {
        /// Samples in a global batch.
        global_batch: usize,
        /// Replicas.
        replicas: usize,
    },
    /// A sample or a batch has another shape than was said.
    #[error("the data set gave an array of shape {found:?} instead of {expected:?}")]
    SampleShape {
        /// Its shape.
        found: Vec<usize>,
        /// The expected shape.
        expected: Vec<usize>,
    },
    /// A file of a checkpoint cannot be written or read, or is damaged.
    #[error(transparent)]
    Checkpoint(#[from] meshwork_checkpoint::Error),
    /// There is no whole checkpoint.
    #[error("there is no whole checkpoint at {}{}", prefix.display(), Passed(damaged.as_ref()))]
    NoCheckpoint {
        /// The prefix of the names of its files.
        prefix: PathBuf,
        /// The damage to the latest one that exists.
        damaged: Option<(PathBuf, FileDamage)>,
    },
    /// A tensor was saved with other elements.
    #[error("{name} was saved as {found}, not as {expected}: read it as that and cast it")]
    SavedElement {
        /// The tensor.
        name: String,
        /// The elements in the file.
        found: ElementType,
        /// Those that were asked for.
        expected: ElementType,
    },
    /// Another client failed to do its part; all get this error.
    #[error("client {client} failed: {message}")]
    OtherClient {
        /// The client.
        client: u32,
        /// Its error message.
        message: String,
    },
    /// None of the devices that hold a tensor is here.
    #[error(
        "the tensor lies on devices of other clients only: copy it to a mesh with one of these"
    )]
    NotHere,
    /// A tensor of which a tape keeps shape and layout only was asked for its elements.
    #[error("the elements of this tensor were not kept: this is a bug in meshwork-dtensor")]
    NotKept,
    /// A tape that is not persistent was asked a second time.
    #[error("the tape has given its gradients already: ask for all at once, or make it persistent")]
    TapeSpent,
    /// A gradient was asked for by a tensor that the tape does not know.
    #[error("source {place} is not recorded by this tape: take the tensor that watch returns")]
    NotWatched {
        /// Which of the sources, from 0.
        place: usize,
    },
    /// A gradient was asked for of a tensor that the tape does not know.
    #[error(
        "the target depends on nothing that this tape watches: compute it from what watch returns"
    )]
    TargetUnwatched,
    /// The gradient at the target has another shape.
    #[error("the gradient by a target of shape {expected:?} was given with the shape {found:?}")]
    TargetShape {
        /// Its shape.
        found: Vec<usize>,
        /// The target's.
        expected: Vec<usize>,
    },
    /// An optimizer was given gradients for other variables than it was made for.
    #[error("{found} variables were given to an optimizer of {expected}: give all, in their order")]
    UpdateCount {
        /// How many were given.
        found: usize,
        /// For how many it was made.
        expected: usize,
    },
    /// There is no gradient of something that was done on the way from a source to the target.
    #[error("{op} at {at} has no gradient: use ops that have one, or stop_gradient before it")]
    NoDerivative {
        /// What was done.
        op: &'static str,
        /// Where the program did it.
        at: &'static std::panic::Location<'static>,
    },
    /// A function that is compiled looks at elements, or has a function of its own for them.
    #[error("{op} at {at} cannot be compiled: do it outside the step, or with other ops")]
    NotTraceable {
        /// What was done.
        op: &'static str,
        /// Where the program did it.
        at: &'static std::panic::Location<'static>,
    },
    /// A body of a loop gives something else to carry than it was given.
    #[error(
        "a loop carries {expected} as its value {place}, but its body gives {found}: cast or reshape it"
    )]
    CarriedDiffers {
        /// Which of the values that are carried, from 0.
        place: usize,
        /// What the body gives.
        found: String,
        /// What it was given.
        expected: String,
    },
    /// A body of a loop gives a list of another length to carry, or to stack, than before.
    #[error(
        "the body of a loop gives a list of {found}, not of {expected}: give as many each time"
    )]
    LoopCount {
        /// The length of the list that it gives.
        found: usize,
        /// That of the one that it was given to carry, or gave to stack the first time.
        expected: usize,
    },
    /// A body of a loop changes a value of the host, which is the same each time.
    #[error(
        "the body of a loop changes a value of the host from {expected} to {found}: make it a tensor"
    )]
    LoopValue {
        /// The value that it gives.
        found: String,
        /// The one that it was given, or gave the first time.
        expected: String,
    },
    /// A loop over the first axis of tensors that have none in common.
    #[error(
        "stack {place} of a loop is {found}: give as many slices as the first, along an axis that is not cut"
    )]
    NotStacked {
        /// Which of the stacks, from 0.
        place: usize,
        /// What it is.
        found: String,
    },
    /// The backend does not compile a step, though it has the ops that it is made of.
    #[error("{op} cannot be compiled for its devices: leave it out of the compiled function")]
    NotCompiled {
        /// What was done, and where the program did it.
        op: String,
        /// What the compiler says.
        #[source]
        source: Box<meshwork_accel::Error>,
    },
    /// The backend compiles each step, and not all of them as one program.
    #[error(
        "{steps} steps cannot be compiled as one program, though each can: compile a part of them"
    )]
    NotCompiledTogether {
        /// How many.
        steps: usize,
        /// What the compiler says.
        #[source]
        source: Box<meshwork_accel::Error>,
    },
    /// A step of a program cannot be in one graph with the others.
    #[error("{op} cannot be compiled with the rest, as {why}: leave it out of the step")]
    NotOneGraph {
        /// What was done, and where the program did it.
        op: String,
        /// Why.
        why: Apart,
    },
    /// `visit` showed other variables than at the beginning of the call.
    #[error(
        "the variables shown are not those that the compiled call began with: show the same ones"
    )]
    VariablesChanged,
    /// Two tensors are of different contexts.
    #[error("the tensors belong to different contexts: make both by the same one")]
    OtherContext,
    /// A function that is lowered computes with a tensor that it captures.
    #[error(
        "a lowered function uses a tensor of its own: pass it as an input, or make it by an input's context"
    )]
    NotGiven,
    /// Two layouts that should be equal are not.
    #[error("the tensor lies by {found}, not by {expected}: relayout it")]
    LayoutDiffers {
        /// Its layout.
        found: Box<Layout>,
        /// The expected layout.
        expected: Box<Layout>,
    },
}

/// The message and its causes, as `main` and `unwrap` print them.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        meshwork_collectives::fmt_with_causes(self, f)
    }
}
