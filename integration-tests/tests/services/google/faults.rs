//! What goes wrong with services, and what becomes of it.

use std::time::Duration;

use meshwork_cluster_resolver::{
    ClusterResolver, Error, GceResolver, GoogleCredentials, RetryPolicy, ServiceError,
    ServiceErrorKind,
};

use super::cloud::{TOKEN, five_machines, group, hasty, patient, refusal};
use crate::loopback::{Loopback, Reply};

#[track_caller]
fn refused(resolver: &GceResolver) -> ServiceError {
    match resolver.cluster_spec() {
        Err(Error::Service(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_service_that_says_no_is_asked_once_and_quoted() {
    for status in [400, 401, 403, 404] {
        let message = format!("no, {TOKEN} may not");
        let server = five_machines().start_broken("listInstances", refusal(status, &message));
        let error = refused(&group(&server));
        let ServiceError::Refused {
            url,
            status: said_status,
            said,
        } = &error
        else {
            panic!("{error:?}");
        };
        assert_eq!(
            (*said_status, said.as_str()),
            (status, "no, [secret] may not")
        );
        assert!(url.starts_with(&server.url()), "{url}");
        assert!(!error.to_string().contains(TOKEN));
        let asked = server.asked();
        assert_eq!(
            asked
                .iter()
                .filter(|asked| asked.path.contains("Groups"))
                .count(),
            1
        );
    }
}

#[test]
fn a_service_that_says_not_now_is_asked_again() {
    for status in [408, 429, 500, 502, 503, 504] {
        let mut cloud = five_machines();
        for part in ["/token", "listInstances", "/instances/w9"] {
            let reply = refusal(status, "not now").with_header("Retry-After", "0");
            cloud
                .troubles
                .extend([(part, reply.clone()), (part, reply)]);
        }
        let spec = group(&cloud.start()).cluster_spec().unwrap();
        assert_eq!(spec.num_tasks("worker"), Ok(4));
    }
}

#[test]
fn one_deadline_covers_all_attempts() {
    let reply = refusal(503, "never");
    let server = five_machines().start_broken("listInstances", reply);
    let short = RetryPolicy::new(Duration::from_millis(500));
    let short = short.with_backoff(Duration::from_millis(1), Duration::from_millis(4));
    let error = refused(&group(&server).with_retry_policy(short));
    let ServiceError::Unreachable {
        attempts,
        waited,
        problem,
        ..
    } = error
    else {
        panic!("{error:?}");
    };
    assert_eq!(problem, ServiceErrorKind::Busy(503));
    assert!(
        attempts > 1 && waited < Duration::from_secs(5),
        "{attempts} in {waited:?}"
    );
}

#[test]
fn a_pause_beyond_the_deadline_is_not_waited_for() {
    let reply = refusal(429, "later").with_header("Retry-After", "3600");
    let server = five_machines().start_broken("listInstances", reply);
    let error = refused(&group(&server));
    assert!(
        matches!(error, ServiceError::Unreachable { attempts: 1, .. }),
        "{error:?}"
    );
}

#[test]
fn silence_is_ended_by_the_time_for_an_attempt() {
    let server = five_machines().start_broken("listInstances", Reply::Silence);
    let error = refused(&group(&server).with_retry_policy(hasty()));
    let ServiceError::Unreachable {
        attempts, problem, ..
    } = error
    else {
        panic!("{error:?}");
    };
    assert_eq!(problem, ServiceErrorKind::TooSlow);
    assert!(attempts > 1, "{attempts}");
    let mut cloud = five_machines();
    cloud.troubles = vec![("/instances/w1", Reply::Silence)];
    let server = cloud.start();
    let once =
        group(&server).with_retry_policy(patient().with_attempt_timeout(Duration::from_secs(1)));
    assert_eq!(once.cluster_spec().unwrap().num_tasks("worker"), Ok(4));
}

#[test]
fn an_answer_that_breaks_off_is_asked_for_again() {
    let mut cloud = five_machines();
    cloud.troubles = vec![("listInstances", Reply::CutOff("{\"items\": [".to_owned()))];
    let spec = group(&cloud.start()).cluster_spec().unwrap();
    assert_eq!(spec.num_tasks("worker"), Ok(4));
    let cut = Reply::CutOff("{}".to_owned());
    let server = five_machines().start_broken("listInstances", cut);
    let error = refused(&group(&server).with_retry_policy(hasty()));
    let problem = ServiceErrorKind::BrokenOff;
    assert!(
        matches!(error, ServiceError::Unreachable { problem: p, .. } if p == problem),
        "{error:?}"
    );
}

#[test]
fn wrong_answers_are_named_by_url_field_and_value() {
    let html = Reply::text("<html>Sign in to the hotel</html>");
    let server = five_machines().start_broken("listInstances", html);
    let error = refused(&group(&server));
    assert!(
        error
            .to_string()
            .contains("\"<html>Sign in to the hotel</html>\""),
        "{error}"
    );
    let wrong = Reply::text(r#"{"networkInterfaces": [{"networkIP": 7}]}"#);
    let server = five_machines().start_broken("/instances/w9", wrong);
    let error = refused(&group(&server));
    assert_eq!(
        error,
        ServiceError::Field {
            url: format!(
                "{}/compute/v1/projects/p/zones/z/instances/w9",
                server.url()
            ),
            field: "networkInterfaces[0].networkIP".to_owned(),
            found: "7".to_owned(),
            expected: "a text",
        }
    );
}

#[test]
fn a_redirect_is_followed_on_the_same_server_and_never_to_another() {
    let redirect = |to: &str| Reply::status(307, "").with_header("Location", to);
    let mut cloud = five_machines();
    cloud.troubles = vec![(
        "/instances/w9",
        redirect("/compute/v1/projects/p/zones/z/instances/w9"),
    )];
    assert!(group(&cloud.start()).cluster_spec().is_ok());

    let thief = Loopback::start(|_| Reply::text("{}"));
    let elsewhere = redirect(&format!("{}/x", thief.url()));
    let server = five_machines().start_broken("listInstances", elsewhere);
    let error = refused(&group(&server));
    assert!(
        matches!(error, ServiceError::Refused { status: 307, .. }),
        "{error:?}"
    );
    assert_eq!(thief.asked().len(), 0);

    let circle = redirect("/compute/v1/projects/p/zones/z/instances/w1");
    let server = five_machines().start_broken("/instances/w1", circle);
    let error = refused(&group(&server));
    assert!(
        matches!(error, ServiceError::Refused { status: 307, .. }),
        "{error:?}"
    );
}

#[test]
fn a_host_without_an_address_is_looked_up_again() {
    let server = five_machines().start();
    let resolver = group(&server)
        .with_compute_url("http://nowhere.invalid/compute/v1")
        .with_credentials(GoogleCredentials::anonymous())
        .with_retry_policy(hasty());
    let error = refused(&resolver);
    let ServiceError::Unreachable {
        attempts,
        problem,
        url,
        ..
    } = &error
    else {
        panic!("{error:?}");
    };
    assert!(url.starts_with("http://nowhere.invalid/"), "{url}");
    // Where a look-up takes longer than an attempt may, that is what is said.
    let known = matches!(
        problem,
        ServiceErrorKind::NoAddress | ServiceErrorKind::TooSlow
    );
    assert!(known && *attempts > 1, "{error:?}");
}

#[test]
fn a_server_that_is_not_there_is_tried_until_the_deadline() {
    let gone = Loopback::start(|_| Reply::Silence).url();
    let server = five_machines().start();
    let error = refused(
        &group(&server)
            .with_compute_url(gone)
            .with_retry_policy(hasty()),
    );
    let ServiceError::Unreachable {
        attempts, problem, ..
    } = error
    else {
        panic!("{error:?}");
    };
    assert_eq!(problem, ServiceErrorKind::NoConnection);
    assert!(attempts > 3, "{attempts}");
}
