//! Why some questions cannot be put here at all.
//!
//! Nothing is compared then. Where the recorded system refuses such a question when it runs, this
//! project refuses it when it is compiled.

pub(crate) const TYPES: &str = "arguments have types, and what has another does not compile";
pub(crate) const NOT_NEGATIVE: &str = "sizes, ranks and axes count from 0";
pub(crate) const NO_CPUS: &str = "a process has one logical CPU at least";
pub(crate) const NEGATIVE_TIME: &str = "a time limit is not negative";
pub(crate) const IN_PAIRS: &str = "names and sizes of mesh dimensions are given in pairs";
pub(crate) const FOUR: &str = "slices of TPUs have a topology of four sizes, which count from 0";
pub(crate) const BUILT_ONCE: &str = "a resolver is built, and not changed afterwards";
pub(crate) const LINKED: &str = "client libraries are part of the program";
pub(crate) const NO_FLAGS: &str = "there are no flags of the process";
pub(crate) const TEXTS: &str = "elements are numbers or truth values, which devices can reduce";
pub(crate) const TRACING: &str = "nothing records a function for later";
pub(crate) const CUSTOM_DEVICE: &str = "tensors on a mesh are a type, and no device of their own";
pub(crate) const KEYS: &str =
    "members are listed when a group is made, and it numbers its operations";
pub(crate) const AMBIENT: &str = "scopes and contexts are values that are passed on";
pub(crate) const PLAIN_VALUE: &str = "what is reduced is one value for each replica";
pub(crate) const UNTOLD: &str = "the record names a program that is not written down";
pub(crate) const ONE_PROCESS: &str = "what it is about is in one process";
pub(crate) const OTHER_MESH: &str = "its mesh has another number of devices than the clients";
