//! `{"mesh_string"}`, `{"parse_proto_hex"}`, and `{"roundtrip_of"}` or `{"ctor"}`: a constructor.

use meshwork_core::{AnyMesh, Error};
use serde_json::{Value, json};

use super::answers::{any_answer, bytes, compare, hex, judge_error, same_digest, text};
use super::constructor::build;
use super::excuses;
use crate::deviations::mesh::{EMPTY_KEEPS_NOTHING, GLOBAL_DEVICES_KEPT};
use crate::harness::Verdict;
use crate::not_askable::IN_PAIRS;

pub(super) fn judge_text(case: &Value) -> Verdict {
    let input = &case["input"];
    let Some(mesh) = input.get("mesh_string") else {
        return judge_built(case, &input["roundtrip_of"]);
    };
    let read = AnyMesh::parse(text(mesh));
    match case.get("expect") {
        None => judge_error(case, &read),
        Some(expect) => match (without_sixth_part(text(mesh)), read) {
            (Some(rest), read) => judge_sixth_part(expect, &rest, read),
            (None, Ok(any)) => compare(expect, |field| any_answer(&any, field)),
            (None, Err(error)) => excuses::for_refusal(input, &error),
        },
    }
}

pub(super) fn judge_proto(case: &Value) -> Verdict {
    let input = &case["input"];
    let Some(sent) = input.get("parse_proto_hex") else {
        return judge_built(case, &input["ctor"]);
    };
    let read = AnyMesh::decode(&bytes(text(sent)));
    match (read, case.get("expect")) {
        (Ok(AnyMesh::Empty), Some(expect)) if expect["reserialized_hex"] != "" => {
            judge_empty(expect)
        }
        (Ok(any), Some(expect)) => compare(expect, |field| any_answer(&any, field)),
        (Err(error), Some(_)) => excuses::for_refusal(input, &error),
        (result, None) => judge_error(case, &result),
    }
}

fn judge_built(case: &Value, ctor: &Value) -> Verdict {
    let Some(built) = build(ctor) else {
        return Verdict::unsayable(case, IN_PAIRS);
    };
    match (built, case.get("expect")) {
        (Ok(any), Some(expect)) => compare(expect, |field| built_answer(&any, field, expect)),
        (Err(error), Some(_)) => excuses::for_refusal(&case["input"], &error),
        (result, None) => judge_error(case, &result),
    }
}

fn built_answer(any: &AnyMesh, field: &str, expect: &Value) -> Option<Value> {
    match field {
        // `{"hex"}` or, for many bytes, `{"len", "sha256"}`.
        "proto" => {
            let bytes = any.encode();
            let short = expect["proto"].as_object()?;
            let same = match short.get("hex") {
                Some(recorded) => *recorded == hex(&bytes),
                None => same_digest(short, &bytes),
            };
            Some(if same {
                expect["proto"].clone()
            } else {
                json!(hex(bytes))
            })
        }
        "roundtrip_equal" => Some(json!(AnyMesh::decode(&any.encode()).as_ref() == Ok(any))),
        _ => any_answer(any, field),
    }
}

/// TensorFlow prints a mesh of no devices as empty, and sends what it was sent all the same.
fn judge_empty(expect: &Value) -> Verdict {
    let mut printed = expect.clone();
    printed["reserialized_hex"] = json!("");
    match compare(&printed, |field| any_answer(&AnyMesh::Empty, field)) {
        Verdict::Passed => Verdict::by(EMPTY_KEEPS_NOTHING),
        verdict => verdict,
    }
}

/// The text of seven parts without its sixth, if it has something there.
fn without_sixth_part(text: &str) -> Option<String> {
    let mut parts: Vec<&str> = text.split('|').collect();
    let global = parts.get(5).is_some_and(|part| !part.is_empty());
    (parts.len() == 7 && global).then(|| {
        parts[5] = "";
        parts.join("|")
    })
}

/// TensorFlow does not look at the sixth part where there is a seventh. All else has to be as it
/// reads it, and the sixth part has to be there or to be refused.
fn judge_sixth_part(expect: &Value, rest: &str, read: Result<AnyMesh, Error>) -> Verdict {
    let verdict = match AnyMesh::parse(rest) {
        Ok(any) => compare(expect, |field| any_answer(&any, field)),
        Err(error) => return Verdict::Failed(format!("{error:?} for {rest}")),
    };
    let kept = match &read {
        Ok(AnyMesh::Mesh(mesh)) => !mesh.global_devices().is_empty(),
        Ok(_) => false,
        Err(_) => true,
    };
    match verdict {
        Verdict::Passed if kept => Verdict::by(GLOBAL_DEVICES_KEPT),
        Verdict::Passed => Verdict::Failed(format!("{read:?} lost its sixth part")),
        verdict => verdict,
    }
}
