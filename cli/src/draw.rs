//! Pictures of meshes, and of tensors on them: who holds which part.
//!
//! ```text
//!   tensor 5×4 as x,unsharded on the mesh x=2, y=2, by ranks
//!
//!          0..4
//!        ┌──────┐
//!   0..3 │ 0-1  │      rows 0, 1 and 2 are on the ranks 0 and 1
//!        ├──────┤
//!   3..5 │ 2-3  │
//!        └──────┘
//! ```
//!
//! A [`Picture`] is grids of labelled cells, [shown as text](Picture::to_text) or
//! [as SVG](Picture::to_svg). Nothing here prints.

use std::fmt::Write;

use meshwork_core::Mesh;

mod mesh;
mod svg;
mod tensor;
mod text;

/// A title, grids of cells, and remarks.
///
/// ```
/// use meshwork_cli::draw::Picture;
/// use meshwork_core::Mesh;
/// use meshwork_layout::Layout;
///
/// let mesh = Mesh::new([("x", 2), ("y", 4)])?;
/// let layout = Layout::from_specs("x,unsharded", &mesh)?;
/// let picture = Picture::of_tensor(&layout, &[8, 6])?;
/// assert!(picture.to_text().contains("4..8 │ 4-7  │"));
/// assert!(picture.to_svg().starts_with("<svg "));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Picture {
    title: String,
    panels: Vec<Panel>,
    notes: Vec<String>,
}

/// Why there is no picture.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DrawError {
    /// The shape does not fit the layout.
    #[error(transparent)]
    Layout(#[from] meshwork_layout::Error),
    /// The picture would be too large to read.
    #[error("a picture of {cells} cells cannot be read: draw one of at most {most}")]
    TooManyCells {
        /// How many cells there would be.
        cells: usize,
        /// How many there may be.
        most: usize,
    },
    /// The mesh is too large to list who holds what.
    #[error("a mesh of {ranks} ranks is too large to draw: draw one of at most {most}")]
    TooManyRanks {
        /// How many ranks it has.
        ranks: usize,
        /// How many it may have.
        most: usize,
    },
}

/// One grid.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Panel {
    /// Where it lies along what is neither rows nor columns; empty for the only one.
    title: String,
    rows: Vec<Band>,
    columns: Vec<Band>,
    /// Row by row.
    cells: Vec<Cell>,
}

/// A row or a column.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Band {
    label: String,
    /// Its length, in a unit shared by all bands along one edge.
    len: usize,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Cell {
    label: String,
    /// Cells that look alike have one number.
    colour: usize,
}

impl Panel {
    fn cells_of_row(&self, row: usize) -> &[Cell] {
        let width = self.columns.len();
        &self.cells[row * width..(row + 1) * width]
    }

    /// How many characters wide each column is at least, and the labels of the rows.
    fn widths(&self) -> (Vec<usize>, usize) {
        let wide = |text: &str| text.chars().count();
        let column = |(number, band): (usize, &Band)| {
            let cells = self.cells.iter().skip(number).step_by(self.columns.len());
            let cells = cells.map(|cell| wide(&cell.label));
            cells.max().unwrap_or(0).max(wide(&band.label))
        };
        let columns = self.columns.iter().enumerate().map(column).collect();
        let rows = self.rows.iter().map(|band| wide(&band.label)).max();
        (columns, rows.unwrap_or(0))
    }
}

/// Splits what goes along leading edges from rows and columns, the last two; where there are fewer,
/// one row or one cell remains.
fn edges(mut bands: Vec<Vec<Band>>) -> (Vec<Vec<Band>>, Vec<Band>, Vec<Band>) {
    let columns = bands.pop().unwrap_or_else(|| vec![Band::nameless()]);
    let rows = bands.pop().unwrap_or_else(|| vec![Band::nameless()]);
    (bands, rows, columns)
}

impl Band {
    fn nameless() -> Self {
        Self {
            label: String::new(),
            len: 1,
        }
    }
}

/// Every way to take one place along each edge, the last changing fastest.
fn places(edges: &[Vec<Band>]) -> Vec<Vec<usize>> {
    edges.iter().fold(vec![vec![]], |places, bands| {
        let longer = |place: Vec<usize>| {
            (0..bands.len()).map(move |next| [place.as_slice(), &[next]].concat())
        };
        places.into_iter().flat_map(longer).collect()
    })
}

fn check_cells(cells: usize) -> Result<(), DrawError> {
    if cells <= MOST_CELLS {
        return Ok(());
    }
    let most = MOST_CELLS;
    Err(DrawError::TooManyCells { cells, most })
}

/// `x=2, y=4`, and words where there are none.
fn dims(mesh: &Mesh) -> String {
    let mut text = String::new();
    for dim in mesh.dims() {
        let separator = if text.is_empty() { "" } else { ", " };
        // Writing to a string does not fail.
        let _ = write!(text, "{separator}{}={}", dim.name(), dim.size());
    }
    if text.is_empty() {
        text.push_str("without dimensions");
    }
    text
}

/// More than a screen holds.
const MOST_CELLS: usize = 4096;

#[cfg(test)]
mod tests;
