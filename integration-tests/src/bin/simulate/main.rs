//! Plays jobs in virtual time, seed by seed, and says which seed shows a mistake, and how.
//!
//! `--scenario scale` instead tells what all-reduces take on simulated networks, or, with `--csv`,
//! how the costs of starts, deaths and reconfigurations grow with the ranks.
#![forbid(unsafe_code)]

mod growth;
mod scale;

use std::num::NonZeroU64;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use meshwork_collectives::sim::{Plant, ProblemKind, RANKS, Scenario, Setting, play, tell};
use meshwork_integration_tests::say;

/// Plays jobs in virtual time: processes crash, stand still, come back and are cut off.
#[derive(Debug, Parser)]
#[command(name = "simulate")]
struct Args {
    /// How many seeds to play.
    #[arg(long, default_value = "1000", value_name = "N")]
    seeds: NonZeroU64,
    /// The first of them.
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    first_seed: u64,
    /// Play this seed only.
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Print what happens.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// How many ranks, 2 to 16; for `scale` several numbers from 2 up, with `--csv` from 4 up.
    #[arg(long, value_delimiter = ',', value_name = "R")]
    ranks: Vec<u32>,
    /// What goes wrong, or `scale`.
    #[arg(long, default_value = "mixed", value_parser = PossibleValuesParser::new(names()))]
    scenario: String,
    /// With `scale`: count connections, messages and bytes of groups of so many ranks.
    #[arg(long)]
    csv: bool,
    /// Let processes make this mistake, to see that it is found.
    #[arg(long, default_value = "none", value_parser = plants(), value_name = "NAME")]
    plant: Plant,
    /// List the mistakes that processes can make, and what each of them leads to.
    #[arg(long)]
    plants: bool,
}

fn names() -> impl Iterator<Item = &'static str> {
    let names = Scenario::ALL.into_iter().map(|(name, _)| name);
    names.chain(["scale"])
}

fn plants() -> impl TypedValueParser<Value = Plant> {
    let names = Plant::ALL.into_iter().map(|(name, _)| name);
    PossibleValuesParser::new(names).try_map(|given| {
        let mut all = Plant::ALL.into_iter();
        let found = all.find(|(name, _)| *name == given);
        found.map(|(_, plant)| plant).ok_or("no such mistake")
    })
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.plants {
        return list_plants();
    }
    if args.scenario == "scale" {
        return match args.csv {
            true => growth::report(args.ranks_from(4)),
            false => scale::report(args.ranks_from(2)),
        };
    }
    let named = |(name, _): &(&str, Scenario)| *name == args.scenario;
    let scenario = Scenario::ALL.into_iter().find(named).unwrap_or_default().1;
    let setting = Setting {
        ranks: args.ranks_of_job(scenario),
        scenario,
        plant: args.plant,
    };
    match args.seed {
        Some(seed) if args.trace => {
            trace(&setting, seed);
            one(&setting, seed)
        }
        Some(seed) => one(&setting, seed),
        None => many(&setting, args.first_seed, args.seeds),
    }
}

impl Args {
    /// The numbers of ranks for which costs are counted, none of them below `least`.
    fn ranks_from(&self, least: u32) -> &[u32] {
        if let Some(few) = self.ranks.iter().find(|ranks| **ranks < least) {
            refuse(format!("--ranks {few} is too few: give {least} or more"));
        }
        &self.ranks
    }

    /// How many ranks a job is played with, if that is given.
    fn ranks_of_job(&self, scenario: Scenario) -> Option<u32> {
        match self.ranks[..] {
            [] => None,
            [ranks] if scenario == Scenario::TwoMemberPolicy && ranks != 2 => {
                refuse(format!("--ranks {ranks} is no pair: give 2"))
            }
            [ranks] if RANKS.contains(&ranks) => Some(ranks),
            [ranks] => refuse(format!(
                "--ranks {ranks} cannot be played: give {} to {}",
                RANKS.start(),
                RANKS.end()
            )),
            [..] => refuse(format!(
                "--ranks has {} numbers, but a job is played with one: give one",
                self.ranks.len()
            )),
        }
    }
}

/// Ends as with any other option that cannot be.
fn refuse(why: String) -> ! {
    Args::command()
        .error(ErrorKind::ValueValidation, why)
        .exit()
}

fn list_plants() -> ExitCode {
    for (name, plant) in Plant::ALL {
        match plant.leads_to() {
            Some(kind) => say!("{name}: {kind:?}"),
            None => say!("{name}"),
        }
    }
    ExitCode::SUCCESS
}

fn trace(setting: &Setting, seed: u64) {
    let played = tell(setting, seed);
    played.story().iter().for_each(|line| say!("{line}"));
}

fn one(setting: &Setting, seed: u64) -> ExitCode {
    match play(setting, seed).problem() {
        Some(problem) => {
            say!("seed {seed} fails: {problem}");
            ExitCode::FAILURE
        }
        None => {
            say!("1 seeds, 0 failures");
            ExitCode::SUCCESS
        }
    }
}

/// What all seeds together came to.
#[derive(Debug, Default)]
struct Sums {
    seeds: AtomicU64,
    epochs: AtomicU64,
    works: AtomicU64,
    failed: Mutex<Vec<(u64, ProblemKind)>>,
}

fn many(setting: &Setting, first: u64, seeds: NonZeroU64) -> ExitCode {
    let Some(last) = first.checked_add(seeds.get() - 1) else {
        refuse(format!(
            "--first-seed {first} and --seeds {seeds} go past seed {}: give less of either",
            u64::MAX
        ));
    };
    let began = Instant::now();
    let (next, sums) = (Mutex::new(first..=last), Sums::default());
    let take = || next.lock().map_or(None, |mut seeds| seeds.next());
    thread::scope(|threads| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            threads.spawn(|| {
                while let Some(seed) = take() {
                    sums.add(setting, seed);
                }
            });
        }
    });
    let mut failed = sums.failed.into_inner().unwrap_or_default();
    failed.sort_unstable_by_key(|(seed, _)| *seed);
    let (epochs, works) = (sums.epochs.into_inner(), sums.works.into_inner());
    let played = sums.seeds.into_inner();
    say!(
        "{works} works in {epochs} epochs, each value checked, in {:.1?}",
        began.elapsed()
    );
    let Some((worst, _)) = failed.first() else {
        say!("{played} seeds, 0 failures");
        return ExitCode::SUCCESS;
    };
    for kind in ProblemKind::ALL {
        let seeds = failed.iter().filter(|(_, found)| *found == kind);
        let seeds: Vec<_> = seeds.map(|(seed, _)| seed).collect();
        if let [first, ..] = seeds[..] {
            say!("{kind:?}: {} seeds, the first is {first}", seeds.len());
        }
    }
    say!("{played} seeds, {} failures; the first:", failed.len());
    trace(setting, *worst);
    one(setting, *worst)
}

impl Sums {
    fn add(&self, setting: &Setting, seed: u64) {
        let played = play(setting, seed);
        self.seeds.fetch_add(1, Ordering::Relaxed);
        self.epochs.fetch_add(played.epochs(), Ordering::Relaxed);
        self.works.fetch_add(played.works(), Ordering::Relaxed);
        if let (Some(problem), Ok(mut failed)) = (played.problem(), self.failed.lock()) {
            failed.push((seed, problem.kind()));
        }
    }
}
