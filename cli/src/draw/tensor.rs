//! The picture of a tensor on a mesh.

use std::ops::Range;

use meshwork_core::MeshRank;
use meshwork_layout::{Layout, ShardingSpec};

use super::{Band, Cell, DrawError, Panel, Picture, check_cells, dims, edges, places};

impl Picture {
    /// A tensor of this shape, cut as the layout says, with the ranks that hold each part: the last
    /// tensor dimension from left to right, the one before it downwards, and a grid for each part
    /// of the others.
    ///
    /// # Errors
    /// [`DrawError::Layout`] for a shape of another rank than the layout's,
    /// [`DrawError::TooManyRanks`], [`DrawError::TooManyCells`].
    pub fn of_tensor(layout: &Layout, shape: &[usize]) -> Result<Self, DrawError> {
        let ranks = layout.mesh().size();
        if ranks > MOST_RANKS {
            let most = MOST_RANKS;
            return Err(DrawError::TooManyRanks { ranks, most });
        }
        let mut drawing = Drawing {
            layout,
            shape,
            parts: parts(layout, shape)?,
            drawn: 0,
            holders: 0,
        };
        let panels = drawing.panels()?;
        Ok(Self {
            title: title(layout, shape),
            panels,
            notes: notes(layout, drawing.holders),
        })
    }
}

struct Drawing<'a> {
    layout: &'a Layout,
    shape: &'a [usize],
    /// For each tensor dimension the parts that are not empty.
    parts: Vec<Vec<Range<usize>>>,
    /// How many cells there are so far.
    drawn: usize,
    /// How many ranks hold something.
    holders: usize,
}

impl Drawing<'_> {
    fn panels(&mut self) -> Result<Vec<Panel>, DrawError> {
        let bands = |parts: &Vec<Range<usize>>| parts.iter().map(band).collect();
        let bands: Vec<Vec<Band>> = self.parts.iter().map(bands).collect();
        check_cells(bands.iter().map(Vec::len).fold(1, usize::saturating_mul))?;
        if self.shape.contains(&0) {
            return Ok(vec![]);
        }
        let (major, rows, columns) = edges(bands);
        let mut panels = Vec::new();
        for place in places(&major) {
            let labels = major.iter().zip(&place);
            let labels: Vec<_> = labels
                .map(|(bands, &at)| bands[at].label.as_str())
                .collect();
            let title = match labels.as_slice() {
                [] => String::new(),
                labels => format!("[{}, :, :]", labels.join(", ")),
            };
            let mut cells = Vec::new();
            for within in places(&[rows.clone(), columns.clone()]) {
                cells.push(self.cell(&[place.as_slice(), &within].concat())?);
            }
            panels.push(Panel {
                title,
                rows: rows.clone(),
                columns: columns.clone(),
                cells,
            });
        }
        Ok(panels)
    }

    /// The cell at a place along each tensor dimension; behind missing ones, the only row or column
    /// comes first.
    fn cell(&mut self, place: &[usize]) -> Result<Cell, DrawError> {
        let place = &place[place.len() - self.parts.len()..];
        let first: Vec<usize> = self
            .parts
            .iter()
            .zip(place)
            .map(|(parts, &at)| parts[at].start)
            .collect();
        let owners = self.layout.owners(&first, self.shape)?;
        self.holders += owners.len();
        let colour = self.drawn;
        self.drawn += 1;
        let label = listed(owners);
        Ok(Cell { label, colour })
    }
}

/// The parts along each dimension, in order, without the empty ones.
fn parts(layout: &Layout, shape: &[usize]) -> Result<Vec<Vec<Range<usize>>>, DrawError> {
    // An error for a shape of another rank.
    layout.local_shape(MeshRank::new(0), shape)?;
    let mut all = vec![vec![]; shape.len()];
    if shape.contains(&0) {
        return Ok(all);
    }
    for (axis, &size) in shape.iter().enumerate() {
        let mut index = vec![0; shape.len()];
        while index[axis] < size {
            let owner = layout.owners(&index, shape)?.next();
            let Some(owner) = owner else { break };
            let part = layout.shard(owner, shape)?[axis].clone();
            index[axis] = part.end;
            all[axis].push(part);
        }
    }
    Ok(all)
}

fn band(part: &Range<usize>) -> Band {
    Band {
        label: format!("{}..{}", part.start, part.end),
        len: part.len(),
    }
}

/// Ranks as runs, `0-3, 8`, and no more than a cell can show.
fn listed(ranks: impl ExactSizeIterator<Item = MeshRank>) -> String {
    let count = ranks.len();
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for rank in ranks.map(MeshRank::index) {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => runs.push((rank, rank)),
        }
    }
    let run = |&(first, last): &(usize, usize)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    };
    let shown: Vec<String> = runs.iter().take(MOST_RUNS).map(run).collect();
    let rest = if runs.len() > MOST_RUNS {
        format!(", … ({count} ranks)")
    } else {
        String::new()
    };
    shown.join(", ") + &rest
}

fn title(layout: &Layout, shape: &[usize]) -> String {
    let on = dims(layout.mesh());
    if shape.is_empty() {
        return format!("scalar on the mesh {on}, by ranks");
    }
    let sizes: Vec<_> = shape.iter().map(usize::to_string).collect();
    let specs: Vec<_> = layout.specs().map(ShardingSpec::to_string).collect();
    format!(
        "tensor {} as {} on the mesh {on}, by ranks",
        sizes.join("×"),
        specs.join(",")
    )
}

fn notes(layout: &Layout, holders: usize) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(reduction) = layout.reduction() {
        let along: Vec<_> = layout.partial().map(ToString::to_string).collect();
        notes.push(format!(
            "each element is the {reduction} of {} terms along {}",
            layout.terms(),
            along.join(", ")
        ));
    }
    let ranks = layout.mesh().size();
    if holders < ranks {
        let without = ranks - holders;
        let hold = if without == 1 { "holds" } else { "hold" };
        notes.push(format!("{without} of {ranks} ranks {hold} nothing"));
    }
    notes
}

/// Owners are listed one by one.
const MOST_RANKS: usize = 1 << 20;

/// The most runs of ranks that a cell can show.
const MOST_RUNS: usize = 4;
