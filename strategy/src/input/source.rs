//! `Input`: a re-openable source of batches from memory, files or shards, and the auto-shard
//! policy, TensorFlow's `AutoShardPolicy`.

use std::fmt;
use std::path::PathBuf;

use super::common::Common;
use super::{InputContext, InputShard, ReplicaShards, replica_batch_sizes};
use crate::{Error, Rows};

/// How the input is split among the workers.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[doc(alias = "AutoShardPolicy")]
pub enum AutoShard {
    /// By file, where the input has at least as many files as there are workers, as its maker
    /// wishes, where it takes a [`InputShard`], and by data otherwise, or to end an epoch that was
    /// split so.
    #[default]
    Auto,
    /// Every worker reads everything, cut at places of its own. For data that differ from worker
    /// to worker anyway.
    Off,
    /// Each worker reads some of the files.
    File,
    /// Each worker reads everything, and keeps its part of every batch.
    Data,
    /// The maker of the input is given the share to make; where it does not ask, this is
    /// [`Off`](Self::Off).
    Hint,
}

/// A source of batches that can be read again in each epoch, whole or in part.
///
/// ```
/// use meshwork_strategy::{AutoShard, Input, InputContext};
///
/// // Batches of 4 out of 10 numbers.
/// let input = Input::batches(|_epoch| {
///     let numbers: Vec<u32> = (0..10).collect();
///     numbers.chunks(4).map(<[u32]>::to_vec).collect::<Vec<_>>()
/// });
/// let second_of_two = InputContext::new(2, 1, 2)?;
/// let own: Vec<_> = input.replica_shards(AutoShard::Auto, &second_of_two, 0)?.flatten().collect();
/// assert_eq!(own, [vec![2, 3], vec![6, 7], vec![9]]);
/// # Ok::<(), meshwork_strategy::Error>(())
/// ```
pub struct Input<B> {
    source: Source<B>,
    batch: Option<usize>,
}

type Batches<B> = Box<dyn Iterator<Item = B> + Send>;

/// Opens some of something, for an epoch.
type Open<Part, B> = Box<dyn Fn(Part, u64) -> Batches<B> + Send + Sync>;

type OpenFiles<B> = Box<dyn Fn(&[PathBuf], u64) -> Batches<B> + Send + Sync>;

enum Source<B> {
    Memory(Box<dyn Fn(u64) -> Batches<B> + Send + Sync>),
    Files {
        files: Vec<PathBuf>,
        open: OpenFiles<B>,
    },
    Sharded(Open<InputShard, B>),
}

impl<B: Rows + Send + 'static> Input<B> {
    /// The batches that `open` gives for an epoch, from 0; the same in the same order on every
    /// worker, which nothing compares.
    pub fn batches<I>(open: impl Fn(u64) -> I + Send + Sync + 'static) -> Self
    where
        I: IntoIterator<Item = B, IntoIter: Send + 'static>,
    {
        Self::new(Source::Memory(Box::new(move |epoch| {
            Box::new(open(epoch).into_iter())
        })))
    }

    /// The batches that `open` reads from some of these `files` in an epoch: the same files in the
    /// same order on every worker, so sort what [`read_dir`](std::fs::read_dir) gives. Wherever
    /// they are shared, the workers compare their names, without folders, in each step. Behind
    /// [`split_along`](crate::MultiWorkerMirroredStrategy::split_along) they do in the first, also
    /// those that compute one replica.
    ///
    /// ```
    /// use meshwork_strategy::Input;
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # std::fs::write(folder.path().join("0.txt"), "a\nb\n")?;
    /// let entries = std::fs::read_dir(folder.path())?;
    /// let files = entries.map(|entry| entry.map(|entry| entry.path()));
    /// let mut files = files.collect::<Result<Vec<_>, _>>()?;
    /// files.sort();
    /// let input = Input::files(files, |files, _epoch| {
    ///     let texts = files.iter().map(std::fs::read_to_string);
    ///     texts.map(|text| vec![text.expect("its file was there")]).collect::<Vec<_>>()
    /// })?;
    /// # let _ = input;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoFiles`] without any.
    pub fn files<I>(
        files: impl IntoIterator<Item = impl Into<PathBuf>>,
        open: impl Fn(&[PathBuf], u64) -> I + Send + Sync + 'static,
    ) -> Result<Self, Error>
    where
        I: IntoIterator<Item = B, IntoIter: Send + 'static>,
    {
        let files: Vec<PathBuf> = files.into_iter().map(Into::into).collect();
        if files.is_empty() {
            return Err(Error::NoFiles);
        }
        let open = Box::new(move |files: &[PathBuf], epoch| -> Batches<B> {
            Box::new(open(files, epoch).into_iter())
        });
        Ok(Self::new(Source::Files { files, open }))
    }

    /// The batches that `open` gives for a share of the data and an epoch.
    pub fn sharded<I>(open: impl Fn(InputShard, u64) -> I + Send + Sync + 'static) -> Self
    where
        I: IntoIterator<Item = B, IntoIter: Send + 'static>,
    {
        Self::new(Source::Sharded(Box::new(move |shard, epoch| {
            Box::new(open(shard, epoch).into_iter())
        })))
    }

    fn new(source: Source<B>) -> Self {
        Self {
            source,
            batch: None,
        }
    }

    /// Says that all batches but the last have `rows` samples.
    ///
    /// Where the input is not split by data, shards then differ by one sample at most; otherwise
    /// the last replicas of a batch may have none.
    ///
    /// # Errors
    /// [`Error::NoSamples`] for 0.
    pub fn with_batch_size(mut self, rows: usize) -> Result<Self, Error> {
        if rows == 0 {
            return Err(Error::NoSamples);
        }
        self.batch = Some(rows);
        Ok(self)
    }

    /// The shards that the replicas of one worker take in turn during an epoch.
    ///
    /// # Errors
    /// [`Error::NotFiles`] to split by file an input that has none, [`Error::TooFewFiles`].
    pub fn replica_shards(
        &self,
        policy: AutoShard,
        context: &InputContext,
        epoch: u64,
    ) -> Result<ReplicaShards<B>, Error> {
        let policy = self.resolve_policy(policy, context)?;
        let batches = self.open(policy, context.shard(), epoch);
        let replicas = context.num_replicas_in_sync();
        if replicas == 1 {
            return Ok(ReplicaShards::whole(batches));
        }
        Ok(match (policy, self.batch) {
            (ResolvedPolicy::Data, _) => {
                ReplicaShards::even(batches, replicas).shard(context.shard())
            }
            (_, None) => ReplicaShards::even(batches, replicas),
            (_, Some(batch)) => {
                let (workers, local) = (context.pipelines(), context.local_replicas());
                let sizes = replica_batch_sizes(batch, workers, local, context.pipeline());
                ReplicaShards::of_sizes(batches, sizes)
            }
        })
    }

    /// Whether a step takes the same samples whatever the number of replicas.
    pub(super) fn steps_are_batches(
        &self,
        policy: AutoShard,
        context: &InputContext,
    ) -> Result<bool, Error> {
        Ok(self.resolve_policy(policy, context)? == ResolvedPolicy::Data)
    }

    /// What of it has to be the same on all workers.
    pub(super) fn common(
        &self,
        policy: AutoShard,
        context: &InputContext,
    ) -> Result<Common, Error> {
        let policy = self.resolve_policy(policy, context)?;
        Ok(match (&self.source, policy) {
            (_, ResolvedPolicy::Off) => Common::default(),
            (Source::Files { files, .. }, _) => Common::new(files, policy as u64),
            (Source::Memory(_) | Source::Sharded(_), _) => Common::new(&[], policy as u64),
        })
    }

    fn resolve_policy(
        &self,
        policy: AutoShard,
        context: &InputContext,
    ) -> Result<ResolvedPolicy, Error> {
        let workers = context.pipelines();
        let files = match &self.source {
            Source::Files { files, .. } => Some(files.len()),
            _ => None,
        };
        let asks = matches!(self.source, Source::Sharded(_));
        match policy {
            AutoShard::Off => Ok(ResolvedPolicy::Off),
            AutoShard::Data => Ok(ResolvedPolicy::Data),
            AutoShard::Hint if asks => Ok(ResolvedPolicy::Hint),
            AutoShard::Hint => Ok(ResolvedPolicy::Off),
            AutoShard::Auto if files.is_some_and(|files| files >= workers) => {
                Ok(ResolvedPolicy::File)
            }
            AutoShard::Auto if asks => Ok(ResolvedPolicy::Hint),
            AutoShard::Auto => Ok(ResolvedPolicy::Data),
            AutoShard::File if workers == 1 => Ok(ResolvedPolicy::File),
            AutoShard::File => match files {
                None => Err(Error::NotFiles { workers }),
                Some(files) if files < workers => Err(Error::TooFewFiles { files, workers }),
                Some(_) => Ok(ResolvedPolicy::File),
            },
        }
    }

    fn open(&self, policy: ResolvedPolicy, shard: InputShard, epoch: u64) -> Batches<B> {
        match (&self.source, policy) {
            (Source::Memory(open), _) => open(epoch),
            (Source::Files { files, open }, ResolvedPolicy::File) => {
                let own: Vec<PathBuf> = shard.of(files).cloned().collect();
                open(&own, epoch)
            }
            (Source::Files { files, open }, _) => open(files, epoch),
            (Source::Sharded(open), ResolvedPolicy::Hint) => open(shard, epoch),
            (Source::Sharded(open), _) => open(InputShard::WHOLE, epoch),
        }
    }
}

/// A policy when it is known what the input can do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ResolvedPolicy {
    Off,
    File,
    Data,
    Hint,
}

impl<B> fmt::Debug for Input<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match &self.source {
            Source::Memory(_) => "Memory",
            Source::Files { .. } => "Files",
            Source::Sharded(_) => "Sharded",
        };
        f.debug_struct("Input")
            .field("source", &source)
            .field("batch", &self.batch)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
