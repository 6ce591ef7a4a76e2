//! How the costs of starts, deaths, reconfigurations and all-reduces grow with the ranks.

use std::process::ExitCode;
use std::time::Instant;

use meshwork_collectives::Algorithm;
use meshwork_collectives::sim::fabric::signs_of_life;
use meshwork_collectives::sim::scale::{
    Cost, Rounds, all_reduce, connections, cut, death, member_bytes, reconfiguration, start,
};
use meshwork_integration_tests::say;

/// The groups that are looked at if none are given.
const WORLDS: [u32; 3] = [1000, 10_000, 100_000];
/// Smaller ones, by which growth is judged too.
const SMALL: [u32; 4] = [64, 128, 256, 512];
/// The largest start that is played: every rank hears of every other.
const LARGEST_START: u32 = 10_000;
/// The largest death that is played.
const LARGEST_DEATH: u32 = 100_000;
/// The largest group that is played of which a rack is cut off: all send signs of life meanwhile.
const LARGEST_CUT: u32 = 10_000;
/// The part of the ranks that are in one rack.
const RACK: u32 = 32;
/// Bytes of an address of IPv4 with its port, at the most.
const ADDRESS: usize = 21;
/// Members that one message of a start tells of.
const RECORDS_OF_A_MESSAGE: f64 = 900.0;
/// The largest reconfiguration that is played: its decision names all that are left.
const LARGEST_CHANGE: u32 = 4096;

/// What was counted in a group of so many ranks.
struct Counted {
    ranks: u32,
    connections: usize,
    heartbeats: usize,
    start: Option<Cost>,
    death: Option<Cost>,
    cut: Option<Cost>,
    reconfiguration: Option<Cost>,
    tree: Rounds,
    halving: Rounds,
}

/// How a figure is expected to grow.
#[derive(Clone, Copy)]
enum Growth {
    Logarithm,
    /// A message a round, and one for each so many members that it tells of.
    LogarithmInMessages,
    Linear,
    /// The same for any number.
    Constant,
}

struct Column {
    name: &'static str,
    growth: Growth,
    figure: fn(&Counted) -> Option<f64>,
}

/// `a` times the logarithm, or the number, of the ranks, and `b`.
struct Fit {
    growth: Growth,
    a: f64,
    b: f64,
}

const COLUMNS: [Column; 20] = [
    logarithmic("connections", |of| Some(of.connections as f64)),
    logarithmic("heartbeats", |of| Some(of.heartbeats as f64)),
    Column {
        name: "member_bytes",
        growth: Growth::Constant,
        figure: |_| Some(member_bytes(ADDRESS) as f64),
    },
    logarithmic("start_rounds", |of| Some(f64::from(of.start?.rounds()))),
    logarithmic("start_ms", |of| of.start.map(|cost| millis(&cost))),
    Column {
        name: "start_messages",
        growth: Growth::LogarithmInMessages,
        figure: |of| of.start.map(|cost| mean(&cost, of)),
    },
    linear("start_bytes", |of| {
        of.start.map(|cost| mean_bytes(&cost, of))
    }),
    logarithmic("death_ms", |of| of.death.map(|cost| millis(&cost))),
    logarithmic("death_messages", |of| of.death.map(|cost| mean(&cost, of))),
    logarithmic("rack_cut_ms", |of| of.cut.map(|cost| millis(&cost))),
    logarithmic("rack_cut_messages", |of| of.cut.map(|cost| mean(&cost, of))),
    logarithmic("reconfiguration_ms", |of| {
        of.reconfiguration.map(|cost| millis(&cost))
    }),
    logarithmic("reconfiguration_rounds", |of| {
        of.reconfiguration.map(|cost| f64::from(cost.latencies()))
    }),
    logarithmic("reconfiguration_messages", |of| {
        of.reconfiguration.map(|cost| mean(&cost, of))
    }),
    logarithmic("reconfiguration_most_messages", |of| {
        of.reconfiguration.map(|cost| cost.most_messages as f64)
    }),
    linear("reconfiguration_bytes", |of| {
        of.reconfiguration.map(|cost| mean_bytes(&cost, of))
    }),
    logarithmic("tree_rounds", |of| Some(of.tree.rounds as f64)),
    logarithmic("tree_peers", |of| Some(of.tree.peers as f64)),
    logarithmic("halving_rounds", |of| Some(of.halving.rounds as f64)),
    logarithmic("halving_peers", |of| Some(of.halving.peers as f64)),
];

/// Prints one line for each group and one for how each figure grows; fails when one grows faster
/// than expected.
pub(crate) fn report(worlds: &[u32]) -> ExitCode {
    let worlds = if worlds.is_empty() { &WORLDS } else { worlds };
    let all: Vec<Counted> = SMALL
        .iter()
        .chain(worlds)
        .map(|ranks| count(*ranks))
        .collect();
    let fits: Vec<Fit> = COLUMNS.iter().map(|column| fit(column, &all)).collect();
    let names: Vec<_> = COLUMNS.iter().map(|column| column.name).collect();
    say!("ranks,{},extrapolated", names.join(","));
    for counted in &all[SMALL.len()..] {
        say!("{}", line(counted, &fits));
    }
    let mut problems = 0;
    for (column, fit) in COLUMNS.iter().zip(&fits) {
        let error = fit.error(column, &all);
        let is_as_expected = error <= 0.1;
        problems += usize::from(!is_as_expected);
        let by = match fit.growth {
            Growth::Logarithm => "log2(ranks)",
            Growth::LogarithmInMessages => "(log2(ranks) + ranks/900)",
            Growth::Linear => "ranks",
            Growth::Constant => "0",
        };
        let Fit { a, b, .. } = fit;
        say!(
            "# {}: {a:.3} {by} + {b:.2}, off by {:.1} %",
            column.name,
            100.0 * error
        );
    }
    say!("# {} groups, {problems} problems", all.len());
    match problems {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

const fn logarithmic(name: &'static str, figure: fn(&Counted) -> Option<f64>) -> Column {
    Column {
        name,
        growth: Growth::Logarithm,
        figure,
    }
}

const fn linear(name: &'static str, figure: fn(&Counted) -> Option<f64>) -> Column {
    Column {
        name,
        growth: Growth::Linear,
        figure,
    }
}

fn count(ranks: u32) -> Counted {
    Counted {
        ranks,
        connections: connections(ranks),
        heartbeats: signs_of_life(ranks, Instant::now()),
        start: (ranks <= LARGEST_START).then(|| start(ranks)),
        death: (ranks <= LARGEST_DEATH).then(|| death(ranks)),
        cut: (ranks <= LARGEST_CUT).then(|| cut(ranks, ranks / RACK)),
        reconfiguration: (ranks <= LARGEST_CHANGE).then(|| reconfiguration(ranks, ranks / 100)),
        tree: all_reduce(Algorithm::Tree, ranks),
        halving: all_reduce(Algorithm::Halving, ranks),
    }
}

/// The figures of a group; those that were not counted are continued, and named at the end.
fn line(counted: &Counted, fits: &[Fit]) -> String {
    let mut fields = vec![counted.ranks.to_string()];
    let mut extrapolated = Vec::new();
    for (column, fit) in COLUMNS.iter().zip(fits) {
        let figure = (column.figure)(counted).unwrap_or_else(|| {
            extrapolated.push(column.name);
            fit.at(counted.ranks)
        });
        fields.push(format!("{figure:.2}"));
    }
    fields.push(extrapolated.join(" "));
    fields.join(",")
}

/// The least squares of what was counted.
fn fit(column: &Column, all: &[Counted]) -> Fit {
    let growth = column.growth;
    let points = all
        .iter()
        .filter_map(|counted| Some((growth.of(counted.ranks), (column.figure)(counted)?)));
    let (mut n, mut x, mut y, mut xx, mut xy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (at, figure) in points {
        n += 1.0;
        x += at;
        y += figure;
        xx += at * at;
        xy += at * figure;
    }
    let a = match growth {
        Growth::Constant => 0.0,
        Growth::Logarithm | Growth::LogarithmInMessages | Growth::Linear => {
            (n * xy - x * y) / (n * xx - x * x)
        }
    };
    let b = (y - a * x) / n;
    Fit { growth, a, b }
}

impl Fit {
    fn at(&self, ranks: u32) -> f64 {
        self.a * self.growth.of(ranks) + self.b
    }

    /// By how much more the largest groups cost than this says, at the most.
    fn error(&self, column: &Column, all: &[Counted]) -> f64 {
        let counted = all
            .iter()
            .filter_map(|counted| Some((column.figure)(counted)? / self.at(counted.ranks) - 1.0));
        // `f64::max` passes over what is no number.
        counted.fold(0.0, |most, error| match error <= most || most.is_nan() {
            true => most,
            false => error,
        })
    }
}

impl Growth {
    fn of(self, ranks: u32) -> f64 {
        match self {
            Self::Logarithm => f64::from(ranks).log2(),
            Self::LogarithmInMessages => {
                f64::from(ranks).log2() + f64::from(ranks) / RECORDS_OF_A_MESSAGE
            }
            Self::Linear => f64::from(ranks),
            Self::Constant => 0.0,
        }
    }
}

fn millis(cost: &Cost) -> f64 {
    cost.took.as_secs_f64() * 1e3
}

fn mean(cost: &Cost, of: &Counted) -> f64 {
    cost.messages as f64 / f64::from(of.ranks)
}

fn mean_bytes(cost: &Cost, of: &Counted) -> f64 {
    cost.bytes as f64 / f64::from(of.ranks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_that_is_no_number_is_off() {
        let figure = |of: &Counted| Some(if of.ranks == 8 { f64::NAN } else { 1.0 });
        let column = Column {
            name: "column",
            growth: Growth::Constant,
            figure,
        };
        let (growth, a, b) = (Growth::Constant, 0.0, 1.0);
        let error = Fit { growth, a, b }.error(&column, &[4, 8, 16].map(count));
        assert!(error.is_nan(), "{error}");
    }
}
