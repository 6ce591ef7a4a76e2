//! What is told of a compiled program.

use std::fmt::Write;
use std::time::Duration;

use meshwork_accel_tpu::tpu::TopologyName;
use meshwork_accel_tpu::{
    AttributeValue, DeviceInfo, Instruction, OptimizedProgram, ProgramMemory,
};
use meshwork_core::tpu::TpuCore;
use serde_json::{Value, json};

use super::train::{Exchanges, Step};

/// A program compiled for a slice.
#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) name: TopologyName,
    /// Of the compiler, in its own words.
    pub(super) version: String,
    pub(super) devices: &'a [DeviceInfo],
    /// Where each device is.
    pub(super) cores: &'a [TpuCore],
    /// The device of each rank.
    pub(super) order: &'a [usize],
    pub(super) memory: ProgramMemory,
    pub(super) optimized: OptimizedProgram,
    pub(super) compiled_in: Duration,
    /// What was compiled, if it was a step of training.
    pub(super) step: Option<&'a Step>,
}

/// Sentences and a table; of large slices the first ranks only.
pub(super) fn to_text(report: &Report<'_>) -> String {
    let memory = report.memory;
    format!(
        "{}\n{}{}\nmemory of a device: arguments {}, results {}, of which shared {}, in between {}, code {}\n{}",
        heading(report),
        report.step.map_or_else(String::new, told),
        table(report),
        size(memory.arguments),
        size(memory.outputs),
        size(memory.aliased),
        size(memory.temporary),
        size(memory.code),
        exchanges(report),
    )
}

/// The slice and its compiler.
fn heading(report: &Report<'_>) -> String {
    let hosts = report
        .devices
        .iter()
        .map(DeviceInfo::process)
        .max()
        .map_or(0, |last| last + 1);
    let first = report.devices.first();
    let memory = first.and_then(limit);
    format!(
        "{}: {} devices of {} chips on {hosts} hosts, {}{}\ncompiled in {:.0} ms by {}\n",
        report.name,
        report.devices.len(),
        report.name.chips(),
        first.map_or("TPU", DeviceInfo::kind),
        memory.map_or_else(String::new, |bytes| format!(", {} each", size(bytes))),
        report.compiled_in.as_secs_f64() * 1e3,
        report.version.replace('\n', ", "),
    )
}

/// Which device each rank has, and where.
fn table(report: &Report<'_>) -> String {
    let mut text = String::from("rank  device  host  x,y,z,core\n");
    for (rank, &device) in report.order.iter().enumerate().take(SHOWN) {
        let [x, y, z, core] = report.cores[device].location();
        let info = &report.devices[device];
        let (id, host) = (info.id(), info.process());
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{rank:>4}  {id:>6}  {host:>4}  {x},{y},{z},{core}");
    }
    let hidden = report.order.len().saturating_sub(SHOWN);
    if hidden > 0 {
        let _ = writeln!(text, " …and {hidden} more; --json has all");
    }
    text
}

/// A step of training, and the time of its collectives.
fn told(step: &Step) -> String {
    let [data, model] = step.mesh;
    let sizes = step.sizes;
    let mut text = format!(
        "a step of {} layers of width {}, {} sequences of {} tokens, on data {data} by model {model}: {} ops in one module, {:.1} M multiplications on each device\n",
        sizes.layers,
        sizes.width,
        sizes.batch,
        sizes.length,
        step.recorded,
        step.multiplications() as f64 / 1e6,
    );
    let exchanges = step.exchanges();
    for Exchanges {
        name,
        count,
        bytes,
        time,
    } in &exchanges
    {
        let bytes = size(i64::try_from(*bytes).unwrap_or(i64::MAX));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{count} {name}: each device receives {bytes}, {time:.1?}"
        );
    }
    let total: Duration = exchanges.iter().map(|own| own.time).sum();
    let _ = writeln!(
        text,
        "predicted: {total:.1?} of collectives one after the other, by the links of `meshwork plan`\n"
    );
    text
}

/// How the devices exchange data, a line for each collective.
fn exchanges(report: &Report<'_>) -> String {
    let line = |one: &Instruction| {
        let named: Vec<_> = [one.emitter(), one.strategy()]
            .into_iter()
            .flatten()
            .collect();
        let how = match named.is_empty() {
            true => "no strategy is named".to_owned(),
            false => named.join(", "),
        };
        format!("{} ({}): {how}\n", one.name(), one.opcode())
    };
    let lines: String = report.optimized.collectives().map(line).collect();
    match lines.is_empty() {
        true => "no data are exchanged\n".to_owned(),
        false => lines,
    }
}

/// The whole report: sizes in bytes, times in seconds.
pub(super) fn to_json(report: &Report<'_>) -> Value {
    let memory = report.memory;
    json!({
        "topology": report.name.to_string(),
        "compiler": report.version,
        "devices": ranks(report),
        "seconds": report.compiled_in.as_secs_f64(),
        "memory": {
            "arguments": memory.arguments,
            "outputs": memory.outputs,
            "aliased": memory.aliased,
            "temporary": memory.temporary,
            "code": memory.code,
            "peak": memory.peak,
        },
        "step": report.step.map(step_json),
        "collectives": report.optimized.collectives().map(collective).collect::<Vec<_>>(),
    })
}

fn step_json(step: &Step) -> Value {
    let exchanges = step.exchanges();
    let kind = |own: &Exchanges| {
        json!({
            "kind": own.name,
            "count": own.count,
            "bytes": own.bytes,
            "seconds": own.time.as_secs_f64(),
        })
    };
    json!({
        "mesh": { "data": step.mesh[0], "model": step.mesh[1] },
        "ops": step.recorded,
        "multiplications": step.multiplications(),
        "exchanges": exchanges.iter().map(kind).collect::<Vec<_>>(),
        "predicted_seconds": exchanges.iter().map(|own| own.time).sum::<Duration>().as_secs_f64(),
    })
}

fn ranks(report: &Report<'_>) -> Vec<Value> {
    let rank = |(rank, &device): (usize, &usize)| {
        let info = &report.devices[device];
        json!({
            "rank": rank,
            "id": info.id(),
            "host": info.process(),
            "kind": info.kind(),
            "location": report.cores[device].location(),
            "memory": limit(info),
        })
    };
    report.order.iter().enumerate().map(rank).collect()
}

fn collective(instruction: &Instruction) -> Value {
    json!({
        "name": instruction.name(),
        "opcode": instruction.opcode(),
        "emitter": instruction.emitter(),
        "strategy": instruction.strategy(),
    })
}

/// The bytes that programs may use of a device.
fn limit(device: &DeviceInfo) -> Option<i64> {
    device
        .attributes()
        .get("device_memory_bytes_limit")
        .and_then(AttributeValue::as_int)
}

fn size(bytes: i64) -> String {
    let bytes = bytes.max(0).cast_unsigned();
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.into_iter().find(|(shift, _)| bytes >> shift > 0) {
        Some((shift, unit)) => format!("{:.1} {unit}", bytes as f64 / (1_u64 << shift) as f64),
        None => format!("{bytes} B"),
    }
}

/// How many ranks are printed as text.
const SHOWN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_largest_unit_that_they_fill() {
        let shown = [0, 1023, 1024, 4 << 20, 16_909_332_480].map(size);
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "4.0 MiB", "15.7 GiB"]);
    }
}
