//! A stand-in for three of Google's services: metadata, Compute Engine and Cloud TPU.

use std::sync::Mutex;

use meshwork_cluster_resolver::{GceResolver, RetryPolicy, TpuResolver, Variables};
use serde_json::{Value, json};

use crate::loopback::{Asked, Loopback, Reply};

/// What the services know.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cloud {
    /// Machines of the group `g`: name, state and address.
    pub(crate) machines: Vec<(&'static str, &'static str, &'static str)>,
    /// TPU nodes by name.
    pub(crate) nodes: Vec<(&'static str, Value)>,
    /// Queued resources by name.
    pub(crate) queued: Vec<(&'static str, Value)>,
    /// Answers that stand in for the good ones: the part of a path that they are for, each once.
    pub(crate) troubles: Vec<(&'static str, Reply)>,
}

pub(crate) const TOKEN: &str = "ya29.a-token-nobody-may-see";

impl Cloud {
    /// Starts a server that knows this.
    pub(crate) fn start(self) -> Loopback {
        let troubles = Mutex::new(self.troubles.clone());
        Loopback::start(move |asked| {
            let mut troubles = troubles.lock().expect("no holder panics");
            let mut due = troubles.iter();
            if let Some(at) = due.position(|(part, _)| asked.path.contains(part)) {
                return troubles.remove(at).1;
            }
            drop(troubles);
            self.answer(asked)
        })
    }

    /// Starts a server that answers every question to this part of it in one way.
    pub(crate) fn start_broken(self, part: &'static str, reply: Reply) -> Loopback {
        Loopback::start(move |asked| match asked.path.contains(part) {
            true => reply.clone(),
            false => self.answer(asked),
        })
    }

    fn answer(&self, asked: &Asked) -> Reply {
        if asked.path == "/" || asked.path.starts_with("/computeMetadata/") {
            return metadata(asked).with_header("Metadata-Flavor", "Google");
        }
        if asked.header("authorization") != Some(&format!("Bearer {TOKEN}")) {
            return refusal(401, "Request had invalid authentication credentials.");
        }
        let path: Vec<_> = asked
            .path
            .trim_start_matches("/compute")
            .split('/')
            .collect();
        match (asked.method.as_str(), &path[..]) {
            ("POST", [.., "instanceGroups", "g", "listInstances"]) => self.list(asked),
            ("GET", [.., "instances", name]) => match self.machine(name) {
                Some((name, status, ip)) => Reply::json(&json!({
                    "kind": "compute#instance", "name": name, "status": status,
                    "networkInterfaces": [{"networkIP": ip, "name": "nic0"}],
                })),
                None => refusal(404, "The resource was not found"),
            },
            ("GET", [.., "nodes", name]) => known(&self.nodes, name),
            ("GET", [.., "queuedResources", name]) => known(&self.queued, name),
            _ => refusal(404, "Not Found"),
        }
    }

    fn machine(&self, name: &str) -> Option<&(&'static str, &'static str, &'static str)> {
        self.machines.iter().find(|(known, ..)| *known == name)
    }

    /// Two machines a page.
    fn list(&self, asked: &Asked) -> Reply {
        let body: Value = serde_json::from_str(&asked.body).unwrap_or_default();
        let wanted = body["instanceState"].as_str().unwrap_or("ALL");
        let machines = self.machines.iter();
        let items: Vec<_> = machines
            .filter(|(_, status, _)| wanted == "ALL" || *status == wanted)
            .map(|(name, status, _)| json!({
                "instance": format!("https://www.googleapis.com/compute/v1/projects/p/zones/z/instances/{name}"),
                "status": status,
            }))
            .collect();
        let from: usize = asked
            .parameter("pageToken")
            .unwrap_or("0")
            .parse()
            .unwrap_or_default();
        let to = items.len().min(from + 2);
        let mut page = json!({"kind": "compute#instanceGroupsListInstances"});
        // The service leaves out an empty list.
        if from < to {
            page["items"] = json!(items[from..to]);
        }
        if to < items.len() {
            page["nextPageToken"] = json!(to.to_string());
        }
        Reply::json(&page)
    }
}

/// An error as Google's services write it.
pub(crate) fn refusal(status: u16, message: &str) -> Reply {
    let error = json!({"error": {"code": status, "message": message, "errors": []}});
    Reply::status(status, &error.to_string()).with_header("Content-Type", "application/json")
}

fn known(all: &[(&'static str, Value)], name: &str) -> Reply {
    match all.iter().find(|(known, _)| *known == name) {
        Some((_, value)) => Reply::json(value),
        None => refusal(404, "Resource was not found"),
    }
}

fn metadata(asked: &Asked) -> Reply {
    if asked.path != "/" && asked.header("metadata-flavor") != Some("Google") {
        return Reply::status(403, "Missing Metadata-Flavor:Google header.");
    }
    let account = json!({
        "aliases": ["default"], "email": "sa@p.iam.gserviceaccount.com",
        "scopes": ["https://www.googleapis.com/auth/cloud-platform"],
    });
    let token = json!({"access_token": TOKEN, "expires_in": 3599, "token_type": "Bearer"});
    let text = |text| Reply::text(text).with_header("Content-Type", "application/text");
    match asked.path.trim_start_matches("/computeMetadata/v1/") {
        "/" => text("computeMetadata/\n"),
        "project/project-id" => text("p"),
        "instance/zone" => text("projects/99/zones/z"),
        "instance/name" => text("w10\n"),
        "universe/universe-domain" => text("googleapis.com"),
        path if path.ends_with("/token") => Reply::json(&token),
        path if path.contains("service-accounts/") => Reply::json(&account),
        _ => Reply::status(404, "not found"),
    }
}

/// Four machines that run and one that does not.
pub(crate) fn five_machines() -> Cloud {
    Cloud {
        machines: vec![
            ("w10", "RUNNING", "10.0.0.1"),
            ("w9", "RUNNING", "10.0.0.9"),
            ("w1", "RUNNING", "10.0.0.10"),
            ("w2", "STOPPED", "10.0.0.7"),
            ("w3", "RUNNING", "10.0.0.2"),
        ],
        ..Cloud::default()
    }
}

/// The group `g`, asked of this server with the account of its machine.
pub(crate) fn group(server: &Loopback) -> GceResolver {
    GceResolver::new("p", "z", "g", 2222)
        .with_compute_url(format!("{}/compute/v1", server.url()))
        .with_variables(Variables::fixed([("GCE_METADATA_HOST", server.address())]))
        .with_retry_policy(patient())
}

/// The TPU with this name, asked of this server likewise.
pub(crate) fn tpu(server: &Loopback, name: &str) -> TpuResolver {
    TpuResolver::new()
        .with_tpu(name)
        .with_api_url(server.url())
        .with_variables(Variables::fixed([("GCE_METADATA_HOST", server.address())]))
        .with_retry_policy(patient())
}

/// Time enough, and pauses that no test notices.
pub(crate) fn patient() -> RetryPolicy {
    let millis = std::time::Duration::from_millis;
    RetryPolicy::new(millis(30_000)).with_backoff(millis(1), millis(4))
}

/// A second, and a third of it for an attempt.
pub(crate) fn hasty() -> RetryPolicy {
    let millis = std::time::Duration::from_millis;
    RetryPolicy::new(millis(1000))
        .with_attempt_timeout(millis(300))
        .with_backoff(millis(1), millis(4))
}
