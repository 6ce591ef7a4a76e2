//! How a cluster is reached: from inside by the service account, from outside by a kubeconfig.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use kube_client::Config;
use kube_client::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use secrecy::ExposeSecret;

use crate::address;
use crate::error::{AccessProblem, Error, ServiceError};
use crate::explanation::{Explanation, Origin, Question};
use crate::service::secret::Secret;
use crate::variables::Variables;

/// How a Kubernetes cluster is reached.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KubernetesAccess {
    kind: Kind,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
enum Kind {
    /// Inside a cluster as one inside it does, else by the usual kubeconfig.
    #[default]
    Usual,
    /// By the service account whose token, certificates and namespace are in this folder.
    Inside(PathBuf),
    /// By this kubeconfig, or the usual one.
    Kubeconfig {
        path: Option<PathBuf>,
        context: Option<String>,
    },
}

/// Where the access is, once the environment has been read.
#[derive(Clone, Debug)]
pub(super) enum Way {
    Inside {
        server: String,
        folder: PathBuf,
    },
    Kubeconfig {
        paths: Vec<PathBuf>,
        context: Option<String>,
    },
}

impl KubernetesAccess {
    /// As a pod of the cluster, by its service account.
    #[must_use]
    pub fn within_cluster() -> Self {
        Self::within_cluster_at(SERVICE_ACCOUNT)
    }

    /// As a pod of the cluster, by the files `token`, `ca.crt` and `namespace` in this folder.
    pub fn within_cluster_at(folder: impl Into<PathBuf>) -> Self {
        Self {
            kind: Kind::Inside(folder.into()),
        }
    }

    /// By the files that `KUBECONFIG` names, or `~/.kube/config`, and their current context.
    #[must_use]
    pub fn off_cluster() -> Self {
        Self {
            kind: Kind::Kubeconfig {
                path: None,
                context: None,
            },
        }
    }

    /// By this kubeconfig and its current context.
    pub fn kubeconfig(path: impl Into<PathBuf>) -> Self {
        Self {
            kind: Kind::Kubeconfig {
                path: Some(path.into()),
                context: None,
            },
        }
    }

    /// By this context of the kubeconfig. Within a cluster, the usual kubeconfig takes its place.
    #[must_use]
    pub fn with_context(mut self, context: impl Into<String>) -> Self {
        let path = match self.kind {
            Kind::Kubeconfig { path, .. } => path,
            Kind::Usual | Kind::Inside(_) => None,
        };
        self.kind = Kind::Kubeconfig {
            path,
            context: Some(context.into()),
        };
        self
    }

    pub(super) fn way(&self, variables: &Variables, notes: &mut Explanation) -> Result<Way, Error> {
        let server = || server(variables);
        let inside = |server: String, folder: &Path, notes: &mut Explanation| {
            notes.read(Question::Cluster, Origin::variable(HOST), server.clone());
            Way::Inside {
                server,
                folder: folder.to_owned(),
            }
        };
        let (path, context) = match &self.kind {
            Kind::Inside(folder) => {
                let not_inside = || ServiceError::ClusterAccess {
                    place: folder.clone(),
                    problem: AccessProblem::NotInCluster,
                };
                return Ok(inside(server()?.ok_or_else(not_inside)?, folder, notes));
            }
            Kind::Usual => match server()? {
                Some(server) => return Ok(inside(server, Path::new(SERVICE_ACCOUNT), notes)),
                None => (None, None),
            },
            Kind::Kubeconfig { path, context } => (path.clone(), context.clone()),
        };
        let paths = match path {
            Some(path) => vec![path],
            None => usual_files(variables)?,
        };
        for path in &paths {
            let shown = context.as_deref().unwrap_or("the current context");
            notes.read(Question::Cluster, Origin::file(path.clone()), shown);
        }
        Ok(Way::Kubeconfig { paths, context })
    }
}

impl Way {
    /// The place that errors name.
    pub(super) fn place(&self) -> PathBuf {
        match self {
            Self::Inside { folder, .. } => folder.clone(),
            Self::Kubeconfig { paths, .. } => paths.first().cloned().unwrap_or_default(),
        }
    }

    /// Reads the files.
    pub(super) async fn config(&self) -> Result<Config, ServiceError> {
        let mut config = match self {
            Self::Inside { server, folder } => inside(server, folder)?,
            Self::Kubeconfig { paths, context } => {
                let options = KubeConfigOptions {
                    context: context.clone(),
                    ..KubeConfigOptions::default()
                };
                let read = Config::from_custom_kubeconfig(merged(paths)?, &options).await;
                read.map_err(|error| unusable(self.place(), &error))?
            }
        };
        // Attempts, pauses and times are for the caller of this crate to say.
        config.default_retry = false;
        config.read_timeout = None;
        Ok(config)
    }
}

/// The tokens and passwords of an access.
pub(super) fn secrets(config: &Config) -> Vec<Secret> {
    let account = &config.auth_info;
    let given = [&account.token, &account.password].into_iter().flatten();
    let given = given.map(|secret| secret.expose_secret().to_owned());
    let kept = account
        .token_file
        .as_ref()
        .and_then(|file| fs::read_to_string(file).ok());
    let all = given.chain(kept.map(|token| token.trim().to_owned()));
    all.map(Secret::new).collect()
}

fn inside(server: &str, folder: &Path) -> Result<Config, ServiceError> {
    let url = server.parse().map_err(|_| ServiceError::Url {
        url: server.to_owned(),
    })?;
    let readable = |name: &str| {
        let place = folder.join(name);
        fs::read_to_string(&place).map_err(|error| ServiceError::ClusterAccess {
            problem: AccessProblem::Unreadable(error.kind()),
            place,
        })
    };
    readable("ca.crt")?;
    readable("token")?;
    let mut config = Config::new(url);
    config.default_namespace = readable("namespace")?.trim().to_owned();
    config.root_cert_file = Some(folder.join("ca.crt"));
    config.auth_info = AuthInfo {
        token_file: Some(folder.join("token").display().to_string()),
        ..AuthInfo::default()
    };
    Ok(config)
}

/// What these files say together.
fn merged(paths: &[PathBuf]) -> Result<Kubeconfig, ServiceError> {
    paths.iter().try_fold(Kubeconfig::default(), |all, path| {
        let read = Kubeconfig::read_from(path);
        let read = read.and_then(|file| all.merge(file));
        read.map_err(|error| unusable(path.clone(), &error))
    })
}

fn unusable(place: PathBuf, error: &KubeconfigError) -> ServiceError {
    let problem = match error {
        KubeconfigError::ReadConfig(cause, _) => AccessProblem::Unreadable(cause.kind()),
        KubeconfigError::CurrentContextNotSet
        | KubeconfigError::LoadContext(_)
        | KubeconfigError::LoadClusterOfContext(_) => AccessProblem::NoContext,
        KubeconfigError::LoadCertificateAuthority(_)
        | KubeconfigError::LoadClientCertificate(_)
        | KubeconfigError::LoadClientKey(_)
        | KubeconfigError::ParseCertificates(_) => AccessProblem::BadCredentials,
        _ => AccessProblem::Malformed,
    };
    ServiceError::ClusterAccess { place, problem }
}

/// The server that a pod of the cluster is told of.
fn server(variables: &Variables) -> Result<Option<String>, Error> {
    let Some(host) = variables.read_nonempty(HOST)? else {
        return Ok(None);
    };
    let port = variables
        .read_nonempty(PORT)?
        .unwrap_or_else(|| "443".to_owned());
    let number = port.parse().ok().filter(|&number: &u16| number > 0);
    let number = number.ok_or(ServiceError::Variable {
        variable: PORT,
        found: port,
        expected: "a port from 1 to 65535",
    })?;
    Ok(Some(format!("https://{}", address::join(&host, number))))
}

fn usual_files(variables: &Variables) -> Result<Vec<PathBuf>, Error> {
    if let Some(list) = variables.read_nonempty("KUBECONFIG")? {
        let paths = env::split_paths(&list);
        return Ok(paths.filter(|path| !path.as_os_str().is_empty()).collect());
    }
    let home = variables.read_nonempty("HOME")?;
    let home = PathBuf::from(home.unwrap_or_default());
    Ok(vec![home.join(".kube").join("config")])
}

/// Where a pod finds its service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

const HOST: &str = "KUBERNETES_SERVICE_HOST";
const PORT: &str = "KUBERNETES_SERVICE_PORT";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::call;

    #[test]
    fn the_server_of_a_pod_may_have_any_kind_of_host() {
        let check = |host: &str, port: &str, url: &str| {
            let variables = Variables::fixed([(HOST, host), (PORT, port)]);
            assert_eq!(server(&variables).unwrap().as_deref(), Some(url));
        };
        check("10.0.0.1", "443", "https://10.0.0.1:443");
        check("fd00::1", "6443", "https://[fd00::1]:6443");
        check(
            "kubernetes.default.svc",
            "",
            "https://kubernetes.default.svc:443",
        );
        assert_eq!(server(&Variables::fixed([(HOST, "")])), Ok(None));
        let wrong = server(&Variables::fixed([(HOST, "h"), (PORT, "x")]));
        assert!(matches!(
            wrong,
            Err(Error::Service(ServiceError::Variable { .. }))
        ));
    }

    #[test]
    fn the_usual_files_are_those_of_the_variable_or_of_the_home_folder() {
        let files = |variables: &[(&str, &str)]| {
            usual_files(&Variables::fixed(variables.iter().copied())).unwrap()
        };
        assert_eq!(files(&[("HOME", "/h")]), [Path::new("/h/.kube/config")]);
        let listed = files(&[("HOME", "/h"), ("KUBECONFIG", "/a::/b")]);
        assert_eq!(listed, [Path::new("/a"), Path::new("/b")]);
    }

    #[test]
    fn of_several_files_the_one_that_is_wrong_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| {
            let path = folder.path().join(name);
            fs::write(&path, content).unwrap();
            path
        };
        let good = file("good", r#"{"apiVersion": "v1", "kind": "Config"}"#);
        let unreadable = AccessProblem::Unreadable(std::io::ErrorKind::NotFound);
        for (wrong, problem) in [
            (folder.path().join("missing"), unreadable),
            (file("odd", "clusters: 7"), AccessProblem::Malformed),
            (
                file("other", r#"{"kind": "Other"}"#),
                AccessProblem::Malformed,
            ),
        ] {
            let (paths, context) = (vec![good.clone(), wrong.clone()], None);
            let way = Way::Kubeconfig { paths, context };
            let read = call::run(async { way.config().await.map(drop) });
            let place = wrong;
            assert_eq!(read, Err(ServiceError::ClusterAccess { place, problem }));
        }
    }

    #[test]
    fn a_process_outside_is_told_that_it_is_outside() {
        let access = KubernetesAccess::within_cluster_at("/sa");
        let way = access.way(&Variables::fixed([("A", "b")]), &mut Explanation::default());
        let place = PathBuf::from("/sa");
        let problem = AccessProblem::NotInCluster;
        let expected = Error::from(ServiceError::ClusterAccess { place, problem });
        assert_eq!(way.unwrap_err(), expected);
    }
}
