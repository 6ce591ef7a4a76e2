//! Layouts, beside what TensorFlow made of them.

#[path = "layout/answers.rs"]
mod answers;
#[path = "layout/constructor.rs"]
mod constructor;
#[path = "layout/factory.rs"]
mod factory;
#[path = "layout/forms.rs"]
mod forms;
#[path = "layout/shapes.rs"]
mod shapes;

use crate::harness::Topic;

pub(crate) const TOPICS: &[Topic] = &[
    Topic::lines(
        "layout_construct",
        "mesh/layout_construct.jsonl",
        constructor::judge,
    ),
    Topic::lines(
        "layout_factory",
        "mesh/layout_factory.jsonl",
        factory::judge,
    ),
    Topic::lines(
        "layout_string",
        "mesh/layout_string.jsonl",
        forms::judge_text,
    ),
    Topic::lines(
        "layout_proto",
        "mesh/layout_proto.jsonl",
        forms::judge_proto,
    ),
    Topic::lines("layout_shape", "mesh/layout_shape.jsonl", shapes::judge),
];
