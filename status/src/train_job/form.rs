//! A report in the form that Kubeflow Trainer takes: `UpdateTrainJobStatusRequest` of
//! `trainer.kubeflow.org/v1alpha1`.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::report::Report;

/// What `trainerStatus` says but for its time. What is not known is left out.
pub(super) fn status(report: &Report) -> Value {
    let number = |name: &str| {
        let found = report.numbers.iter().find(|number| number.name == name);
        found.map(|number| number.value)
    };
    let (steps, total) = (number("training_steps"), number("training_total_steps"));
    let known = steps.zip(total).filter(|known| known.1 > 0.0);
    let left = known.map(|(steps, total)| (total - steps).max(0.0));
    let rate = number("training_steps_per_second").filter(|rate| *rate > 0.0);
    let seconds = left.zip(rate).map(|(left, rate)| (left / rate).ceil());
    let numbers = report.numbers.iter();
    // Infinity is no number in JSON, but these are texts, and that a loss is one is worth knowing.
    let metrics = numbers.map(|number| {
        let name = number.name.strip_prefix("training_").unwrap_or(number.name);
        json!({ "name": name, "value": number.value.to_string() })
    });
    let mut status = json!({ "metrics": metrics.collect::<Vec<_>>() });
    if let Some((steps, total)) = known {
        let percentage = (100.0 * steps / total).floor().min(100.0);
        status["progressPercentage"] = whole(percentage);
    }
    if let Some(seconds) = seconds {
        status["estimatedRemainingSeconds"] = whole(seconds);
    }
    status
}

/// The body of the request.
pub(super) fn request(status: &Value, now: Timestamp) -> Value {
    let mut status = status.clone();
    // To the second, as Kubernetes keeps it.
    let now = Timestamp::from_second(now.as_second()).map_or(now, |second| second);
    status["lastUpdatedTime"] = now.to_string().into();
    json!({ "trainerStatus": status })
}

/// Not beyond what Trainer's integers hold.
#[expect(clippy::cast_possible_truncation, reason = "within its bounds by then")]
fn whole(number: f64) -> Value {
    (number.clamp(0.0, f64::from(i32::MAX)) as i32).into()
}

#[cfg(test)]
mod tests {
    use meshwork_collectives::Group;

    use super::*;
    use crate::report::{Metric, MetricKind, StatusSource};

    fn said(numbers: &[(&'static str, f64)]) -> Value {
        let group = Group::local(1).unwrap().remove(0);
        let numbers = numbers.iter().map(|(name, value)| Metric {
            name,
            help: "A number",
            kind: MetricKind::Gauge,
            value: *value,
        });
        status(&Report {
            group: group.observer().report().group,
            numbers: numbers.collect(),
        })
    }

    #[test]
    fn a_report_has_the_fields_of_trainers_interface() {
        let told = said(&[
            ("training_steps", 450.0),
            ("training_total_steps", 1000.0),
            ("training_steps_per_second", 2.0),
            ("training_loss", 0.25),
        ]);
        let now = Timestamp::from_second(1_737_628_245).unwrap();
        let expected = json!({ "trainerStatus": {
            "progressPercentage": 45,
            "estimatedRemainingSeconds": 275,
            "metrics": [
                { "name": "steps", "value": "450" },
                { "name": "total_steps", "value": "1000" },
                { "name": "steps_per_second", "value": "2" },
                { "name": "loss", "value": "0.25" },
            ],
            "lastUpdatedTime": "2025-01-23T10:30:45Z",
        }});
        assert_eq!(request(&told, now), expected);
    }

    #[test]
    fn what_is_not_known_is_left_out_and_numbers_stay_in_their_bounds() {
        let told = said(&[("training_steps", 7.0)]);
        assert!(told["progressPercentage"].is_null(), "{told}");
        let none = said(&[("training_steps", 0.0), ("training_total_steps", 0.0)]);
        assert!(none["progressPercentage"].is_null(), "{none}");
        let numbers = |steps, rate| {
            said(&[
                ("training_steps", steps),
                ("training_total_steps", 10.0),
                ("training_steps_per_second", rate),
                ("training_loss", f64::INFINITY),
            ])
        };
        let beyond = numbers(12.0, 1.0);
        assert_eq!(beyond["progressPercentage"], 100);
        assert_eq!(beyond["estimatedRemainingSeconds"], 0);
        assert_eq!(beyond["metrics"][3]["value"], "inf");
        assert_eq!(numbers(9.999, 1.0)["progressPercentage"], 99);
        assert_eq!(numbers(1.0, 1e-300)["estimatedRemainingSeconds"], i32::MAX);
        assert!(numbers(1.0, 0.0)["estimatedRemainingSeconds"].is_null());
    }
}
