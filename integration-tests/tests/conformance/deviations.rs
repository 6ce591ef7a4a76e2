//! Where this project means to answer otherwise than the recorded system, and why.
//!
//! Each rule holds for any case it fits, whether or not it was recorded.

/// A rule by which an answer differs, and the reason in one line.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Deviation {
    /// What is done otherwise.
    pub(crate) rule: &'static str,
    /// Why.
    pub(crate) reason: &'static str,
}

impl Deviation {
    const fn new(rule: &'static str, reason: &'static str) -> Self {
        Self { rule, reason }
    }
}

/// Meshes and devices.
pub(crate) mod mesh {
    use super::Deviation;

    pub(crate) const EMPTY_DIM_NAME: Deviation = Deviation::new(
        "a mesh dimension has a name",
        "nothing can refer to a dimension without one",
    );
    pub(crate) const RESERVED_DIM_NAME: Deviation = Deviation::new(
        "no mesh dimension is named unsharded, match or any",
        "TensorFlow's constructor takes such a mesh, which its own parser refuses",
    );
    pub(crate) const DUPLICATE_DIM: Deviation = Deviation::new(
        "mesh dimensions have different names",
        "TensorFlow's constructor takes such a mesh, which its own parser refuses",
    );
    pub(crate) const SEPARATORS: Deviation = Deviation::new(
        "names have no character that separates names in text",
        "TensorFlow writes a text that it reads as another mesh, or crashes on",
    );
    pub(crate) const DUPLICATE_ID: Deviation = Deviation::new(
        "a device id stands for one device",
        "no id could be found again",
    );
    pub(crate) const FOREIGN_LOCAL_ID: Deviation = Deviation::new(
        "a local device id is one of the mesh",
        "TensorFlow fails later, when it asks where the device is",
    );
    pub(crate) const IDS_FROM_ELSEWHERE: Deviation = Deviation::new(
        "local devices have locations whatever the first id is",
        "TensorFlow takes ids for positions and fails with a KeyError",
    );
    pub(crate) const DEVICE_COUNT: Deviation = Deviation::new(
        "a list of devices has one for each id, or none",
        "nothing says which devices are left out",
    );
    pub(crate) const DUPLICATE_DEVICE: Deviation = Deviation::new(
        "a device stands at one place, but for one CPU at all",
        "TensorFlow's constructor refuses what its parsers do not look at",
    );
    pub(crate) const DEVICE_TYPES: Deviation = Deviation::new(
        "all devices of a mesh are of one type",
        "TensorFlow's constructor refuses what its parsers do not look at",
    );
    pub(crate) const NO_DEVICE: Deviation = Deviation::new(
        "a device has a name that says what it is",
        "TensorFlow takes any text here, and fails when the device is used",
    );
    pub(crate) const NUMBER_WITH_MORE: Deviation = Deviation::new(
        "a number has nothing behind it",
        "TensorFlow reads 2abc, 2.5 and 2=3 as 2",
    );
    pub(crate) const IMPOSSIBLE_SIZE: Deviation = Deviation::new(
        "a mesh with devices has sizes above 0",
        "TensorFlow runs out of memory, or keeps a mesh whose sizes do not count its devices",
    );
    pub(crate) const GLOBAL_DEVICES_KEPT: Deviation = Deviation::new(
        "global devices are read where a further part follows them",
        "TensorFlow loses them, so a mesh that it wrote comes back as another",
    );
    pub(crate) const EMPTY_KEEPS_NOTHING: Deviation = Deviation::new(
        "a mesh of no devices is the empty mesh",
        "TensorFlow prints it so, and sends its name and dimensions all the same",
    );
    pub(crate) const RANK_OUTSIDE: Deviation = Deviation::new(
        "a rank outside the mesh has no coordinates",
        "TensorFlow's coords wraps around where its device_location refuses",
    );
}

/// Layouts.
pub(crate) mod layout {
    use super::Deviation;

    pub(crate) const OPEN_SHARDS: Deviation = Deviation::new(
        "a dimension left to match has no shards",
        "TensorFlow counts 18446744073709551615 of them, and fails with a KeyError",
    );
    pub(crate) const AXES_THAT_ARE_NOT: Deviation = Deviation::new(
        "a tensor dimension that is deleted is there",
        "TensorFlow ignores one that is not, so -1 deletes nothing",
    );
    pub(crate) const LAST_COMMA: Deviation = Deviation::new(
        "a comma is missing after the last spec of a text",
        "TensorFlow loses the spec, and reads a layout of another rank",
    );
    pub(crate) const MESH_WITH_BLANKS: Deviation = Deviation::new(
        "a layout is read back whose mesh has blanks in its name",
        "TensorFlow writes such a text and does not read it",
    );
    pub(crate) const BEYOND_TENSORFLOW: Deviation = Deviation::new(
        "x|y cuts by two mesh dimensions, and partial:sum:z leaves one to reduce",
        "TensorFlow has no such layouts, so their text is free for them",
    );
    pub(crate) const UNEVEN_SHARDS: Deviation = Deviation::new(
        "uneven shards are exact",
        "TensorFlow rounds down, so the shards do not make up the tensor",
    );
    pub(crate) const UNKNOWN_SIZES: Deviation = Deviation::new(
        "sizes are known",
        "TensorFlow multiplies the -1 of an unknown size: -1 over 4 shards becomes -4",
    );
    pub(crate) const SHAPES_OF_OTHER_RANKS: Deviation = Deviation::new(
        "a shape has as many sizes as the layout has dimensions",
        "TensorFlow drops sizes that are too many, and reads out of bounds for too few",
    );
}

/// Cluster specs and the resolvers that need no network.
pub(crate) mod resolvers {
    use super::Deviation;

    pub(crate) const NO_TASKS: Deviation = Deviation::new(
        "a job without tasks has an empty list of them",
        "TensorFlow fails on the largest of no indices",
    );
    pub(crate) const NEGATIVE_INDEX: Deviation = Deviation::new(
        "task indices are not negative",
        "TensorFlow takes them, and fails when it lists the tasks",
    );
    pub(crate) const INDEX_TWICE: Deviation = Deviation::new(
        "an index is written once in a map of tasks",
        "TensorFlow drops the address under 1 for that under 01 without a word",
    );
    pub(crate) const JOB_TWICE: Deviation = Deviation::new(
        "a message names a job once",
        "TensorFlow drops the tasks under the first name from all answers but the message",
    );
    pub(crate) const TASK_ZERO: Deviation = Deviation::new(
        "a union can be told that its task is 0",
        "TensorFlow takes 0 for nothing",
    );
    pub(crate) const CONFIG_OBJECT: Deviation = Deviation::new(
        "TF_CONFIG is a JSON object",
        "TensorFlow takes a list or a text for an empty cluster",
    );
    pub(crate) const CHECKED_WHOLE: Deviation = Deviation::new(
        "a wrong field makes all of TF_CONFIG wrong",
        "TensorFlow answers by halves, and fails at the call that needs the other half",
    );
    pub(crate) const WHOLE_INDEX: Deviation = Deviation::new(
        "task.index is a whole number from 0 up",
        "TensorFlow makes 1 of true and of 1.9",
    );
    pub(crate) const TEXTS: Deviation = Deviation::new(
        "task.type, rpc_layer, session_master and addresses are texts",
        "TensorFlow makes the job None of null, and the layer 1 of 1",
    );
    pub(crate) const NOT_JSON: Deviation = Deviation::new(
        "TF_CONFIG is JSON, which has no NaN",
        "TensorFlow reads it and fails when the number is used",
    );
    pub(crate) const STRANGE_HOST: Deviation = Deviation::new(
        "the current SageMaker host is one of the hosts",
        "TensorFlow trains alone without a word",
    );
    pub(crate) const HOST_NAMES: Deviation = Deviation::new(
        "SM_HOSTS is a list of host names",
        "TensorFlow takes a text for its letters, and an object for its keys",
    );
    pub(crate) const BLANKS: Deviation = Deviation::new(
        "blanks separate hosts, and do not stand in brackets",
        "Slurm reads them so; TensorFlow makes them parts of names",
    );
    pub(crate) const DESCENDING: Deviation = Deviation::new(
        "a range of hosts ascends",
        "Slurm refuses others; TensorFlow makes nothing of them",
    );
    pub(crate) const EMPTY_ITEMS: Deviation = Deviation::new(
        "empty places in a list of hosts are left out",
        "Slurm does so",
    );
    pub(crate) const SEVERAL_BRACKETS: Deviation = Deviation::new(
        "a host may have several brackets",
        "Slurm writes such lists",
    );
    pub(crate) const BRACKETS: Deviation = Deviation::new(
        "brackets in a list of hosts come in pairs, none inside of another",
        "Slurm and TensorFlow make hosts with brackets in their names",
    );
    pub(crate) const RANGES: Deviation = Deviation::new(
        "ranges of hosts are of digits, have both ends, and stay below 2^64",
        "Slurm counts signs and blanks as digits, and drops what it cannot read",
    );
    pub(crate) const LONG_LISTS: Deviation = Deviation::new(
        "a range has at most 65536 hosts, and a list a million",
        "Slurm has the first limit, and a few characters can ask for more than memory holds",
    );
    pub(crate) const NODE_ORDER: Deviation = Deviation::new(
        "Slurm's ranks are in the order of its node list",
        "TensorFlow sorts names as text, and connects to n10 for a rank that runs on n8",
    );
    pub(crate) const KNOWS_AT_ONCE: Deviation = Deviation::new(
        "a Slurm task knows itself at the first question",
        "TensorFlow knows nothing until it has been asked for the cluster",
    );
    pub(crate) const CHANGES_NOTHING: Deviation = Deviation::new(
        "asking who is in the cluster changes no variable",
        "TensorFlow overwrites CUDA_VISIBLE_DEVICES, from 0 up whatever it held",
    );
    pub(crate) const HIDDEN_DEVICES: Deviation = Deviation::new(
        "hidden GPUs do not count",
        "TensorFlow counts one in an empty CUDA_VISIBLE_DEVICES",
    );
    pub(crate) const NO_GPUS: Deviation = Deviation::new(
        "a step may have fewer GPUs than tasks, and none",
        "TensorFlow fails with a step of zero",
    );
    pub(crate) const NO_NVIDIA_SMI: Deviation = Deviation::new(
        "a machine may have no nvidia-smi",
        "TensorFlow fails on the missing file",
    );
    pub(crate) const LENGTHS_DIFFER: Deviation = Deviation::new(
        "nodes and counts of a step are equally many",
        "TensorFlow drops what is over, with its tasks",
    );
    pub(crate) const STRANGE_RANK: Deviation = Deviation::new(
        "a rank is one of its step",
        "TensorFlow answers without a task, or fails on the index",
    );
}

/// Initialisation, and values on meshes.
pub(crate) mod dtensor {
    use super::Deviation;

    pub(crate) const NAMELESS_JOB: Deviation = Deviation::new(
        "a job has a name that can stand in that of a device",
        "TensorFlow makes device names that it cannot read",
    );
    pub(crate) const NO_CPUS: Deviation = Deviation::new(
        "a process has one logical CPU at least",
        "TensorFlow takes any number, also a negative one, and leaves the process without devices",
    );
    pub(crate) const SHUT_DOWN_TOGETHER: Deviation = Deviation::new(
        "a system of listed jobs can be shut down, by all of them together",
        "TensorFlow refuses, so that a process has to end",
    );
    pub(crate) const GATHERED: Deviation = Deviation::new(
        "the host gets all elements of a tensor from any layout",
        "TensorFlow has no way to gather a tensor that is cut, and refuses",
    );
    pub(crate) const NO_TEXTS: Deviation = Deviation::new(
        "elements are numbers or truth values",
        "no device and no reduction knows texts, in TensorFlow either",
    );
    pub(crate) const NO_TRACING: Deviation = Deviation::new(
        "a program does what it says when it says it",
        "TensorFlow refuses to pack while it records a function for later, and nothing is recorded here",
    );
    pub(crate) const NO_CUSTOM_DEVICE: Deviation = Deviation::new(
        "tensors on a mesh are a type, and no device of their own",
        "TensorFlow names a device that is none, so that its ops find their way",
    );
    pub(crate) const SCOPES_END: Deviation = Deviation::new(
        "a default mesh ends with its scope, also by an error",
        "TensorFlow keeps it after an exception, for all that follows",
    );
    pub(crate) const SEEDED_GRADIENTS: Deviation = Deviation::new(
        "gradients need no default mesh",
        "TensorFlow seeds them with a plain tensor, which its own ops then refuse",
    );
    pub(crate) const PLAIN_ARRAYS: Deviation = Deviation::new(
        "an array of the host becomes a tensor by a copy, whatever its elements and size",
        "TensorFlow takes small arrays of whole numbers and fails when they are larger, or fractions",
    );
    pub(crate) const CHECKPOINT_FILES: Deviation = Deviation::new(
        "a checkpoint is one file of safetensors for each client, and an index",
        "TensorFlow's format is its own; any library reads ours",
    );
    pub(crate) const ALL_SAMPLES: Deviation = Deviation::new(
        "every element of a batch is on some device, where the layout says",
        "TensorFlow deals each replica the first slice only where another axis is cut too",
    );
    pub(crate) const UNEVEN_BATCH: Deviation = Deviation::new(
        "a batch that is dealt to no replicas may be cut unevenly",
        "TensorFlow refuses sizes that do not divide, though every rank's part is well defined",
    );
    pub(crate) const OPEN_PACK: Deviation = Deviation::new(
        "blocks are packed by a layout without open axes",
        "TensorFlow makes a tensor of which a size is unknown",
    );
}

/// Tensors that move from layout to layout.
pub(crate) mod relayout {
    use super::Deviation;

    pub(crate) const UNEVEN: Deviation = Deviation::new(
        "shards may be uneven or empty",
        "TensorFlow refuses sizes that do not divide, though every rank's part is well defined",
    );
    pub(crate) const BETWEEN_MESHES: Deviation = Deviation::new(
        "a tensor goes to another mesh of its devices, however it is cut",
        "TensorFlow fails inside unless both are replicated, or returns one shard for the whole",
    );
}

/// Resolvers that ask services.
pub(crate) mod cluster_http {
    use super::Deviation;

    pub(crate) const BUILT_ONCE: Deviation = Deviation::new(
        "a resolver is built, and not changed afterwards",
        "there is nothing to assign to, so nothing to refuse when the program runs",
    );
    pub(crate) const LINKED: Deviation = Deviation::new(
        "client libraries are part of the program",
        "a missing one is found when the program is built",
    );
    pub(crate) const TYPED: Deviation =
        Deviation::new("arguments have types", "this misuse cannot be written down");
    pub(crate) const NO_FLAGS: Deviation = Deviation::new(
        "there are no flags of the process",
        "what they say is an argument, which is always there",
    );
    pub(crate) const EMPTY_VARIABLE: Deviation = Deviation::new(
        "an empty variable counts as unset",
        "nothing has an empty name or an empty address",
    );
    pub(crate) const GCE_ORDER: Deviation = Deviation::new(
        "machines of a group are ordered by name, numbers in it by value",
        "TensorFlow orders addresses as text, so indices follow neither names nor numbers",
    );
    pub(crate) const GCE_EMPTY_PAGE: Deviation = Deviation::new(
        "a page without a list of machines is an empty one",
        "the service leaves out an empty list, and TensorFlow fails with a KeyError",
    );
    pub(crate) const GCE_REAL: Deviation = Deviation::new(
        "instance groups are asked for as the service wants it",
        "TensorFlow has a parameter that Google's own client refuses, and works with stand-ins only",
    );
    pub(crate) const K8S_POD_IP: Deviation = Deviation::new(
        "the address of a pod is its own IP, and its index counts numbers by value",
        "TensorFlow gives all pods of one host one address, and puts w10 before w9",
    );
    pub(crate) const K8S_FINISHED: Deviation = Deviation::new(
        "pods that are finished have no part in the cluster",
        "in TensorFlow one finished pod makes every answer fail",
    );
    pub(crate) const K8S_WITHIN: Deviation = Deviation::new(
        "inside a cluster its API server is asked by the service account",
        "TensorFlow looks for a kubeconfig there too, which no pod has",
    );
    pub(crate) const TPU_HEALTH: Deviation = Deviation::new(
        "a TPU that says it is unhealthy is no cluster",
        "TensorFlow does not look, and its first step hangs",
    );
    pub(crate) const TPU_ADDRESS: Deviation = Deviation::new(
        "addresses of TPU workers are read whole: blanks, IPv6, and an error for what is none",
        "TensorFlow cuts them at colons into hosts that nobody has",
    );
    pub(crate) const TPU_COORDINATOR: Deviation = Deviation::new(
        "a coordinator has a name of its own and an address",
        "in TensorFlow one named as the workers replaces them, one without a name is a TypeError",
    );
    pub(crate) const TPU_LOCAL: Deviation = Deviation::new(
        "a local TPU is local however it is named, and asks no service",
        "TensorFlow makes a client for it, which it then does not use",
    );
    pub(crate) const TPU_COUNT: Deviation = Deviation::new(
        "TPU cores are counted by type, topology and the backend's devices",
        "TensorFlow asks its session's master up to 121 times, and there is no such master here",
    );
    pub(crate) const TIMES: Deviation = Deviation::new(
        "times are read in every form of RFC 3339",
        "TensorFlow cannot read one without a fraction, which the service sends",
    );
    pub(crate) const TOKEN: Deviation = Deviation::new(
        "a token of the machine's account is asked for in one question",
        "the account's name, which TensorFlow asks for before, is not needed",
    );
    pub(crate) const RETRY: Deviation = Deviation::new(
        "answers that say not now are asked for again until the deadline",
        "TensorFlow gives up at the first one",
    );
    pub(crate) const TRIMMED: Deviation = Deviation::new(
        "blanks around a text of the metadata server do not count",
        "TensorFlow puts them into the names it asks for",
    );
}

/// The strategy, its input, and what it stands on.
pub(crate) mod strategy {
    use super::Deviation;

    pub(crate) const EMPTY_CHIEF: Deviation = Deviation::new(
        "a chief job without tasks is no chief",
        "TensorFlow then appoints nobody, and waits for a leader that does not exist",
    );
    pub(crate) const HOLES: Deviation = Deviation::new(
        "a task is one that the cluster lists",
        "TensorFlow compares its index with the number of tasks, and takes absent ones for present",
    );
    pub(crate) const NO_KEYS: Deviation = Deviation::new(
        "groups and operations have no keys that a user hands out",
        "members are listed when a group is made, and it numbers its operations itself",
    );
    pub(crate) const NO_NCCL_HINT: Deviation = Deviation::new(
        "no option asks for NCCL",
        "the backend of the devices decides; options are merged alike all the same",
    );
    pub(crate) const NEGATIVE_TIME: Deviation = Deviation::new(
        "a time limit is not negative",
        "TensorFlow does not look at it, and fails in the first operation",
    );
    pub(crate) const TOO_FEW_FILES: Deviation = Deviation::new(
        "files for fewer workers than there are, are an error on all of them",
        "TensorFlow fails on some workers, and leaves the others without data and waiting",
    );
    pub(crate) const FEW_FILES_BY_DATA: Deviation = Deviation::new(
        "an automatic split of fewer files than workers is by data",
        "TensorFlow tries it by file, and fails",
    );
    pub(crate) const INTEGER_MEAN: Deviation = Deviation::new(
        "there is no mean of integers",
        "TensorFlow changes the type to float64, which is for the caller to do where he means it",
    );
    pub(crate) const PLAIN_VALUE: Deviation = Deviation::new(
        "what is reduced is one value for each replica",
        "TensorFlow counts a plain value once, for each worker, or for each replica, as it comes",
    );
    pub(crate) const EQUAL_VALUES: Deviation = Deviation::new(
        "what replicas assign is summed, also where all assign the same",
        "TensorFlow refuses a constant, and sums a tensor of the same value",
    );
    pub(crate) const ONE_REPLICA: Deviation = Deviation::new(
        "one replica reduces as several do",
        "TensorFlow's all-reduce of one replica fails for some types",
    );
    pub(crate) const MIXED_TYPES: Deviation = Deviation::new(
        "integers and floats are reduced in one step",
        "TensorFlow takes different ways for them, and refuses both together",
    );
    pub(crate) const NOTHING_AMBIENT: Deviation = Deviation::new(
        "scopes and contexts are values that are passed on",
        "nothing is current that could be another strategy's, entered twice, or missing",
    );
}
