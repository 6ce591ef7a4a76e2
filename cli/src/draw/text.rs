//! Pictures in characters.

use super::{Band, Panel, Picture};

impl Picture {
    /// The picture in box-drawing characters, ending in a line break. Cells are as wide as their
    /// labels, not as what they stand for.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut lines = vec![self.title.clone()];
        for panel in &self.panels {
            lines.push(String::new());
            if !panel.title.is_empty() {
                lines.push(panel.title.clone());
            }
            panel.draw(&mut lines);
        }
        if !self.notes.is_empty() {
            lines.push(String::new());
        }
        lines.extend(self.notes.iter().cloned());
        lines.push(String::new());
        lines.join("\n")
    }
}

impl Panel {
    fn draw(&self, lines: &mut Vec<String>) {
        let (columns, rows) = self.widths();
        let margin = if rows == 0 { 0 } else { rows + 1 };
        let rule = |ends: [&str; 3]| {
            let lines: Vec<_> = columns.iter().map(|width| "─".repeat(width + 2)).collect();
            format!(
                "{:margin$}{}{}{}",
                "",
                ends[0],
                lines.join(ends[1]),
                ends[2]
            )
        };
        let headings = self.columns.iter().zip(&columns);
        let headings = headings.map(|(band, width)| format!("  {:^width$} ", band.label));
        let heading = format!("{:margin$}{}", "", headings.collect::<Vec<_>>().join(""));
        if !heading.trim().is_empty() {
            lines.push(heading.trim_end().to_owned());
        }
        for (number, Band { label, .. }) in self.rows.iter().enumerate() {
            lines.push(rule(if number == 0 { TOP } else { MIDDLE }));
            let cells = self.cells_of_row(number).iter().zip(&columns);
            let cells = cells.map(|(cell, width)| format!("│ {:^width$} ", cell.label));
            let cells: String = cells.collect();
            lines.push(format!("{label:>rows$}{:1$}{cells}│", "", margin - rows));
        }
        lines.push(rule(BOTTOM));
    }
}

const TOP: [&str; 3] = ["┌", "┬", "┐"];
const MIDDLE: [&str; 3] = ["├", "┼", "┤"];
const BOTTOM: [&str; 3] = ["└", "┴", "┘"];
