//! The command line.

use std::fmt::{Debug, Display};
use std::fs;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::error::{ContextKind, ContextValue};
use clap::{Parser, ValueEnum};
use meshwork_strategy::CommunicationDtype;
use meshwork_strategy::low_communication::NotFinite;
use meshwork_strategy::sharded::Shard;
use text::{Batch, Compress, Corpus, Devices, Error, Exchange, Method, OUTER_RATE, Size};

/// Trains a character transformer on a folder of text, with several worker processes that share
/// every batch, and lets it write.
#[derive(Clone, Debug, Parser)]
#[command(name = "text", version)]
pub(crate) struct Args {
    /// Worker processes
    #[arg(long, value_name = "W", default_value = "1")]
    pub(crate) workers: NonZeroUsize,

    /// Start MAX workers, and go on without those that fail, while MIN are there or come back: each
    /// is started again; not for ddp
    #[arg(long, value_name = "MIN:MAX", conflicts_with = "workers")]
    pub(crate) elastic: Option<Range>,

    /// Folder of text: all UTF-8 files below it; the sources of this program by default
    #[arg(long, value_name = "DIR", default_value = SOURCES, hide_default_value = true)]
    data: PathBuf,

    /// Layers of the transformer
    #[arg(long, value_name = "L", default_value = "3")]
    layers: usize,

    /// Numbers that stand for a character
    #[arg(long, value_name = "D", default_value = "128")]
    width: usize,

    /// Heads of attention, which share the width
    #[arg(long, value_name = "H", default_value = "4")]
    heads: usize,

    /// Characters that are looked back at
    #[arg(long, value_name = "T", default_value = "64")]
    context: usize,

    /// Rows of text that a worker computes at a time
    #[arg(long, value_name = "B", default_value = "8")]
    pub(crate) batch: NonZeroUsize,

    /// How many such batches a worker adds up for a step
    #[arg(long, value_name = "K", default_value = "1")]
    pub(crate) accumulate: NonZeroU32,

    /// Steps of training
    #[arg(long, value_name = "S", default_value = "2000")]
    pub(crate) steps: NonZeroUsize,

    /// Learning rate; reached after 50 steps, then falling along a cosine to a tenth
    #[arg(long, value_name = "X", default_value = "0.001", value_parser = learning_rate)]
    pub(crate) lr: f64,

    /// Decides initial variables, batches and the sample
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,

    /// What workers compute on: cpu, cuda for the first GPU, or a list of GPUs such as cuda:0,1, of
    /// which each worker has one; takes a build with --features cuda
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub(crate) device: Devices,

    /// How workers train together; all but ddp are for slow links
    #[arg(long, value_enum, default_value = "ddp")]
    method: Method,

    /// Keep only a part of this in each worker, and train as ddp does; none is for comparison
    #[arg(long, value_enum, value_name = "WHAT")]
    shard: Option<Parts>,

    /// Workers that keep one model together, with --shard [default: all]
    #[arg(long, value_name = "G")]
    pub(crate) shard_group: Option<NonZeroU32>,

    /// The form in which gradients are sent by ddp; bf16 has half the bytes [default: f32]
    #[arg(long, value_enum, hide_default_value = true)]
    gradients: Option<Gradients>,

    /// Send gradients of matrices as products of this rank, by ddp
    #[arg(long, value_name = "R", conflicts_with = "gradients")]
    power_sgd: Option<NonZeroUsize>,

    /// Steps between exchanges, but for ddp [default: 30]
    #[arg(long, value_name = "H")]
    inner_steps: Option<NonZeroU32>,

    /// The form on the wire of what is exchanged, but for ddp [default: none]
    #[arg(long, value_enum)]
    compress: Option<Compress>,

    /// Parts of the model that are streamed one after the other [default: 4]
    #[arg(long, value_name = "P")]
    fragments: Option<NonZeroUsize>,

    /// Steps that go on while a part is streamed [default: until the next begins]
    #[arg(long, value_name = "N")]
    delay: Option<u32>,

    /// What happens where a worker's variables are no numbers any more, but for ddp: all stop, or
    /// it begins anew from what the others have [default: stop]
    #[arg(long, value_enum, value_name = "WHAT")]
    not_finite: Option<WhenNotFinite>,

    /// Characters that the trained model writes at the end
    #[arg(long, value_name = "N", default_value = "200")]
    pub(crate) sample: usize,

    /// Write one JSON object for each step, and one for the result, to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// The least and the most workers of a run that goes on without those that fail.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Range {
    pub(crate) least: usize,
    most: usize,
}

impl FromStr for Range {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "must be MIN:MAX, such as 2:4";
        let (least, most) = text.split_once(':').ok_or(WRONG)?;
        let number = |text: &str| text.parse::<usize>().map_err(|_| WRONG);
        let (least, most) = (number(least)?, number(most)?);
        match (1..=most).contains(&least) {
            true => Ok(Self { least, most }),
            false => Err(WRONG),
        }
    }
}

/// The form of gradients on the wire.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Gradients {
    F32,
    Bf16,
}

/// What happens where a worker's variables are no numbers any more.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum WhenNotFinite {
    Stop,
    Exclude,
}

impl From<WhenNotFinite> for NotFinite {
    fn from(when: WhenNotFinite) -> Self {
        match when {
            WhenNotFinite::Stop => Self::Stop,
            WhenNotFinite::Exclude => Self::Exclude,
        }
    }
}

/// What each worker keeps a part of.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Parts {
    /// Nothing
    None,
    /// The optimizer's moments
    Optimizer,
    /// These, and gradients between batches
    Gradients,
    /// These, and parameters: layers are gathered when they are computed
    Parameters,
}

impl From<Parts> for Shard {
    fn from(parts: Parts) -> Self {
        match parts {
            Parts::None => Self::Nothing,
            Parts::Optimizer => Self::Optimizer,
            Parts::Gradients => Self::Gradients,
            Parts::Parameters => Self::Parameters,
        }
    }
}

impl From<Gradients> for CommunicationDtype {
    fn from(gradients: Gradients) -> Self {
        match gradients {
            Gradients::F32 => Self::F32,
            Gradients::Bf16 => Self::Bf16,
        }
    }
}

impl Args {
    /// How many workers are started.
    pub(crate) fn started(&self) -> usize {
        match self.elastic {
            Some(range) => range.most,
            None => self.workers.get(),
        }
    }

    /// The sizes of the transformer.
    pub(crate) fn size(&self) -> Result<Size, Error> {
        Size::new(self.layers, self.width, self.heads, self.context)
    }

    /// The text to learn from.
    pub(crate) fn corpus(&self) -> Result<Corpus, Error> {
        let context = self.size()?.context();
        Corpus::read_where(&self.data, context, |path| self.is_text(path))
    }

    /// Whether a file below the folder is text to learn from. What this run writes is not: whoever
    /// reads the folder later, such as a worker that is started again, would have other text.
    fn is_text(&self, path: &Path) -> bool {
        let is_log = self.json.as_ref().is_some_and(|log| is_same(log, path));
        !is_log && (self.data != Path::new(SOURCES) || is_source(path))
    }

    /// What has to be alike on all workers, each as an option.
    pub(crate) fn settings(&self) -> Result<Vec<String>, Error> {
        let exchange = self.exchange()?;
        let mut settings = vec![
            format!("--layers {}", self.layers),
            format!("--width {}", self.width),
            format!("--heads {}", self.heads),
            format!("--context {}", self.context),
            format!("--batch {}", self.batch),
            format!("--accumulate {}", self.accumulate),
            format!("--steps {}", self.steps),
            format!("--lr {}", self.lr),
            format!("--seed {}", self.seed),
            format!("--method {}", name(exchange.method)),
        ];
        match exchange.method {
            Method::Ddp => settings.extend([
                format!("--gradients {}", in_small_letters(self.gradients())),
                given("--power-sgd", exchange.power_sgd),
                given("--shard", self.shard.map(name)),
                given("--shard-group", self.shard_group),
            ]),
            Method::Local | Method::Diloco | Method::Streaming => settings.extend([
                format!("--inner-steps {}", exchange.inner_steps),
                format!("--compress {}", name(exchange.compress)),
                format!("--not-finite {}", in_small_letters(exchange.not_finite)),
            ]),
        }
        if exchange.method == Method::Streaming {
            settings.push(format!("--fragments {}", exchange.fragments));
            settings.push(given("--delay", exchange.delay));
        }
        Ok(settings)
    }

    /// How workers train together; an option that the method has no use for is refused.
    pub(crate) fn exchange(&self) -> Result<Exchange, Error> {
        let unused = |option, given: bool| match given {
            true => Err(Error::Unused {
                option,
                circumstance: format!("with --method {}", name(self.method)),
            }),
            false => Ok(()),
        };
        let by_gradients = self.method == Method::Ddp;
        unused("--gradients", !by_gradients && self.gradients.is_some())?;
        unused("--power-sgd", !by_gradients && self.power_sgd.is_some())?;
        unused("--elastic", by_gradients && self.elastic.is_some())?;
        unused("--inner-steps", by_gradients && self.inner_steps.is_some())?;
        unused("--compress", by_gradients && self.compress.is_some())?;
        unused("--not-finite", by_gradients && self.not_finite.is_some())?;
        let in_parts = self.method == Method::Streaming;
        unused("--fragments", !in_parts && self.fragments.is_some())?;
        unused("--delay", !in_parts && self.delay.is_some())?;
        Ok(Exchange {
            method: self.method,
            inner_steps: self.inner_steps.unwrap_or(INNER_STEPS),
            compress: self.compress.unwrap_or(Compress::None),
            fragments: self.fragments.unwrap_or(FRAGMENTS),
            delay: self.delay,
            outer_rate: OUTER_RATE,
            not_finite: self.when_not_finite(),
            power_sgd: self.power_sgd,
        })
    }

    /// What is kept in parts, if that is asked for; an option that it has no use for is refused.
    pub(crate) fn shard(&self) -> Result<Option<Shard>, Error> {
        let unused = |option, circumstance: &str| {
            let circumstance = circumstance.to_owned();
            Err(Error::Unused {
                option,
                circumstance,
            })
        };
        if self.shard.is_some() && self.power_sgd.is_some() {
            return unused("--power-sgd", "with --shard");
        }
        if self.shard.is_some() && !self.device.are_cpus() {
            return unused("--device", "with --shard");
        }
        match (self.shard, self.method, self.gradients) {
            (None, _, _) if self.shard_group.is_some() => {
                unused("--shard-group", "without --shard")
            }
            (None, _, _) => Ok(None),
            (Some(_), Method::Ddp, Some(_)) => unused("--gradients", "with --shard"),
            (Some(parts), Method::Ddp, None) => Ok(Some(parts.into())),
            (Some(_), Method::Local | Method::Diloco | Method::Streaming, _) => {
                unused("--shard", &format!("with --method {}", name(self.method)))
            }
        }
    }

    /// The form of gradients on the wire.
    pub(crate) fn gradients(&self) -> CommunicationDtype {
        self.gradients.unwrap_or(Gradients::F32).into()
    }

    /// The batches of a worker in a step, whose first row is `first`.
    pub(crate) fn batches(
        &self,
        corpus: &Corpus,
        step: usize,
        first: usize,
    ) -> impl Iterator<Item = Batch> {
        let (seed, batch) = (self.seed, self.batch.get());
        let starts = (first..)
            .step_by(batch)
            .take(self.accumulate.get() as usize);
        starts.map(move |start| corpus.batch(seed, step, start..start + batch))
    }

    fn when_not_finite(&self) -> NotFinite {
        self.not_finite.unwrap_or(WhenNotFinite::Stop).into()
    }

    /// Refuses the loss of a step, from 0, that is no number any more, unless this worker is to
    /// begin anew then.
    pub(crate) fn check_loss(&self, step: usize, loss: f32) -> Result<(), Error> {
        match loss.is_finite() || self.when_not_finite() == NotFinite::Exclude {
            true => Ok(()),
            false => Err(Error::LossNotFinite {
                step: step + 1,
                loss,
                rate: self.lr,
            }),
        }
    }

    /// Rows of text that one worker computes in a step.
    pub(crate) fn rows(&self) -> usize {
        self.batch
            .get()
            .saturating_mul(self.accumulate.get() as usize)
    }
}

/// One line for what is wrong with the command line, of the several that clap has to say.
pub(crate) fn usage_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    let problem = first.strip_prefix("error: ").unwrap_or(first);
    if let Some(ContextValue::String(similar)) = error.get(ContextKind::SuggestedArg) {
        return format!("{problem}, but {similar} is known; see --help");
    }
    format!("{problem}; see --help")
}

/// As an option is called.
fn name(value: impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// An option that has no default.
fn given(option: &str, value: Option<impl Display>) -> String {
    match value {
        Some(value) => format!("{option} {value}"),
        None => format!("no {option}"),
    }
}

fn in_small_letters(value: impl Debug) -> String {
    format!("{value:?}").to_lowercase()
}

/// Whether two paths lead to one file, which need not be there yet.
fn is_same(one: &Path, other: &Path) -> bool {
    let folder = |path: &Path| match path.parent() {
        Some(parent) if parent != Path::new("") => fs::canonicalize(parent).ok(),
        Some(_) | None => fs::canonicalize(".").ok(),
    };
    one.file_name() == other.file_name() && folder(one) == folder(other)
}

/// Whether a file of the workspace is one of those that were written for it.
fn is_source(path: &Path) -> bool {
    let known = ["rs", "md", "toml", "txt"];
    path.extension()
        .is_some_and(|end| known.iter().any(|known| end == *known))
}

fn learning_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        _ => Err("must be a finite number above 0, such as 0.001".to_owned()),
    }
}

/// Defaults of options that only some methods have a use for.
const INNER_STEPS: NonZeroU32 = NonZeroU32::new(30).expect("30 is not 0");
const FRAGMENTS: NonZeroUsize = NonZeroUsize::new(4).expect("4 is not 0");

/// The workspace that this program is a part of.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

#[cfg(test)]
mod tests {
    use super::*;

    fn args(more: &[&str]) -> Args {
        Args::parse_from([&["text"][..], more].concat())
    }

    #[test]
    fn the_default_text_are_sources_and_no_run_reads_its_log() {
        let of = |more: &[&str], path: &str| args(more).is_text(Path::new(path));
        for path in ["src/args.rs", "README.md", "Cargo.toml", "notes.txt"] {
            assert!(of(&[], path), "{path}");
        }
        for path in ["ddp.json", "losses.svg", "Cargo.lock", "LICENSE", "csv"] {
            assert!(!of(&[], path), "{path}");
            assert!(of(&["--data", "."], path), "{path}");
        }
        let logged = ["--data", ".", "--json", "log.txt"];
        assert!(!of(&logged, "./log.txt") && !of(&logged, "src/../log.txt"));
        assert!(of(&logged, "src/log.txt") && of(&logged, "./log.json"));
        assert!(!of(&["--json", "log.txt"], "log.txt"));
    }

    #[test]
    fn settings_are_alike_where_defaults_are_typed_and_differ_by_what_else_is() {
        let of = |more: &[&str]| args(more).settings().unwrap();
        let ddp = of(&[]);
        let typed = of(&["--gradients", "f32", "--layers", "3", "--json", "a"]);
        assert_eq!(ddp, typed);
        let compressed = of(&["--power-sgd", "2"]);
        let differ = ddp
            .iter()
            .zip(&compressed)
            .filter(|(one, other)| one != other);
        let differ: Vec<_> = differ.collect();
        let [none, two] = ["no --power-sgd", "--power-sgd 2"].map(str::to_owned);
        assert_eq!(differ, [(&none, &two)]);
        let diloco = of(&["--method", "diloco"]);
        assert!(
            diloco.contains(&"--not-finite stop".to_owned()),
            "{diloco:?}"
        );
        assert_ne!(diloco, of(&["--method", "diloco", "--compress", "int8"]));
        let streaming = of(&["--method", "streaming"]);
        assert_ne!(streaming, of(&["--method", "streaming", "--delay", "1"]));
    }
}
