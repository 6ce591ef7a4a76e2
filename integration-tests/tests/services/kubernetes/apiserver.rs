//! A real Kubernetes API server with its etcd, on this machine and for one test.

use std::env;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use meshwork_cluster_resolver::{
    ClusterResolver, KubernetesAccess, KubernetesResolver, Patience, Variables,
};
use serde_json::json;

use crate::pem::pem;

/// The servers; they end when dropped, and their data with them.
pub(super) struct ApiServer {
    folder: tempfile::TempDir,
    port: u16,
    children: Vec<Child>,
}

/// The account that may do everything.
pub(super) const ADMIN: &str = "admin-token";

/// An account without rights.
pub(super) const STRANGER: &str = "stranger-token";

impl ApiServer {
    /// Starts the servers; says by name what is missing and gives nothing where they are not
    /// installed.
    pub(super) fn start() -> Option<Self> {
        let Some(binary) = binary() else {
            skipped("kube-apiserver is not built (tests/services/kubernetes/build.sh)");
            return None;
        };
        let version = Command::new("etcd")
            .arg("--version")
            .stdout(Stdio::null())
            .status();
        if version.is_err() {
            skipped("etcd is not installed");
            return None;
        }
        // A port may be taken between the moment it is found free and the start.
        (0..3).find_map(|_| Self::try_start(&binary))
    }

    fn try_start(binary: &Path) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder for data");
        let (port, children) = (free_port(), Vec::new());
        let mut started = Self {
            folder,
            port,
            children,
        };
        started.write_accounts();
        started.start_store();
        started.start_server(binary);
        // A resolver asks until it is answered, which is what is waited for here.
        let minute = Patience::new(Duration::from_secs(60));
        let ready = started.resolver(ADMIN).with_patience(minute);
        ready.cluster_spec().is_ok().then_some(started)
    }

    fn write_accounts(&self) {
        let certificate = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])
            .expect("a certificate for this machine");
        let authority = pem("CERTIFICATE", certificate.cert.der());
        let key = pem("PRIVATE KEY", &certificate.signing_key.serialize_der());
        let tokens = format!("{ADMIN},admin,1,\"system:masters\"\n{STRANGER},stranger,2\n");
        for (name, content) in [
            ("ca.crt", authority),
            ("key.pem", key),
            ("tokens.csv", tokens),
        ] {
            fs::write(self.at(name), content).expect("a writable folder");
        }
    }

    fn store(&self) -> String {
        format!("unix://{}", self.at("etcd.sock"))
    }

    fn start_store(&mut self) {
        let (store, peers) = (self.store(), format!("unix://{}", self.at("peers.sock")));
        let arguments = [
            format!("--data-dir={}", self.at("etcd")),
            format!("--listen-client-urls={store}"),
            format!("--advertise-client-urls={store}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster=default={peers}"),
        ];
        self.spawn("etcd", Path::new("etcd"), &arguments);
    }

    fn start_server(&mut self, binary: &Path) {
        let key = self.at("key.pem");
        let own = [
            format!("--etcd-servers={}", self.store()),
            format!("--secure-port={}", self.port),
            format!("--tls-cert-file={}", self.at("ca.crt")),
            format!("--tls-private-key-file={key}"),
            format!("--token-auth-file={}", self.at("tokens.csv")),
            format!("--cert-dir={}", self.at("certs")),
            format!("--service-account-key-file={key}"),
            format!("--service-account-signing-key-file={key}"),
        ];
        let fixed = [
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--api-audiences=api",
            "--disable-admission-plugins=ServiceAccount",
            "--endpoint-reconciler-type=none",
        ];
        let fixed = fixed.map(str::to_owned);
        self.spawn("apiserver", binary, &[&own[..], &fixed[..]].concat());
    }

    /// A resolver with the rights of this token, from outside the cluster.
    pub(super) fn resolver(&self, token: &str) -> KubernetesResolver {
        KubernetesResolver::new()
            .with_access(KubernetesAccess::kubeconfig(self.kubeconfig(token)))
            .with_variables(Variables::fixed([("A", "b")]))
    }

    /// A resolver as a pod of this namespace has it.
    pub(super) fn resolver_within(&self, namespace: &str, pod: &str) -> KubernetesResolver {
        fs::write(self.at("token"), ADMIN).expect("a writable folder");
        fs::write(self.at("namespace"), namespace).expect("a writable folder");
        KubernetesResolver::new()
            .with_access(KubernetesAccess::within_cluster_at(self.folder.path()))
            .with_variables(Variables::fixed([
                ("KUBERNETES_SERVICE_HOST", "127.0.0.1".to_owned()),
                ("KUBERNETES_SERVICE_PORT", self.port.to_string()),
                ("HOSTNAME", pod.to_owned()),
            ]))
    }

    /// A kubeconfig with this token.
    pub(super) fn kubeconfig(&self, token: &str) -> PathBuf {
        let path = self.folder.path().join(format!("{token}.config"));
        let cluster = json!({
            "server": format!("https://127.0.0.1:{}", self.port),
            "certificate-authority": self.at("ca.crt"),
        });
        let content = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "k", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        });
        fs::write(&path, content.to_string()).expect("a writable folder");
        path
    }

    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn spawn(&mut self, name: &str, program: &Path, arguments: &[String]) {
        let log = File::create(self.at(&format!("{name}.log"))).expect("a writable folder");
        let child = Command::new(program)
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.children.push(child.expect("a program that was found"));
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn skipped(why: &str) {
    println!("skipped: {why}");
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port of this machine");
    listener
        .local_addr()
        .expect("the address of a listener")
        .port()
}

/// The API server: named by a variable, in the path, or where the script puts it.
fn binary() -> Option<PathBuf> {
    if let Some(named) = env::var_os("MESHWORK_KUBE_APISERVER") {
        return Some(PathBuf::from(named));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let cache = env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")));
    let built = cache.map(|cache| cache.join("meshwork"));
    let folders = env::split_paths(&path).chain(built);
    let mut candidates = folders.map(|folder| folder.join("kube-apiserver"));
    candidates.find(|candidate| candidate.is_file())
}
