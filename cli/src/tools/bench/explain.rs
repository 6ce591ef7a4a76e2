//! What the cost model predicts, and so what is chosen.

use std::io::{self, Write};

use meshwork_collectives::schedule::{Algorithm, Hosts};
use meshwork_collectives::{Choices, Communication, CostModel, ElementType, Payload, Prediction};

use super::Failure;
use super::args::Bench;

/// Prints a table for each size: the algorithms, the fastest first, with their predicted times, how
/// many others a rank is connected with, and which of them `auto` takes.
pub(super) fn print(wanted: &Bench) -> Result<(), Failure> {
    let name = wanted.operation().name();
    let Some(collective) = wanted.operation().collective() else {
        return Err(format!("{name} is between two ranks and has no algorithms").into());
    };
    let (ranks, cores) = (u32::try_from(wanted.ranks())?, wanted.cores()?.get());
    let model = CostModel::over(wanted.carrier());
    let model = model.with_ranks_per_core(f64::from(ranks) / cores as f64);
    let choices = Choices::new(&Hosts::apart(ranks), model);
    let mut out = io::stdout().lock();
    head(&mut out, wanted, cores)?;
    for bytes in wanted.sizes() {
        let payload = Payload::new(ElementType::U8, *bytes);
        let auto = choices.choose(Communication::Auto, collective, payload);
        for line in choices.explain(collective, *bytes) {
            let row = Row {
                bytes: *bytes,
                line,
                auto,
            };
            match wanted.prints_csv() {
                true => row.csv(&mut out, &format!("{name},{ranks},{cores}"))?,
                false => row.text(&mut out)?,
            }
        }
    }
    Ok(())
}

fn head(out: &mut impl Write, wanted: &Bench, cores: usize) -> io::Result<()> {
    if wanted.prints_csv() {
        return writeln!(
            out,
            "op,ranks,cores,bytes,algorithm,predicted_us,peers,auto"
        );
    }
    let (name, ranks) = (wanted.operation().name(), wanted.ranks());
    let over = wanted.carrier();
    writeln!(
        out,
        "{name} among {ranks} ranks on {cores} cores over {over}, as predicted"
    )?;
    let [bytes, time, peers, by] = ["bytes", "time µs", "peers", "algorithm"];
    writeln!(out, "{bytes:>12} {time:>12} {peers:>6} {by:>14}")
}

/// What one algorithm is predicted to take, and which one is chosen.
struct Row {
    bytes: usize,
    line: Prediction,
    auto: Algorithm,
}

impl Row {
    fn csv(&self, out: &mut impl Write, place: &str) -> io::Result<()> {
        let Self { bytes, line, auto } = self;
        let (algorithm, micros, peers) = (line.algorithm(), line.seconds() * 1e6, line.peers());
        let is_taken = algorithm == *auto;
        writeln!(
            out,
            "{place},{bytes},{algorithm},{micros:.2},{peers},{is_taken}"
        )
    }

    fn text(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { bytes, line, auto } = self;
        let (algorithm, micros, peers) = (line.algorithm(), line.seconds() * 1e6, line.peers());
        let mark = if algorithm == *auto { " auto" } else { "" };
        let algorithm = algorithm.to_string();
        writeln!(
            out,
            "{bytes:>12} {micros:>12.2} {peers:>6} {algorithm:>14}{mark}"
        )
    }
}
