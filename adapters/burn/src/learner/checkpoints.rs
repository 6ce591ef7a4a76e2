//! Which of the learner's checkpoints a training goes on from.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use burn_core::store::ModuleRecord;
use burn_optim::OptimizerRecord;
use burn_optim::lr_scheduler::LrSchedulerRecord;
use burn_train::checkpoint::{Checkpoint, CheckpointerError};
use meshwork_strategy::Rank;

use super::Distributed;
use crate::Error;

impl Distributed {
    /// The last epoch whose checkpoint the chief finds whole in `folder`, the one of the training;
    /// all workers are told. `None` where there is none, and a training begins. In an
    /// [elastic](Self::elastic_from_env) job each worker finds its own: the training goes on from
    /// that of its chief, who may be lost before it begins.
    ///
    /// Checkpoints are those that burn's `with_default_checkpointers` writes. One that a worker was
    /// killed over, of which files are missing, is passed over; so is the last one if it is damaged
    /// and the one before it is whole, with a warning by `tracing`. With it a job goes on after the
    /// loss of a worker, where its workers are started again, as by `meshwork run --elastic 4:4`:
    ///
    /// ```no_run
    /// # use burn_train::{Learner, LearnerModel, SupervisedTraining, TrainStep, InferenceStep};
    /// # use burn_train::{TrainLoader, ValidLoader};
    /// # use meshwork_burn::{Distributed, Error, GatherOutput};
    /// # fn train<M: LearnerModel>(
    /// #     train: TrainLoader<M>, valid: ValidLoader<M>, learner: Learner<M>,
    /// # ) -> Result<(), Error>
    /// # where <M as TrainStep>::Output: GatherOutput, <M as InferenceStep>::Output: GatherOutput {
    /// let distributed = Distributed::from_env()?;
    /// let last = distributed.last_checkpoint("/shared/mnist")?;
    /// let mut training = SupervisedTraining::new("/shared/mnist", train, valid)
    ///     .with_training_strategy(distributed.clone().into())
    ///     .with_default_checkpointers()
    ///     .num_epochs(10);
    /// if let Some(epoch) = last {
    ///     training = training.checkpoint(epoch);
    /// }
    /// let result = training.launch(learner);
    /// distributed.leave() // tells whether to start again
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Checkpoints`] when the chief cannot look, or there are some that it cannot read,
    /// which ends the job; in an elastic one when this worker cannot, and the others go on without
    /// it. [`Error::Strategy`]; [`Error::Left`].
    pub fn last_checkpoint(&self, folder: impl AsRef<Path>) -> Result<Option<usize>, Error> {
        let folder = folder.as_ref().join("checkpoint");
        let mut strategy = self.shared.strategy();
        let strategy = strategy.as_mut().ok_or(Error::Left)?;
        if strategy.is_elastic() {
            // Any of them may be the chief by the time that the training begins.
            return Ok(strategy.run(|_| last_whole(&folder))?.into_first());
        }
        let told = strategy.run(|replica| {
            let own = match replica.replica_id() {
                Rank::CHIEF => last_whole(&folder)?,
                _ => None,
            };
            // Epochs count from 1.
            let number = own.map_or(0, |epoch| epoch as u64);
            let all = replica.all_gather_bytes(&number.to_le_bytes())?;
            let rank = Rank::CHIEF;
            let chiefs = all
                .first()
                .and_then(|bytes| bytes.as_slice().try_into().ok());
            chiefs
                .map(u64::from_le_bytes)
                .ok_or(Error::OutputForm { rank })
        })?;
        let epoch = usize::try_from(told.into_first()).expect("an epoch is counted in usize");
        Ok((epoch > 0).then_some(epoch))
    }
}

/// The last epoch of which model, optimizer and scheduler are whole.
fn last_whole(folder: &Path) -> Result<Option<usize>, Error> {
    let epochs = match epochs(folder) {
        Ok(epochs) => epochs,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(unreadable(folder, source)),
    };
    let mut damaged = None;
    for epoch in epochs.into_iter().rev() {
        let path = |name: &str| folder.join(format!("{name}-{epoch}.bpk"));
        let files = ["model", "optim", "scheduler"].map(path);
        if !are_there(&files)? {
            continue;
        }
        match (check(&files), damaged.take()) {
            (Ok(()), later) => {
                if let Some(error) = later {
                    tracing::warn!(?error, "passed over for the checkpoint of epoch {epoch}");
                }
                return Ok(Some(epoch));
            }
            (Err(error), None) => damaged = Some(error),
            // Rather of another version of burn than damaged: to go back would remove them.
            (Err(_), Some(later)) => return Err(later),
        }
    }
    damaged.map_or(Ok(None), Err)
}

/// Whether no worker was killed over them: burn puts a file in its place once it is whole.
fn are_there(files: &[PathBuf]) -> Result<bool, Error> {
    for path in files {
        match File::open(path) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(source) => return Err(unreadable(path, source)),
        }
    }
    Ok(true)
}

fn check([model, optimizer, scheduler]: &[PathBuf; 3]) -> Result<(), Error> {
    read::<ModuleRecord>(model)?;
    read::<OptimizerRecord>(optimizer)?;
    read::<LrSchedulerRecord>(scheduler)
}

fn read<R: Checkpoint>(path: &Path) -> Result<(), Error> {
    let record = R::load(path.to_owned());
    let bytes = record.and_then(|record| {
        let bytes = record.checkpoint_into_bytes();
        bytes.map_err(CheckpointerError::Record)
    });
    bytes
        .map(drop)
        .map_err(|error| unreadable(path, io::Error::other(error)))
}

fn unreadable(path: &Path, source: io::Error) -> Error {
    let path = path.to_owned();
    Error::Checkpoints { path, source }
}

/// Of which there is a model, whole or not.
fn epochs(folder: &Path) -> io::Result<BTreeSet<usize>> {
    let mut epochs = BTreeSet::new();
    for entry in folder.read_dir()? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        let epoch = name
            .strip_prefix("model-")
            .and_then(|name| name.strip_suffix(".bpk"));
        epochs.extend(epoch.and_then(|epoch| epoch.parse::<usize>().ok()));
    }
    Ok(epochs)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use burn_core as burn;
    use burn_core::module::{Module, Param};
    use burn_core::tensor::{Device, Tensor};
    use burn_optim::SgdConfig;
    use burn_optim::lr_scheduler::exponential::ExponentialLrSchedulerConfig;
    use meshwork_strategy::MultiWorkerMirroredStrategy;

    use super::*;
    use crate::testing::each;

    #[derive(Module, Debug)]
    struct Line {
        weight: Param<Tensor<1>>,
    }

    /// Writes a checkpoint as burn's learner does.
    fn save(folder: &Path, epoch: usize) {
        let path = |name: &str| folder.join(format!("checkpoint/{name}-{epoch}.bpk"));
        let line = Line {
            weight: Param::from_data([1.0, 2.0, 3.0], &Device::flex()),
        };
        let rates = ExponentialLrSchedulerConfig::new(0.2, 0.9).init().unwrap();
        Checkpoint::save(line.into_record(), path("model")).unwrap();
        Checkpoint::save(SgdConfig::new().init().to_record(), path("optim")).unwrap();
        Checkpoint::save(rates.to_record(), path("scheduler")).unwrap();
    }

    #[test]
    fn the_last_whole_checkpoint_of_the_chief_is_told_to_all() {
        let folder = tempfile::tempdir().unwrap();
        let files = folder.path().join("checkpoint");
        let found = || {
            let found = each(2, |strategy| {
                let chief = strategy.is_chief();
                let distributed = Distributed::new(strategy);
                // The others need no access for this.
                let nowhere = Path::new("nowhere");
                let folder = if chief { folder.path() } else { nowhere };
                let last = distributed.last_checkpoint(folder).unwrap();
                distributed.leave().unwrap();
                last
            });
            assert_eq!(found[0], found[1]);
            found[0]
        };
        assert_eq!(found(), None);
        fs::create_dir(&files).unwrap();
        fs::write(files.join("model-best.bpk"), b"").unwrap();
        assert_eq!(found(), None);
        for epoch in [2, 9, 10] {
            save(folder.path(), epoch);
        }
        assert_eq!(found(), Some(10));
        fs::remove_file(files.join("scheduler-10.bpk")).unwrap();
        assert_eq!(found(), Some(9));
        let model = files.join("model-9.bpk");
        let whole = fs::read(&model).unwrap();
        for len in [0, 7, whole.len() / 2, whole.len() - 1] {
            fs::write(&model, &whole[..len]).unwrap();
            assert_eq!(found(), Some(2), "{len} of {}", whole.len());
        }
    }

    /// Puts a version of burn's format into the file of a model.
    fn set_version(folder: &Path, epoch: usize, version: u16) -> PathBuf {
        let path = folder.join(format!("checkpoint/model-{epoch}.bpk"));
        let mut bytes = fs::read(&path).unwrap();
        bytes[4..6].copy_from_slice(&version.to_le_bytes());
        fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn where_no_checkpoint_can_be_read_the_last_is_named_to_all_and_nobody_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("checkpoint")).unwrap();
        let files = [1, 2].map(|epoch| {
            save(folder.path(), epoch);
            set_version(folder.path(), epoch, u16::MAX)
        });
        let named = |file: &Path| {
            let errors = each(2, |strategy| {
                let found = Distributed::new(strategy).last_checkpoint(folder.path());
                found.unwrap_err()
            });
            let is_named = matches!(&errors[0], Error::Checkpoints { path, .. } if path == file);
            assert!(is_named, "{:?}", errors[0]);
            let Error::Strategy(told) = &errors[1] else {
                panic!("{:?}", errors[1]);
            };
            assert_eq!(told.rank_at_fault(), Some(Rank::CHIEF), "{told}");
            assert!(told.to_string().contains(file.to_str().unwrap()), "{told}");
        };
        named(&files[1]);
        // An older one that can be read is no reason to go back two epochs.
        save(folder.path(), 3);
        let last = set_version(folder.path(), 3, u16::MAX);
        set_version(folder.path(), 1, 1);
        named(&last);
        // Nor is a single one of which all is there.
        for file in files {
            fs::remove_file(file).unwrap();
        }
        named(&last);
    }

    #[test]
    fn a_damaged_last_checkpoint_is_passed_over_for_a_whole_one_and_missing_files_do_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let files = folder.path().join("checkpoint");
        fs::create_dir(&files).unwrap();
        let distributed = Distributed::new(MultiWorkerMirroredStrategy::alone().unwrap());
        let found = || distributed.last_checkpoint(folder.path()).unwrap();
        for epoch in 1..=4 {
            save(folder.path(), epoch);
        }
        // burn may write the model of an epoch while it still writes the optimizer before it.
        for unfinished in ["optim-3.bpk", "scheduler-4.bpk"] {
            fs::remove_file(files.join(unfinished)).unwrap();
        }
        assert_eq!(found(), Some(2));
        let model = set_version(folder.path(), 2, u16::MAX);
        assert_eq!(found(), Some(1));
        // What cannot even be opened may be whole.
        fs::remove_file(&model).unwrap();
        symlink(&model, &model).unwrap();
        let error = distributed.last_checkpoint(folder.path()).unwrap_err();
        let is_named = matches!(&error, Error::Checkpoints { path, .. } if *path == model);
        assert!(is_named, "{error:?}");
        fs::remove_file(files.join("model-1.bpk")).unwrap();
        fs::remove_file(&model).unwrap();
        assert_eq!(found(), None);
    }

    #[test]
    fn a_folder_that_cannot_be_listed_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("checkpoint"), b"no folder").unwrap();
        let distributed = Distributed::new(MultiWorkerMirroredStrategy::alone().unwrap());
        let error = distributed.last_checkpoint(folder.path()).unwrap_err();
        assert!(matches!(&error, Error::Checkpoints { .. }), "{error:?}");
        distributed.clone().leave().unwrap();
        let error = distributed.last_checkpoint(folder.path()).unwrap_err();
        assert!(matches!(&error, Error::Left), "{error:?}");
    }
}
