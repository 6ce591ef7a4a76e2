//! The command line.

use std::ffi::OsString;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser, ValueEnum};

use crate::error::Error;
use crate::model::Kind;

/// Trains a small network on MNIST or CIFAR-10, with several worker processes that share every
/// batch.
#[derive(Clone, Debug, Parser)]
#[command(name = "mnist", version)]
pub(crate) struct Args {
    /// Worker processes; as many as there are cores by default
    #[arg(long, value_name = "N", value_parser = count, default_value_t = cores())]
    pub(crate) workers: NonZeroUsize,

    /// Start MAX workers, and go on without those that fail, while MIN are there or come back: each
    /// is started again
    #[arg(long, value_name = "MIN:MAX", conflicts_with = "workers")]
    pub(crate) elastic: Option<Range>,

    /// What computes
    #[arg(long, value_enum, default_value_t = Engine::Candle)]
    pub(crate) engine: Engine,

    /// Whose plugin compiles and runs, with --engine xla
    #[arg(long, value_enum, default_value_t = Platform::Cpu)]
    pub(crate) platform: Platform,

    /// Devices of the plugin that share every batch, with --engine xla
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), default_value = "1")]
    pub(crate) devices: u32,

    /// The network
    #[arg(long, value_enum, default_value_t = Kind::Cnn)]
    pub(crate) model: Kind,

    /// Normalise the batches of all workers as one, with --model resnet; else each its own
    #[arg(long)]
    pub(crate) sync_batch_norm: bool,

    /// Passes over the training images
    #[arg(long, value_name = "E", value_parser = count, default_value = "3")]
    pub(crate) epochs: NonZeroUsize,

    /// Images in a batch, over all workers together
    #[arg(long, value_name = "B", value_parser = count, default_value = "64")]
    pub(crate) global_batch: NonZeroUsize,

    /// Decides the initial variables and the order of the images
    #[arg(long, value_name = "S", value_parser = seed, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Learning rate; reached after 10 steps, then falling in a straight line to a fiftieth
    #[arg(
        long,
        value_name = "X",
        default_value = "0.1",
        allow_negative_numbers = true
    )]
    pub(crate) lr: LearningRate,

    /// Folder of the files of MNIST (IDX) or of CIFAR-10 (binary), compressed or plain
    #[arg(long, value_name = "DIR", default_value = DATA_FOLDER, hide_default_value = true)]
    pub(crate) data: PathBuf,

    /// Write one JSON object for each step, and one for the result, to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write the loss curve to this file, as SVG [default: mnist-loss.svg, if it can be written]
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,

    /// Go on from the latest checkpoint in this folder, and write new ones; SIGTERM then writes one
    /// and exits with status 75
    #[arg(long, value_name = "DIR")]
    pub(crate) checkpoint: Option<PathBuf>,

    /// Reduce gradients in buckets of about so many bytes, while others are still computed; all at
    /// once by default
    #[arg(long, value_name = "BYTES", value_parser = count)]
    pub(crate) bytes_per_bucket: Option<NonZeroUsize>,

    /// Compute threads of each worker
    #[arg(long, value_name = "T", value_parser = count, default_value = "1")]
    pub(crate) threads: NonZeroUsize,
}

/// What computes the steps.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Engine {
    /// candle, in worker processes
    Candle,
    /// One program for all devices of a PJRT plugin, compiled by XLA; takes the feature xla
    Xla,
}

/// Whose PJRT plugin.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Platform {
    /// The processor's, as any number of devices
    Cpu,
    /// NVIDIA's
    Gpu,
    /// Google's
    Tpu,
}

/// The least and the most workers of a run that goes on without those that fail.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Range {
    pub(crate) least: usize,
    most: NonZeroUsize,
}

impl FromStr for Range {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (least, most) = text.split_once(':').ok_or(Error::Range)?;
        let (least, most) = (count(least)?.get(), count(most)?);
        if least > most.get() {
            return Err(Error::Range);
        }
        Ok(Self { least, most })
    }
}

impl Engine {
    fn other(self) -> Self {
        match self {
            Self::Candle => Self::Xla,
            Self::Xla => Self::Candle,
        }
    }

    /// The flags that only another engine has a meaning for.
    fn flags_of_others(self) -> &'static [&'static str] {
        match self {
            Self::Candle => &["platform", "devices"],
            Self::Xla => &[
                "workers",
                "elastic",
                "sync_batch_norm",
                "checkpoint",
                "bytes_per_bucket",
                "threads",
            ],
        }
    }
}

impl Args {
    /// The command line of this process.
    pub(crate) fn of_process() -> Result<Self, clap::Error> {
        Self::read(std::env::args_os())
    }

    fn read(
        line: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        let matches = Self::command().try_get_matches_from(line)?;
        let args = Self::from_arg_matches(&matches)?;
        let mut others = args.engine.flags_of_others().iter();
        let is_given = |flag: &&&str| matches.value_source(flag) == Some(ValueSource::CommandLine);
        let Some(flag) = others.find(is_given) else {
            return Ok(args);
        };
        let flag = flag.replace('_', "-");
        let (engine, other) = (args.engine, args.engine.other());
        let refused =
            format!("--{flag} is not for --engine {engine}: it goes with --engine {other}");
        Err(Self::command().error(ErrorKind::ArgumentConflict, refused))
    }

    /// How many workers are started.
    pub(crate) fn started(&self) -> usize {
        let most = self.elastic.map(|range| range.most);
        most.unwrap_or(self.workers).get()
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Candle => "candle",
            Self::Xla => "xla",
        })
    }
}

/// A step length of gradient descent: finite and above 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LearningRate(f64);

impl LearningRate {
    /// The rate as a plain number.
    pub(crate) fn value(self) -> f64 {
        self.0
    }
}

impl FromStr for LearningRate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.parse::<f64>() {
            Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(Self(rate)),
            _ => Err(Error::LearningRate),
        }
    }
}

impl fmt::Display for LearningRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One line for what is wrong with the command line, of the several that clap has to say.
pub(crate) fn usage_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    let problem = first.strip_prefix("error: ").unwrap_or(first);
    if let Some(ContextValue::Strings(valid)) = error.get(ContextKind::ValidValue) {
        return format!(
            "{problem}, which is one of {}; see --help",
            valid.join(", ")
        );
    }
    if let Some(ContextValue::String(similar)) = error.get(ContextKind::SuggestedArg) {
        return format!("{problem}, but {similar} is known; see --help");
    }
    format!("{problem}; see --help")
}

fn count(text: &str) -> Result<NonZeroUsize, Error> {
    let count = text
        .parse()
        .map_err(|source| Error::CountSyntax { source })?;
    NonZeroUsize::new(count).ok_or(Error::CountZero)
}

fn seed(text: &str) -> Result<u64, Error> {
    text.parse().map_err(|source| Error::Seed { source })
}

fn cores() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// The files that come with the source of this program.
const DATA_FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data");

#[cfg(test)]
mod tests {

    use super::*;

    fn parse(args: &[&str]) -> Result<Args, clap::Error> {
        Args::read(std::iter::once(&"mnist").chain(args))
    }

    #[track_caller]
    fn check_refused(args: &[&str], parts: &[&str]) {
        let line = usage_line(&parse(args).unwrap_err());
        assert!(!line.contains('\n'), "{line}");
        for part in parts {
            assert!(line.contains(part), "`{part}` not in `{line}`");
        }
    }

    #[test]
    fn nothing_has_to_be_given() {
        let args = parse(&[]).unwrap();
        assert_eq!(args.workers, cores());
        assert_eq!(
            (
                args.epochs.get(),
                args.global_batch.get(),
                args.threads.get()
            ),
            (3, 64, 1)
        );
        assert_eq!(args.lr, LearningRate(0.1));
        assert_eq!(args.plot, None);
        assert!(args.data.join("README.md").exists());
        assert_eq!(args.json, None);
    }

    #[test]
    fn every_count_has_to_be_a_whole_number_above_zero() {
        for flag in ["--workers", "--epochs", "--global-batch", "--threads"] {
            check_refused(&[flag, "0"], &["'0'", flag, "at least 1"]);
            check_refused(&[flag, "two"], &["'two'", flag, "not a whole number"]);
            check_refused(&[&format!("{flag}=-1")], &["'-1'", flag]);
            check_refused(&[flag, "99999999999999999999999"], &[flag]);
        }
    }

    #[test]
    fn a_learning_rate_has_to_be_finite_and_above_zero() {
        for rate in ["0", "-1", "NaN", "inf", "1e999", "fast"] {
            check_refused(
                &[&format!("--lr={rate}")],
                &[rate, "--lr", "finite number above 0"],
            );
        }
        check_refused(&["--lr", "-1"], &["'-1'", "finite number above 0"]);
        assert_eq!(parse(&["--lr", "1e-3"]).unwrap().lr.value(), 1e-3);
    }

    #[test]
    fn a_seed_has_to_be_a_whole_number() {
        for wrong in ["x", "1.5", "-1", "99999999999999999999999"] {
            check_refused(
                &[&format!("--seed={wrong}")],
                &[wrong, "whole number from 0"],
            );
        }
    }

    #[test]
    fn an_elastic_run_takes_the_least_and_the_most_workers() {
        let args = parse(&["--elastic", "2:3"]).unwrap();
        assert_eq!((args.started(), args.elastic.unwrap().least), (3, 2));
        for wrong in ["2", "0:2", "3:2", "2:many", ""] {
            check_refused(&[&format!("--elastic={wrong}")], &["--elastic", "MIN:MAX"]);
        }
        check_refused(&["--elastic=1:2", "--workers=2"], &["--workers"]);
    }

    #[test]
    fn a_flag_for_another_engine_is_refused_with_both() {
        check_refused(&["--devices=2"], &["--devices", "--engine candle"]);
        for flag in ["--workers=2", "--sync-batch-norm", "--threads=1"] {
            let name = flag.split('=').next().unwrap();
            check_refused(&["--engine=xla", flag], &[name, "--engine xla"]);
        }
        let args = parse(&["--engine=xla", "--devices=2", "--platform=tpu"]).unwrap();
        assert_eq!((args.devices, args.platform), (2, Platform::Tpu));
    }

    #[test]
    fn an_unknown_flag_is_one_line() {
        check_refused(
            &["--epoch", "3"],
            &["'--epoch'", "but --epochs is known", "see --help"],
        );
    }
}
