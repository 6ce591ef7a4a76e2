//! What all workers have to have alike before they train together.

use meshwork_strategy::MultiWorkerMirroredStrategy;
use text::{Corpus, Error};

use crate::args::Args;

/// Compares options and text with the chief's; all workers call it together.
///
/// Where workers come and go, one that is let in later meets others that train: there only sizes
/// and the settings of exchanges are compared, by what brings such workers together.
///
/// # Errors
///
/// [`Error::Workers`] if a worker differs or is lost.
pub(crate) fn compare(
    args: &Args,
    corpus: &Corpus,
    strategy: &mut MultiWorkerMirroredStrategy,
) -> Result<(), Error> {
    if strategy.is_elastic() {
        return Ok(());
    }
    let [train, validation] = corpus.lens();
    let (characters, checksum) = (train + validation, corpus.checksum());
    let mut settings = args.settings()?;
    settings.push(format!(
        "{characters} characters of text with checksum {checksum:016x}"
    ));
    Ok(strategy.agree(&settings.join("\n"))?)
}
