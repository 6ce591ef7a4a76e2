//! What workers are told by their environment.

use std::time::Duration;

use meshwork_collectives::{Rank, Timeouts};

/// The `TF_CONFIG` of worker `rank`. Names of hosts and addresses need no escaping in JSON.
pub(crate) fn tf_config(addresses: &[String], rank: Rank) -> String {
    let workers: Vec<_> = addresses.iter().map(|a| format!("\"{a}\"")).collect();
    format!(
        r#"{{"cluster":{{"worker":[{}]}},"task":{{"type":"worker","index":{}}}}}"#,
        workers.join(","),
        rank.number()
    )
}

/// How long workers that share so many cores wait for each other to appear; `None` where the default
/// is long enough. Each takes some of a core's time until it is there, and they take turns.
pub(crate) fn join_timeout(workers: usize, cores: usize) -> Option<Duration> {
    let each_core = u32::try_from(workers.div_ceil(cores.max(1))).ok()?;
    (each_core > CROWD).then(|| Timeouts::default().join() + START * each_core)
}

/// Up to so many workers a core are there within the default time.
const CROWD: u32 = 32;
/// Of a core, for each: 512 on two cores took 0.13 s.
const START: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn crowds_have_more_time_to_appear() {
        assert_eq!(join_timeout(4, 2), None);
        assert_eq!(join_timeout(64, 2), None);
        assert_eq!(join_timeout(64, 0), Some(Duration::from_secs(46)));
        assert_eq!(join_timeout(512, 2), Some(Duration::from_secs(94)));
        assert_eq!(join_timeout(512, 64), None);
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
