//! What the cost model predicts, and so what is chosen.

use std::io::{self, Write};

use meshwork_collectives::schedule::Hosts;
use meshwork_collectives::{Choices, CostModel};

use super::Failure;
use super::args::Bench;

/// Prints a table for each size: the algorithms, the fastest first, with their predicted times, and
/// how many others a rank is connected with.
pub(super) fn print(wanted: &Bench) -> Result<(), Failure> {
    let name = wanted.operation().name();
    let Some(collective) = wanted.operation().collective() else {
        return Err(format!("{name} is between two ranks and has no algorithms").into());
    };
    let ranks = u32::try_from(wanted.ranks())?;
    let carrier = wanted.carrier();
    let choices = Choices::new(&Hosts::apart(ranks), CostModel::over(carrier));
    let mut out = io::stdout().lock();
    if wanted.prints_csv() {
        writeln!(out, "op,ranks,bytes,algorithm,predicted_us,peers")?;
    } else {
        writeln!(
            out,
            "{name} among {ranks} hosts over {carrier}, as predicted"
        )?;
        let [bytes, time, peers, by] = ["bytes", "time µs", "peers", "algorithm"];
        writeln!(out, "{bytes:>12} {time:>12} {peers:>6} {by:>14}")?;
    }
    for bytes in wanted.sizes() {
        for line in choices.explain(collective, *bytes) {
            let (algorithm, micros) = (line.algorithm(), line.seconds() * 1e6);
            let peers = line.peers();
            if wanted.prints_csv() {
                writeln!(
                    out,
                    "{name},{ranks},{bytes},{algorithm},{micros:.2},{peers}"
                )?;
            } else {
                let algorithm = algorithm.to_string();
                writeln!(out, "{bytes:>12} {micros:>12.2} {peers:>6} {algorithm:>14}")?;
            }
        }
    }
    Ok(())
}
