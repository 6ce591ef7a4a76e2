//! The picture of a mesh.

use meshwork_core::{Mesh, MeshDim};

use super::{Band, Cell, DrawError, Panel, Picture, check_cells, dims, edges, places};

impl Picture {
    /// The ranks of a mesh: the last dimension from left to right, the one before it downwards, and
    /// a grid for each coordinate along the others.
    ///
    /// # Errors
    /// [`DrawError::TooManyCells`].
    pub fn of_mesh(mesh: &Mesh) -> Result<Self, DrawError> {
        let cells = mesh.size();
        check_cells(cells)?;
        let bands: Vec<_> = mesh.dims().iter().map(coordinates).collect();
        let (major, rows, columns) = edges(bands);
        let size = rows.len() * columns.len();
        let panel = |(number, place): (usize, Vec<usize>)| Panel {
            title: title(&major, &place),
            rows: rows.clone(),
            columns: columns.clone(),
            cells: (number * size..(number + 1) * size).map(rank).collect(),
        };
        let plural = if cells == 1 { "" } else { "s" };
        Ok(Self {
            title: format!("mesh {}: {cells} rank{plural}", dims(mesh)),
            panels: places(&major).into_iter().enumerate().map(panel).collect(),
            notes: vec![],
        })
    }
}

fn coordinates(dim: &MeshDim) -> Vec<Band> {
    let band = |coord| Band {
        label: format!("{}={coord}", dim.name()),
        len: 1,
    };
    (0..dim.size()).map(band).collect()
}

fn rank(number: usize) -> Cell {
    Cell {
        label: number.to_string(),
        colour: 0,
    }
}

fn title(major: &[Vec<Band>], place: &[usize]) -> String {
    let labels = major.iter().zip(place);
    let labels = labels.map(|(bands, &at)| bands[at].label.as_str());
    labels.collect::<Vec<_>>().join(", ")
}
