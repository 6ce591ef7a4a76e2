//! Times of all-reduces on simulated networks, beside their closed forms.

use std::process::ExitCode;
use std::time::Instant;

use meshwork_collectives::Algorithm;
use meshwork_collectives::sim::fabric::{Fabric, signs_of_life};
use meshwork_integration_tests::say;

/// Ranks of one host where several share one.
const PER_HOST: u32 = 8;
const SIZES: [(&str, usize); 3] = [
    ("64 KiB", 64 << 10),
    ("1 MiB", 1 << 20),
    ("64 MiB", 64 << 20),
];
/// The worlds that are looked at if none are given.
const WORLDS: [u32; 5] = [8, 64, 512, 4096, 32_768];

/// Prints one line for each world, algorithm and size; fails when one is further than a tenth from
/// its closed form, or when reducing host by host is not worth its name.
pub(crate) fn report(worlds: &[u32]) -> ExitCode {
    let mut problems = 0;
    let worlds = if worlds.is_empty() { &WORLDS } else { worlds };
    say!(
        "{:>6} {:>6} {:14} {:>7} {:>12} {:>12}  ratio",
        "ranks",
        "hosts",
        "algorithm",
        "bytes",
        "simulated",
        "closed form"
    );
    for &ranks in worlds {
        let flat = Fabric::new(ranks, 1);
        for algorithm in [Algorithm::Ring, Algorithm::Halving] {
            problems += table(&flat, ranks, algorithm);
        }
        if ranks > PER_HOST && ranks % PER_HOST == 0 {
            let hosts = Fabric::new(ranks / PER_HOST, PER_HOST);
            for algorithm in [Algorithm::Ring, Algorithm::Hierarchical] {
                problems += table(&hosts, ranks / PER_HOST, algorithm);
            }
            problems += gain(&hosts, ranks);
        }
        let signs = signs_of_life(ranks, Instant::now());
        say!(
            "{ranks:>6} ranks: each sends {signs} signs of life at a time, log2 is {:.1}",
            f64::from(ranks).log2()
        );
    }
    say!("{} worlds, {problems} problems", worlds.len());
    match problems {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn table(fabric: &Fabric, hosts: u32, algorithm: Algorithm) -> usize {
    let mut problems = 0;
    for (size, bytes) in SIZES {
        let Some(expected) = fabric.closed_form(algorithm, bytes) else {
            continue;
        };
        let time = fabric.all_reduce(algorithm, bytes);
        let ratio = time / expected;
        problems += usize::from(!is_close(ratio));
        let ranks = fabric.ranks();
        let (time, expected) = (millis(time), millis(expected));
        let algorithm = algorithm.to_string();
        say!(
            "{ranks:>6} {hosts:>6} {algorithm:14} {size:>7} {time:>12} {expected:>12}  {ratio:.3}"
        );
    }
    problems
}

/// Whether a time is within a tenth of its closed form; what is no number is not.
fn is_close(ratio: f64) -> bool {
    (ratio - 1.0).abs() <= 0.1
}

/// How much faster it is to reduce host by host on the same links.
fn gain(fabric: &Fabric, ranks: u32) -> usize {
    let mut problems = 0;
    for (size, bytes) in SIZES {
        let flat = fabric.all_reduce(Algorithm::Ring, bytes);
        let gain = flat / fabric.all_reduce(Algorithm::Hierarchical, bytes);
        problems += usize::from(ranks == 512 && gain < 4.0);
        say!("{ranks:>6} ranks, {size}: host by host {gain:.1} times as fast as a flat ring");
    }
    problems
}

fn millis(seconds: f64) -> String {
    format!("{:.3} ms", seconds * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_not_close() {
        assert!(is_close(0.91) && is_close(1.09));
        assert!(!is_close(0.89) && !is_close(1.11) && !is_close(f64::NAN));
    }
}
