//! The command line of `meshwork`, as clap derives it; doc comments are the help text. Commands
//! that take more than a launcher are in `tools/`.

use std::ffi::{OsStr, OsString};
use std::num::ParseIntError;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use meshwork_launcher::HostList;

use crate::relay::Relay;
use crate::seconds::seconds;
#[cfg(feature = "tools")]
use crate::tools::Tool;

/// Distributed training on meshes of devices
#[derive(Debug, Parser)]
#[command(name = "meshwork", version)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) task: Task,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Start a program as several workers on this machine and end them together
    ///
    /// Each worker gets TF_CONFIG, which says who is in the job and which rank it is, and
    /// MESHWORK_JOB_SECRET_FILE, a file with the secret by which the workers know each other. When
    /// one fails the others are ended, and the exit status is that of the first to fail: 128 plus
    /// the signal if it was killed, 126 or 127 if the program cannot be run or found, 125 if the
    /// launcher itself failed or could not write lines, 78 if the system has too few open files,
    /// processes or too little memory for so many. With --elastic a worker that fails is started
    /// again, unless its status is 75 (it has saved the job) or 78 (its configuration has to be
    /// changed first), or another has ended with 0, as MIN have to. After SIGTERM the exit status
    /// is 75 too where workers have saved the job.
    Run(Run),
    #[cfg(feature = "tools")]
    #[command(flatten)]
    Tool(Tool),
    /// Carry packets between ranks that do not reach each other, as behind address translation
    ///
    /// Ranks with MESHWORK_RELAY=HOST:PORT register here, and go this way to those that they do not
    /// reach directly. All that it carries is sealed between the two: it has only
    /// MESHWORK_RELAY_TOKEN, by which it knows whom to serve, and no key. It needs no other
    /// connection, and keeps nothing.
    Relay(Relay),
    /// Print the token by which a relay knows this job, from its secret
    ///
    /// The secret is that of MESHWORK_JOB_SECRET or MESHWORK_JOB_SECRET_FILE. A relay need not have
    /// it.
    RelayToken,
    /// Print a new job secret, for jobs whose processes are started by hand
    Secret,
    #[cfg(not(feature = "tools"))]
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// How many workers to start
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        required_unless_present_any = ["elastic", "hosts"]
    )]
    workers: Option<usize>,

    /// Start MAX workers, and start those again that fail, while MIN are there or come back
    ///
    /// The program has to go on without them and let them in again, as trainings by an elastic
    /// strategy do.
    #[arg(long, value_name = "MIN:MAX", conflicts_with = "workers")]
    pub(crate) elastic: Option<Range>,

    /// How often in a row one worker is started again; one that lived for a minute counts anew
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10,
        conflicts_with = "workers",
        requires = "elastic"
    )]
    pub(crate) restarts: u32,

    /// Start the workers on these hosts by ssh, as in a,me@b or a:2,b:4 with numbers of workers
    ///
    /// Each by a name or an address by which the others reach it. ssh must not ask for a password.
    /// The program has to be there by the same path; a relative one is looked for in a folder of
    /// the same name as the current one. Workers get the job secret, TF_CONFIG and variables that
    /// begin with MESHWORK_.
    #[arg(long, value_name = "LIST", conflicts_with = "pin")]
    pub(crate) hosts: Option<HostList>,

    /// The configuration of ssh to use instead of the user's
    #[arg(long, value_name = "FILE", requires = "hosts")]
    pub(crate) ssh_config: Option<PathBuf>,

    /// Let the workers join a job that runs, at these addresses of some of its workers
    ///
    /// With the secret of that job in MESHWORK_JOB_SECRET or MESHWORK_JOB_SECRET_FILE, or by
    /// --secret-file. The job has to have room: MESHWORK_WORKERS=2:5 in its environment lets it
    /// begin with 2 and grow to 5. The word etcd stands for the workers that are registered in the
    /// etcd that MESHWORK_ETCD names.
    #[arg(long, value_name = "HOST:PORT,...")]
    #[arg(conflicts_with_all = ["host_port_base", "hosts"])]
    pub(crate) join: Option<String>,

    /// Hand the job secret of this file to the workers, - for standard input [default: that of
    /// MESHWORK_JOB_SECRET or MESHWORK_JOB_SECRET_FILE, or a new one]
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,

    /// UDP port of the first worker; the others get the ones after it [default: free ports; on
    /// other hosts, by chance from 61000 on]
    #[arg(long, value_name = "PORT")]
    pub(crate) host_port_base: Option<u16>,

    /// Show the lines of ranks below N only [default: of all; once a rank has failed, what it and 8
    /// others write from then on, and the number of lines of the rest]
    #[arg(long, value_name = "N")]
    pub(crate) ranks_shown: Option<usize>,

    /// Give each worker its own share of the cores, if there are enough (Linux)
    #[arg(long)]
    pub(crate) pin: bool,

    /// How long a worker may take to end after SIGINT or SIGTERM before it is killed
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) grace: Duration,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// The least and the most workers of an elastic run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Range {
    pub(crate) least: usize,
    most: usize,
}

impl FromStr for Range {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        let (least, most) = text.split_once(':').ok_or(RangeError::Colon)?;
        let number = |text: &str| text.parse().map_err(RangeError::Number);
        let (least, most) = (number(least)?, number(most)?);
        if least > most {
            return Err(RangeError::Order { least, most });
        }
        Ok(Self { least, most })
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum RangeError {
    #[error("it takes two numbers of workers with a colon between them, such as 2:3")]
    Colon,
    #[error("it takes two numbers of workers, such as 2:3")]
    Number(#[source] ParseIntError),
    #[error("{least} workers cannot be the least of {most}")]
    Order { least: usize, most: usize },
}

impl Run {
    /// How many workers are started.
    pub(crate) fn workers(&self) -> usize {
        let most = self.elastic.map(|range| range.most);
        let listed = self.hosts.as_ref().map(HostList::workers);
        let workers = self.workers.or(most).or(listed);
        workers.expect("clap requires one of the three")
    }

    pub(crate) fn program(&self) -> (&OsStr, &[OsString]) {
        let (program, args) = self
            .command
            .split_first()
            .expect("clap refuses an empty command, as it is required");
        (program, args)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn what_follows_the_dashes_belongs_to_the_program() {
        let line = ["meshwork", "run", "-n", "2", "--", "train", "-n", "--grace"];
        let Task::Run(run) = Arguments::try_parse_from(line).unwrap().task else {
            panic!("no run");
        };
        assert_eq!((run.workers(), run.grace), (2, Duration::from_secs(5)));
        let (program, args) = run.program();
        assert_eq!(program, "train");
        assert_eq!(args, ["-n", "--grace"]);
    }

    #[test]
    fn an_elastic_run_takes_the_least_and_the_most_workers() {
        let parse = |more: &[&str]| {
            let line = [&["meshwork", "run"], more, &["--", "train"]].concat();
            Arguments::try_parse_from(line)
        };
        let Task::Run(run) = parse(&["--elastic", "2:3"]).unwrap().task else {
            panic!("no run");
        };
        assert_eq!((run.workers(), run.restarts), (3, 10));
        assert_eq!(run.elastic, Some(Range { least: 2, most: 3 }));
        for wrong in ["", "2", "3:2", "a:3", "2:-1", "2:3:4"] {
            assert!(parse(&["--elastic", wrong]).is_err(), "{wrong}");
        }
        for wrong in [
            &["--elastic=2:3", "-n=3"][..],
            &["-n=3", "--restarts=1"],
            &["--hosts=a,b", "--restarts=1"],
            &["--hosts=a,b", "-n=3", "--restarts=1"],
            &[],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        for right in [
            &["--elastic=2:3", "--restarts=1"][..],
            &["--hosts=a,b", "--elastic=1:2", "--restarts=1"],
            &["--hosts=a,b"],
        ] {
            assert!(parse(right).is_ok(), "{right:?}");
        }
    }

    #[test]
    fn a_program_without_dashes_before_it_is_refused() {
        assert!(Arguments::try_parse_from(["meshwork", "run", "-n", "2", "train"]).is_err());
        assert!(Arguments::try_parse_from(["meshwork", "run", "-n", "2", "--"]).is_err());
    }

    #[test]
    fn grace_is_a_number_of_seconds_from_0_up() {
        assert_eq!(seconds("0").unwrap(), Duration::ZERO);
        assert_eq!(seconds("0.25").unwrap(), Duration::from_millis(250));
        for wrong in ["-1", "inf", "NaN", "1e300", "soon", ""] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
