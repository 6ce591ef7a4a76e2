//! The forms of etcd's JSON gateway: bytes are base64, and whole numbers are texts.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::address;
use crate::error::ServiceError;
use crate::service::answer::Answer;

/// What was found under a prefix.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Found {
    /// In the order of their keys.
    pub(super) addresses: Vec<String>,
    /// Entries that hold no address.
    pub(super) others: usize,
}

/// Asks for everything below a prefix, up to the most that is taken.
pub(super) fn range(prefix: &str) -> Value {
    // `0` is the character after `/`, so this is what begins with the prefix and a slash.
    let (from, to) = (format!("{prefix}/"), format!("{prefix}0"));
    json!({"key": STANDARD.encode(from), "range_end": STANDARD.encode(to), "limit": MOST.to_string()})
}

/// Writes a value that ends with a lease.
pub(super) fn put(key: &str, value: &str, lease: &str) -> Value {
    json!({"key": STANDARD.encode(key), "value": STANDARD.encode(value), "lease": lease})
}

/// The addresses in the answer to a [`range`]. An entry without one is nobody's fault here, and no
/// reason to find nobody.
pub(super) fn found(answer: &Answer<'_>) -> Result<Found, ServiceError> {
    answer.at("header").object()?;
    let mut found = Found::default();
    for entry in answer.at("kvs").list()?.into_iter().take(MOST) {
        // An empty value is left out of the answer.
        let value = entry.at("value").optional_text()?;
        match value.and_then(address_in) {
            Some(address) => found.addresses.push(address),
            None => found.others += 1,
        }
    }
    Ok(found)
}

fn address_in(value: &str) -> Option<String> {
    if value.len() > LONGEST {
        return None;
    }
    let address = String::from_utf8(STANDARD.decode(value).ok()?).ok()?;
    address::parse(&address).is_ok().then_some(address)
}

/// Members that are looked at: one that answers knows all others.
const MOST: usize = 1000;

/// Characters of a value that may hold an address: a host name has 255 at most.
const LONGEST: usize = 400;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kvs: &Value, addresses: &[&str], others: usize) {
        let text = json!({"header": {}, "kvs": kvs});
        let found = found(&Answer::new("http://etcd", &text)).unwrap();
        assert_eq!(found.addresses, addresses);
        assert_eq!(found.others, others);
    }

    fn entry(value: impl AsRef<[u8]>) -> Value {
        json!({"key": "L2E=", "value": STANDARD.encode(value)})
    }

    #[test]
    fn addresses_are_found_among_entries_that_hold_none() {
        check(&json!(null), &[], 0);
        check(
            &json!([entry("a:1"), entry("[::1]:2")]),
            &["a:1", "[::1]:2"],
            0,
        );
        let long = format!("{}:1", "a".repeat(300));
        let others = [
            entry(""),
            entry("a"),
            entry("http://a:1"),
            entry([0xff, 0xfe]),
            entry(long),
            json!({"key": "L2E="}),
            json!({"value": "no base64!"}),
        ];
        let count = others.len();
        let mut all = others.to_vec();
        all.push(entry("b:2"));
        check(&Value::Array(all), &["b:2"], count);
    }

    #[test]
    fn what_is_no_answer_of_etcd_is_an_error_that_names_the_field() {
        for (text, field) in [
            (json!({}), "header"),
            (json!([]), "header"),
            (json!({"header": {}, "kvs": 7}), "kvs"),
            (json!({"header": {}, "kvs": [{"value": 7}]}), "kvs[0].value"),
        ] {
            let error = found(&Answer::new("http://etcd", &text)).unwrap_err();
            let ServiceError::Field { field: found, .. } = &error else {
                panic!("{error:?}");
            };
            assert_eq!(found, field);
        }
    }

    #[test]
    fn a_prefix_ends_before_that_of_a_job_whose_name_begins_alike() {
        let asked = range("/meshwork/a");
        let bytes = |name: &str| STANDARD.decode(asked[name].as_str().unwrap()).unwrap();
        let (from, to) = (bytes("key"), bytes("range_end"));
        let is_in = |key: &str| from.as_slice() <= key.as_bytes() && key.as_bytes() < to.as_slice();
        assert!(is_in("/meshwork/a/h:1") && is_in("/meshwork/a/é"));
        assert!(!is_in("/meshwork/a") && !is_in("/meshwork/ab/h:1") && !is_in("/meshwork/a-1/h:1"));
    }
}
