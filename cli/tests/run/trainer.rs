//! A job that goes on when workers are lost, and that a test can slow down: this program itself.

use std::env;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::Duration;

use meshwork_status::{RankStatus, StatusClient, Target, targets};
use meshwork_strategy::{
    Change, Cursor, Error, MultiWorkerMirroredStrategy, Progress, ReplicaReduceOp, Snapshot,
    Training,
};
use rustix::process::Pid;
use rustix::time::{ClockId, clock_gettime};

use crate::harness::{Running, look_until, meshwork};

/// Far longer than anything here takes, so that only a hang meets it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(300);
/// Tells this program that it is a worker, and where it is told what to do.
const WORKER: &str = "MESHWORK_TEST_TRAINER";
/// How many elements it is to reduce in a step, where they are not few.
pub(crate) const ELEMENTS: &str = "MESHWORK_TEST_ELEMENTS";
const FEW: usize = 256;

/// What each rank of the job runs, until it is ended.
#[test]
fn worker() {
    let Some(folder) = env::var_os(WORKER) else {
        return;
    };
    let mut strategy = MultiWorkerMirroredStrategy::elastic_from_env().unwrap();
    let elements = env::var(ELEMENTS).map_or(FEW, |elements| elements.parse().unwrap());
    let mut steps = Steps {
        done: 0,
        gradient: vec![0.0; elements],
        orders: PathBuf::from(folder).join("orders"),
    };
    strategy.train(&mut steps).unwrap();
}

/// What a worker is told to do before its operations, in a file with its process and a word.
struct Steps {
    done: u64,
    gradient: Vec<f32>,
    orders: PathBuf,
}

impl Steps {
    fn prepare(&self) {
        let orders = fs::read_to_string(&self.orders).unwrap_or_default();
        let own = orders.strip_prefix(&format!("{} ", process::id()));
        match own {
            Some("sleep") => thread::sleep(Duration::from_millis(120)),
            Some("compute") => burn(Duration::from_millis(120)),
            Some(_) | None => burn(Duration::from_millis(2)),
        }
    }
}

/// Computes for so long, without the time in which this thread has no core.
fn burn(time: Duration) {
    let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let until = used() + time;
    while used() < until {
        black_box(0);
    }
}

impl Training for Steps {
    type Error = Error;

    fn regroup(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        _: &Change,
    ) -> Result<(), Error> {
        strategy.distribute_dataset(64, 8).map(drop)
    }

    fn step(&mut self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<Progress, Error> {
        self.prepare();
        strategy.run(|replica| {
            self.gradient.fill(1.0);
            replica.all_reduce(ReplicaReduceOp::Sum, &mut self.gradient)
        })?;
        self.done += 1;
        strategy.report_loss(1.0 / self.done as f64);
        Ok(Progress::Step)
    }

    fn steps(&self) -> u64 {
        self.done
    }

    fn snapshot(&mut self) -> Result<Snapshot, Error> {
        Ok(Snapshot::new(self.done, Cursor::start()))
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        self.done = snapshot.step();
        Ok(())
    }
}

/// Three workers, of which one may be lost.
pub(crate) struct Job {
    folder: tempfile::TempDir,
    _running: Running,
}

impl Job {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same, with these variables in the environment of its workers.
    pub(crate) fn start_with(variables: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = env::current_exe().unwrap().display().to_string();
        let worker = [&*program, "trainer::worker", "--exact", "--nocapture"];
        let mut command = meshwork(&["run", "--elastic", "2:3", "--"]);
        command
            .args(worker)
            .env(WORKER, folder.path())
            .env("MESHWORK_STATUS", "127.0.0.1:0")
            .env("MESHWORK_STATUS_FOLDER", folder.path())
            // One that is stopped is waited for.
            .env("MESHWORK_PEER_TIMEOUT", "600")
            .envs(variables.iter().copied());
        let running = Running::start(&mut command);
        let job = Self {
            folder,
            _running: running,
        };
        job.until("three work", |ranks| {
            let all = ranks.iter().map(|(_, rank)| rank.rank);
            let work = ranks.iter().all(|(_, rank)| rank.operations > 10);
            work && all.collect::<Vec<_>>() == [0, 1, 2]
        });
        job
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Tells a rank what to do before its operations from now on, and all others to do little.
    pub(crate) fn order(&self, process: Pid, what: &str) {
        let process = process.as_raw_nonzero();
        let draft = self.folder().join("draft");
        fs::write(&draft, format!("{process} {what}")).unwrap();
        fs::rename(draft, self.folder().join("orders")).unwrap();
    }

    /// What the ranks say that answer, in their order, and where each is asked.
    pub(crate) fn ranks(&self) -> Vec<(Target, RankStatus)> {
        let Ok(targets) = targets(self.folder()) else {
            return Vec::new();
        };
        let client = StatusClient::new(None, Duration::from_secs(1)).unwrap();
        let answers = client.fetch(&targets, "/ranks.jsonl");
        let said = targets.into_iter().zip(answers);
        let mut said: Vec<_> = said
            .filter_map(|(target, answer)| Some((target, RankStatus::from_json(&answer.ok()?)?)))
            .collect();
        said.sort_by_key(|(_, rank)| rank.rank);
        said
    }

    #[track_caller]
    pub(crate) fn until(&self, what: &str, wished: impl Fn(&[(Target, RankStatus)]) -> bool) {
        look_until(DEADLINE, || self.ranks(), |ranks| wished(ranks)).expect(what);
    }

    /// The process of each rank.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        let ranks = self.ranks();
        let processes = ranks.iter().map(|(_, rank)| {
            let process = rank.process.unwrap().try_into().unwrap();
            Pid::from_raw(process).unwrap()
        });
        processes.collect()
    }
}
