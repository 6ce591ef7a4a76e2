use std::num::NonZeroUsize;
use std::time::Duration;

use clap::{Args, ValueEnum};
use meshwork_core::Mesh;
use meshwork_layout::{Error, Layout, Link, Links, Relayout, Shape};

use super::geometry::{mesh, shape};
use crate::seconds::seconds;
use crate::tools::plan::to_json;

#[derive(Args, Debug)]
pub(crate) struct Plan {
    /// The mesh: its dimensions with their sizes, major first, such as x=2,y=4
    #[arg(long, value_name = "DIMS", value_parser = mesh)]
    mesh: Mesh,

    /// The sizes of the tensor's dimensions, such as 8,6; nothing for a scalar
    #[arg(long, value_name = "SIZES", value_parser = shape)]
    shape: Shape,

    /// How the tensor lies before: for each of its dimensions `unsharded`, or the mesh dimension
    /// that cuts it, or several, major first, such as x|y,unsharded
    ///
    /// Mesh dimensions along which elements are still to be reduced follow after a blank, as in
    /// `x,unsharded partial:sum:y`.
    #[arg(long, value_name = "SPECS")]
    from: String,

    /// How the tensor lies after, written in the same way
    #[arg(long, value_name = "SPECS")]
    to: String,

    /// The mesh after, of the same ranks or the first of them, if it is another
    #[arg(long, value_name = "DIMS", value_parser = mesh)]
    to_mesh: Option<Mesh>,

    /// The bytes of one element
    #[arg(long, value_name = "BYTES", default_value = "4")]
    element_size: NonZeroUsize,

    /// The most bytes that a device may hold at any time [default: any number]
    #[arg(long, value_name = "BYTES")]
    memory: Option<u64>,

    /// How long a step takes, however little is sent
    #[arg(long, value_name = "SECONDS", default_value = "0.00001", value_parser = seconds)]
    #[arg(allow_negative_numbers = true)]
    latency: Duration,

    /// How many bytes a device receives in a second
    #[arg(long, value_name = "BYTES", default_value = "100000000000")]
    bandwidth: u64,

    /// How the plan is printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// Sentences
    Text,
    /// One JSON object
    Json,
}

impl Plan {
    /// The plan that is asked for, in its format.
    pub(crate) fn answer(&self) -> Result<String, Error> {
        let from = Layout::from_specs(&self.from, &self.mesh)?;
        let to = Layout::from_specs(&self.to, self.to_mesh.as_ref().unwrap_or(&self.mesh))?;
        let links = Links::uniform(Link::new(self.latency, self.bandwidth)?);
        let relayout =
            Relayout::new(&from, &to, &self.shape, self.element_size.get())?.links(links);
        let bound = self.memory.into_iter();
        let plan = bound.fold(relayout, Relayout::memory_bound).plan()?;
        Ok(match self.format {
            Format::Text => format!("{}\n", plan.explain()),
            Format::Json => format!("{:#}\n", to_json(&plan)),
        })
    }
}
