//! Where this project means to answer otherwise than the recorded system, and why.
//!
//! Each rule holds for any case it fits, whether or not it was recorded. Who names one has held our
//! own answer against what the rule says it is.

/// A rule by which an answer differs, and the reason in one line.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Deviation {
    /// What is done otherwise.
    pub(crate) rule: &'static str,
    /// Why.
    pub(crate) reason: &'static str,
}

/// All rules, each of which some recorded case has to fit.
pub(crate) fn all() -> impl Iterator<Item = &'static Deviation> {
    let modules = [
        mesh::ALL,
        layout::ALL,
        resolvers::ALL,
        dtensor::ALL,
        relayout::ALL,
        cluster_http::ALL,
        strategy::ALL,
    ];
    modules.into_iter().flatten()
}

/// Names rules, and lists them.
macro_rules! rules {
    ($($name:ident: $rule:literal, $reason:literal;)+) => {
        $(pub(crate) const $name: Deviation = Deviation { rule: $rule, reason: $reason };)+

        pub(super) const ALL: &[Deviation] = &[$($name),+];
    };
}

/// Meshes and devices.
pub(crate) mod mesh {
    use super::Deviation;

    rules! {
        EMPTY_DIM_NAME:
            "a mesh dimension has a name",
            "nothing can refer to a dimension without one";
        RESERVED_DIM_NAME:
            "no mesh dimension is named unsharded, match or any",
            "TensorFlow's constructor takes such a mesh, which its own parser refuses";
        DUPLICATE_DIM:
            "mesh dimensions have different names",
            "TensorFlow's constructor takes such a mesh, which its own parser refuses";
        SEPARATORS:
            "names have no character that separates names in text",
            "TensorFlow writes a text that it reads as another mesh, or crashes on";
        DUPLICATE_ID:
            "a device id stands for one device",
            "no id could be found again";
        FOREIGN_LOCAL_ID:
            "a local device id is one of the mesh",
            "TensorFlow fails later, when it asks where the device is";
        IDS_FROM_ELSEWHERE:
            "local devices have locations whatever the first id is",
            "TensorFlow takes ids for positions and fails with a KeyError";
        DEVICE_COUNT:
            "a list of devices has one for each id, or none",
            "nothing says which devices are left out";
        DUPLICATE_DEVICE:
            "a device stands at one place, but for one CPU at all",
            "TensorFlow's constructor refuses what its parsers do not look at";
        DEVICE_TYPES:
            "all devices of a mesh are of one type",
            "TensorFlow's constructor refuses what its parsers do not look at";
        NO_DEVICE:
            "a device has a name that says what it is",
            "TensorFlow takes any text here, and fails when the device is used";
        NUMBER_WITH_MORE:
            "a number has nothing behind it",
            "TensorFlow reads 2abc, 2.5 and 2=3 as 2";
        IMPOSSIBLE_SIZE:
            "a mesh with devices has sizes above 0",
            "TensorFlow runs out of memory, or keeps a mesh whose sizes do not count its devices";
        GLOBAL_DEVICES_KEPT:
            "global devices are read where a further part follows them",
            "TensorFlow loses them, so a mesh that it wrote comes back as another";
        EMPTY_KEEPS_NOTHING:
            "a mesh of no devices is the empty mesh",
            "TensorFlow prints it so, and sends its name and dimensions all the same";
        INFERRED_SIZE:
            "the size of the only dimension is found for several processes as for one",
            "TensorFlow takes -1 for a size there, which no number of devices is";
        RANK_OUTSIDE:
            "a rank outside the mesh has no coordinates",
            "TensorFlow's coords wraps around where its device_location refuses";
    }
}

/// Layouts.
pub(crate) mod layout {
    use super::Deviation;

    rules! {
        OPEN_SHARDS:
            "a dimension left to match has no shards",
            "TensorFlow counts 18446744073709551615 of them, and fails with a KeyError";
        NO_DEVICE:
            "one device has a name that says what it is",
            "TensorFlow takes any text here, and fails when the device is used";
        AXES_THAT_ARE_NOT:
            "a tensor dimension that is deleted is there",
            "TensorFlow ignores one that is not, so -1 deletes nothing";
        LAST_COMMA:
            "a comma is missing after the last spec of a text",
            "TensorFlow loses the spec, and reads a layout of another rank";
        MESH_WITH_BLANKS:
            "a layout is read back whose mesh has blanks in its name",
            "TensorFlow writes such a text and does not read it";
        BEYOND_TENSORFLOW:
            "x|y cuts by two mesh dimensions, and partial:sum:z leaves one to reduce",
            "TensorFlow has no such layouts, so their text is free for them";
        UNEVEN_SHARDS:
            "uneven shards are exact",
            "TensorFlow rounds down, so the shards do not make up the tensor";
        UNKNOWN_SIZES:
            "sizes are known",
            "TensorFlow multiplies the -1 of an unknown size: -1 over 4 shards becomes -4";
        SHAPES_OF_OTHER_RANKS:
            "a shape has as many sizes as the layout has dimensions",
            "TensorFlow drops sizes that are too many, and reads out of bounds for too few";
    }
}

/// Cluster specs and the resolvers that need no network.
pub(crate) mod resolvers {
    use super::Deviation;

    rules! {
        NO_TASKS:
            "a job without tasks has an empty list of them",
            "TensorFlow fails on the largest of no indices";
        NEGATIVE_INDEX:
            "task indices are not negative",
            "TensorFlow takes them, and fails when it lists the tasks";
        INDEX_TWICE:
            "an index is written once in a map of tasks",
            "TensorFlow drops the address under 1 for that under 01 without a word";
        JOB_TWICE:
            "a message names a job once",
            "TensorFlow drops the tasks under the first name from all answers but the message";
        TASK_ZERO:
            "a union can be told that its task is 0",
            "TensorFlow takes 0 for nothing";
        CONFIG_OBJECT:
            "TF_CONFIG is a JSON object",
            "TensorFlow takes a list or a text for an empty cluster";
        CHECKED_WHOLE:
            "a wrong field makes all of TF_CONFIG wrong",
            "TensorFlow answers by halves, and fails at the call that needs the other half";
        WHOLE_INDEX:
            "task.index is a whole number from 0 up",
            "TensorFlow makes 1 of true and of 1.9";
        TEXTS:
            "task.type, rpc_layer, session_master and addresses are texts",
            "TensorFlow makes the job None of null, and the layer 1 of 1";
        NOT_JSON:
            "TF_CONFIG is JSON, which has no NaN",
            "TensorFlow reads it and fails when the number is used";
        STRANGE_HOST:
            "the current SageMaker host is one of the hosts",
            "TensorFlow trains alone without a word";
        HOST_NAMES:
            "SM_HOSTS is a list of host names",
            "TensorFlow takes a text for its letters, and an object for its keys";
        BLANKS:
            "blanks separate hosts, and do not stand in brackets",
            "Slurm reads them so; TensorFlow makes them parts of names";
        DESCENDING:
            "a range of hosts ascends",
            "Slurm refuses others; TensorFlow makes nothing of them";
        EMPTY_ITEMS:
            "empty places in a list of hosts are left out",
            "Slurm does so";
        SEVERAL_BRACKETS:
            "a host may have several brackets",
            "Slurm writes such lists";
        BRACKETS:
            "brackets in a list of hosts come in pairs, none inside of another",
            "Slurm and TensorFlow make hosts with brackets in their names";
        RANGES:
            "ranges of hosts are of digits, have both ends, and stay below 2^64",
            "Slurm counts signs and blanks as digits, and drops what it cannot read";
        LONG_LISTS:
            "a range has at most 65536 hosts, and a list a million",
            "Slurm has the first limit, and a few characters can ask for more than memory holds";
        NODE_ORDER:
            "Slurm's ranks are in the order of its node list",
            "TensorFlow sorts names as text, and connects to n10 for a rank that runs on n8";
        KNOWS_AT_ONCE:
            "a Slurm task knows itself at the first question",
            "TensorFlow knows nothing until it has been asked for the cluster";
        CHANGES_NOTHING:
            "asking who is in the cluster changes no variable",
            "TensorFlow overwrites CUDA_VISIBLE_DEVICES, from 0 up whatever it held";
        HIDDEN_DEVICES:
            "hidden GPUs do not count",
            "TensorFlow counts one in an empty CUDA_VISIBLE_DEVICES";
        NO_GPUS:
            "a step may have fewer GPUs than tasks, and none",
            "TensorFlow fails with a step of zero";
        NO_NVIDIA_SMI:
            "a machine may have no nvidia-smi",
            "TensorFlow fails on the missing file";
        LENGTHS_DIFFER:
            "nodes and counts of a step are equally many",
            "TensorFlow drops what is over, with its tasks";
        STRANGE_RANK:
            "a rank is one of its step",
            "TensorFlow answers without a task, or fails on the index";
    }
}

/// Initialisation, and values on meshes.
pub(crate) mod dtensor {
    use super::Deviation;

    rules! {
        NAMELESS_JOB:
            "a job has a name that can stand in that of a device",
            "TensorFlow makes device names that it cannot read";
        SHUT_DOWN_TOGETHER:
            "a system of listed jobs can be shut down, by all of them together",
            "TensorFlow refuses, so that a process has to end";
        GATHERED:
            "the host gets all elements of a tensor from any layout",
            "TensorFlow has no way to gather a tensor that is cut, and refuses";
        SCOPES_END:
            "a default mesh ends with its scope, also by an error",
            "TensorFlow keeps it after an exception, for all that follows";
        SEEDED_GRADIENTS:
            "gradients need no default mesh",
            "TensorFlow seeds them with a plain tensor, which its own ops then refuse";
        PLAIN_ARRAYS:
            "an array of the host becomes a tensor by a copy, whatever its elements and size",
            "TensorFlow takes small arrays of whole numbers and fails when they are larger, or fractions";
        SHOWN:
            "a tensor is shown as a struct, with its shape, layout and blocks",
            "TensorFlow prints the text of a Python object";
        RANDOM_NUMBERS:
            "random numbers are the same by any layout",
            "TensorFlow draws them for each shard on its own";
        CHECKPOINT_FILES:
            "a checkpoint is one file of safetensors for each client, and an index",
            "TensorFlow's format is its own; any library reads ours";
        ALL_SAMPLES:
            "every element of a batch is on some device, where the layout says",
            "TensorFlow deals each replica the first slice only where another axis is cut too";
        BATCH_DIM:
            "a batch is dealt along the dimension of the mesh that it is cut by",
            "TensorFlow deals replicas to devices by their numbers, as if it were the first";
        UNEVEN_BATCH:
            "a batch that is dealt to no replicas may be cut unevenly",
            "TensorFlow refuses sizes that do not divide, though every rank's part is well defined";
        OPEN_PACK:
            "blocks are packed by a layout without open axes",
            "TensorFlow makes a tensor of which a size is unknown";
    }
}

/// Tensors that move from layout to layout.
pub(crate) mod relayout {
    use super::Deviation;

    rules! {
        UNEVEN:
            "shards may be uneven or empty",
            "TensorFlow refuses sizes that do not divide, though every rank's part is well defined";
        BETWEEN_MESHES:
            "a tensor goes to another mesh of its devices, however it is cut",
            "TensorFlow fails inside unless both are replicated, or returns one shard for the whole";
    }
}

/// Resolvers that ask services.
pub(crate) mod cluster_http {
    use super::Deviation;

    rules! {
        EMPTY_VARIABLE:
            "an empty variable counts as unset",
            "nothing has an empty name or an empty address";
        GCE_ORDER:
            "machines of a group are ordered by name, numbers in it by value",
            "TensorFlow orders addresses as text, so indices follow neither names nor numbers";
        GCE_EMPTY_PAGE:
            "a page without a list of machines is an empty one",
            "the service leaves out an empty list, and TensorFlow fails with a KeyError";
        GCE_REAL:
            "instance groups are asked for as the service wants it",
            "TensorFlow has a parameter that Google's own client refuses, and works with stand-ins only";
        K8S_POD_IP:
            "the address of a pod is its own IP, and its index counts numbers by value",
            "TensorFlow gives all pods of one host one address, and puts w10 before w9";
        K8S_FINISHED:
            "pods that are finished have no part in the cluster",
            "in TensorFlow one finished pod makes every answer fail";
        K8S_WITHIN:
            "inside a cluster its API server is asked by the service account",
            "TensorFlow looks for a kubeconfig there too, which no pod has";
        TPU_HEALTH:
            "a TPU that says it is unhealthy is no cluster",
            "TensorFlow does not look, and its first step hangs";
        TPU_ADDRESS:
            "addresses of TPU workers are read whole: blanks, IPv6, and an error for what is none",
            "TensorFlow cuts them at colons into hosts that nobody has";
        TPU_COORDINATOR:
            "a coordinator has a name of its own and an address",
            "in TensorFlow one named as the workers replaces them, one without a name is a TypeError";
        TPU_LOCAL:
            "a local TPU is local however it is named, and asks no service",
            "TensorFlow makes a client for it, which it then does not use";
        TPU_COUNT:
            "TPU cores are counted by type, topology and the backend's devices",
            "TensorFlow asks its session's master up to 121 times, and there is no such master here";
        TIMES:
            "times are read in every form of RFC 3339",
            "TensorFlow cannot read one without a fraction, which the service sends";
        TOKEN:
            "a token of the machine's account is asked for in one question",
            "the account's name, which TensorFlow asks for before, is not needed";
        RETRY:
            "answers that say not now are asked for again until the deadline",
            "TensorFlow gives up at the first one";
        TRIMMED:
            "blanks around a text of the metadata server do not count",
            "TensorFlow puts them into the names it asks for";
    }
}

/// The strategy, its input, and what it stands on.
pub(crate) mod strategy {
    use super::Deviation;

    rules! {
        EMPTY_CHIEF:
            "a chief job without tasks is no chief",
            "TensorFlow then appoints nobody, and waits for a leader that does not exist";
        HOLES:
            "a task is one that the cluster lists",
            "TensorFlow compares its index with the number of tasks, and takes absent ones for present";
        NO_NCCL_HINT:
            "no option asks for NCCL",
            "the backend of the devices decides; options are merged alike all the same";
        TOO_FEW_FILES:
            "files for fewer workers than there are, are an error on all of them",
            "TensorFlow fails on some workers, and leaves the others without data and waiting";
        FEW_FILES_BY_DATA:
            "an automatic split of fewer files than workers is by data",
            "TensorFlow tries it by file, and fails";
        INTEGER_MEAN:
            "there is no mean of integers",
            "TensorFlow changes the type to float64, which is for the caller to do where he means it";
        EQUAL_VALUES:
            "what replicas assign is summed, also where all assign the same",
            "TensorFlow refuses a constant, and sums a tensor of the same value";
        ONE_REPLICA:
            "one replica reduces as several do",
            "TensorFlow's all-reduce of one replica fails for some types";
        MIXED_TYPES:
            "integers and floats are reduced in one step",
            "TensorFlow takes different ways for them, and refuses both together";
    }
}
