//! A training over slow links that workers may leave and join: a worker for tests of whole
//! processes, or with `--elastic` the launcher of several. It says on standard output who the
//! workers are, which inner steps it has made, and what all agree on.
#![forbid(unsafe_code)]

mod death;
mod quorum;

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use meshwork_integration_tests::{ended, launch_again, say};
use meshwork_launcher::Elastic;
use meshwork_strategy::low_communication::{LowCommunication, OuterOptimizer};
use meshwork_strategy::{
    Compression, Error, Fingerprint, JoinMode, MultiWorkerMirroredStrategy, Rank, Rounding,
};

use death::{Death, Where};

/// Trains with as many workers as there are, or starts them.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// Start workers instead of being one: the most; two are enough to go on
    #[arg(long, require_equals = true)]
    elastic: Option<usize>,
    /// Start so many workers that stay the same
    #[arg(long, require_equals = true)]
    workers: Option<usize>,
    /// Exchange once so many workers have waited for others; one of them makes slower steps
    #[arg(long)]
    quorum: Option<NonZeroUsize>,
    /// Go by the links between workers
    #[arg(long)]
    measure_links: bool,
    /// Inner steps of a round
    #[arg(long, default_value = "20")]
    inner_steps: NonZeroU32,
    /// Parts of the model that are exchanged while inner steps go on
    #[arg(long, default_value = "1")]
    fragments: NonZeroUsize,
    /// Inner steps that go on meanwhile
    #[arg(long, default_value_t = 0)]
    delay: u32,
    /// Exchange 8 bits for each parameter
    #[arg(long)]
    compress: bool,
    /// Inner steps in all
    #[arg(long, default_value_t = 400)]
    steps: u64,
    /// Microseconds that an inner step takes
    #[arg(long, default_value_t = 500)]
    pause: u64,
    /// A file: once it is there, inner steps take no time
    #[arg(long)]
    pause_until: Option<PathBuf>,
    /// Parameters of the model, in tensors of very different sizes
    #[arg(long, default_value_t = 8100)]
    parameters: usize,
    /// Have another model when started for the second time
    #[arg(long)]
    odd_once: bool,
    /// The end of one worker's first life: worker:step:inner|exchange|behind:turns
    #[arg(long)]
    death: Option<Death>,
}

impl Args {
    fn pause(&self) -> Duration {
        match self.pause_until.as_ref().is_some_and(|file| file.exists()) {
            true => Duration::ZERO,
            false => Duration::from_micros(self.pause),
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    match (args.elastic.or(args.workers), args.quorum) {
        (Some(workers), _) => {
            let elastic = args.elastic.map(|_| Elastic::new(2).restarts(1000));
            let launched = launch_again(&["--elastic=", "--workers="], workers, elastic);
            ended("diloco", launched)
        }
        (None, Some(workers)) => ended("diloco", quorum::train(&args, workers)),
        (None, None) => ended("diloco", train(&args)),
    }
}

fn settings(args: &Args) -> LowCommunication {
    let settings = LowCommunication::new(args.inner_steps)
        .with_fragments(args.fragments)
        .with_delay(args.delay)
        .with_local_share(if args.delay > 0 { 0.5 } else { 0.0 });
    let settings = match args.measure_links {
        true => settings.with_measured_links(),
        false => settings,
    };
    match args.compress {
        true => settings.with_compression(Compression::Int8(Rounding::Nearest)),
        false => settings,
    }
}

fn lengths(args: &Args) -> Result<[usize; 4], Error> {
    let is_second = JoinMode::from_env()? == Some(JoinMode::Late)
        && std::env::var("MESHWORK_RESTARTS").is_ok_and(|restarts| restarts == "1");
    let all = args.parameters;
    let mut lengths = [all / 4, all / 8, all / 2, all / 8 + all % 8];
    if args.odd_once && is_second {
        lengths.reverse();
    }
    Ok(lengths)
}

fn train(args: &Args) -> Result<(), Error> {
    say!("process {}", std::process::id());
    let mut strategy = MultiWorkerMirroredStrategy::elastic_from_env()?;
    let death = Death::of(args.death, strategy.rank());
    let lengths = lengths(args)?;
    let mut own = vec![1.0_f32; lengths.iter().sum()];
    let mut outer = OuterOptimizer::new(&mut strategy, settings(args), &lengths, &own)?;
    own.copy_from_slice(outer.agreed());
    // Of this process: none of them may be lost while it lives.
    let (begun, mut made, mut told) = (outer.steps(), 0, 0);
    let began = Instant::now();
    while outer.steps() < args.steps {
        let next = outer.steps() + 1;
        Death::comes(death, next, Where::Inner);
        let workers = u32::try_from(strategy.num_replicas_in_sync()).expect("ranks have 32 bits");
        inner_step(&mut own, strategy.rank(), workers, args.pause());
        made += 1;
        let before = Instant::now();
        Death::comes(death, next, Where::Exchange);
        outer.step(&mut strategy, &mut own)?;
        Death::comes(death, next, Where::Behind);
        let (waited, step) = (before.elapsed(), outer.steps());
        assert_eq!(step, begun + made, "a step was lost or made twice");
        if outer.outer_steps() > told {
            told = outer.outer_steps();
            let hash = Fingerprint::of(outer.agreed()).value();
            say!(
                "step {step} of {} workers: agreed {hash:016x}, waited {} ms",
                strategy.num_replicas_in_sync(),
                waited.as_millis()
            );
        }
    }
    let (took, waited) = (began.elapsed().as_secs_f64(), outer.waited().as_secs_f64());
    say!("took {took:.2} s, waited {waited:.2} s for others");
    outer.finish(&mut strategy, &mut own)?;
    let far = own.iter().map(|one| (one - 3.0).abs()).fold(0.0, f32::max);
    let hash = Fingerprint::of(&own).value();
    say!(
        "trained {} steps, hash {hash:016x}, far {far:.4}",
        outer.steps()
    );
    strategy.leave()
}

/// Towards a goal that is 3 on average, as each worker has samples of its own.
fn inner_step(own: &mut [f32], rank: Rank, workers: u32, pause: Duration) {
    let middle = (workers - 1) as f32 / 2.0;
    let goal = 3.0 + 0.1 * (rank.number() as f32 - middle);
    for one in own {
        *one -= 0.02 * (*one - goal);
    }
    std::thread::sleep(pause);
}
