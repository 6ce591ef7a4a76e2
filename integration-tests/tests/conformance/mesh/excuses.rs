//! Why something is refused that TensorFlow takes. Each rule is held against what was asked for.

use meshwork_core::proto::MeshProto;
use meshwork_core::{DeviceSpec, Error};
use prost::Message;
use serde_json::Value;

use super::answers::{bytes, integers, text, texts};
use super::create::pairs;
use crate::deviations::Deviation;
use crate::deviations::mesh as rules;
use crate::harness::Verdict;

/// The rule by which this error may stand where an answer is recorded.
pub(super) fn for_refusal(input: &Value, error: &Error) -> Verdict {
    match rule(&Asked::read(input), error) {
        Some(deviation) => Verdict::by(deviation),
        None => Verdict::Failed(format!("refused by {error:?}")),
    }
}

/// What a case asks for, in whatever form it was written.
#[derive(Default)]
struct Asked {
    dims: Vec<(String, String)>,
    name: String,
    ids: Vec<i64>,
    local_ids: Vec<i64>,
    local_devices: Vec<String>,
    global_devices: Vec<String>,
    single_device: Option<String>,
}

impl Asked {
    fn read(input: &Value) -> Self {
        if let Some(mesh) = input.get("mesh_string") {
            return Self::read_text(text(mesh));
        }
        if let Some(sent) = input.get("parse_proto_hex") {
            return Self::read_proto(text(sent));
        }
        if let Some(args) = input.get("args") {
            let dims = pairs(&args["mesh_dims"]).into_iter();
            return Self {
                dims: dims.map(|(name, size)| (name, size.to_string())).collect(),
                name: args["mesh_name"].as_str().unwrap_or_default().to_owned(),
                local_devices: [texts(&args["devices"]), texts(&args["local_devices"])].concat(),
                ..Self::default()
            };
        }
        let ctor = input.get("ctor").or_else(|| input.get("roundtrip_of"));
        let Some(ctor) = ctor.filter(|ctor| ctor.get("single_device").is_none()) else {
            let device = ctor.and_then(|ctor| ctor.get("single_device"));
            let device = device.or_else(|| input.get("from_string"));
            return Self {
                single_device: device.map(|device| text(device).to_owned()),
                ..Self::default()
            };
        };
        let global = &ctor["global_device_ids"];
        let start = global["start"].as_i64().unwrap_or(0);
        let size: i64 = integers(&global["shape"]).iter().product();
        let named = |name: String| (name, String::new());
        Self {
            dims: texts(&ctor["dim_names"]).into_iter().map(named).collect(),
            name: ctor["mesh_name"].as_str().unwrap_or_default().to_owned(),
            ids: (start..start + size).collect(),
            local_ids: integers(&ctor["local_device_ids"]),
            local_devices: texts(&ctor["local_devices"]),
            global_devices: texts(&ctor["global_devices"]),
            single_device: None,
        }
    }

    fn read_text(text: &str) -> Self {
        let parts: Vec<&str> = text.split('|').collect();
        let part = |index: usize| parts.get(index).copied().unwrap_or_default();
        let list = |index: usize| part(index).split(',').filter(|piece| !piece.is_empty());
        let ids = |index: usize| list(index).filter_map(leading_number).collect();
        let dims = list(1).map(|dim| dim.split_once('=').unwrap_or((dim, "")));
        Self {
            dims: dims
                .map(|(name, size)| (name.to_owned(), size.to_owned()))
                .collect(),
            name: part(0).to_owned(),
            ids: ids(2),
            local_ids: ids(3),
            local_devices: list(4).map(ToOwned::to_owned).collect(),
            global_devices: list(5).map(ToOwned::to_owned).collect(),
            single_device: (parts.len() == 1).then(|| text.to_owned()),
        }
    }

    fn read_proto(hex: &str) -> Self {
        let message = MeshProto::decode(bytes(hex).as_slice()).expect("read by TensorFlow");
        let dims = message.mesh_dimensions.into_iter();
        Self {
            dims: dims.map(|dim| (dim.name, dim.size.to_string())).collect(),
            name: message.name,
            ids: message.global_device_ids,
            local_ids: message.local_device_ids,
            local_devices: message.local_devices,
            global_devices: message.global_devices,
            single_device: Some(message.single_device).filter(|device| !device.is_empty()),
        }
    }
}

fn rule(asked: &Asked, error: &Error) -> Option<Deviation> {
    name_rule(asked, error)
        .or_else(|| number_rule(asked, error))
        .or_else(|| device_rule(asked, error))
}

fn name_rule(asked: &Asked, error: &Error) -> Option<Deviation> {
    let times = |name: &str| asked.dims.iter().filter(|(dim, _)| dim == name).count();
    let (holds, deviation) = match error {
        Error::EmptyDimName => (times("") > 0, rules::EMPTY_DIM_NAME),
        Error::ReservedDimName { name } => {
            let reserved = ["unsharded", "match", "any"].contains(&name.as_str());
            (reserved && times(name) > 0, rules::RESERVED_DIM_NAME)
        }
        Error::DuplicateDim { name } => (times(name.as_str()) > 1, rules::DUPLICATE_DIM),
        Error::DimNameCharacter { name, character } => {
            let separates = character.is_control() || "|,=".contains(*character);
            (
                separates && times(name) > 0 && name.contains(*character),
                rules::SEPARATORS,
            )
        }
        Error::MeshNameCharacter { name, character } => {
            let separates = character.is_control() || *character == '|';
            (
                separates && asked.name.contains(*character) && asked.name == *name,
                rules::SEPARATORS,
            )
        }
        _ => return None,
    };
    holds.then_some(deviation)
}

fn number_rule(asked: &Asked, error: &Error) -> Option<Deviation> {
    let sizes = || asked.dims.iter().map(|(_, size)| size.trim());
    let twice = |ids: &[i64], id: &i64| ids.iter().filter(|&other| other == id).count() > 1;
    let (holds, deviation) = match error {
        Error::DuplicateId { id, .. } => (
            twice(&asked.ids, id) || twice(&asked.local_ids, id),
            rules::DUPLICATE_ID,
        ),
        Error::ForeignLocalId { id } => (
            asked.local_ids.contains(id) && !asked.ids.contains(id),
            rules::FOREIGN_LOCAL_ID,
        ),
        Error::TextNumber { part } => {
            let number = part.rsplit('=').next().unwrap_or_default();
            match leading_number(part) {
                // `part` is a whole dimension where the size alone would be a number.
                None => (number.trim().starts_with('-'), rules::IMPOSSIBLE_SIZE),
                Some(_) => (part.trim().parse::<i64>().is_err(), rules::NUMBER_WITH_MORE),
            }
        }
        Error::ProtoSize { .. } => (
            sizes().any(|size| size.starts_with('-')),
            rules::IMPOSSIBLE_SIZE,
        ),
        Error::EmptyDim { .. } => (sizes().any(|size| size == "0"), rules::IMPOSSIBLE_SIZE),
        Error::GlobalDeviceCount { found, expected } => (
            *found == asked.global_devices.len() && *expected == asked.ids.len(),
            rules::DEVICE_COUNT,
        ),
        Error::LocalDeviceCount { ids, devices } => (
            *ids == asked.local_ids.len()
                && *devices == asked.local_devices.len()
                && ids != devices,
            rules::DEVICE_COUNT,
        ),
        _ => return None,
    };
    holds.then_some(deviation)
}

fn device_rule(asked: &Asked, error: &Error) -> Option<Deviation> {
    let lists = [&asked.local_devices, &asked.global_devices];
    let specs = |list: &[String]| -> Vec<DeviceSpec> {
        list.iter()
            .filter_map(|text| DeviceSpec::parse(text).ok())
            .collect()
    };
    let kinds = |spec: &DeviceSpec| spec.device_type().map(ToOwned::to_owned);
    let (holds, deviation) = match error {
        Error::DuplicateDevice { device, .. } => {
            let twice =
                |list: &[String]| specs(list).iter().filter(|&spec| spec == device).count() > 1;
            (
                lists.iter().any(|list| twice(list)),
                rules::DUPLICATE_DEVICE,
            )
        }
        Error::MixedDeviceTypes { .. } | Error::LocalDeviceType { .. } => {
            let all: Vec<_> = lists.iter().flat_map(|list| specs(list)).collect();
            (
                all.iter().any(|spec| kinds(spec) != kinds(&all[0])),
                rules::DEVICE_TYPES,
            )
        }
        Error::DeviceWithoutType { device, .. } => (
            device.device_type().is_none() && lists.iter().any(|list| specs(list).contains(device)),
            rules::NO_DEVICE,
        ),
        Error::DevicePart { spec, .. }
        | Error::DeviceNumber { spec, .. }
        | Error::TwoDevices { spec, .. } => {
            let mut all = lists.iter().copied().flatten().chain(&asked.single_device);
            (all.any(|text| text == spec), rules::NO_DEVICE)
        }
        Error::DeviceWord { word } => {
            let mut all = lists.iter().copied().flatten().chain(&asked.single_device);
            (
                all.any(|text| text.contains(word.as_str())),
                rules::NO_DEVICE,
            )
        }
        _ => return None,
    };
    holds.then_some(deviation)
}

/// What C's `stoi` makes of a text: blanks, a sign, and digits up to anything else.
fn leading_number(text: &str) -> Option<i64> {
    let text = text.trim_start();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let end = digits
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(digits.len());
    text[..text.len() - digits.len() + end].parse().ok()
}
