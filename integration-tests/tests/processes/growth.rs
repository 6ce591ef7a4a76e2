//! Real processes that nobody has listed come into a job that runs, and go again.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use meshwork_cluster_resolver::EtcdMembers;
use meshwork_collectives::{GroupConfig, JobSecret, Transport};
use meshwork_testing::{Etcd, Need, in_threads};

use crate::training::{Story, result, trainer, undisturbed};
use crate::worker::{Calm, HANG, Worker, free_addresses, over, tf_config};

/// A job of the elastic test program that begins with some members and may come to have more.
struct Job {
    members: Vec<String>,
    secret: JobSecret,
    transport: &'static str,
    most: usize,
}

impl Job {
    fn new(founders: usize, most: usize, transport: &'static str) -> Self {
        Self {
            members: free_addresses(founders),
            secret: JobSecret::generate().unwrap(),
            transport,
            most,
        }
    }

    fn configure(&self, command: &mut Command, until_world: u32) {
        over(command, self.transport)
            .arg(format!("--until-world={until_world}"))
            .env(
                GroupConfig::WORKERS_ENV,
                format!("{}:{}", self.members.len(), self.most),
            )
            .env(JobSecret::ENV, self.secret.to_hex().as_str())
            .env("RUST_BACKTRACE", "1");
    }

    fn founders(&self, until_world: u32) -> Vec<Worker> {
        let start = |rank| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_elastic"));
            command
                .arg(format!("--members={}", self.members.join(",")))
                .arg(format!("--rank={rank}"));
            self.configure(&mut command, until_world);
            Worker::start(command)
        };
        let mut all: Vec<Worker> = (0..self.members.len()).map(start).collect();
        all.iter_mut()
            .for_each(|worker| drop(worker.reaches("works")));
        all
    }

    fn newcomer(&self, program: &Path, until_world: u32) -> Command {
        let mut command = Command::new(program);
        command.arg(format!("--seeds={}", self.members[0]));
        self.configure(&mut command, until_world);
        command
    }
}

/// The elastic test program.
fn elastic() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_elastic"))
}

#[track_caller]
fn all_leave(workers: Vec<Worker>) {
    for worker in workers {
        let ended = worker.end();
        let lost = ended.lines.iter().any(|line| line.contains("lost"));
        assert!(ended.status.success() && !lost, "{ended:?}");
    }
}

#[test]
fn newcomers_come_into_a_job_one_by_one_and_two_at_once_over_every_transport() {
    for transport in ["auto", "quic", "tls"] {
        let job = Job::new(2, 5, transport);
        // 2, 3, then 5 at once or one after the other, as the moment they knock has it.
        let mut workers = job.founders(5);
        let mut third = Worker::start(job.newcomer(elastic(), 5));
        third.reaches("epoch 2: rank 2 of 3");
        workers.push(third);
        for _ in 0..2 {
            workers.push(Worker::start(job.newcomer(elastic(), 5)));
        }
        for worker in &mut workers {
            worker.reaches("of 5, step");
        }
        all_leave(workers);
    }
}

#[test]
fn a_newcomer_with_another_secret_ends_with_one_line_and_the_job_goes_on() {
    let job = Job::new(2, 5, "quic");
    let mut workers = job.founders(3);
    let mut stranger = job.newcomer(elastic(), 3);
    stranger.env(
        JobSecret::ENV,
        JobSecret::generate().unwrap().to_hex().as_str(),
    );
    let ended = Worker::start(stranger).end();
    ended.failed_naming(&[&job.members[0], "belongs to another job"]);
    workers.push(Worker::start(job.newcomer(elastic(), 3)));
    all_leave(workers);
}

/// The same program but for one byte that nobody executes.
#[test]
fn a_newcomer_with_another_program_ends_with_one_line_and_the_job_goes_on() {
    let job = Job::new(2, 5, "quic");
    let mut workers = job.founders(3);
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("elastic");
    fs::copy(elastic(), &other).unwrap();
    let mut file = fs::OpenOptions::new().append(true).open(&other).unwrap();
    io::Write::write_all(&mut file, b"1").unwrap();
    drop(file);
    let ended = Worker::start(job.newcomer(&other, 3)).end();
    ended.failed_naming(&[&job.members[0], "another program"]);
    workers.push(Worker::start(job.newcomer(elastic(), 3)));
    all_leave(workers);
}

/// A name that stands for three addresses, as that of a headless service does: nobody listens at
/// two of them.
#[test]
fn a_newcomer_finds_the_job_by_a_name_that_stands_for_several_addresses() {
    let job = Job::new(2, 3, "quic");
    let folder = tempfile::tempdir().unwrap();
    let hosts = folder.path().join("hosts");
    let addresses = ["127.0.0.3", "127.0.0.2", "127.0.0.1"];
    let lines = addresses.map(|address| format!("{address} trainers.test\n"));
    fs::write(&hosts, lines.concat()).unwrap();
    let mount = "mount --bind \"$0\" /etc/hosts";
    let within = |script: &str| {
        let mut command = Command::new("unshare");
        command
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
            .arg(&hosts);
        command
    };
    let possible = within(mount).output();
    let possible = possible.map_err(|error| error.to_string());
    let possible = possible.and_then(|tried| match tried.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&tried.stderr).into_owned()),
    });
    if Need::Namespaces.or_skip(possible).is_none() {
        return;
    }
    let mut workers = job.founders(3);
    let (_, port) = job.members[0].rsplit_once(':').unwrap();
    let mut newcomer = within(&format!("{mount} && exec \"$@\""));
    newcomer
        .arg(elastic())
        .arg(format!("--seeds=trainers.test:{port}"));
    // The kernel chooses the address of a newcomer by the first seed, where nobody listens.
    newcomer.env(GroupConfig::ADDRESS_ENV, &free_addresses(1)[0]);
    job.configure(&mut newcomer, 3);
    workers.push(Worker::start(newcomer));
    all_leave(workers);
}

/// A worker of a training, whose lines are all heard.
struct Trainee {
    worker: Worker,
    workers: usize,
}

impl Trainee {
    fn start(command: Command) -> Self {
        let worker = Worker::start(command);
        Self { worker, workers: 0 }
    }

    #[track_caller]
    fn read_until(&mut self, story: &mut Story, workers: usize) {
        while self.workers != workers {
            let line = self.worker.reaches("");
            story.hear(&line);
            if let Some((_, count)) = line
                .strip_prefix("membership ")
                .and_then(|line| line.split_once(" of "))
            {
                self.workers = count.parse().unwrap();
            }
        }
    }
}

#[track_caller]
fn all_read_until(all: &mut [Trainee], story: &mut Story, workers: usize) {
    all.iter_mut()
        .for_each(|trainee| trainee.read_until(story, workers));
}

#[test]
fn a_training_grows_from_two_workers_to_five_and_shrinks_to_two_with_each_sample_once_an_epoch() {
    const EPOCHS: u64 = 100;
    in_threads(["auto", "quic"], |transport| {
        let calm = Calm::new();
        let (addresses, secret) = (free_addresses(2), JobSecret::generate().unwrap());
        let command = || {
            let mut command = trainer(EPOCHS);
            command
                .args(calm.awaited())
                .env(Transport::ENV, transport)
                .env(GroupConfig::WORKERS_ENV, "2:5")
                .env(JobSecret::ENV, secret.to_hex().as_str());
            command
        };
        let founder = |index| {
            let mut command = command();
            command.env("TF_CONFIG", tf_config(&addresses, index));
            Trainee::start(command)
        };
        let newcomer = || {
            let mut command = command();
            command.env(GroupConfig::SEEDS_ENV, addresses.join(","));
            Trainee::start(command)
        };
        let mut story = Story::default();
        let mut all = vec![founder(0), founder(1)];
        all_read_until(&mut all, &mut story, 2);
        all.push(newcomer());
        all_read_until(&mut all, &mut story, 3);
        all.extend([newcomer(), newcomer()]);
        all_read_until(&mut all, &mut story, 5);
        // One that was there from the beginning goes too.
        for (gone, left) in [(1, 4), (3, 3), (2, 2)] {
            let mut gone = all.remove(gone).worker;
            gone.kill();
            // What it has done counts as far as the others know of it.
            gone.end().lines.iter().for_each(|line| story.hear(line));
            all_read_until(&mut all, &mut story, left);
        }
        calm.comes();
        let ends: Vec<_> = all
            .into_iter()
            .map(|trainee| trainee.worker.end())
            .collect();
        for ended in &ends {
            assert!(ended.status.success(), "{}", ended.stderr);
            ended.lines.iter().for_each(|line| story.hear(line));
        }
        let (accuracy, expected) = (result(&ends[0]), undisturbed(EPOCHS));
        assert_eq!(accuracy.to_bits(), result(&ends[1]).to_bits());
        assert!(
            (accuracy - expected).abs() <= 0.01,
            "{accuracy}, {expected}"
        );
        story.check(EPOCHS);
    });
}

/// It is killed when the newcomer has begun to take the state over, of three that give it.
#[test]
fn a_newcomer_gets_the_bits_of_the_others_though_one_that_gives_them_is_killed() {
    for transport in ["auto", "quic"] {
        let (addresses, secret) = (free_addresses(3), JobSecret::generate().unwrap());
        let command = || {
            let mut command = trainer(u64::MAX);
            over(&mut command, transport)
                .args(["--pause=1000", "--ballast=3000001"])
                .env(GroupConfig::WORKERS_ENV, "3:4")
                .env(JobSecret::ENV, secret.to_hex().as_str());
            command
        };
        let founder = |index| {
            let mut command = command();
            command.env("TF_CONFIG", tf_config(&addresses, index));
            Worker::start(command)
        };
        let mut founders: Vec<Worker> = (0..3).map(founder).collect();
        let ballast = founders[0].reaches("ballast");
        for founder in &mut founders {
            founder.reaches("made");
        }
        let mut newcomer = command();
        newcomer.env(GroupConfig::SEEDS_ENV, addresses.join(","));
        let mut newcomer = Worker::start(newcomer);
        newcomer.reaches("lends");
        founders[1].kill();
        assert_eq!(newcomer.reaches("ballast"), ballast);
        newcomer.reaches("made");
        founders[0].reaches("of 3");
        founders[2].reaches("of 3");
    }
}

/// Waits until exactly these addresses are registered.
#[track_caller]
fn registered(job: &EtcdMembers, expected: &[&str]) {
    let begun = Instant::now();
    loop {
        let mut found = job.addresses().unwrap();
        found.sort();
        if found == expected {
            return;
        }
        assert!(begun.elapsed() < HANG, "{found:?}, not {expected:?}");
    }
}

/// Its seed is a word: etcd has the addresses, and one that a stranger has left there.
#[test]
fn a_newcomer_finds_a_training_in_etcd_which_forgets_it_when_it_is_killed() {
    let Some(etcd) = Etcd::start() else { return };
    let prefix = "/meshwork/growth";
    let (mut addresses, secret) = (free_addresses(4), JobSecret::generate().unwrap());
    let (stranger, own) = (addresses.pop().unwrap(), addresses.pop().unwrap());
    let command = || {
        let mut command = trainer(u64::MAX);
        over(&mut command, "quic")
            .arg("--pause=1000")
            .env(GroupConfig::WORKERS_ENV, "2:3")
            .env(JobSecret::ENV, secret.to_hex().as_str())
            .env(EtcdMembers::ENDPOINTS_ENV, etcd.url())
            .env(EtcdMembers::PREFIX_ENV, prefix);
        command
    };
    let job = EtcdMembers::new([etcd.url()], prefix);
    let strangers = job.register(&*stranger, |trouble| panic!("{trouble}"));
    let _strangers = strangers.unwrap();
    let founder = |index| {
        let mut command = command();
        command.env("TF_CONFIG", tf_config(&addresses, index));
        Worker::start(command)
    };
    let mut founders = [founder(0), founder(1)];
    for founder in &mut founders {
        founder.reaches("made");
    }
    let mut there = vec![&*addresses[0], &*addresses[1], &*stranger];
    there.sort_unstable();
    registered(&job, &there);
    let mut newcomer = command();
    newcomer
        .env(GroupConfig::SEEDS_ENV, "etcd")
        .env(GroupConfig::ADDRESS_ENV, &own);
    let mut newcomer = Worker::start(newcomer);
    newcomer.reaches("of 3");
    let mut all = there.clone();
    all.push(&own);
    all.sort_unstable();
    registered(&job, &all);
    newcomer.kill();
    for founder in &mut founders {
        founder.reaches("of 3");
        founder.reaches("of 2");
    }
    registered(&job, &there);
}

#[test]
fn a_newcomer_that_is_sent_to_no_etcd_says_which_variable_is_missing() {
    let mut newcomer = trainer(1);
    newcomer
        .env(GroupConfig::SEEDS_ENV, "etcd")
        .env_remove(EtcdMembers::ENDPOINTS_ENV)
        .env(
            JobSecret::ENV,
            JobSecret::generate().unwrap().to_hex().as_str(),
        );
    let ended = Worker::start(newcomer).end();
    assert_eq!(
        ended.stderr,
        "trainer: error: MESHWORK_ETCD is not set, which MESHWORK_SEEDS=etcd needs: set it\n"
    );
}
