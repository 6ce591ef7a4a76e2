//! Where the environment is read.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::{self, Debug};
use std::sync::Arc;

use crate::error::{Error, LauncherError};

/// Where a resolver looks up environment variables: those of the process, or a fixed set.
///
/// Variables of the process are looked up afresh for each snapshot of a cluster. `Debug` shows the
/// names of a fixed set only, since values may be secret.
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
    fixed: Option<Arc<BTreeMap<OsString, OsString>>>,
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
        let fixed = variables.map(|(name, value)| (name.into().into(), value.into().into()));
        Self {
            fixed: Some(Arc::new(fixed.collect())),
        }
    }

    /// The value of a variable; `None` if it is unset, `Some("")` if it is set to nothing.
    ///
    /// # Errors
    /// [`Error::NotUnicode`].
    pub fn read(&self, name: &str) -> Result<Option<String>, Error> {
        let value = match &self.fixed {
            Some(variables) => variables.get(OsStr::new(name)).cloned(),
            None => env::var_os(name),
        };
        let text = value.map(OsString::into_string).transpose();
        text.map_err(|_| Error::NotUnicode {
            variable: name.to_owned(),
        })
    }

    /// The value of a variable that is set to something; an empty one counts as unset.
    pub(crate) fn read_nonempty(&self, name: &str) -> Result<Option<String>, Error> {
        Ok(self.read(name)?.filter(|value| !value.is_empty()))
    }

    /// These variables, of which some are set by a launcher for each of its processes.
    pub(crate) fn set_by(&self, launcher: &'static str) -> SetBy<'_> {
        SetBy {
            launcher,
            variables: self,
        }
    }

    /// These variables as they are now: the environment is read once, whatever is looked up in it.
    pub(crate) fn snapshot(&self) -> Self {
        #[cfg(test)]
        SNAPSHOTS.set(SNAPSHOTS.get() + 1);
        let variables = || Arc::new(env::vars_os().collect());
        Self {
            fixed: Some(self.fixed.clone().unwrap_or_else(variables)),
        }
    }
}

/// Variables that a launcher sets for each of its processes.
pub(crate) struct SetBy<'a> {
    launcher: &'static str,
    pub(crate) variables: &'a Variables,
}

impl SetBy<'_> {
    pub(crate) fn text(&self, variable: &'static str) -> Result<String, Error> {
        let launcher = self.launcher;
        let unset = LauncherError::Unset { variable, launcher };
        let value = self.variables.read_nonempty(variable)?;
        value.ok_or_else(|| unset.into())
    }

    pub(crate) fn number(
        &self,
        variable: &'static str,
        least: u32,
        most: u32,
    ) -> Result<u32, Error> {
        let value = self.text(variable)?;
        let number = value.parse().ok();
        let number = number.filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| {
            let wrong = LauncherError::Number {
                variable,
                value,
                least,
                most,
            };
            wrong.into()
        })
    }

    /// A port, of which `most` is the last that it can be.
    pub(crate) fn port(&self, variable: &'static str, most: u16) -> Result<u16, Error> {
        let port = self.number(variable, 1, most.into())?;
        Ok(u16::try_from(port).expect("it is in the range of a port"))
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
thread_local! {
    /// How often this thread took a snapshot.
    pub(crate) static SNAPSHOTS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
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
