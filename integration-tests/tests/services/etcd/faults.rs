//! What a server in etcd's place may do, and what becomes of it.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use meshwork_cluster_resolver::{
    Error, EtcdError, EtcdMembers, EtcdOperation, ServiceError, ServiceErrorKind, Variables,
};
use serde_json::json;

use super::{HANG, PREFIX, hasty, heard, job, no_trouble};
use crate::loopback::{Asked, Loopback, Reply};

/// Answers as an etcd with one member does.
fn one_member(asked: &Asked) -> Reply {
    let header = json!({"revision": "1"});
    Reply::json(&match asked.path.as_str() {
        "/v3/kv/range" => json!({"header": header, "kvs": [{"key": "eA==", "value": "YTox"}]}),
        "/v3/lease/grant" => json!({"header": header, "ID": "7", "TTL": "2"}),
        "/v3/lease/keepalive" => json!({"result": {"header": header, "ID": "7", "TTL": "2"}}),
        "/v3/auth/authenticate" => json!({"header": header, "token": "token-of-writer"}),
        _ => json!({"header": header}),
    })
}

/// A URL where nobody listens.
fn closed() -> String {
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    format!("http://{}", port.local_addr().unwrap())
}

/// What was wrong with the service, while members were listed.
#[track_caller]
fn wrong(found: Result<Vec<String>, EtcdError>) -> ServiceError {
    match found {
        Err(EtcdError::Service {
            operation: EtcdOperation::List,
            key,
            problem,
        }) if key == PREFIX => problem,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn unreachable(found: Result<Vec<String>, EtcdError>) -> ServiceErrorKind {
    match wrong(found) {
        ServiceError::Unreachable { problem, .. } => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn where_nobody_listens_or_answers_it_ends_by_its_deadline_and_says_why() {
    let refused = hasty(closed()).addresses();
    let message = refused.clone().unwrap_err().to_string();
    assert_eq!(unreachable(refused), ServiceErrorKind::NoConnection);
    assert!(
        message.starts_with("listing /meshwork/bert in etcd: http://127.0.0.1:"),
        "{message}"
    );
    let silent = Loopback::start(|_| Reply::Silence);
    assert_eq!(
        unreachable(hasty(silent.url()).addresses()),
        ServiceErrorKind::TooSlow
    );
    let busy = Loopback::start(|_| Reply::status(503, "no leader"));
    assert_eq!(
        unreachable(hasty(busy.url()).addresses()),
        ServiceErrorKind::Busy(503)
    );
}

#[test]
fn an_answer_that_is_none_of_etcd_is_shown() {
    let page = Loopback::start(|_| Reply::text("<html>"));
    let not_json = wrong(job(page.url()).addresses());
    assert!(
        matches!(&not_json, ServiceError::NotJson { found, .. } if found == "<html>"),
        "{not_json:?}"
    );
    let empty = Loopback::start(|_| Reply::text("{}"));
    let no_header = wrong(job(empty.url()).addresses());
    assert!(
        matches!(&no_header, ServiceError::Field { field, .. } if field == "header"),
        "{no_header:?}"
    );
    let web = Loopback::start(|_| Reply::status(404, "Not Found"));
    let other = job(web.url()).register("a:1", no_trouble).unwrap_err();
    let endpoint = format!("{}/v3/lease/grant", web.url());
    assert_eq!(other, EtcdError::NoGateway { endpoint });
}

#[test]
fn the_next_client_url_is_asked_where_one_does_not_answer() {
    let server = Loopback::start(one_member);
    let members = EtcdMembers::new([closed(), server.url()], PREFIX);
    assert_eq!(members.addresses(), Ok(vec!["a:1".to_owned()]));
}

#[test]
fn a_token_that_etcd_has_forgotten_is_replaced_and_no_secret_gets_into_an_error() {
    let asked_once = AtomicUsize::new(0);
    let server = Loopback::start(move |asked| match asked.path.as_str() {
        // After the first it forgets, then never again.
        "/v3/kv/put" if asked_once.fetch_add(1, Ordering::SeqCst) == 0 => {
            Reply::status(401, r#"{"error": "etcdserver: invalid auth token"}"#)
        }
        _ => one_member(asked),
    });
    let user = job(server.url()).with_user("writer", "open sesame");
    drop(user.register("a:1", no_trouble).unwrap());
    let asked = server.asked();
    let paths: Vec<&str> = asked.iter().map(|asked| asked.path.as_str()).collect();
    let expected = [
        "auth/authenticate",
        "lease/grant",
        "kv/put",
        "auth/authenticate",
        "kv/put",
        "lease/revoke",
    ];
    assert_eq!(paths, expected.map(|path| format!("/v3/{path}")));
    assert_eq!(asked[0].header("authorization"), None);
    assert_eq!(asked[1].header("authorization"), Some("token-of-writer"));

    let repeats = Loopback::start(|asked| match asked.path.as_str() {
        "/v3/auth/authenticate" => Reply::status(400, &json!({"error": asked.body}).to_string()),
        _ => one_member(asked),
    });
    let refused = job(repeats.url())
        .with_user("writer", "open sesame")
        .addresses();
    let refused = refused.unwrap_err();
    let shown = format!("{refused} {refused:?}");
    assert!(
        shown.contains("[secret]") && !shown.contains("sesame"),
        "{shown}"
    );
    let strange = Loopback::start(|_| Reply::json(&json!({"tokens": "token-of-writer"})));
    let strange = job(strange.url())
        .with_user("writer", "open sesame")
        .addresses();
    let shown = strange.unwrap_err().to_string();
    assert!(
        shown.contains("token in the answer") && !shown.contains("of-writer"),
        "{shown}"
    );
}

#[test]
fn a_member_signs_in_with_the_password_that_its_file_holds_by_then() {
    let is_changed = Arc::new(AtomicBool::new(false));
    let changed = is_changed.clone();
    let (keeps, kept) = channel();
    let server = Loopback::start(move |asked| {
        let is_changed = changed.load(Ordering::SeqCst);
        let password = if is_changed {
            "open-barley"
        } else {
            "open-sesame"
        };
        match asked.path.as_str() {
            "/v3/auth/authenticate" if asked.body.contains(password) => {
                Reply::json(&json!({"header": {}, "token": password}))
            }
            "/v3/auth/authenticate" => Reply::status(400, r#"{"error": "etcdserver: no"}"#),
            _ if asked.header("authorization") != Some(password) => {
                Reply::status(401, r#"{"error": "etcdserver: invalid auth token"}"#)
            }
            "/v3/lease/keepalive" if is_changed => {
                let _ = keeps.send(());
                one_member(asked)
            }
            _ => one_member(asked),
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "open-sesame").unwrap();
    let url = server.url();
    let variables = Variables::fixed([
        (EtcdMembers::ENDPOINTS_ENV, url.as_str()),
        (EtcdMembers::PREFIX_ENV, PREFIX),
        (EtcdMembers::USER_ENV, "writer"),
        (EtcdMembers::PASSWORD_FILE_ENV, file.to_str().unwrap()),
    ]);
    let job = EtcdMembers::from_variables(&variables).unwrap().unwrap();
    let job = job.with_time_to_live(EtcdMembers::LEAST_TIME_TO_LIVE);
    let (tell, heard) = heard();
    let _member = job.register("a:1", tell).unwrap();
    is_changed.store(true, Ordering::SeqCst);
    let refused = heard.recv_timeout(HANG).unwrap();
    assert!(matches!(&refused, EtcdError::SignIn { .. }), "{refused:?}");
    std::fs::write(&file, "open-barley").unwrap();
    kept.recv_timeout(HANG).unwrap();
}

#[test]
fn a_member_goes_on_while_etcd_is_away_and_registers_when_it_is_back() {
    let is_up = Arc::new(AtomicBool::new(false));
    let up = is_up.clone();
    let (writes, written) = channel();
    let server = Loopback::start(move |asked| {
        if !up.load(Ordering::SeqCst) {
            return Reply::status(503, "no leader");
        }
        if asked.path == "/v3/kv/put" {
            let _ = writes.send(());
        }
        one_member(asked)
    });
    let (tell, heard) = heard();
    let patient = hasty(server.url()).with_time_to_live(EtcdMembers::LEAST_TIME_TO_LIVE);
    let member = patient.register("a:1", tell).unwrap();
    let trouble = heard.recv_timeout(HANG).unwrap();
    assert!(
        matches!(
            &trouble,
            EtcdError::Service {
                operation: EtcdOperation::Register,
                ..
            }
        ),
        "{trouble:?}"
    );
    is_up.store(true, Ordering::SeqCst);
    written.recv_timeout(HANG).unwrap();
    drop(member);
    // Told once, however often it was tried.
    assert_eq!(heard.try_iter().count(), 0);
}

#[test]
fn what_cannot_be_or_should_not_be_is_refused_before_anything_is_sent() {
    let job = || EtcdMembers::new(["http://10.255.255.1:2379"], PREFIX);
    let prefix = String::new();
    let all = EtcdMembers::new(["http://127.0.0.1:1"], "/").addresses();
    assert_eq!(all, Err(EtcdError::Prefix { prefix }));
    let clear = job().with_user("writer", "open sesame").addresses();
    let (user, endpoint) = ("writer".to_owned(), "http://10.255.255.1:2379/".to_owned());
    assert_eq!(clear, Err(EtcdError::PasswordInClear { user, endpoint }));
    let given = Duration::from_millis(1500);
    let brief = job().with_time_to_live(given).addresses();
    let least = EtcdMembers::LEAST_TIME_TO_LIVE;
    assert_eq!(brief, Err(EtcdError::TimeToLive { given, least }));
    let strange = job().register("http://a:1", no_trouble).unwrap_err();
    assert!(matches!(&strange, EtcdError::Address { .. }), "{strange:?}");
    let no_pem = job().with_authorities("no certificate").addresses();
    assert_eq!(no_pem, Err(EtcdError::Authorities));
    for urls in [vec![], vec!["etcd:2379"]] {
        let none = EtcdMembers::new(urls, PREFIX).addresses();
        assert!(
            matches!(&none, Err(EtcdError::Client(ServiceError::Url { .. }))),
            "{none:?}"
        );
    }
    let shown = format!("{:?}", job().with_user("writer", "open sesame"));
    assert!(
        shown.contains("writer") && !shown.contains("sesame"),
        "{shown}"
    );
}

#[test]
fn variables_name_etcd_the_prefix_the_user_and_files() {
    let read = |variables: &[(&str, &str)]| {
        EtcdMembers::from_variables(&Variables::fixed(variables.iter().copied()))
    };
    let (etcd, prefix) = (
        ("MESHWORK_ETCD", "https://a:1, https://b:1"),
        ("MESHWORK_ETCD_PREFIX", PREFIX),
    );
    assert_eq!(read(&[prefix]), Ok(None));
    let urls = ["https://a:1", "https://b:1"];
    assert_eq!(
        read(&[etcd, prefix]),
        Ok(Some(EtcdMembers::new(urls, PREFIX)))
    );
    let unset = |variable, because| Err(EtcdError::Unset { variable, because }.into());
    assert_eq!(
        read(&[etcd]),
        unset("MESHWORK_ETCD_PREFIX", "MESHWORK_ETCD")
    );
    let user = ("MESHWORK_ETCD_USER", "writer");
    let missing = unset("MESHWORK_ETCD_PASSWORD_FILE", "MESHWORK_ETCD_USER");
    assert_eq!(read(&[etcd, prefix, user]), missing);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    let named = ("MESHWORK_ETCD_PASSWORD_FILE", file.to_str().unwrap());
    let absent = read(&[etcd, prefix, user, named]);
    assert!(
        matches!(&absent, Err(Error::Etcd(error)) if matches!(**error, EtcdError::File { .. })),
        "{absent:?}"
    );
    std::fs::write(&file, "open sesame\n").unwrap();
    let authorities = ("MESHWORK_ETCD_AUTHORITY_FILE", file.to_str().unwrap());
    let expected = EtcdMembers::new(urls, PREFIX)
        .with_user("writer", "open sesame")
        .with_authorities("open sesame\n");
    assert_eq!(
        read(&[etcd, prefix, user, named, authorities]),
        Ok(Some(expected))
    );
}
