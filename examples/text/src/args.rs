//! The command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use meshwork_strategy::CommunicationDtype;
use text::{Error, Size};

/// Trains a character transformer on a folder of text, with several worker processes that share
/// every batch, and lets it write.
#[derive(Clone, Debug, Parser)]
#[command(name = "text", version)]
pub(crate) struct Args {
    /// Worker processes
    #[arg(long, value_name = "W", default_value = "1")]
    pub(crate) workers: NonZeroUsize,

    /// Folder of text: all UTF-8 files below it; the sources of this program by default
    #[arg(long, value_name = "DIR", default_value = SOURCES, hide_default_value = true)]
    pub(crate) data: PathBuf,

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
    pub(crate) accumulate: NonZeroUsize,

    /// Steps of training
    #[arg(long, value_name = "S", default_value = "2000")]
    pub(crate) steps: NonZeroUsize,

    /// Learning rate; reached after 50 steps, then falling along a cosine to a tenth
    #[arg(long, value_name = "X", default_value = "0.001", value_parser = learning_rate)]
    pub(crate) lr: f64,

    /// Decides initial variables, batches and the sample
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,

    /// The form in which gradients are sent; bf16 has half the bytes
    #[arg(long, value_enum, default_value = "f32")]
    pub(crate) gradients: Gradients,

    /// Characters that the trained model writes at the end
    #[arg(long, value_name = "N", default_value = "200")]
    pub(crate) sample: usize,

    /// Write one JSON object for each step, and one for the result, to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// The form of gradients on the wire.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Gradients {
    F32,
    Bf16,
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
    /// The sizes of the transformer.
    pub(crate) fn size(&self) -> Result<Size, Error> {
        Size::new(self.layers, self.width, self.heads, self.context)
    }

    /// Rows of text that one worker computes in a step.
    pub(crate) fn rows(&self) -> usize {
        self.batch.get().saturating_mul(self.accumulate.get())
    }
}

/// One line for what is wrong with the command line, of the several that clap has to say.
pub(crate) fn usage_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    let problem = first.strip_prefix("error: ").unwrap_or(first);
    format!("{problem}; see --help")
}

fn learning_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        _ => Err("must be a finite number above 0, such as 0.001".to_owned()),
    }
}

/// The workspace that this program is a part of.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
