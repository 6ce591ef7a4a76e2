//! `{"layout_string"}`, `{"parse_proto_hex"}`, `{"mesh", "specs", "parted"}`, `{"single_device"}`.

use meshwork_layout::{AnyLayout, Error, SpecPattern};
use serde_json::Value;

use super::answers::{answer, construct, judge_error, judge_refusal};
use crate::deviations::layout::{BEYOND_TENSORFLOW, LAST_COMMA, MESH_WITH_BLANKS};
use crate::harness::Verdict;
use crate::mesh::answers::{bytes, compare, text};

pub(super) fn judge_text(case: &Value) -> Verdict {
    let asked = text(&case["input"]["layout_string"]);
    match (AnyLayout::parse(asked), case.get("expect")) {
        (Ok(any), Some(expect)) => compare(expect, |field| answer(&any, field)),
        (Err(Error::LastComma { specs }), Some(expect)) => judge_comma(asked, &specs, expect),
        (Err(error), Some(_)) => Verdict::Failed(format!("refused by {error:?}")),
        (Ok(any), None) if is_beyond(&any) && is_read_back(&any) => Verdict::by(BEYOND_TENSORFLOW),
        (Ok(any), None) if is_mesh_with_blanks(asked, &any) => Verdict::by(MESH_WITH_BLANKS),
        (result, None) => judge_error(case, &result),
    }
}

pub(super) fn judge_proto(case: &Value) -> Verdict {
    let input = &case["input"];
    let made = if let Some(sent) = input.get("parse_proto_hex") {
        AnyLayout::decode(&bytes(text(sent)))
    } else if let Some(device) = input.get("single_device") {
        AnyLayout::from_device(text(device))
    } else {
        construct(input).map(AnyLayout::from)
    };
    match (made, case.get("expect")) {
        (Ok(any), Some(expect)) => compare(expect, |field| answer(&any, field)),
        (Err(error), Some(_)) => judge_refusal(&input["single_device"], &error),
        (result, None) => judge_error(case, &result),
    }
}

/// TensorFlow reads the text as if what follows the last comma were not there.
fn judge_comma(asked: &str, specs: &str, expect: &Value) -> Verdict {
    let end = specs.rfind(',').map_or(0, |comma| comma + 1);
    let without = asked.replacen(specs, &specs[..end], 1);
    match AnyLayout::parse(&without) {
        Ok(any) => match compare(expect, |field| answer(&any, field)) {
            Verdict::Passed => Verdict::by(LAST_COMMA),
            verdict => verdict,
        },
        Err(error) => Verdict::Failed(format!("{without:?} is refused by {error:?}")),
    }
}

/// Whether a layout has several mesh dimensions on one tensor dimension, or partial ones.
fn is_beyond(any: &AnyLayout) -> bool {
    let AnyLayout::Pattern(pattern) = any else {
        return false;
    };
    let nested = |spec| matches!(spec, SpecPattern::Exactly(spec) if spec.dims().len() > 1);
    pattern.specs().any(nested) || pattern.reduction().is_some()
}

/// Whether this is what TensorFlow writes for a mesh whose name has blanks, and does not read.
fn is_mesh_with_blanks(asked: &str, any: &AnyLayout) -> bool {
    let AnyLayout::Pattern(pattern) = any else {
        return false;
    };
    let name = pattern.mesh().name();
    name.contains(' ') && asked.contains(&format!(" mesh:{name}|")) && is_read_back(any)
}

fn is_read_back(any: &AnyLayout) -> bool {
    AnyLayout::parse(&any.to_string()).as_ref() == Ok(any)
}
