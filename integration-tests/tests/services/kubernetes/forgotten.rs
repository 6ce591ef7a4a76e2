//! What the real API server has forgotten, which it says by 410: the rest of a list, once its store
//! is compacted, and past changes, once it was started again.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube_client::client::Body;
use kube_client::core::params::GetParams;
use kube_client::core::request::Request;
use meshwork_cluster_resolver::{
    ClusterResolver, KubernetesAccess, KubernetesResolver, RetryPolicy, Variables,
};
use serde_json::json;

use super::super::apiserver::ApiServer;
use super::Operator;
use crate::loopback::{Asked, Loopback, Reply, kubeconfig};

pub(super) fn is_asked_for_again(server: ApiServer, operator: Operator) {
    let world = Arc::new(World {
        server: Mutex::new(server),
        operator,
    });
    a_list_whose_rest_is_forgotten(&world);
    a_change_that_is_forgotten(&world);
}

/// There are many pods already, of which one runs; another one comes between two pages.
fn a_list_whose_rest_is_forgotten(world: &Arc<World>) {
    let between = Between::new(world, "continue", |world| {
        world.runs("late", "many", "10.3.0.8");
        world.server.lock().unwrap().compact();
    });
    let resolver = between.resolver().with_job("w", ["app=many"]);
    let spec = resolver.cluster_spec().unwrap();
    let expected = [("w", 0, "10.3.0.8:8470"), ("w", 1, "10.3.0.9:8470")];
    assert_eq!(spec.tasks().collect::<Vec<_>>(), expected);
    assert_eq!(between.said(), [200, 410, 200, 200]);
}

/// A pod moves, and the server that could tell of it is started again before it is asked to.
fn a_change_that_is_forgotten(world: &Arc<World>) {
    world.runs("moving", "moving", "10.5.0.1");
    let between = Between::new(world, "watch", |world| {
        world
            .operator
            .status("many", "moving", "Running", "10.5.0.2");
        world.server.lock().unwrap().restart();
    });
    let resolver = between.resolver().with_job("w", ["app=moving"]);
    // An interval that no test waits for.
    let mut watch = resolver.watch(Duration::from_secs(3600));
    let first = watch.next().unwrap().unwrap();
    assert_eq!(first.spec().task_address("w", 0), Ok("10.5.0.1:8470"));
    let moved = watch.next().unwrap().unwrap();
    assert_eq!(moved.spec().task_address("w", 0), Ok("10.5.0.2:8470"));
    assert_eq!(moved.difference().moved().len(), 1);
    assert_eq!(between.said(), [200, 200, 410, 200]);
}

struct World {
    server: Mutex<ApiServer>,
    operator: Operator,
}

impl World {
    /// A new pod with this label.
    fn runs(&self, name: &str, app: &str, ip: &str) {
        self.operator.pod("many", name, json!({"app": app}));
        self.operator.status("many", name, "Running", ip);
    }
}

/// Hands requests on to the server, and does something before the first one of a kind.
struct Between {
    front: Loopback,
    folder: tempfile::TempDir,
    said: Arc<Mutex<Vec<u16>>>,
}

impl Between {
    /// Does this before the first request with this parameter.
    fn new(world: &Arc<World>, parameter: &'static str, act: fn(&World)) -> Self {
        let (world, act) = (Arc::clone(world), Mutex::new(Some(act)));
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        let front = Loopback::start(move |asked| {
            if asked.parameter(parameter).is_some()
                && let Some(act) = act.lock().unwrap().take()
            {
                act(&world);
            }
            let (status, body) = world.operator.hand_on(asked);
            heard.lock().unwrap().push(code(status, &body));
            Reply::status(status, &body)
        });
        let folder = tempfile::tempdir().unwrap();
        Self {
            front,
            folder,
            said,
        }
    }

    fn resolver(&self) -> KubernetesResolver {
        let config = kubeconfig(self.folder.path(), &self.front.url(), "unused");
        let minute = Duration::from_secs(60);
        KubernetesResolver::new()
            .with_access(KubernetesAccess::kubeconfig(config))
            .with_variables(Variables::fixed([("A", "b")]))
            .with_retry_policy(RetryPolicy::new(2 * minute).with_attempt_timeout(minute))
    }

    /// The codes that the server answered with, in order.
    fn said(&self) -> Vec<u16> {
        self.said.lock().unwrap().clone()
    }
}

impl Operator {
    /// Asks the server the same, and gives what it answers.
    fn hand_on(&self, asked: &Asked) -> (u16, String) {
        let query = asked.query.iter();
        let query = query.map(|(name, value)| format!("{}={}", escaped(name), escaped(value)));
        let query: Vec<_> = query.collect();
        let target = format!("{}?{}", asked.path, query.join("&"));
        let mut request = Request::new(&asked.path)
            .get("any", &GetParams::default())
            .unwrap();
        *request.uri_mut() = target.parse().unwrap();
        self.runtime.block_on(async {
            let answer = self.client.send(request.map(Body::from)).await.unwrap();
            let status = answer.status().as_u16();
            let body = answer.into_body().collect_bytes().await.unwrap();
            (status, String::from_utf8(body.to_vec()).unwrap())
        })
    }
}

/// The code of the answer, which for a watch is in the event.
fn code(status: u16, body: &str) -> u16 {
    let event: Option<serde_json::Value> = serde_json::from_str(body).ok();
    let code = event.and_then(|event| event["object"]["code"].as_u64());
    code.and_then(|code| code.try_into().ok()).unwrap_or(status)
}

fn escaped(text: &str) -> String {
    let bytes = text.bytes();
    bytes.map(|byte| format!("%{byte:02X}")).collect()
}
