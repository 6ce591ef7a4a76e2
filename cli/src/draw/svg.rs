//! Pictures as SVG.

use std::borrow::Cow;
use std::fmt::{self, Write};

use super::{Band, Panel, Picture};

impl Picture {
    /// The picture as an SVG document, rows and columns in proportion where their labels leave
    /// room.
    #[must_use]
    pub fn to_svg(&self) -> String {
        let panels: Vec<Drawn<'_>> = self.panels.iter().map(Drawn::new).collect();
        let lines = 1 + self.notes.len();
        let texts = self.notes.iter().chain([&self.title]);
        let widest = texts.map(|text| text_width(text)).max().unwrap_or(0);
        let widths = panels.iter().map(|panel| panel.left + sum(&panel.widths));
        let width = MARGIN * 2 + widths.max().unwrap_or(0).max(widest);
        let heights = panels
            .iter()
            .map(|panel| panel.top + sum(&panel.heights) + GAP);
        let height = MARGIN * 2 + lines * LINE + heights.sum::<usize>();
        let colours = self.panels.iter().map(|panel| panel.cells.len()).sum();
        let mut svg = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut svg, &panels, [width, height], colours);
        svg
    }

    fn write(
        &self,
        svg: &mut String,
        panels: &[Drawn<'_>],
        [width, height]: [usize; 2],
        colours: usize,
    ) -> fmt::Result {
        writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" font-family=\"monospace\" font-size=\"13\">"
        )?;
        writeln!(svg, "<title>{}</title>", escaped(&self.title))?;
        writeln!(
            svg,
            "<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>"
        )?;
        let mut y = MARGIN + LINE / 2;
        text(svg, [MARGIN, y], "start", &self.title)?;
        y += LINE;
        for panel in panels {
            panel.write(svg, y, colours)?;
            y += panel.top + sum(&panel.heights) + GAP;
        }
        for note in &self.notes {
            text(svg, [MARGIN, y], "start", note)?;
            y += LINE;
        }
        writeln!(svg, "</svg>")
    }
}

/// A panel and its measures, in pixels.
struct Drawn<'a> {
    panel: &'a Panel,
    /// The margin to the left of the cells.
    left: usize,
    /// The margin above the cells.
    top: usize,
    widths: Vec<usize>,
    heights: Vec<usize>,
}

impl<'a> Drawn<'a> {
    fn new(panel: &'a Panel) -> Self {
        let (columns, rows) = panel.widths();
        let least = |letters: &usize| letters * LETTER + PADDING * 2;
        let least: Vec<usize> = columns.iter().map(least).collect();
        Self {
            panel,
            left: rows * LETTER + PADDING,
            top: if panel.title.is_empty() {
                LINE
            } else {
                LINE * 2
            },
            widths: lengths(&panel.columns, &least, WIDE),
            heights: lengths(&panel.rows, &vec![HIGH; panel.rows.len()], HIGH * 4),
        }
    }

    fn write(&self, svg: &mut String, above: usize, colours: usize) -> fmt::Result {
        let Self { panel, .. } = self;
        if !panel.title.is_empty() {
            text(svg, [MARGIN, above], "start", &panel.title)?;
        }
        let (left, top) = (MARGIN + self.left, above + self.top);
        let mut x = left;
        for (band, width) in panel.columns.iter().zip(&self.widths) {
            text(svg, [x + width / 2, top - LINE / 2], "middle", &band.label)?;
            x += width;
        }
        let mut y = top;
        for (number, (band, height)) in panel.rows.iter().zip(&self.heights).enumerate() {
            text(svg, [left - PADDING, y + height / 2], "end", &band.label)?;
            let mut x = left;
            for (cell, width) in panel.cells_of_row(number).iter().zip(&self.widths) {
                let hue = 210 + cell.colour * 360 / colours;
                writeln!(
                    svg,
                    "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" \
                     fill=\"hsl({},60%,88%)\" stroke=\"black\"/>",
                    hue % 360
                )?;
                text(svg, [x + width / 2, y + height / 2], "middle", &cell.label)?;
                x += width;
            }
            y += height;
        }
        Ok(())
    }
}

/// The length of each band: its share of `whole`, and no less than its least.
fn lengths(bands: &[Band], least: &[usize], whole: usize) -> Vec<usize> {
    let sum: u128 = bands.iter().map(|band| band.len as u128).sum();
    let share = |band: &Band| (whole as u128 * band.len as u128).checked_div(sum);
    let pixels = |band| share(band).and_then(|share| usize::try_from(share).ok());
    let bands = bands.iter().zip(least);
    bands
        .map(|(band, &least)| pixels(band).unwrap_or(0).max(least))
        .collect()
}

fn text(svg: &mut String, [x, y]: [usize; 2], anchor: &str, text: &str) -> fmt::Result {
    if text.is_empty() {
        return Ok(());
    }
    let text = escaped(text);
    writeln!(
        svg,
        "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" dominant-baseline=\"middle\">{text}</text>"
    )
}

/// Text between tags; the names of meshes have no control characters, which XML refuses.
fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(['&', '<', '>']) {
        return Cow::Borrowed(text);
    }
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    Cow::Owned(text.replace('>', "&gt;"))
}

fn sum(lengths: &[usize]) -> usize {
    lengths.iter().sum()
}

fn text_width(text: &str) -> usize {
    text.chars().count() * LETTER
}

/// How wide a letter is, at most.
const LETTER: usize = 8;
const LINE: usize = 20;
const MARGIN: usize = 16;
const PADDING: usize = 8;
const GAP: usize = 24;
/// How wide all columns are together, where their labels fit.
const WIDE: usize = 480;
/// How high a row is at least.
const HIGH: usize = 40;
