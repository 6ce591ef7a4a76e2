//! What workers are told by their environment.

use std::ffi::OsStr;
use std::process::Command;
use std::time::Duration;
use std::{env, thread};

use meshwork_collectives::{GroupConfig, JobSecret, Rank, Timeouts};

/// The `TF_CONFIG` of worker `rank`. Names of hosts and addresses need no escaping in JSON.
pub(crate) fn tf_config(addresses: &[String], rank: Rank) -> String {
    let workers: Vec<_> = addresses.iter().map(|a| format!("\"{a}\"")).collect();
    format!(
        r#"{{"cluster":{{"worker":[{}]}},"task":{{"type":"worker","index":{}}}}}"#,
        workers.join(","),
        rank.number()
    )
}

/// Tells a worker of this host how long to wait for the others, where they are many and nobody has
/// said so.
pub(crate) fn give_time_to_join(command: &mut Command, workers: usize) {
    let name = OsStr::new(Timeouts::JOIN_ENV);
    let is_said = command.get_envs().any(|(said, _)| said == name) || env::var_os(name).is_some();
    let Ok(cores) = thread::available_parallelism() else {
        return;
    };
    if let Some(join) = join_timeout(workers, cores.get()).filter(|_| !is_said) {
        command.env(name, join.as_secs().to_string());
    }
}

/// How long workers that share so many cores wait for each other to appear; `None` where the
/// default is long enough. Each takes some of a core's time until it is there, and they take turns.
fn join_timeout(workers: usize, cores: usize) -> Option<Duration> {
    let each_core = u32::try_from(workers.div_ceil(cores.max(1))).ok()?;
    (each_core > CROWD).then(|| Timeouts::default().join() + START * each_core)
}

/// Up to so many workers a core are there within the default time.
const CROWD: u32 = 32;
/// Of a core, for each: 512 on two cores took 0.13 s.
const START: Duration = Duration::from_millis(250);

/// Whether workers on other hosts get this variable of the launcher's as it is: one that tells of
/// no other job, and not of a single process.
pub(crate) fn is_handed_on(name: &str) -> bool {
    let of_others = [
        JobSecret::ENV,
        JobSecret::FILE_ENV,
        GroupConfig::LAUNCHER_ENV,
        GroupConfig::RESTARTS_ENV,
        GroupConfig::SEEDS_ENV,
    ];
    name.starts_with("MESHWORK_") && !of_others.contains(&name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn other_hosts_hear_nothing_of_another_job_whose_variables_are_set_here() {
        assert!(is_handed_on("MESHWORK_TRANSPORT"));
        for name in ["MESHWORK_SEEDS", "MESHWORK_JOB_SECRET", "TF_CONFIG", "PATH"] {
            assert!(!is_handed_on(name), "{name}");
        }
    }

    #[test]
    fn crowds_have_more_time_to_appear() {
        assert_eq!(join_timeout(4, 2), None);
        assert_eq!(join_timeout(64, 2), None);
        assert_eq!(join_timeout(64, 0), Some(Duration::from_secs(46)));
        assert_eq!(join_timeout(512, 2), Some(Duration::from_secs(94)));
        assert_eq!(join_timeout(512, 64), None);
    }

    #[test]
    fn what_the_program_was_given_is_kept() {
        let told = |command: &Command| {
            let mut all = command.get_envs();
            let told = all.find(|(name, _)| *name == Timeouts::JOIN_ENV);
            told.and_then(|(_, value)| value?.to_str()?.parse::<u64>().ok())
        };
        let mut command = Command::new("true");
        give_time_to_join(&mut command, 1 << 20);
        // Whoever runs this test may have said how long.
        let is_said = env::var_os(Timeouts::JOIN_ENV).is_some();
        assert_eq!(told(&command).is_some_and(|seconds| seconds > 30), !is_said);
        let mut command = Command::new("true");
        command.env(Timeouts::JOIN_ENV, "7");
        give_time_to_join(&mut command, 1 << 20);
        assert_eq!(told(&command), Some(7));
    }

    #[test]
    fn tf_config_is_json_with_cluster_and_task() {
        for workers in 1..=4_u16 {
            let addresses: Vec<_> = (0..workers)
                .map(|rank| format!("127.0.0.1:{}", 4000 + rank))
                .collect();
            let parsed: Value = serde_json::from_str(&tf_config(&addresses, Rank::new(2))).unwrap();
            let expected = json!({
                "cluster": { "worker": addresses },
                "task": { "type": "worker", "index": 2 },
            });
            assert_eq!(parsed, expected);
        }
    }
}
