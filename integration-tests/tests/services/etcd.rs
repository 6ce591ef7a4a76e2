//! A job in etcd: its members, newcomers that find them, and what goes wrong on the way.

#[path = "etcd/faults.rs"]
mod faults;

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use meshwork_cluster_resolver::{
    EtcdError, EtcdMembers, EtcdOperation, RetryPolicy, ServiceError, ServiceErrorKind, Variables,
};
use meshwork_testing::{Etcd, pem};
use serde_json::{Value, json};

const PREFIX: &str = "/meshwork/bert";

/// Beyond any time that a registration takes.
const HANG: Duration = Duration::from_secs(60);

fn job(url: impl Into<String>) -> EtcdMembers {
    EtcdMembers::new([url.into()], PREFIX).with_retry_policy(RetryPolicy::new(HANG))
}

/// With little patience, where nobody is going to answer.
fn hasty(url: impl Into<String>) -> EtcdMembers {
    let retry = RetryPolicy::new(Duration::from_secs(3));
    let pauses = (Duration::from_millis(100), Duration::from_secs(1));
    job(url).with_retry_policy(retry.with_backoff(pauses.0, pauses.1))
}

fn sorted(job: &EtcdMembers) -> Vec<String> {
    let mut found = job.addresses().unwrap();
    found.sort();
    found
}

/// Fails at any trouble.
fn no_trouble(trouble: &EtcdError) {
    panic!("{trouble}");
}

/// What is reported, in order.
fn heard() -> (impl Fn(&EtcdError) + Send + 'static, Receiver<EtcdError>) {
    let (sender, heard) = channel();
    let tell = move |trouble: &EtcdError| drop(sender.send(trouble.clone()));
    (tell, heard)
}

/// A key below `/meshwork/`, in base64 as the gateway takes it.
fn key(name: &str) -> &'static str {
    match name {
        "bert/x" => "L21lc2h3b3JrL2JlcnQveA==",
        "bert/y" => "L21lc2h3b3JrL2JlcnQveQ==",
        "bert/a:1" => "L21lc2h3b3JrL2JlcnQvYTox",
        other => panic!("no key for {other}"),
    }
}

fn entry(etcd: &Etcd, name: &str) -> Value {
    etcd.post("kv/range", &json!({"key": key(name)}))["kvs"][0].clone()
}

#[test]
fn members_are_found_until_they_leave_and_those_of_other_jobs_are_not() {
    let Some(etcd) = Etcd::start() else { return };
    let other = EtcdMembers::new([etcd.url()], "/meshwork/bert-2");
    let _other = other.register("other:1", no_trouble).unwrap();
    // Entries of somebody who may write there: no address, and nothing at all.
    etcd.post(
        "kv/put",
        &json!({"key": key("bert/x"), "value": "cm0gLXJmIC8="}),
    );
    etcd.post("kv/put", &json!({"key": key("bert/y")}));
    let job = EtcdMembers::new([etcd.url()], "/meshwork/bert/");
    let first = job.register("10.0.0.1:4000", no_trouble).unwrap();
    let second = job.register("[::1]:4000", no_trouble).unwrap();
    assert_eq!(first.key(), "/meshwork/bert/10.0.0.1:4000");
    assert_eq!(sorted(&job), ["10.0.0.1:4000", "[::1]:4000"]);
    drop(first);
    assert_eq!(sorted(&job), ["[::1]:4000"]);
    drop(second);
    let nobody = hasty(etcd.url()).addresses().unwrap_err();
    let EtcdError::NoMembers {
        prefix, entries, ..
    } = &nobody
    else {
        panic!("{nobody:?}");
    };
    assert_eq!((prefix.as_str(), *entries), (PREFIX, 2));
    assert!(nobody.is_transient());
}

#[test]
fn a_newcomer_waits_until_somebody_has_registered() {
    let Some(etcd) = Etcd::start() else { return };
    let newcomer = job(etcd.url());
    let waiting = std::thread::spawn(move || newcomer.addresses());
    let _member = job(etcd.url()).register("a:1", no_trouble).unwrap();
    assert_eq!(waiting.join().unwrap(), Ok(vec!["a:1".to_owned()]));
}

#[test]
fn a_member_whose_lease_is_gone_says_so_and_registers_again() {
    let Some(etcd) = Etcd::start() else { return };
    let (tell, heard) = heard();
    let job = job(etcd.url()).with_time_to_live(EtcdMembers::LEAST_TIME_TO_LIVE);
    let member = job.register("a:1", tell).unwrap();
    let lease = entry(&etcd, "bert/a:1")["lease"].clone();
    etcd.post("lease/revoke", &json!({"ID": lease}));
    let lost = heard.recv_timeout(HANG).unwrap();
    assert!(
        matches!(&lost, EtcdError::LeaseLost { key, .. } if key == member.key()),
        "{lost:?}"
    );
    // It waits until the key is there.
    assert_eq!(sorted(&job), ["a:1"]);
    assert_ne!(entry(&etcd, "bert/a:1")["lease"], lease);
}

#[test]
fn a_lease_is_kept_alive_for_longer_than_it_lasts() {
    let Some(etcd) = Etcd::start() else { return };
    let job = job(etcd.url()).with_time_to_live(EtcdMembers::LEAST_TIME_TO_LIVE);
    let _kept = job.register("a:1", no_trouble).unwrap();
    let granted = etcd.post("lease/grant", &json!({"TTL": "2"}));
    let unkept = json!({"key": key("bert/x"), "value": "YjoxCg==", "lease": granted["ID"]});
    etcd.post("kv/put", &unkept);
    // One beside it that nobody keeps alive tells when that time is over.
    let begun = Instant::now();
    while !entry(&etcd, "bert/x").is_null() {
        assert!(
            begun.elapsed() < HANG,
            "a lease without an owner does not end"
        );
    }
    assert_eq!(sorted(&job), ["a:1"]);
}

/// Users with one password, of whom `reader` may read and write nothing, and `writer` all.
fn with_users(etcd: &Etcd) {
    for user in ["root", "writer", "reader"] {
        etcd.post(
            "auth/user/add",
            &json!({"name": user, "password": "open sesame"}),
        );
    }
    for role in ["root", "job"] {
        etcd.post("auth/role/add", &json!({"name": role}));
    }
    // From `/meshwork/` up to what follows it.
    let all = json!({"permType": 2, "key": "L21lc2h3b3JrLw==", "range_end": "L21lc2h3b3JrMA=="});
    etcd.post("auth/role/grant", &json!({"name": "job", "perm": all}));
    etcd.post("auth/user/grant", &json!({"user": "root", "role": "root"}));
    etcd.post("auth/user/grant", &json!({"user": "writer", "role": "job"}));
    etcd.post("auth/enable", &json!({}));
}

#[test]
fn only_users_of_etcd_with_their_password_and_rights_read_and_write() {
    let Some(etcd) = Etcd::start() else { return };
    with_users(&etcd);
    let as_user = |name: &str, password: &str| job(etcd.url()).with_user(name, password);
    let writer = as_user("writer", "open sesame");
    let _member = writer.register("a:1", no_trouble).unwrap();
    assert_eq!(sorted(&writer), ["a:1"]);

    let stranger = job(etcd.url()).addresses().unwrap_err();
    assert!(
        matches!(
            &stranger,
            EtcdError::NoUser {
                operation: EtcdOperation::List,
                ..
            }
        ),
        "{stranger:?}"
    );
    let wrong = as_user("writer", "open barley").register("b:1", no_trouble);
    let wrong = wrong.unwrap_err();
    assert!(
        matches!(&wrong, EtcdError::SignIn { user, .. } if user == "writer"),
        "{wrong:?}"
    );
    assert!(!wrong.to_string().contains("barley"), "{wrong}");
    let reader = as_user("reader", "open sesame").register("c:1", no_trouble);
    let reader = reader.unwrap_err();
    assert!(
        matches!(&reader, EtcdError::Forbidden { key, .. } if key == "/meshwork/bert/c:1"),
        "{reader:?}"
    );
    for error in [stranger, wrong, reader] {
        assert!(
            !error.is_transient() && error.to_string().contains(&etcd.url()),
            "{error}"
        );
    }
}

#[test]
fn a_user_where_etcd_has_none_is_refused() {
    let Some(etcd) = Etcd::start() else { return };
    let refused = job(etcd.url())
        .with_user("writer", "open sesame")
        .addresses();
    let refused = refused.unwrap_err();
    assert!(
        matches!(&refused, EtcdError::SignIn { said, .. } if said.contains("not enabled")),
        "{refused:?}"
    );
}

#[test]
fn an_etcd_with_tls_is_asked_where_its_authority_is_named_and_nowhere_else() {
    let issued = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let certificate = pem("CERTIFICATE", issued.cert.der());
    let key = pem("PRIVATE KEY", &issued.signing_key.serialize_der());
    let Some(etcd) = Etcd::start_with_tls(&certificate, &key) else {
        return;
    };
    let trusting = job(etcd.url()).with_authorities(certificate);
    let _member = trusting.register("a:1", no_trouble).unwrap();
    assert_eq!(sorted(&trusting), ["a:1"]);
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let other = pem("CERTIFICATE", other.cert.der());
    let distrust = hasty(etcd.url()).with_authorities(other).addresses();
    let Err(EtcdError::Service {
        problem: ServiceError::Unreachable { problem, .. },
        ..
    }) = distrust
    else {
        panic!("{distrust:?}");
    };
    assert_eq!(problem, ServiceErrorKind::NoTrust);
}

#[test]
fn authorities_that_were_replaced_in_their_file_are_trusted_by_members_and_newcomers() {
    let issue = || rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (old, issued) = (issue(), issue());
    let certificate = pem("CERTIFICATE", issued.cert.der());
    let key = pem("PRIVATE KEY", &issued.signing_key.serialize_der());
    let Some(etcd) = Etcd::start_with_tls(&certificate, &key) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("authorities");
    std::fs::write(&file, pem("CERTIFICATE", old.cert.der())).unwrap();
    let url = etcd.url();
    let variables = Variables::fixed([
        (EtcdMembers::ENDPOINTS_ENV, url.as_str()),
        (EtcdMembers::PREFIX_ENV, PREFIX),
        (EtcdMembers::AUTHORITY_FILE_ENV, file.to_str().unwrap()),
    ]);
    let job = EtcdMembers::from_variables(&variables).unwrap().unwrap();
    let (tell, heard) = heard();
    let hasty = job
        .clone()
        .with_retry_policy(RetryPolicy::new(Duration::from_secs(1)));
    let hasty = hasty.with_time_to_live(EtcdMembers::LEAST_TIME_TO_LIVE);
    let _member = hasty.register("a:1", tell).unwrap();
    let distrust = heard.recv_timeout(HANG).unwrap();
    assert!(
        matches!(
            &distrust,
            EtcdError::Service {
                problem: ServiceError::Unreachable {
                    problem: ServiceErrorKind::NoTrust,
                    ..
                },
                ..
            }
        ),
        "{distrust:?}"
    );
    std::fs::write(&file, &certificate).unwrap();
    let patient = job.with_retry_policy(RetryPolicy::new(HANG));
    assert_eq!(sorted(&patient), ["a:1"]);
}
