//! What lies where, and what moves.

use std::io::{self, Write};

use meshwork_dtensor::Error as TensorError;
use meshwork_layout::{Layout, PartialReduction, Relayout};

use crate::Error;
use crate::model::{HIDDEN, Layouts};
use crate::text::Text;

/// Draws how the tensors lie, and tells the plans by which they move.
pub(crate) fn print(layouts: &Layouts, text: &Text, batch: usize) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    let drawn: [(&str, &Layout, &[usize]); 4] = [
        ("inputs", &layouts.inputs, &[batch, text.inputs()]),
        ("first weights", &layouts.first, &[text.inputs(), HIDDEN]),
        ("bias", &layouts.bias, &[HIDDEN]),
        ("second weights", &layouts.second, &[HIDDEN, text.letters()]),
    ];
    for (name, layout, shape) in drawn {
        let specs: Vec<String> = layout.specs().map(ToString::to_string).collect();
        writeln!(out, "{name} {shape:?} by [{}]", specs.join(", "))?;
        for rank in layout.mesh().ranks() {
            let held = layout.shard(rank, shape).map_err(TensorError::from)?;
            writeln!(out, "  {rank} holds {held:?}")?;
        }
    }
    let logits = layouts
        .inputs
        .clone()
        .with_partial(["model"], PartialReduction::Sum);
    let logits = logits.map_err(TensorError::from)?;
    let gradient = layouts
        .first
        .clone()
        .with_partial(["data"], PartialReduction::Sum);
    let gradient = gradient.map_err(TensorError::from)?;
    let moved: [(&str, &Layout, &Layout, [usize; 2]); 2] = [
        (
            "the logits",
            &logits,
            &layouts.inputs,
            [batch, text.letters()],
        ),
        (
            "the gradient of the first weights",
            &gradient,
            &layouts.first,
            [text.inputs(), HIDDEN],
        ),
    ];
    for (name, from, to, shape) in moved {
        let plan = Relayout::new(from, to, &shape, size_of::<f32>());
        let plan = plan
            .and_then(|plan| plan.plan())
            .map_err(TensorError::from)?;
        writeln!(out, "{name}:\n{}", plan.explain())?;
    }
    Ok(())
}
