//! What all workers have to have alike before they train together.

use meshwork_strategy::{MultiWorkerMirroredStrategy, Rank};
use text::{Corpus, Error};

use crate::args::Args;

/// Compares options and text with the chief's; all workers call it together. One that differs ends,
/// and the others learn why.
///
/// Where workers come and go, one that is let in later meets others that train: there only sizes
/// and the settings of exchanges are compared, by what brings such workers together.
///
/// # Errors
///
/// [`Error::OtherOptions`], [`Error::OtherText`], and [`Error::Workers`] if a worker is lost.
pub(crate) fn compare(
    args: &Args,
    corpus: &Corpus,
    strategy: &mut MultiWorkerMirroredStrategy,
) -> Result<(), Error> {
    if strategy.is_elastic() {
        return Ok(());
    }
    let rank = strategy.rank();
    if let Some([found, chiefs]) = unlike(strategy, &args.settings()?)? {
        return Err(Error::OtherOptions {
            rank,
            found,
            chiefs,
        });
    }
    let [train, validation] = corpus.lens();
    let (characters, checksum) = (train + validation, corpus.checksum());
    let text = format!("{characters} characters with checksum {checksum:016x}");
    if let Some([found, chiefs]) = unlike(strategy, &[text])? {
        return Err(Error::OtherText {
            rank,
            found,
            chiefs,
        });
    }
    Ok(())
}

/// The lines that only this worker has, and those that only the chief has, if there are any.
fn unlike(
    strategy: &mut MultiWorkerMirroredStrategy,
    own: &[String],
) -> Result<Option<[String; 2]>, Error> {
    let text = own.join("\n");
    let told =
        strategy.run(|replica| Ok::<_, Error>(replica.all_gather_bytes(text.as_bytes())?))?;
    let all = told.into_first();
    let chiefs = String::from_utf8_lossy(&all[Rank::CHIEF.index()]);
    let only = |of: &str, other: &str| {
        let lines = of.lines();
        let lines = lines.filter(|line| other.lines().all(|known| known != *line));
        lines.collect::<Vec<_>>().join(" ")
    };
    let differences = [only(&text, &chiefs), only(&chiefs, &text)];
    let is_alike = differences.iter().all(String::is_empty);
    Ok((!is_alike).then_some(differences))
}
