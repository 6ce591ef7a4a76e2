//! What one rank says of itself, read from its `/status.json`.

use serde_json::Value;

/// How one rank fares.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rank {
    pub(super) rank: u32,
    pub(super) address: String,
    pub(super) process: Option<u32>,
    pub(super) world: u32,
    pub(super) view: u64,
    pub(super) age: f64,
    pub(super) in_operations: f64,
    pub(super) waiting_share: f64,
    pub(super) current: Option<Call>,
    pub(super) operations: u64,
    pub(super) bytes: u64,
    /// The fastest transport's.
    pub(super) gigabytes_per_second: Option<f64>,
    pub(super) packets_lost: u64,
    /// The longest.
    pub(super) round_trip: Option<f64>,
    pub(super) steps: Option<f64>,
    pub(super) samples_per_second: Option<f64>,
    pub(super) checkpoint_age: Option<f64>,
    pub(super) resident_bytes: Option<f64>,
    pub(super) departures: Vec<String>,
    pub(super) failure: Option<String>,
}

/// The operation that it is in.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Call {
    pub(super) what: String,
    pub(super) site: String,
    pub(super) seconds: f64,
    pub(super) awaited: Option<u32>,
}

impl Rank {
    /// `None` for anything that no rank says.
    pub(super) fn from_json(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        if value["version"] != 1 {
            return None;
        }
        let (traffic, peers) = (value["traffic"].as_array()?, value["peers"].as_array()?);
        let sum = |items: &[Value], field: &str| {
            let mut numbers = items.iter().map(|item| item[field].as_u64());
            numbers.try_fold(0_u64, |sum, number| sum.checked_add(number?))
        };
        let most = |items: &[Value], field: &str| {
            let numbers = items.iter().filter_map(|item| item[field].as_f64());
            numbers.max_by(f64::total_cmp)
        };
        let number = |name: &str| value["numbers"][name].as_f64();
        let departures = value["departures"].as_array()?.iter();
        Some(Self {
            rank: number_of(&value["rank"])?,
            address: text_of(&value["address"])?,
            process: number_of(&value["process"]),
            world: number_of(&value["world"])?,
            view: value["view"].as_u64()?,
            age: value["age_seconds"].as_f64()?,
            in_operations: value["in_operations_seconds"].as_f64()?,
            waiting_share: value["waiting_share"].as_f64()?,
            current: match &value["current"] {
                Value::Null => None,
                call => Some(Call::from_value(call)?),
            },
            operations: sum(traffic, "operations")?,
            bytes: sum(traffic, "bytes")?,
            gigabytes_per_second: most(traffic, "recent_gigabytes_per_second"),
            packets_lost: sum(peers, "packets_lost")?,
            round_trip: most(peers, "round_trip_seconds"),
            steps: number("training_steps"),
            samples_per_second: number("training_samples_per_second"),
            checkpoint_age: number("checkpoint_age_seconds"),
            resident_bytes: number("resident_memory_bytes"),
            departures: departures
                .map(|departure| text_of(&departure["reason"]))
                .collect::<Option<_>>()?,
            failure: text_of(&value["failure"]),
        })
    }
}

impl Call {
    fn from_value(value: &Value) -> Option<Self> {
        Some(Self {
            what: text_of(&value["what"])?,
            site: text_of(&value["site"])?,
            seconds: value["seconds"].as_f64()?,
            awaited: number_of(&value["awaited"]),
        })
    }
}

fn number_of(value: &Value) -> Option<u32> {
    value.as_u64()?.try_into().ok()
}

/// What is shown in a terminal has no control characters, whoever sent it.
fn text_of(value: &Value) -> Option<String> {
    let text = value.as_str()?.chars();
    Some(text.filter(|letter| !letter.is_control()).collect())
}
