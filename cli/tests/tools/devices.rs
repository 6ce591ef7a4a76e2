//! `meshwork devices` from outside.

use serde_json::Value;

use super::says;

#[test]
fn the_cpu_is_always_there_with_its_memory() {
    let (told, complaints, status) = says("devices", &[] as &[&str]);
    assert_eq!((complaints.as_str(), status), ("", Some(0)));
    assert!(told.starts_with("cpu   CPU:0"), "{told}");
    assert!(told.lines().next().unwrap().contains(" free"), "{told}");
}

#[test]
fn every_backend_has_devices_or_a_reason_and_a_remedy() {
    let (told, _, status) = says("devices", &["--json"]);
    assert_eq!(status, Some(0));
    let told: Value = serde_json::from_str(&told).unwrap();
    let backends = told["backends"].as_array().unwrap();
    assert_eq!(backends[0]["backend"], "cpu");
    assert_eq!(backends[0]["devices"][0]["id"], 0);
    assert!(backends[0]["devices"][0]["memory"]["total"].as_u64() > Some(0));
    for backend in backends {
        let seen = !backend["devices"].as_array().unwrap().is_empty();
        let reason = &backend["unavailable"];
        assert_eq!(seen, reason.is_null(), "{backend}");
        if !seen {
            assert!(reason["reason"].is_string(), "{backend}");
            assert!(reason["remedy"].is_string(), "{backend}");
        }
    }
}

#[test]
fn what_it_does_not_know_is_refused() {
    for wrong in [["--yaml"].as_slice(), &["cuda"], &["--json", "--json"]] {
        let (told, complaints, status) = says("devices", wrong);
        assert_eq!((told.as_str(), status), ("", Some(2)), "{wrong:?}");
        assert!(complaints.contains(wrong[wrong.len() - 1]), "{complaints}");
    }
}
