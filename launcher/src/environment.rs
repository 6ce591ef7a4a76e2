use meshwork_collectives::Rank;

/// The `TF_CONFIG` of worker `rank`. Names of hosts and addresses need no escaping in JSON.
pub(crate) fn tf_config(addresses: &[String], rank: Rank) -> String {
    let workers: Vec<_> = addresses.iter().map(|a| format!("\"{a}\"")).collect();
    format!(
        r#"{{"cluster":{{"worker":[{}]}},"task":{{"type":"worker","index":{}}}}}"#,
        workers.join(","),
        rank.number()
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

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
