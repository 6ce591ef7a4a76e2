//! What all workers have to have alike before they train together.

use meshwork_strategy::{MultiWorkerMirroredStrategy, Rank};

use crate::error::Error;

/// What decides the result of a run, each as a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Agreement {
    options: String,
    data: String,
}

impl Agreement {
    pub(crate) fn new(options: String, data: String) -> Self {
        Self { options, data }
    }

    /// What this worker's images are.
    pub(crate) fn data(&self) -> &str {
        &self.data
    }

    /// Compares this worker's with the chief's; all workers call it together. One that differs
    /// ends, and the others learn why.
    ///
    /// # Errors
    ///
    /// [`Error::OtherOptions`], [`Error::OtherData`], and [`Error::Workers`] if a worker is lost.
    pub(crate) fn compare(&self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<(), Error> {
        let rank = strategy.rank();
        if let Some(chiefs) = unlike(strategy, &self.options)? {
            let found = self.options.clone();
            return Err(Error::OtherOptions {
                rank,
                found,
                chiefs,
            });
        }
        if let Some(chiefs) = unlike(strategy, &self.data)? {
            let found = self.data.clone();
            return Err(Error::OtherData {
                rank,
                found,
                chiefs,
            });
        }
        Ok(())
    }
}

/// The chief's text, where it is not this worker's.
fn unlike(strategy: &mut MultiWorkerMirroredStrategy, own: &str) -> Result<Option<String>, Error> {
    let told = strategy.run(|replica| Ok::<_, Error>(replica.all_gather_bytes(own.as_bytes())?))?;
    let all = told.into_first();
    let chiefs = String::from_utf8_lossy(&all[Rank::CHIEF.index()]);
    Ok((chiefs != own).then(|| chiefs.into_owned()))
}
