use std::fmt::{self, Display};
use std::path::PathBuf;

use meshwork_checkpoint::FileDamage;

/// The damage to the latest of several checkpoints, appended to the message that none is whole.
pub(super) struct Passed<'a>(pub(super) Option<&'a (PathBuf, FileDamage)>);

impl Display for Passed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str(": save one first"),
            Some((path, damage)) => write!(f, ": {} cannot be used: {damage}", path.display()),
        }
    }
}
