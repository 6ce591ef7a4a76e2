//! The command lines of these commands, as clap derives them; doc comments are the help text.

use clap::Subcommand;

use super::bench::Bench;
use super::checkpoint::Checkpoint;
use super::devices::Devices;
use super::doctor::Doctor;
use super::resolve::Resolve;
use super::top::Top;
use super::tpu::Tpu;

mod draw;
mod geometry;
mod plan;

use draw::Draw;
use plan::Plan;

#[derive(Debug, Subcommand)]
pub(crate) enum Tool {
    /// Measure how fast ranks exchange data here, with the values checked
    Bench(Bench),
    /// Show which rank is where in a mesh, or which part of a tensor each rank holds
    Draw(Draw),
    /// Print the cheapest way to lay a tensor out anew: collectives, bytes, memory and time
    Plan(Plan),
    /// Print who is in the cluster and which task this process is
    ///
    /// Without a source, the one that the environment shows is asked: TF_CONFIG, then the service
    /// that the process runs on. The exit status is 1 if any answer is missing.
    Resolve(Resolve),
    /// List the devices of this machine by backend, and why a backend has none
    Devices(Devices),
    /// Show what is in a checkpoint, or write all of it into one file
    Checkpoint(Checkpoint),
    /// Say why a job failed or waits, or whether one can begin here
    ///
    /// With --live: asks the ranks of a running job, as `meshwork top` does, why they wait.
    ///
    /// With --dump: a rank whose group fails leaves its last operations in the folder named by
    /// MESHWORK_DUMP; all of them together say who is at fault. Without: names, ports, packet
    /// sizes, buffers, clocks, cores, and latency and bandwidth of every pair of ranks (among more
    /// than 16, of those at distances of powers of two), each with its remedy; the exit status is 1
    /// if a job could not begin.
    Doctor(Doctor),
    /// Show how the ranks of a running job fare: who waits for whom, where, how fast
    ///
    /// A job says so whose processes have MESHWORK_STATUS=127.0.0.1:0 and, for all ranks of a
    /// machine at once, the same MESHWORK_STATUS_FOLDER.
    Top(Top),
    /// Compile programs for slices of TPUs that need not be there
    Tpu(Tpu),
}
