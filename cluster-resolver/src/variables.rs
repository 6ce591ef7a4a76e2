use std::collections::BTreeMap;
use std::env;
use std::fmt::{self, Debug};

use crate::Error;

/// Where a resolver looks up environment variables: those of the process, or a fixed set.
///
/// Variables of the process are looked up afresh on each call. `Debug` shows the names of a fixed
/// set only, since values may be secret.
///
/// ```
/// use meshwork_cluster_resolver::Variables;
///
/// let variables = Variables::fixed([("SLURM_PROCID", "3")]);
/// assert_eq!(variables.read("SLURM_PROCID")?.as_deref(), Some("3"));
/// assert_eq!(variables.read("SLURM_JOB_ID")?, None);
/// # Ok::<(), meshwork_cluster_resolver::Error>(())
/// ```
#[derive(Clone, Eq, PartialEq)]
pub struct Variables {
    fixed: Option<BTreeMap<String, String>>,
}

impl Variables {
    /// The variables of this process, as they are when looked up.
    #[must_use]
    pub fn of_process() -> Self {
        Self { fixed: None }
    }

    /// These variables and no others; a repeated name keeps its last value.
    pub fn fixed(
        variables: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>,
    ) -> Self {
        let variables = variables.into_iter();
        let fixed = variables.map(|(name, value)| (name.into(), value.into()));
        Self {
            fixed: Some(fixed.collect()),
        }
    }

    /// The value of a variable; `None` if it is unset, `Some("")` if it is set to nothing.
    ///
    /// # Errors
    /// [`Error::NotUnicode`].
    pub fn read(&self, name: &str) -> Result<Option<String>, Error> {
        match &self.fixed {
            Some(variables) => Ok(variables.get(name).cloned()),
            None => match env::var(name) {
                Ok(value) => Ok(Some(value)),
                Err(env::VarError::NotPresent) => Ok(None),
                Err(env::VarError::NotUnicode(_)) => Err(Error::NotUnicode {
                    variable: name.to_owned(),
                }),
            },
        }
    }
}

impl Default for Variables {
    /// [`of_process`](Self::of_process).
    fn default() -> Self {
        Self::of_process()
    }
}

impl Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fixed {
            None => f.write_str("Variables(of_process)"),
            Some(variables) => f.debug_set().entries(variables.keys()).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_has_no_values() {
        let variables = Variables::fixed([("TOKEN", "hunter2")]);
        assert_eq!(format!("{variables:?}"), r#"{"TOKEN"}"#);
    }
}
