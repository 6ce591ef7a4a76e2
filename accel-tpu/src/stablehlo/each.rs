//! What differs from device to device: numbers and elements in a table, of which each has its own.

use std::fmt::Write;
use std::ops::Range;

use meshwork_accel::{ElementType, PerDevice, ReduceOp, Region, TableRows};

use super::arrange::{Sizes, combiner, finish, flat, list, shaped};
use super::choose::{Taken, places, rows, taken};
use super::elements::{computed_in, convert};
use super::{Function, Type, Vector};

/// The program that cuts a box out, which is elsewhere on each device, and of one size.
pub(super) fn cut(parts: &[Region], element: ElementType) -> Option<String> {
    let first = parts.first()?;
    let from = flat(element, first.whole_len());
    let mut main = Function::new(&[from]);
    let (whole, kind) = shaped(&mut main, "%arg0", from, first.whole());
    let starts = starts(&mut main, parts);
    let mut operands = vec![(whole.as_str(), kind)];
    operands.extend(starts.iter().map(|start| (start.as_str(), Type::INDEX)));
    let sizes: Vec<usize> = first.part().iter().map(ExactSizeIterator::len).collect();
    let attributes = format!(" {{slice_sizes = {}}}", list(sizes.iter().copied()));
    let cut = Type::Array(kind.element(), Sizes::of(&sizes));
    let value = main.value("dynamic_slice", &operands, &attributes, cut);
    Some(finish(main, &value, cut, flat(element, first.len())))
}

/// The program that replaces a box, which is elsewhere on each device, and of one size.
pub(super) fn paste(parts: &[Region], element: ElementType) -> Option<String> {
    let first = parts.first()?;
    let (into, from) = (flat(element, first.whole_len()), flat(element, first.len()));
    let mut main = Function::new(&[into, from]);
    let sizes: Vec<usize> = first.part().iter().map(ExactSizeIterator::len).collect();
    let (whole, kind) = shaped(&mut main, "%arg0", into, first.whole());
    let (by, by_kind) = shaped(&mut main, "%arg1", from, &sizes);
    let starts = starts(&mut main, parts);
    let mut operands = vec![(whole.as_str(), kind), (by.as_str(), by_kind)];
    operands.extend(starts.iter().map(|start| (start.as_str(), Type::INDEX)));
    let value = main.value("dynamic_update_slice", &operands, "", kind);
    Some(finish(main, &value, kind, into))
}

/// The program that makes a row of each index, for other classes on each device.
pub(super) fn one_hot(
    indices: Vector,
    classes: &[Range<usize>],
    element: ElementType,
) -> Option<String> {
    let count = classes.first()?.len();
    let mut main = Function::new(&[indices.into()]);
    let firsts: Vec<usize> = classes.iter().map(|own| own.start).collect();
    let first = number(&mut main, &firsts);
    let all = Type::Array(ElementType::I64, Sizes::of(&[indices.len, count]));
    let first = main.broadcast(&first, all);
    Some(rows(main, indices, &first, all.of(element), count))
}

/// The program that adds rows, of which each device has others, by their indices; `None` for what
/// has no sum. 16-bit floats are added in `f32`, and rounded once.
pub(super) fn add_rows([indices, by]: [Vector; 2], rows: &TableRows) -> Option<String> {
    if !ReduceOp::Sum.supports(by.element) {
        return None;
    }
    let width = rows.width;
    let wide = computed_in(by.element);
    let mut main = Function::new(&[indices.into(), by.into()]);
    let (places, all) = own_places(&mut main, "%arg0", indices, rows);
    let given = Type::Array(by.element, Sizes::of(&[indices.len, width]));
    let updates = main.value("reshape", &[("%arg1", by.into())], "", given);
    let updates = convert(&mut main, &updates, given, given.of(wide));
    let sums = Type::Array(wide, Sizes::of(&[rows.count, width]));
    let zeros = main.constant(if wide.is_float() { "0.0" } else { "0" }, sums);
    let scalar = Type::Scalar(wide);
    let rest = format!(
        " ({}) {{scatter_dimension_numbers = \
         #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], \
         scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}",
        combiner("add", scalar)
    );
    let operands = [
        (zeros.as_str(), sums),
        (places.as_str(), all),
        (updates.as_str(), given.of(wide)),
    ];
    let added = main.value("scatter", &operands, &rest, sums);
    let narrow = convert(&mut main, &added, sums, sums.of(by.element));
    let row = flat(by.element, rows.count * width);
    let value = main.value(
        "reshape",
        &[(narrow.as_str(), sums.of(by.element))],
        "",
        row,
    );
    Some(main.finish(&value, row))
}

/// The program that takes rows, of which each device has others, by their indices; zeros for those
/// of others.
pub(super) fn take_rows(element: ElementType, indices: Vector, rows: &TableRows) -> String {
    let sizes = [1, rows.count, rows.width];
    let from = flat(element, rows.count * rows.width);
    let mut main = Function::new(&[from, indices.into()]);
    let (places, _) = own_places(&mut main, "%arg1", indices, rows);
    let count = indices.len;
    taken(main, &Taken { sizes, count }, from, &places)
}

/// The places of indices among the rows that a device has.
fn own_places(
    main: &mut Function,
    value: &str,
    indices: Vector,
    rows: &TableRows,
) -> (String, Type) {
    let (places, all) = places(main, value, indices);
    let first = number(main, rows.first.values());
    let first = main.broadcast(&first, all);
    let operands = [(places.as_str(), all), (first.as_str(), all)];
    (main.value("subtract", &operands, "", all), all)
}

/// The program that has these elements, each device its own.
pub(super) fn constant(element: ElementType, bytes: &PerDevice<Vec<u8>>) -> String {
    let len = bytes.first().len() / element.size();
    let vector = flat(element, len);
    let mut main = Function::new(&[]);
    // Truth values would be packed as bits.
    let held = match element {
        ElementType::Bool => ElementType::U8,
        other => other,
    };
    let own = match bytes.same() {
        Some(same) => main.constant(&hex(same, held.size()), vector.of(held)),
        None => own_row(&mut main, bytes.values(), flat(held, len)),
    };
    let own = convert(&mut main, &own, vector.of(held), vector);
    main.finish(&own, vector)
}

fn own_row(main: &mut Function, rows: &[Vec<u8>], row: Type) -> String {
    let len = rows.first().map_or(0, Vec::len) / row.element().size();
    let table = Type::Array(row.element(), Sizes::of(&[rows.len(), len]));
    let whole = main.constant(&hex(&rows.concat(), row.element().size()), table);
    let (bits, kind) = main.bits_of(&whole, table);
    let (device, first) = (device(main), main.constant("0", Type::INDEX));
    let operands = [
        (bits.as_str(), kind),
        (device.as_str(), Type::INDEX),
        (first.as_str(), Type::INDEX),
    ];
    let attributes = format!(" {{slice_sizes = array<i64: 1, {len}>}}");
    let one = Type::Array(kind.element(), Sizes::of(&[1, len]));
    let own = main.value("dynamic_slice", &operands, &attributes, one);
    let own = main.value("reshape", &[(own.as_str(), one)], "", row.bits());
    main.of_bits(&own, row)
}

/// Where boxes begin, along each axis.
fn starts(main: &mut Function, parts: &[Region]) -> Vec<String> {
    let axes = parts.first().map_or(0, |first| first.whole().len());
    let along = |axis: usize| parts.iter().map(move |part| part.part()[axis].start);
    (0..axes)
        .map(|axis| number(main, &along(axis).collect::<Vec<_>>()))
        .collect()
}

/// A number as a scalar, of which each device has its own.
fn number(main: &mut Function, numbers: &[usize]) -> String {
    let first = numbers.first();
    if let Some(same) = first.filter(|first| numbers.iter().all(|number| number == *first)) {
        return main.constant(&same.to_string(), Type::INDEX);
    }
    let table = flat(ElementType::I64, numbers.len());
    let listed: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    let whole = main.constant(&format!("[{}]", listed.join(", ")), table);
    let device = device(main);
    let operands = [(whole.as_str(), table), (device.as_str(), Type::INDEX)];
    let one = flat(ElementType::I64, 1);
    let attributes = " {slice_sizes = array<i64: 1>}";
    let own = main.value("dynamic_slice", &operands, attributes, one);
    main.value("reshape", &[(own.as_str(), one)], "", Type::INDEX)
}

/// The place of the device.
fn device(main: &mut Function) -> String {
    let place = Type::Scalar(ElementType::U32);
    let own = main.value("replica_id", &[], "", place);
    main.value("convert", &[(own.as_str(), place)], "", Type::INDEX)
}

/// Elements of so many bytes as MLIR writes them; of equal ones, one is enough.
fn hex(bytes: &[u8], size: usize) -> String {
    let (one, _) = bytes.split_at(size.min(bytes.len()));
    let is_one = bytes.chunks_exact(size).all(|element| element == one);
    let mut text = String::from("\"0x");
    for byte in if is_one { one } else { bytes } {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02X}");
    }
    text.push('"');
    text
}
