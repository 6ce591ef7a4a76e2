use clap::{Args, ValueEnum};
use meshwork_cli::draw::{DrawError, Picture};
use meshwork_core::Mesh;
use meshwork_layout::{Layout, Shape};

use super::geometry::{mesh, shape};

#[derive(Args, Debug)]
pub(crate) struct Draw {
    /// The mesh: its dimensions with their sizes, major first, such as x=2,y=4
    #[arg(long, value_name = "DIMS", value_parser = mesh)]
    mesh: Mesh,

    /// How a tensor lies on it: for each tensor dimension `unsharded`, or the mesh dimension that
    /// cuts it, or several, major first, such as x|y,unsharded
    ///
    /// Mesh dimensions along which elements are still to be reduced follow after a blank, as in
    /// `x,unsharded partial:sum:y`.
    #[arg(long, value_name = "SPECS", requires = "shape")]
    layout: Option<String>,

    /// The sizes of the tensor's dimensions, such as 8,6; nothing for a scalar
    #[arg(long, value_name = "SIZES", requires = "layout", value_parser = shape)]
    shape: Option<Shape>,

    /// What the picture is made of
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// Characters, for a terminal
    Text,
    /// An SVG document
    Svg,
}

impl Draw {
    /// The picture that is asked for, in its format.
    pub(crate) fn picture(&self) -> Result<String, DrawError> {
        let picture = match (&self.layout, &self.shape) {
            (Some(layout), Some(shape)) => {
                Picture::of_tensor(&Layout::from_specs(layout, &self.mesh)?, shape)?
            }
            // The parser takes both or neither.
            _ => Picture::of_mesh(&self.mesh)?,
        };
        Ok(match self.format {
            Format::Text => picture.to_text(),
            Format::Svg => picture.to_svg(),
        })
    }
}
