//! Slurm without systemd: its authentication, its controller, and a daemon for each node, all on
//! this machine, on ports that are free, in one temporary folder.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

use crate::{Need, free_addresses, installed};

/// Daemons that end with this.
#[derive(Debug)]
pub struct Slurm {
    folder: TempDir,
    daemons: Vec<Child>,
}

impl Slurm {
    /// Nodes n1 to n4 with eight cores and four GPUs each, all of them made up. Tests of one
    /// program that run at once share them; none where it cannot be, which is said.
    ///
    /// # Panics
    /// Where its programs are there and do not start; where it is missing and required.
    #[must_use]
    #[track_caller]
    pub fn or_skip() -> Option<Arc<Self>> {
        static RUNNING: Mutex<Weak<Slurm>> = Mutex::new(Weak::new());
        Need::Slurm.or_skip(can_run())?;
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let slurm = running.upgrade().unwrap_or_else(|| Arc::new(Self::start()));
        *running = Arc::downgrade(&slurm);
        Some(slurm)
    }

    fn start() -> Self {
        let mut slurm = Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
            daemons: Vec::new(),
        };
        slurm.configure();
        let munge = |name: &str, file: &str| format!("--{name}={}", slurm.path(file).display());
        let munge = [
            "--foreground".to_owned(),
            // The folder of all temporary files is writable for all.
            "--force".to_owned(),
            munge("key-file", "munge/key"),
            munge("socket", "munge.socket"),
            munge("pid-file", "munge/pid"),
            munge("seed-file", "munge/seed"),
            munge("log-file", "munge/log"),
        ];
        slurm.daemon("munged", &munge);
        let socket = slurm.path("munge.socket");
        until("munge answers", || {
            let mut munge = Command::new("munge");
            munge.arg("-S").arg(&socket).arg("-n");
            munge.stdout(Stdio::null()).stderr(Stdio::null());
            munge.status().is_ok_and(|status| status.success())
        });
        let configuration = slurm.configuration();
        let file = configuration
            .to_str()
            .expect("a path that is text")
            .to_owned();
        let words = |words: &[&str]| {
            words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>()
        };
        slurm.daemon("slurmctld", &words(&["-D", "-f", &file]));
        for node in NODES {
            slurm.daemon("slurmd", &words(&["-D", "-N", node, "-f", &file]));
        }
        until("all nodes are idle", || {
            let idle = slurm
                .command("sinfo")
                .args(["-h", "-t", "idle", "-o", "%D"])
                .output();
            idle.is_ok_and(|idle| idle.stdout == format!("{}\n", NODES.len()).as_bytes())
        });
        slurm
    }

    /// The file that says where this Slurm is.
    #[must_use]
    pub fn configuration(&self) -> PathBuf {
        self.path("slurm.conf")
    }

    /// What a command of this Slurm prints; it must succeed.
    ///
    /// # Panics
    /// Where it is not installed, or fails without a word.
    #[track_caller]
    pub fn run(
        &self,
        program: &str,
        words: &[impl AsRef<OsStr>],
        variables: &[(String, String)],
    ) -> String {
        let mut command = self.command(program);
        command.args(words).envs(variables.iter().cloned());
        let output = command.output().expect("an installed command");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(
            !text.is_empty() || output.status.success(),
            "{command:?}: {complaint}"
        );
        text
    }

    /// A command in an environment that shows no other Slurm than this one.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .env_clear()
            .env("PATH", format!("{path}:/usr/sbin:/sbin"))
            .env("SLURM_CONF", self.configuration())
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        command
    }

    fn daemon(&mut self, program: &str, words: &[String]) {
        let log = File::create(self.path(&format!("log.{}", self.daemons.len())));
        let log = log.expect("a writable folder");
        let mut command = self.command(program);
        command.args(words).stdout(Stdio::null()).stderr(log);
        self.daemons
            .push(command.spawn().expect("an installed daemon"));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn configure(&self) {
        let write = |name: &str, text: &str| {
            fs::write(self.path(name), text).expect("a writable folder");
        };
        let folder = |name: &str| {
            fs::create_dir(self.path(name)).expect("a writable folder");
        };
        let private = |name: &str, mode| {
            let permissions = PermissionsExt::from_mode(mode);
            fs::set_permissions(self.path(name), permissions).expect("a file of one's own");
        };
        for name in ["munge", "state", "spool"] {
            folder(name);
        }
        // Not even the tasks need to keep it secret: it lasts as long as this folder.
        write("munge/key", &"meshwork".repeat(16));
        private("munge/key", 0o600);
        private("munge", 0o700);
        for gpu in 0..4 {
            write(&format!("nvidia{gpu}"), "");
        }
        for node in NODES {
            folder(&format!("spool/{node}"));
        }
        let root = self.folder.path().display().to_string();
        write("slurm.conf", &configuration(&root));
        write(
            "gres.conf",
            &format!("NodeName=n[1-4] Name=gpu File={root}/nvidia[0-3]\n"),
        );
        write("cgroup.conf", "CgroupPlugin=cgroup/v1\n");
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for daemon in self.daemons.iter().rev() {
            if let Some(pid) = i32::try_from(daemon.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        for daemon in &mut self.daemons {
            while matches!(daemon.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::yield_now();
            }
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

fn configuration(root: &str) -> String {
    let host = Command::new("hostname")
        .arg("-s")
        .output()
        .expect("a host with a name");
    let host = String::from_utf8_lossy(&host.stdout).trim().to_owned();
    let addresses = free_addresses(NODES.len() + 1);
    let mut ports = addresses
        .iter()
        .filter_map(|address| address.split(':').nth(1));
    let mut port = || ports.next().expect("as many ports as asked for");
    let mut text = format!(
        "ClusterName=meshwork
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={root}/munge.socket
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
InactiveLimit=0
KillWait=3
TreeWidth=64
GresTypes=gpu
NodeName=DEFAULT CPUs=8 RealMemory=1000 Gres=gpu:4 State=UNKNOWN
",
        port()
    );
    for node in NODES {
        let node = format!(
            "NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={}\n",
            port()
        );
        text.push_str(&node);
    }
    text + "PartitionName=p Nodes=n[1-4] Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO\n"
}

/// Asks until it is so, which takes the time of the processes that are asked.
#[track_caller]
fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < deadline, "in vain: {what}");
    }
}

fn can_run() -> Result<(), String> {
    for program in [
        "slurmctld",
        "slurmd",
        "srun",
        "salloc",
        "scontrol",
        "sinfo",
        "munged",
    ] {
        installed(program)?;
    }
    let is_root = geteuid().is_root();
    is_root
        .then_some(())
        .ok_or_else(|| "slurmd needs root".to_owned())
}

const NODES: [&str; 4] = ["n1", "n2", "n3", "n4"];
