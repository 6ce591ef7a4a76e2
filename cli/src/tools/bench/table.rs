//! The results as people and as programs read them.

use std::io::{self, Write};

use meshwork_collectives::MeasuredLinks;

use super::args::Bench;
use super::measure::Row;

pub(super) fn head(out: &mut dyn Write, wanted: &Bench, peer: &str) -> io::Result<()> {
    if wanted.prints_csv() {
        return writeln!(out, "peer,op,ranks,bytes,median_us,algbw_GBps,busbw_GBps");
    }
    writeln!(
        out,
        "{} of f32 by {peer}, times of the slowest rank; GB = 1e9 bytes",
        wanted.operation().name()
    )?;
    writeln!(
        out,
        "{:>12} {:>12} {:>12} {:>12} {:>8}",
        "bytes", "time µs", "algbw GB/s", "busbw GB/s", "wrong"
    )
}

/// The links between ranks, where they do not share memory.
pub(super) fn links(
    out: &mut dyn Write,
    wanted: &Bench,
    links: Option<&MeasuredLinks>,
) -> io::Result<()> {
    match links {
        _ if wanted.prints_csv() => Ok(()),
        Some(links) => writeln!(out, "links: {links}"),
        None => writeln!(out, "links: none, as all ranks share memory"),
    }
}

/// What the most connected rank has come to, where ranks are connected at all.
pub(super) fn foot(out: &mut dyn Write, wanted: &Bench, connections: u64) -> io::Result<()> {
    match wanted.prints_csv() || connections == 0 {
        true => Ok(()),
        false => writeln!(
            out,
            "each rank is connected with at most {connections} {others}",
            others = if connections == 1 { "other" } else { "others" }
        ),
    }
}

pub(super) fn row(out: &mut dyn Write, wanted: &Bench, peer: &str, row: &Row) -> io::Result<()> {
    let Row {
        ranks,
        bytes,
        median,
        errors,
    } = *row;
    let algorithm = bytes as f64 / median / 1e9;
    let bus = algorithm * wanted.operation().bus_factor(ranks);
    let micros = median * 1e6;
    if wanted.prints_csv() {
        let wrong = if errors == 0 { "" } else { "_WRONG" };
        let name = wanted.operation().name();
        return writeln!(
            out,
            "{peer},{name}{wrong},{ranks},{bytes},{micros:.3},{algorithm:.4},{bus:.4}"
        );
    }
    writeln!(
        out,
        "{bytes:>12} {micros:>12.2} {algorithm:>12.3} {bus:>12.3} {errors:>8}"
    )
}
