//! What can be wrong with the variables of a SageMaker container.

use crate::text::{Quoted, Shortened};

/// Why the variables of a SageMaker container do not say who is in the cluster.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SageMakerError {
    /// The process does not run in a training container, or lost its variables.
    #[error("{variable} is not set: run in a SageMaker container, or choose another resolver")]
    Unset {
        /// The variable.
        variable: &'static str,
    },
    /// `SM_HOSTS` is no list of hosts.
    #[error(
        "SM_HOSTS is {}: make it a JSON list of host names such as [\"algo-1\", \"algo-2\"]",
        Shortened(value)
    )]
    Hosts {
        /// Its value.
        value: String,
    },
    /// `SM_CURRENT_HOST` is not in `SM_HOSTS`.
    #[error(
        "SM_CURRENT_HOST is {}, which is not among the {} hosts of SM_HOSTS: set it to one of them",
        Quoted(host),
        hosts.len()
    )]
    StrangeHost {
        /// The current host.
        host: String,
        /// The hosts, in text order.
        hosts: Vec<String>,
    },
}
