//! What can be wrong with the variables of a launcher.

use crate::text::Shortened;

/// Why the variables that a launcher sets do not say who is in the cluster.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LauncherError {
    /// A variable that the launcher sets is missing or empty.
    #[error(
        "{variable} is not set: start this process by {launcher}, or set it as {launcher} does"
    )]
    Unset {
        /// The variable.
        variable: &'static str,
        /// The launcher that sets it.
        launcher: &'static str,
    },
    /// A variable is no number in its range.
    #[error(
        "{variable} is {}: make it a whole number from {least} to {most}",
        Shortened(value)
    )]
    Number {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// The least number it can be.
        least: u32,
        /// The greatest number it can be.
        most: u32,
    },
    /// The rank is not one of the world.
    #[error(
        "{variable} is {rank}, but {world_variable} is {world}: number the processes from 0 to one \
         less than {world_variable}"
    )]
    Rank {
        /// The variable of the rank.
        variable: &'static str,
        /// The rank.
        rank: u32,
        /// The variable of the number of processes.
        world_variable: &'static str,
        /// The number of processes.
        world: u32,
    },
    /// The nodes that SkyPilot lists are not as many as it says.
    #[error(
        "SKYPILOT_NODE_IPS has {listed} addresses, but SKYPILOT_NUM_NODES is {nodes}: unset them \
         where they are left over from another task"
    )]
    Nodes {
        /// How many addresses there are.
        listed: usize,
        /// How many nodes there are.
        nodes: u32,
    },
    /// The processes are on several hosts, of which the launcher tells nobody the addresses.
    #[error(
        "{launcher} started {world} processes, not all of them on this host, and does not say where \
         the others are: set MASTER_ADDR and MASTER_PORT for all, the host of rank 0 and a \
         UDP port that is free there"
    )]
    SeveralHosts {
        /// The launcher.
        launcher: &'static str,
        /// How many processes there are.
        world: u32,
    },
    /// The launcher sets no port by which processes of one job know themselves and their meeting
    /// place from those of others.
    #[error(
        "MASTER_PORT is not set, and {launcher} does not set it: set it for all processes, to a \
         number from 1 to 65535 that no other job on these hosts has"
    )]
    NoPort {
        /// The launcher.
        launcher: &'static str,
    },
    /// The processes are on several hosts and have not met yet.
    #[error(
        "where the {world} processes of {launcher} are is known once all have met at {address}: \
         start a program that meets there, as strategies do"
    )]
    NotMet {
        /// The launcher.
        launcher: &'static str,
        /// How many processes there are.
        world: u32,
        /// Where they meet.
        address: String,
    },
    /// Others have met than were to meet.
    #[error("{met} processes have met instead of {world}: start all with the same number")]
    Met {
        /// How many processes there should be.
        world: u32,
        /// How many have met.
        met: usize,
    },
}
