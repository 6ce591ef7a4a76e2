/// How a run does without workers that fail, and gets them back.
///
/// A worker that fails is started again, after 100 ms, and after twice as long each further time in
/// a row, up to 5 s; who has lived for a minute counts anew, and who cannot be started has failed
/// again. Once one has ended with status 0 the job is done, and nobody is started any more: whoever
/// fails then, as one that was late and finds nobody, is told and done without, but at least as
/// many as the run needs have to end with status 0. Status 75 says that the job was saved to be
/// gone on with later, and ends the run. A worker that is lost before all have met cannot be let in
/// again, as there is nobody yet to let it in.
///
/// ```
/// use meshwork_launcher::{Elastic, Launch};
///
/// // Two of three workers are enough.
/// let launch = Launch::new("train").workers(3)?.elastic(Elastic::new(2).restarts(5))?;
/// # Ok::<(), meshwork_launcher::LaunchError>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Elastic {
    pub(crate) least: usize,
    pub(crate) restarts: u32,
}

impl Elastic {
    /// A run that continues while at least `least` workers are running or being restarted; each is
    /// restarted up to 10 times in a row.
    #[must_use]
    pub fn new(least: usize) -> Self {
        Self {
            least,
            restarts: 10,
        }
    }

    /// Changes how often a worker is started again in a row; one that has lived for a minute counts
    /// anew.
    #[must_use]
    pub fn restarts(mut self, restarts: u32) -> Self {
        self.restarts = restarts;
        self
    }

    /// How many workers the run needs.
    #[must_use]
    pub fn least(&self) -> usize {
        self.least
    }
}
