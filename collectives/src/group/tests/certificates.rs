//! Groups whose ranks have certificates of an authority that is not the job's own.

use std::path::Path;

use meshwork_testing::pem;

use super::*;
use crate::{CertificateProblem, Certificates, ConfigError, Rendezvous};

/// An authority that is not the job's own.
struct Issuer {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    certificate: Vec<u8>,
}

impl Issuer {
    fn new() -> Self {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().der().to_vec();
        Self {
            issuer: rcgen::Issuer::new(params, key),
            certificate,
        }
    }

    /// One that this one has certified, as SPIFFE's servers are.
    fn certify(&self) -> Self {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
        params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
        params.subject_alt_names = vec![uri("spiffe://example.org")];
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Self {
            certificate: certificate.der().to_vec(),
            issuer: rcgen::Issuer::new(params, key),
        }
    }

    /// The files of a rank in this folder.
    fn issue(&self, folder: &Path, rank: Rank) -> Certificates {
        let names = vec![Certificates::name("night-run", rank)];
        let params = rcgen::CertificateParams::new(names).unwrap();
        let (own, key) = self.sign(&params);
        write_files(folder, rank, &self.certificate, &[&own], &key)
    }

    /// A certificate, and its key.
    fn sign(&self, params: &rcgen::CertificateParams) -> (Vec<u8>, Vec<u8>) {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let own = params.signed_by(&key, &self.issuer).unwrap();
        (own.der().to_vec(), key.serialize_der())
    }
}

fn uri(text: &str) -> rcgen::SanType {
    rcgen::SanType::URI(text.try_into().unwrap())
}

fn write_files(
    folder: &Path,
    rank: Rank,
    root: &[u8],
    chain: &[&[u8]],
    key: &[u8],
) -> Certificates {
    let file = |name: &str, label: &str, all: &[&[u8]]| {
        let path = folder.join(format!("{name}-{}.pem", rank.number()));
        let text: String = all.iter().map(|bytes| pem(label, bytes)).collect();
        std::fs::write(&path, text).unwrap();
        let own = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, own).unwrap();
        path
    };
    let authority = file("authority", "CERTIFICATE", &[root]);
    let chain = file("chain", "CERTIFICATE", chain);
    let key = file("key", "PRIVATE KEY", &[key]);
    Certificates::new("night-run", authority, chain, key).unwrap()
}

#[test]
fn ranks_with_certificates_of_the_users_own_authority_form_a_group() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Issuer::new());
    let members = free_addresses(3);
    let sums = each(Rank::all(3), |rank| {
        let certificates = authority.issue(folder.path(), rank);
        let mut group = Group::connect(&identified(&members, rank, certificates)).unwrap();
        let mut buffer = [rank.number() + 1];
        group.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
        group.leave().unwrap();
        buffer[0]
    });
    assert_eq!(sums, [6; 3]);
}

/// As the servers of SPIFFE issue them: an authority between, identities as URIs, all of which have
/// the same one here, and besides the DNS names that its registration gives them.
#[test]
fn ranks_with_x509_documents_of_spiffe_form_a_group() {
    let (folder, root) = (tempfile::tempdir().unwrap(), Issuer::new());
    let server = root.certify();
    let members = free_addresses(2);
    let sums = each(Rank::all(2), |rank| {
        let names = vec![Certificates::name("night-run", rank)];
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        let identity = uri("spiffe://example.org/ns/train/sa/default");
        params.subject_alt_names.insert(0, identity);
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            rcgen::ExtendedKeyUsagePurpose::ServerAuth,
            rcgen::ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let (own, key) = server.sign(&params);
        let chain: [&[u8]; 2] = [&own, &server.certificate];
        let files = write_files(folder.path(), rank, &root.certificate, &chain, &key);
        let mut group = Group::connect(&identified(&members, rank, files)).unwrap();
        let mut buffer = [rank.number() + 1];
        group.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
        group.leave().unwrap();
        buffer[0]
    });
    assert_eq!(sums, [3; 2]);
}

#[test]
fn a_rank_that_another_authority_has_certified_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let members = free_addresses(2);
    let attempt = |patience| {
        let short = Timeouts::default().with_join(patience);
        each(Rank::all(2), |rank| {
            let certificates = Issuer::new().issue(folder.path(), rank);
            let config = identified(&members, rank, certificates).with_timeouts(short);
            Group::connect(&config).unwrap_err()
        })
    };
    let is_refused = |error: &Error| matches!(error, Error::Join(JoinError::OtherJob { .. }));
    let errors = in_time(attempt, |errors| is_refused(&errors[1]));
    assert!(
        matches!(errors[1], Error::Join(JoinError::OtherJob { .. })),
        "{}",
        errors[1]
    );
    let Error::Join(JoinError::NotJoined { refused, .. }) = &errors[0] else {
        panic!("{}", errors[0])
    };
    assert_eq!(refused[0].cause(), UnauthenticatedCause::OtherJob);
}

#[test]
fn ranks_with_certificates_meet_at_one_address() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Issuer::new());
    let address = free_addresses(1).remove(0);
    let met = each(Rank::all(2), |rank| {
        let certificates = authority.issue(folder.path(), rank);
        let rendezvous = Rendezvous::new(address.clone(), rank, 2, 61_000).unwrap();
        rendezvous.with_limit(PATIENCE).meet(certificates).unwrap()
    });
    assert_eq!(met[0], ["127.0.0.1:61000"; 2]);
    assert_eq!(met[0], met[1]);
}

/// What `verify` finds wrong of rank 0, and in which of its files.
#[track_caller]
fn finds(certificates: &Certificates, file: &str, expected: CertificateProblem) {
    match certificates.verify(Rank::CHIEF).unwrap_err() {
        ConfigError::CertificateProof {
            path,
            name,
            problem,
        } => {
            assert_eq!(problem, expected, "{path}");
            assert!(path.ends_with(file), "{path}: {problem}");
            assert_eq!(name, "rank-0.night-run.meshwork.invalid");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn what_others_would_refuse_is_found_before_they_are_asked_with_its_file() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Issuer::new());
    let good = || {
        let names = vec![Certificates::name("night-run", Rank::CHIEF)];
        rcgen::CertificateParams::new(names).unwrap()
    };
    let with = |params: &rcgen::CertificateParams, root: &Issuer| {
        let (own, key) = authority.sign(params);
        write_files(folder.path(), Rank::CHIEF, &root.certificate, &[&own], &key)
    };
    with(&good(), &authority).verify(Rank::CHIEF).unwrap();

    let chain = "chain-0.pem";
    let unknown = with(&good(), &Issuer::new());
    finds(&unknown, chain, CertificateProblem::UnknownAuthority);
    let mut params = good();
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    finds(
        &with(&params, &authority),
        chain,
        CertificateProblem::Expired,
    );
    let mut params = good();
    params.subject_alt_names = vec![uri("spiffe://example.org/train")];
    finds(
        &with(&params, &authority),
        chain,
        CertificateProblem::OtherName,
    );
    let mut params = good();
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    finds(
        &with(&params, &authority),
        chain,
        CertificateProblem::Purpose,
    );
    let (own, _) = authority.sign(&good());
    let (_, key) = authority.sign(&good());
    let mixed = write_files(
        folder.path(),
        Rank::CHIEF,
        &authority.certificate,
        &[&own],
        &key,
    );
    finds(&mixed, "key-0.pem", CertificateProblem::OtherKey);
    let empty = write_files(
        folder.path(),
        Rank::CHIEF,
        &authority.certificate,
        &[&[]],
        &key,
    );
    finds(&empty, chain, CertificateProblem::Malformed);
}

#[test]
fn a_rank_whose_certificate_is_for_another_does_not_begin() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Issuer::new());
    let certificates = authority.issue(folder.path(), Rank::new(1));
    let config = identified(&free_addresses(2), Rank::CHIEF, certificates);
    let refused = Group::connect(&config).unwrap_err().to_string();
    let name = "does not prove that this process is rank-0.night-run.meshwork.invalid";
    assert!(refused.contains(name), "{refused}");
}
