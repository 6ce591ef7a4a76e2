//! The loss curve as a picture.

use std::io;
use std::path::Path;

use plotters::prelude::*;

use crate::error::Error;
use crate::report;

/// Where nobody named another file.
const FILE: &str = "mnist-loss.svg";

/// Writes the loss curve to the file that was named, or else to one in the current folder, if that
/// takes files: in a container it may not. Says where it is.
///
/// # Errors
///
/// [`Error::Write`] if the file that was named cannot be written.
pub(crate) fn leave(named: Option<&Path>, losses: &[f32]) -> Result<(), Error> {
    let path = named.unwrap_or_else(|| Path::new(FILE));
    match write(path, losses) {
        Ok(()) => report::announce_curve(path),
        Err(error) if named.is_some() => return Err(error),
        Err(error) => report::print_line(io::stdout(), &format!("no loss curve: {error}")),
    }
    Ok(())
}

/// Writes the loss of each step, the first being step 1, as SVG.
fn write(path: &Path, losses: &[f32]) -> Result<(), Error> {
    let picture = svg(losses).map_err(|source| Error::Draw {
        steps: losses.len(),
        source,
    })?;
    std::fs::write(path, picture).map_err(Error::write(path, "--plot"))
}

type DrawError = DrawingAreaErrorKind<io::Error>;

fn svg(losses: &[f32]) -> Result<String, DrawError> {
    let mut picture = String::new();
    let area = SVGBackend::with_string(&mut picture, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let highest = losses.iter().copied().fold(0.0, f32::max);
    // An axis without an end would be divided for ever.
    let top = (highest * 1.05).clamp(0.1, f32::MAX);
    let mut chart = ChartBuilder::on(&area)
        .caption("MNIST, training loss", ("sans-serif", 22))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(56)
        .build_cartesian_2d(1..losses.len().max(2), 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc("step")
        .y_desc("cross entropy, mean over the global batch")
        .x_label_formatter(&|step| step.to_string())
        .y_label_formatter(&|loss| format!("{loss:.1}"))
        .axis_desc_style(("sans-serif", 15))
        .label_style(("sans-serif", 13))
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(225, 225, 225))
        .draw()?;
    let each = losses
        .iter()
        .copied()
        .zip(1..)
        .map(|(loss, step)| (step, loss));
    let smooth = smoothed(losses)
        .into_iter()
        .zip(1..)
        .map(|(loss, step)| (step, loss));
    let (thin, thick) = (RAW.stroke_width(1), SMOOTH.stroke_width(2));
    chart
        .draw_series(LineSeries::new(each, thin))?
        .label("each step")
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], thin));
    chart
        .draw_series(LineSeries::new(smooth, thick))?
        .label(format!("mean of {} steps", 2 * HALF_WINDOW + 1))
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], thick));
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE)
        .border_style(RGBColor(200, 200, 200))
        .label_font(("sans-serif", 13))
        .draw()?;
    area.present()?;
    drop(chart);
    drop(area);
    Ok(picture)
}

/// The mean of each loss with its neighbours, as many on both sides as there are on the shorter
/// one.
fn smoothed(losses: &[f32]) -> Vec<f32> {
    (0..losses.len())
        .map(|at| {
            let reach = HALF_WINDOW.min(at).min(losses.len() - 1 - at);
            let window = &losses[at - reach..=at + reach];
            window.iter().sum::<f32>() / window.len() as f32
        })
        .collect()
}

/// Width and height in pixels.
const SIZE: (u32, u32) = (900, 500);

/// Steps on each side that the smooth line averages over.
const HALF_WINDOW: usize = 7;

const RAW: RGBColor = RGBColor(158, 190, 224);
const SMOOTH: RGBColor = RGBColor(16, 78, 139);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smoothing_keeps_a_straight_line() {
        let line: Vec<f32> = (0..40u8).map(|step| 3.0 - 0.05 * f32::from(step)).collect();
        for (smooth, raw) in smoothed(&line).iter().zip(&line) {
            assert!((smooth - raw).abs() < 1e-5);
        }
        assert!(smoothed(&[]).is_empty());
    }

    #[test]
    fn the_picture_has_title_axes_and_both_lines() {
        let picture = svg(&[2.3, 1.0, 0.5, 0.4]).unwrap();
        for part in [
            "MNIST, training loss",
            "step",
            "cross entropy",
            "each step",
            "mean of 15",
        ] {
            assert!(picture.contains(part), "{part}");
        }
        assert!(picture.trim_end().ends_with("</svg>"));
        assert!(picture.matches("<polyline").count() >= 2);
    }

    #[test]
    fn very_short_runs_can_be_drawn_too() {
        svg(&[]).unwrap();
        svg(&[2.3]).unwrap();
        svg(&[0.0, 0.0]).unwrap();
    }

    #[test]
    fn a_loss_of_nearly_all_that_there_is_can_be_drawn() {
        svg(&[f32::MAX, 1.0]).unwrap();
    }

    #[test]
    fn a_picture_that_cannot_be_written_is_named_with_its_flag() {
        let path = Path::new("no/such/folder/curve.svg");
        let line = crate::error::one_line(&write(path, &[1.0]).unwrap_err());
        assert!(
            line.contains("curve.svg") && line.contains("--plot"),
            "{line}"
        );
    }
}
