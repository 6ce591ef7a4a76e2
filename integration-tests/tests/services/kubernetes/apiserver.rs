//! A real Kubernetes API server with its etcd, on this machine and for one test.

use std::env;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use meshwork_cluster_resolver::{
    ClusterResolver, KubernetesAccess, KubernetesResolver, RetryPolicy, Variables,
};
use meshwork_testing::{Need, pem};
use serde_json::{Value, json};

use crate::loopback::kubeconfig_of;

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

/// The socket of the store in the folder, which is where it runs: older releases of etcd take no
/// path, and want something like a port.
const SOCKET: &str = "etcd:1";
const STORE: &str = "unix://etcd:1";
const PEERS: &str = "unix://peers:1";

/// How long a server may take to start where others are busy.
const START: Duration = Duration::from_secs(60);

/// How much is shown of the log of a server that does not start.
const LAST_LINES: usize = 20;

impl ApiServer {
    /// Starts the servers; `None` after a skip is said, where they are not installed.
    #[track_caller]
    pub(super) fn start() -> Option<Self> {
        let binary = Need::Kubernetes.or_skip(binary().ok_or("kube-apiserver is not built"))?;
        let etcd = Command::new("etcd")
            .arg("--version")
            .stdout(Stdio::null())
            .status();
        Need::Kubernetes.or_skip(etcd.map_err(|error| format!("etcd does not start: {error}")))?;
        // A port may be taken between the moment it is found free and the start.
        let mut said = String::new();
        for _ in 0..3 {
            match Self::try_start(&binary) {
                Ok(started) => return Some(started),
                Err(log) => said = log,
            }
        }
        panic!("kube-apiserver does not start:\n{said}");
    }

    fn try_start(binary: &Path) -> Result<Self, String> {
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
        started.wait().map(|()| started)
    }

    /// Waits until the server answers; gives the end of its log if it does not.
    fn wait(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        let second = RetryPolicy::new(Duration::from_secs(1));
        while begun.elapsed() < START {
            if self
                .resolver(ADMIN)
                .with_retry_policy(second)
                .cluster_spec()
                .is_ok()
            {
                return Ok(());
            }
            let runs = |child: &mut Child| matches!(child.try_wait(), Ok(None));
            if !self.children.iter_mut().all(runs) {
                break;
            }
        }
        let log = fs::read_to_string(self.at("apiserver.log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().rev().take(LAST_LINES).collect();
        Err(lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
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

    fn start_store(&mut self) {
        let arguments = [
            format!("--data-dir={}", self.at("etcd")),
            format!("--listen-client-urls={STORE}"),
            format!("--advertise-client-urls={STORE}"),
            format!("--listen-peer-urls={PEERS}"),
            format!("--initial-advertise-peer-urls={PEERS}"),
            format!("--initial-cluster=default={PEERS}"),
        ];
        self.spawn("etcd", Path::new("etcd"), &arguments);
    }

    fn start_server(&mut self, binary: &Path) {
        let key = self.at("key.pem");
        let own = [
            format!("--etcd-servers={STORE}"),
            format!("--secure-port={}", self.port),
            format!("--tls-cert-file={}", self.at("ca.crt")),
            format!("--tls-private-key-file={key}"),
            format!("--token-auth-file={}", self.at("tokens.csv")),
            format!("--cert-dir={}", self.at("certs")),
            // Of a key it takes no public part, of a certificate it does.
            format!("--service-account-key-file={}", self.at("ca.crt")),
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

    /// Ends the server and starts it again on its data, as an upgrade does; what changed before, it
    /// can tell nobody any more.
    pub(super) fn restart(&mut self) {
        let mut server = self.children.pop().expect("a server, started last");
        drop(server.kill());
        drop(server.wait());
        self.start_server(&binary().expect("the program that was started before"));
        self.wait().expect("a server that starts again");
    }

    /// Makes the store forget all versions but the newest one.
    pub(super) fn compact(&self) {
        let newest = self.ask_store("/v3/kv/range", &json!({"key": "AA=="}));
        let version = newest["header"]["revision"].clone();
        let compacted = self.ask_store("/v3/kv/compaction", &json!({"revision": version}));
        assert!(compacted["header"].is_object(), "{compacted}");
    }

    fn ask_store(&self, path: &str, question: &Value) -> Value {
        let body = question.to_string();
        let mut stream = UnixStream::connect(self.at(SOCKET)).expect("a store that runs");
        let length = body.len();
        let head = format!("POST {path} HTTP/1.0\r\nHost: etcd\r\nContent-Length: {length}");
        write!(stream, "{head}\r\n\r\n{body}").expect("a store that listens");
        let mut answer = String::new();
        stream
            .read_to_string(&mut answer)
            .expect("an answer of text");
        let (_, json) = answer.split_once("\r\n\r\n").expect("an HTTP answer");
        serde_json::from_str(json).expect("an answer of JSON")
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
        kubeconfig_of(path, &cluster, token)
    }

    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn spawn(&mut self, name: &str, program: &Path, arguments: &[String]) {
        let log = File::create(self.at(&format!("{name}.log"))).expect("a writable folder");
        let child = Command::new(program)
            .args(arguments)
            .current_dir(self.folder.path())
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
