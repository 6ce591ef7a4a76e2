//! Ranks that prove who they are by certificates: what the doctor says of them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use meshwork_collectives::{Certificates, Rank};
use meshwork_testing::pem;
use rcgen::{CertificateParams, KeyPair};

use super::*;

/// An authority with a folder for what it issues.
struct Authority {
    issuer: rcgen::Issuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let folder = tempfile::tempdir().unwrap();
        let own = params.self_signed(&key).unwrap();
        fs::write(folder.path().join("ca.crt"), pem("CERTIFICATE", own.der())).unwrap();
        Self {
            issuer: rcgen::Issuer::new(params, key),
            folder,
        }
    }

    /// The folder with the files of a rank, as a secret of Kubernetes has them.
    fn issue(&self, rank: Rank) -> PathBuf {
        let folder = self.folder.path().join(rank.number().to_string());
        fs::create_dir_all(&folder).unwrap();
        let names = vec![Certificates::name("bert", rank)];
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let params = CertificateParams::new(names).unwrap();
        let own = params.signed_by(&key, &self.issuer).unwrap();
        let key = pem("PRIVATE KEY", &key.serialize_der());
        fs::write(folder.join("tls.crt"), pem("CERTIFICATE", own.der())).unwrap();
        fs::write(folder.join("tls.key"), key).unwrap();
        fs::set_permissions(folder.join("tls.key"), Permissions::from_mode(0o600)).unwrap();
        fs::copy(self.folder.path().join("ca.crt"), folder.join("ca.crt")).unwrap();
        folder
    }
}

fn variables(files: &Path) -> Vec<(&'static str, PathBuf)> {
    vec![
        (Certificates::JOB_ENV, "bert".into()),
        (Certificates::CHAIN_ENV, files.join("tls.crt")),
        (Certificates::KEY_ENV, files.join("tls.key")),
        (Certificates::AUTHORITY_ENV, files.join("ca.crt")),
    ]
}

/// What each of two ranks finds in these environments about a subject; each has a secret besides,
/// of its own, which counts for nothing.
fn about(
    subject: &str,
    environments: [Vec<(&str, PathBuf)>; 2],
    seconds: u32,
) -> [Option<Value>; 2] {
    let mut environments = environments;
    for (digit, environment) in ["0", "1"].iter().zip(&mut environments) {
        environment.push(("MESHWORK_JOB_SECRET", digit.repeat(64).into()));
    }
    of_two_ranks(environments, seconds).map(|output| finding(&output, subject))
}

#[test]
fn ranks_whose_certificates_are_believed_are_told_so_with_the_file() {
    let authority = Authority::new();
    let files = [0, 1].map(|rank| authority.issue(Rank::new(rank)));
    let found = about(
        "certificates",
        [0, 1].map(|rank| variables(&files[rank])),
        60,
    );
    for (found, files) in found.into_iter().zip(&files) {
        let found = found.unwrap();
        assert_eq!(found["level"], "fine", "{found}");
        let what = found["what"].as_str().unwrap();
        assert!(
            what.contains(&files.join("tls.crt").display().to_string()),
            "{what}"
        );
    }
}

#[test]
fn ranks_of_different_authorities_are_told_so() {
    let authorities = [0, 1].map(|_| Authority::new());
    let files = [0, 1].map(|rank: u32| authorities[rank as usize].issue(Rank::new(rank)));
    // On a machine whose cores are taken one may give up before the other has come.
    let mut all = [1, 4, 16].into_iter().map(|seconds| {
        about(
            "certificates",
            [0, 1].map(|rank| variables(&files[rank])),
            seconds,
        )
    });
    let found = all.find(|found| found.iter().all(Option::is_some)).unwrap();
    for (found, other) in found.into_iter().flatten().zip([1, 0]) {
        assert_eq!(found["level"], "problem", "{found}");
        let what = found["what"].as_str().unwrap();
        assert!(
            what.starts_with(&format!("rank {other} (127.0.0.1:")),
            "{what}"
        );
        assert!(what.contains("do not believe each other"), "{what}");
    }
}

#[test]
fn what_is_wrong_with_a_certificate_or_its_variables_is_said_before_anybody_is_asked() {
    let authority = Authority::new();
    let files = [0, 1].map(|rank| authority.issue(Rank::new(rank)));
    // The first has the files of the second, and the second lacks a variable.
    let mut some = variables(&files[1]);
    some.pop();
    let mut found = about("join", [variables(&files[1]), some], 60).into_iter();
    let mut next = || found.next().flatten().unwrap()["what"].to_string();
    let other = next();
    assert!(
        other.contains("tls.crt does not prove that this process is rank-0.bert."),
        "{other}"
    );
    let missing = next();
    assert!(
        missing.contains("MESHWORK_CERTIFICATE_AUTHORITY_FILE is not set"),
        "{missing}"
    );
}
