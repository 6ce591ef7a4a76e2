//! The command line, and the trials that it asks for.

use std::fmt::{self, Display};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use meshwork_strategy::low_communication::NotFinite;
use text::{Compress, Devices, Exchange, Method, OUTER_RATE, Size};

use crate::Failure;

/// Trains a character transformer by methods that communicate much or little, 8 rows of 64
/// characters a worker and step
#[derive(Clone, Debug, Parser)]
pub(crate) struct Args {
    /// How workers train together
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Method::Diloco])]
    method: Vec<Method>,

    /// Numbers of workers, one after the other
    #[arg(long, value_delimiter = ',', default_values_t = [2])]
    workers: Vec<usize>,

    /// Steps between exchanges
    #[arg(long, value_delimiter = ',', default_values_t = [NonZeroU32::new(30).expect("30 is not 0")])]
    inner_steps: Vec<NonZeroU32>,

    /// The form of differences on the wire
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Compress::None])]
    compress: Vec<Compress>,

    /// Decides initial variables and batches
    #[arg(long, value_delimiter = ',', default_values_t = [1])]
    seed: Vec<u64>,

    /// Learning rates: of several, the one with the lowest loss is told
    #[arg(long, value_delimiter = ',', default_values_t = [0.002])]
    pub(crate) lr: Vec<f64>,

    /// Inner steps of each worker
    #[arg(long, default_value_t = 2000)]
    pub(crate) steps: usize,

    /// Parts of the model that are streamed one after the other
    #[arg(long, default_value_t = NonZeroUsize::new(4).expect("4 is not 0"))]
    fragments: NonZeroUsize,

    /// Steps that go on while a part is under way [default: until the next begins]
    #[arg(long)]
    delay: Option<u32>,

    /// The rate of the outer optimizer
    #[arg(long, default_value_t = OUTER_RATE)]
    outer_rate: f32,

    /// Steps at the beginning that are trained by ddp, whatever the method
    #[arg(long, default_value_t = 0)]
    pub(crate) warm_up: usize,

    /// What workers compute on, as of the program text
    #[arg(long, default_value = "cpu")]
    pub(crate) device: Devices,

    /// Layers of the transformer
    #[arg(long, default_value_t = 3)]
    layers: usize,

    /// Numbers that stand for a character
    #[arg(long, default_value_t = 128)]
    width: usize,

    /// Folder of text: all UTF-8 files below it; the sources of this program by default
    #[arg(long, value_name = "DIR", default_value = SOURCES, hide_default_value = true)]
    pub(crate) data: PathBuf,

    /// Print rows, separated by commas
    #[arg(long)]
    pub(crate) csv: bool,
}

/// One training.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Trial {
    method: Method,
    pub(crate) workers: usize,
    inner_steps: NonZeroU32,
    compress: Compress,
    pub(crate) seed: u64,
    pub(crate) lr: f64,
}

impl Args {
    /// Each training once: data-parallel training has no steps between exchanges, and none of its
    /// gradients is compressed, so that many of those that were asked for are one.
    pub(crate) fn trials(&self) -> Vec<Trial> {
        let mut trials: Vec<Trial> = Vec::new();
        for &method in &self.method {
            for &workers in &self.workers {
                for &inner_steps in &self.inner_steps {
                    for &compress in &self.compress {
                        for &seed in &self.seed {
                            let trial = Trial {
                                method,
                                workers,
                                inner_steps,
                                compress,
                                seed,
                                lr: 0.0,
                            };
                            let trial = trial.reduced();
                            if !trials.contains(&trial) {
                                trials.push(trial);
                            }
                        }
                    }
                }
            }
        }
        trials
    }

    pub(crate) fn size(&self) -> Result<Size, text::Error> {
        Size::new(self.layers, self.width, 4, CONTEXT)
    }

    /// How a trial exchanges what is learned.
    pub(crate) fn exchange(&self, trial: &Trial) -> Exchange {
        Exchange {
            method: trial.method,
            inner_steps: trial.inner_steps,
            compress: trial.compress,
            fragments: self.fragments,
            delay: self.delay,
            outer_rate: self.outer_rate,
            not_finite: NotFinite::Stop,
            power_sgd: None,
        }
    }
}

impl Trial {
    /// The same with another learning rate.
    pub(crate) fn with_rate(&self, lr: f64) -> Self {
        Self { lr, ..self.clone() }
    }

    fn reduced(self) -> Self {
        match self.method {
            Method::Ddp => Self {
                inner_steps: NonZeroU32::MIN,
                compress: Compress::None,
                ..self
            },
            Method::Local | Method::Diloco | Method::Streaming => self,
        }
    }

    /// The first columns of its row.
    pub(crate) fn csv(&self) -> String {
        let Self {
            workers,
            inner_steps,
            seed,
            ..
        } = self;
        let (method, compress) = (name(self.method), name(self.compress));
        format!("{method},{workers},{inner_steps},{compress},{seed}")
    }

    /// All of it, for [`parse`](Self::parse).
    pub(crate) fn to_text(&self) -> String {
        format!("{},{}", self.csv(), self.lr)
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let fields: Vec<&str> = text.split(',').collect();
        let [method, workers, inner_steps, compress, seed, lr] = fields[..] else {
            return Err(format!("no trial: {text}").into());
        };
        Ok(Self {
            method: Method::from_str(method, false)?,
            workers: workers.parse()?,
            inner_steps: inner_steps.parse()?,
            compress: Compress::from_str(compress, false)?,
            seed: seed.parse()?,
            lr: lr.parse()?,
        })
    }
}

impl Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            workers,
            inner_steps,
            seed,
            lr,
            ..
        } = self;
        let (method, compress) = (name(self.method), name(self.compress));
        write!(
            f,
            "{method}, {workers} workers, {inner_steps} inner steps, {compress}, seed {seed}, rate {lr}"
        )
    }
}

/// As an option is called.
fn name(value: impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Characters of a row.
const CONTEXT: usize = 64;

/// The workspace that this program is a part of.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[cfg(test)]
mod tests {
    use super::*;

    fn trials(line: &str) -> Vec<String> {
        let args = Args::parse_from(["slow-links"].into_iter().chain(line.split(' ')));
        args.trials().iter().map(Trial::csv).collect()
    }

    #[test]
    fn a_training_that_was_asked_for_in_several_ways_is_made_once() {
        let many = "--inner-steps 30,100 --compress none,int8 --seed 1,2,3";
        let ddp = trials(&format!("--method ddp {many}"));
        let expected = ["ddp,2,1,none,1", "ddp,2,1,none,2", "ddp,2,1,none,3"];
        assert_eq!(ddp, expected);
        let both = trials(&format!("--method ddp,diloco {many}"));
        assert_eq!(both.len(), 3 + 12);
        assert_eq!(trials("--method diloco --seed 1,2,1").len(), 2);
    }
}
