//! Relayouts that other planners were asked for, and the optimum that an exhaustive search found.

#[path = "reshard/judge.rs"]
mod judge;
#[path = "reshard/read.rs"]
mod read;
#[path = "reshard/relayout.rs"]
mod relayout;

use judge::judge;
use serde_json::Value;

use crate::harness::{Topic, Verdict};

pub(crate) use relayout::among_clients as relayout_among_clients;

pub(crate) const TOPICS: &[Topic] = &[
    Topic::own_lines("reshard_torch", "reshard/reshard_torch.jsonl", torch),
    Topic::own_lines("reshard_shardy", "reshard/reshard_shardy.jsonl", shardy),
    Topic::own_lines("relayout_oracle", "reshard/relayout_oracle.jsonl", oracle),
    Topic::lines("relayout", "mesh/relayout.jsonl", relayout::judge),
];

fn torch(case: &Value) -> Verdict {
    answered(read::torch(case).and_then(|asked| judge(&asked, case)))
}

fn shardy(case: &Value) -> Verdict {
    answered(read::shardy(case).and_then(|asked| judge(&asked, case)))
}

fn oracle(case: &Value) -> Verdict {
    match read::oracle(case) {
        // Why there is no optimum is not told for each pair that is none: the topic `relayout` is.
        Err(_) if case.get("why_not").is_some() => Verdict::Passed,
        asked => answered(asked.and_then(|asked| judge(&asked, case))),
    }
}

fn answered(outcome: Result<(), String>) -> Verdict {
    match outcome {
        Ok(()) => Verdict::Passed,
        Err(how) => Verdict::Failed(how),
    }
}
