//! No token gets into an error, an explanation, a log or what `Debug` prints.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use meshwork_cluster_resolver::{
    ClusterResolver, GceResolver, GoogleCredentials, KubernetesAccess, KubernetesResolver,
    TpuResolver, Variables,
};
use serde_json::json;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::google::cloud::{TOKEN, five_machines, group, refusal, tpu};
use crate::loopback::{Loopback, Reply, kubeconfig};

#[test]
fn nothing_that_is_shown_has_a_token() {
    let log = Log::default();
    // The work is done on threads of its own, which only a global subscriber sees.
    let subscriber = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE);
    subscriber.with_ansi(false).with_writer(log.clone()).init();

    let repeats = five_machines().start_broken("listInstances", refusal(403, TOKEN));
    for resolver in [
        group(&five_machines().start()),
        group(&repeats),
        group(&repeats).with_credentials(GoogleCredentials::token(TOKEN)),
    ] {
        show(&resolver);
    }
    let folder = tempfile::tempdir().unwrap();
    for reply in [
        Reply::text("{\"items\": []}"),
        Reply::status(401, TOKEN),
        Reply::text(TOKEN),
    ] {
        let server = Loopback::start(move |_| reply.clone());
        let config = kubeconfig(folder.path(), &server.url(), TOKEN);
        let resolver = KubernetesResolver::new()
            .with_access(KubernetesAccess::kubeconfig(config))
            .with_variables(Variables::fixed([("A", "b")]));
        show(&resolver);
        assert_eq!(
            server.asked()[0].header("authorization"),
            Some(&*format!("Bearer {TOKEN}"))
        );
    }
    tpus_and_keys(folder.path());
    let log = log.text();
    assert!(!log.is_empty(), "nothing was logged, so nothing was proved");
    assert!(!log.contains(TOKEN), "{log}");
}

/// A TPU asked for with the secrets of a file, which an issuer refuses by repeating them, and of an
/// API whose URL has a password and a key.
fn tpus_and_keys(folder: &Path) {
    let issuer = Loopback::start(|_| Reply::status(401, &json!({"error": TOKEN}).to_string()));
    let file = folder.join("account.json");
    for content in [
        json!({
            "type": "authorized_user", "client_id": "c", "client_secret": TOKEN,
            "refresh_token": TOKEN, "token_uri": issuer.url(),
        }),
        json!({
            "type": "service_account", "project_id": "p", "private_key_id": TOKEN,
            "client_email": "sa@p.iam.gserviceaccount.com", "private_key": TOKEN,
        }),
    ] {
        std::fs::write(&file, content.to_string()).unwrap();
        let credentials = GoogleCredentials::file(&file);
        show(&tpu(&five_machines().start(), "t").with_credentials(credentials));
    }
    let server = five_machines().start();
    let address = server.address();
    let locked = format!("http://me:{TOKEN}@{address}/?key={TOKEN}");
    show(&tpu(&server, "t").with_api_url(&locked));
    show(&tpu(&server, "t").with_discovery_url(&locked));
    show(&group(&server).with_compute_url(&locked));
    for (variable, compute) in [
        ("TPU_API_DISCOVERY_URL", false),
        ("CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU", false),
        ("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", true),
    ] {
        let variables = [("GCE_METADATA_HOST", &address), (variable, &locked)];
        let variables = Variables::fixed(variables);
        if compute {
            show(&GceResolver::new("p", "z", "g", 1).with_variables(variables));
        } else {
            show(&TpuResolver::new().with_tpu("t").with_variables(variables));
        }
    }
}

#[track_caller]
fn show(resolver: &impl ClusterResolver) {
    let error = resolver.cluster_spec().err();
    let message = error.as_ref().map(ToString::to_string);
    let shown = format!("{resolver:?} {error:?} {message:?} {}", resolver.explain());
    assert!(!shown.contains(TOKEN), "{shown}");
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
