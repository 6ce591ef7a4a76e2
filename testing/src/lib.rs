//! What tests of all packages share: skips that are heard, tests in a process of their own, and
//! what they start: a browser, etcd, `ssh` with its server, two hosts, and Slurm; files of
//! certificates, wheels of Python's package index, free addresses, ranks that are threads, and how
//! often to draw.
//!
//! It knows nothing of what is tested. Some tests need what not every machine has, such as a GPU or
//! Slurm. Where it is missing they skip, and `MESHWORK_REQUIRE` makes that a failure:
//!
//! ```
//! use meshwork_testing::Need;
//!
//! fn slurm() -> Result<String, &'static str> {
//!     Ok("slurm 22.05".to_owned())
//! }
//!
//! // Else one line, `skipped: slurm: NAME OF THE TEST: WHY; HOW TO GET IT`, and the test returns.
//! let Some(version) = Need::Slurm.or_skip(slurm()) else { return };
//! assert!(version.starts_with("slurm "));
//! ```

mod addresses;
mod browser;
mod child;
mod etcd;
mod hosts;
mod need;
mod pem;
#[cfg(unix)]
mod slurm;
mod soak;
#[cfg(unix)]
mod ssh;
mod threads;
mod wheel;

pub use addresses::{free_addresses, tf_config};
pub use browser::Browser;
pub use child::{child, passed};
pub use etcd::Etcd;
pub use hosts::two_hosts;
pub use need::Need;
pub use pem::pem;
#[cfg(unix)]
pub use slurm::Slurm;
pub use soak::cases;
#[cfg(unix)]
pub use ssh::Ssh;
pub use threads::in_threads;
pub use wheel::Wheel;

use std::env;
use std::path::PathBuf;
use std::thread;

/// The name of the test that runs on this thread, with its modules.
///
/// # Panics
/// On a thread that the test itself has started: that one bears another name or none.
#[must_use]
#[track_caller]
pub fn this_test() -> String {
    let thread = thread::current();
    let name = thread.name().expect("the thread of a test bears its name");
    name.to_owned()
}

/// The file of a program that is on the path, or where systems have their daemons.
///
/// # Errors
/// A text that says which is not there, for [`Need::or_skip`].
pub fn installed(program: &str) -> Result<PathBuf, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let mut files = folders.map(|folder| folder.join(program));
    let found = files.find(|file| file.is_file());
    found.ok_or_else(|| format!("there is no {program} on the path"))
}
