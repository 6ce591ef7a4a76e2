/// What is wrong with a snapshot.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotDamage {
    /// A file, or the index that names it, is not what was saved.
    #[error(transparent)]
    File(#[from] meshwork_checkpoint::FileDamage),
    /// The bytes end early, or were never a safetensors file.
    #[error("it is no whole safetensors file")]
    Format,
    /// A field that every snapshot has is missing or unreadable.
    #[error("it has no field {field} that can be used")]
    Field {
        /// The name in the file's metadata.
        field: &'static str,
    },
    /// The content is another one than was written.
    #[error("its content has the hash {found:016x} and not {stated:016x}")]
    Hash {
        /// The hash that is written in the file.
        stated: u64,
        /// The hash of what is there.
        found: u64,
    },
}
