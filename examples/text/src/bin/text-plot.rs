//! Draws the losses of trainings by the bytes that a worker has sent, and by time.
//!
//! ```text
//! cargo run --release -p text -- --workers 2 --method ddp --json ddp.json
//! cargo run --release -p text -- --workers 2 --method diloco --json diloco.json
//! cargo run --release -p text --bin text-plot -- --to losses.svg ddp.json diloco.json
//! ```
#![forbid(unsafe_code)]

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use plotters::coord::Shift;
use plotters::prelude::*;
use serde_json::Value;

/// Draws the losses of trainings by the bytes that a worker has sent, and by time
#[derive(Debug, Parser)]
#[command(name = "text-plot", version)]
struct Args {
    /// What the trainings have written with --json; each is called as its file
    #[arg(value_name = "FILE", required = true)]
    runs: Vec<PathBuf>,

    /// The picture, as SVG
    #[arg(long, value_name = "FILE", default_value = "losses.svg")]
    to: PathBuf,
}

fn main() -> ExitCode {
    match draw(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A reader that has gone is no reason to fail otherwise.
            let _ = writeln!(io::stderr(), "text-plot: error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn draw(args: &Args) -> Result<(), Failure> {
    let read = |path: &PathBuf| {
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read_to_string(path).map_err(|error| named(&error))?;
        Run::read(name(path), &text).map_err(|error| named(&error))
    };
    let runs: Vec<Run> = args.runs.iter().map(read).collect::<Result<_, _>>()?;
    let picture = svg(&runs)?;
    let to = args.to.display();
    Ok(fs::write(&args.to, picture).map_err(|error| format!("{to}: {error}"))?)
}

type Failure = Box<dyn std::error::Error>;

fn name(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or(path.as_os_str());
    stem.to_string_lossy().into_owned()
}

/// A training, as it is drawn.
#[derive(Debug)]
struct Run {
    name: String,
    points: Vec<Point>,
    /// On text that it has not learned from.
    validation: Option<f64>,
}

/// Several steps one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    /// Their mean.
    loss: f64,
    seconds: f64,
    /// That a worker has sent by then.
    megabytes: f64,
}

impl Run {
    fn read(name: String, text: &str) -> Result<Self, Failure> {
        let mut steps = Vec::new();
        let mut validation = None;
        for line in text.lines() {
            let line: Value = serde_json::from_str(line)?;
            let number = |name: &str| line[name].as_f64();
            // A loss that was no number is null; of a model in parts it is not known what was sent.
            if let (Some(loss), Some(seconds)) = (number("loss"), number("wall_s")) {
                let megabytes = number("sent").map_or(0.0, |bytes| bytes / 1e6);
                steps.push(Point {
                    loss,
                    seconds,
                    megabytes,
                });
            }
            validation = validation.or_else(|| number("validation_loss"));
        }
        if steps.is_empty() {
            return Err("no step has a loss; give what `text --json` has written".into());
        }
        let each = steps.len().div_ceil(POINTS);
        Ok(Self {
            name,
            points: steps.chunks(each).map(mean).collect(),
            validation,
        })
    }

    /// Losses by what `axis` measures, from where there is something to measure.
    fn line(&self, axis: Axis) -> Vec<(f64, f64)> {
        let points = self.points.iter();
        let points = points.filter_map(|point| Some((axis.place(point)?, point.loss)));
        points.collect()
    }
}

/// The mean loss of some steps, at the last of them.
fn mean(steps: &[Point]) -> Point {
    let loss = steps.iter().map(|step| step.loss).sum::<f64>() / steps.len() as f64;
    Point {
        loss,
        ..steps[steps.len() - 1]
    }
}

/// What losses are drawn by.
#[derive(Clone, Copy, Debug)]
enum Axis {
    /// Their logarithm, as methods differ a hundredfold.
    Bytes,
    Time,
}

impl Axis {
    fn place(self, point: &Point) -> Option<f64> {
        match self {
            Self::Bytes => (point.megabytes > 0.0).then(|| point.megabytes.log10()),
            Self::Time => Some(point.seconds),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Bytes => "megabytes that a worker has sent",
            Self::Time => "seconds",
        }
    }

    fn label(self, place: f64) -> String {
        match self {
            Self::Bytes if place < 1.0 => format!("{:.2}", 10_f64.powf(place)),
            Self::Bytes => format!("{:.0}", 10_f64.powf(place)),
            Self::Time => format!("{place:.0}"),
        }
    }
}

/// One picture beside the other.
fn svg(runs: &[Run]) -> Result<String, Failure> {
    let mut picture = String::new();
    let area = SVGBackend::with_string(&mut picture, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let (left, right) = area.split_horizontally(SIZE.0 / 2);
    panel(&left, Axis::Bytes, runs)?;
    panel(&right, Axis::Time, runs)?;
    area.present()?;
    drop((left, right, area));
    Ok(picture)
}

fn panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    axis: Axis,
    runs: &[Run],
) -> Result<(), Failure> {
    let places = runs.iter().flat_map(|run| run.line(axis));
    let [from, to] = bounds(places.map(|point| point.0));
    let losses = runs.iter().flat_map(|run| {
        let losses = run.points.iter().map(|point| point.loss);
        losses.chain(run.validation)
    });
    let [lowest, highest] = bounds(losses);
    let mut chart = ChartBuilder::on(area)
        .caption("loss", ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(48)
        .build_cartesian_2d(from..to, lowest..highest)?;
    chart
        .configure_mesh()
        .x_desc(axis.name())
        .x_label_formatter(&|place| axis.label(*place))
        .y_label_formatter(&|loss| format!("{loss:.1}"))
        .axis_desc_style(("sans-serif", 15))
        .label_style(("sans-serif", 13))
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(225, 225, 225))
        .draw()?;
    for (number, run) in runs.iter().enumerate() {
        let line = run.line(axis);
        let Some((end, _)) = line.last().copied() else {
            continue;
        };
        let style = COLOURS[number % COLOURS.len()].stroke_width(2);
        chart
            .draw_series(LineSeries::new(line, style))?
            .label(&run.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        let dot = |loss| Circle::new((end, loss), 4, style.filled());
        chart.draw_series(run.validation.map(dot))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE)
        .border_style(RGBColor(200, 200, 200))
        .label_font(("sans-serif", 13))
        .draw()?;
    Ok(())
}

/// From the lowest to the highest, and a little more than one place.
fn bounds(values: impl Iterator<Item = f64>) -> [f64; 2] {
    let none = [f64::INFINITY, f64::NEG_INFINITY];
    let [from, to] = values.fold(none, |[from, to], value| [from.min(value), to.max(value)]);
    match from <= to {
        true => [
            from - 0.02 * (to - from),
            (to + 0.02 * (to - from)).max(from + 0.1),
        ],
        false => [0.0, 1.0],
    }
}

/// Width and height in pixels.
const SIZE: (u32, u32) = (1200, 500);

/// Of the trainings, in their order.
const COLOURS: [RGBColor; 6] = [
    RGBColor(16, 78, 139),
    RGBColor(205, 92, 0),
    RGBColor(46, 125, 50),
    RGBColor(183, 28, 60),
    RGBColor(110, 70, 160),
    RGBColor(90, 90, 90),
];

/// Points of a line; each is the mean of as many steps as are behind it.
const POINTS: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    fn log(steps: usize, sent: impl Fn(usize) -> u64) -> String {
        let line = |step: usize| {
            let loss = 4.0 - step as f64 / 128.0;
            let (wall, sent) = (step as f64 / 10.0, sent(step));
            format!("{{\"step\":{step},\"loss\":{loss},\"wall_s\":{wall},\"sent\":{sent}}}\n")
        };
        let lines: String = (1..=steps).map(line).collect();
        format!("{lines}{{\"final\":true,\"validation_loss\":3.5,\"wall_s\":1.0,\"sent\":7}}\n")
    }

    #[test]
    fn lines_begin_where_something_was_sent_and_end_where_the_training_did() {
        let run = Run::read("one".to_owned(), &log(160, |step| step as u64 / 30 * 1_000)).unwrap();
        assert_eq!((run.points.len(), run.validation), (POINTS, Some(3.5)));
        let [bytes, time] = [Axis::Bytes, Axis::Time].map(|axis| run.line(axis));
        assert_eq!((time.len(), time[POINTS - 1].0), (POINTS, 16.0));
        // Steps 29 and 30 are the first of them.
        assert_eq!((bytes.len(), bytes[0].0), (POINTS - 14, -3.0));
        assert_eq!(run.points[0].loss, 4.0 - 1.5 / 128.0);
    }

    #[test]
    fn the_picture_has_both_axes_and_every_training() {
        let text = |each: u64| log(100, move |step| step as u64 * each);
        let run = |(name, each)| Run::read(String::from(name), &text(each)).unwrap();
        let runs = [("ddp", 5_000_000), ("diloco", 20_000)].map(run);
        let picture = svg(&runs).unwrap();
        for part in [
            "megabytes that a worker has sent",
            "seconds",
            "ddp",
            "diloco",
        ] {
            assert!(picture.contains(part), "{part}");
        }
        assert!(picture.matches("<polyline").count() >= 4);
        assert_eq!(picture.matches("<circle").count(), 4);
    }

    #[test]
    fn what_is_no_log_of_a_training_is_refused_and_one_step_is_drawn() {
        for text in ["", "{}\n", "no JSON\n"] {
            assert!(Run::read(String::new(), text).is_err(), "{text}");
        }
        let run = Run::read("none sent".to_owned(), &log(1, |_| 0)).unwrap();
        assert!(run.line(Axis::Bytes).is_empty());
        svg(&[run]).unwrap();
    }
}
