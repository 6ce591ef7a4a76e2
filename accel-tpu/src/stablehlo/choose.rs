//! Elements chosen by their places, by indices, or by conditions.

use std::ops::Range;

use meshwork_accel::{ElementType, StridedSlice};

use super::arrange::{Sizes, finish, flat, list, shaped};
use super::convert::{compared, holds};
use super::elements::select;
use super::{Function, Type, Vector};

/// The program that takes some indices along each axis, of which there are some.
pub(super) fn step(by: &StridedSlice, element: ElementType) -> String {
    let from = flat(element, by.whole_len());
    let mut main = Function::new(&[from]);
    let (whole, kind) = shaped(&mut main, "%arg0", from, by.whole());
    let bounds = by.bounds().unwrap_or_default();
    let strides = by.along().iter();
    let attributes = format!(
        " {{start_indices = {}, limit_indices = {}, strides = {}}}",
        list(bounds.iter().map(|(low, _)| *low)),
        list(bounds.iter().map(|(_, high)| *high + 1)),
        list(strides.map(|stride| stride.step.unsigned_abs().get()))
    );
    let sizes: Vec<usize> = by.along().iter().map(|stride| stride.count).collect();
    let chosen = Type::Array(kind.element(), Sizes::of(&sizes));
    let value = main.value("slice", &[(whole.as_str(), kind)], &attributes, chosen);
    let backwards = by.along().iter().enumerate();
    let backwards = backwards.filter(|(_, stride)| stride.step.is_negative());
    let attributes = format!(
        " {{dimensions = {}}}",
        list(backwards.map(|(axis, _)| axis))
    );
    let value = main.value("reverse", &[(value.as_str(), chosen)], &attributes, chosen);
    finish(main, &value, chosen, flat(element, by.len()))
}

/// The program that takes the elements at the indices given along the middle axis, of which there
/// are some, and zeros for indices that it does not have.
pub(super) fn take(sizes: [usize; 3], element: ElementType, indices: Vector) -> String {
    let from = flat(element, sizes.iter().product());
    let mut main = Function::new(&[from, indices.into()]);
    let (places, _) = places(&mut main, "%arg1", indices);
    let count = indices.len;
    taken(main, &Taken { sizes, count }, from, &places)
}

/// So many elements along the middle one of three axes.
pub(super) struct Taken {
    pub(super) sizes: [usize; 3],
    pub(super) count: usize,
}

/// The rest of that program, by the indices as what they are compared as.
pub(super) fn taken(mut main: Function, of: &Taken, from: Type, places: &str) -> String {
    let [outer, len, inner] = of.sizes;
    let (whole, kind) = shaped(&mut main, "%arg0", from, &of.sizes);
    let all = flat(ElementType::I64, of.count);
    let taken = Type::Array(kind.element(), Sizes::of(&[outer, of.count, inner]));
    let attributes = format!(
        " {{dimension_numbers = #stablehlo.gather<offset_dims = [0, 2], collapsed_slice_dims = [1], \
         start_index_map = [1], index_vector_dim = 1>, \
         slice_sizes = array<i64: {outer}, 1, {inner}>, indices_are_sorted = false}}"
    );
    let operands = [(whole.as_str(), kind), (places, all)];
    let value = main.value("gather", &operands, &attributes, taken);
    let (first, end) = (
        main.constant("0", all),
        main.constant(&len.to_string(), all),
    );
    let signed = "SIGNED";
    let from_first = compared(&mut main, "GE", signed, all, [places, &first]);
    let before_end = compared(&mut main, "LT", signed, all, [places, &end]);
    let truth = all.of(ElementType::Bool);
    let both = [(from_first.as_str(), truth), (before_end.as_str(), truth)];
    let inside = main.value("and", &both, "", truth);
    let inside = along(&mut main, &inside, truth, 1, taken);
    let none = main.constant(zero(taken.element()), taken);
    let value = select(&mut main, &inside, &value, &none, taken);
    finish(
        main,
        &value,
        taken,
        flat(from.element(), outer * of.count * inner),
    )
}

/// The program that makes a row of each index, of which there are some.
pub(super) fn one_hot(indices: Vector, classes: &Range<usize>, element: ElementType) -> String {
    let mut main = Function::new(&[indices.into()]);
    let all = Type::Array(ElementType::I64, Sizes::of(&[indices.len, classes.len()]));
    let first = main.constant(&classes.start.to_string(), all);
    rows(main, indices, &first, all.of(element), classes.len())
}

/// The rest of that program, by the first class, which stands at each element of the rows.
pub(super) fn rows(
    mut main: Function,
    indices: Vector,
    first: &str,
    ones: Type,
    classes: usize,
) -> String {
    let (places, all) = places(&mut main, "%arg0", indices);
    let rows = ones.of(ElementType::I64);
    let places = along(&mut main, &places, all, 0, rows);
    let numbers = main.value("iota", &[], " {iota_dimension = 1 : i64}", rows);
    let operands = [(numbers.as_str(), rows), (first, rows)];
    let numbers = main.value("add", &operands, "", rows);
    let right = compared(&mut main, "EQ", "SIGNED", rows, [&places, &numbers]);
    let truth = rows.of(ElementType::Bool);
    let ones_of = main.value("convert", &[(right.as_str(), truth)], "", ones);
    let row = flat(ones.element(), indices.len * classes);
    let value = main.value("reshape", &[(ones_of.as_str(), ones)], "", row);
    main.finish(&value, row)
}

/// The program that takes elements of the second vector where those of the first are not 0, and
/// else of the third.
pub(super) fn choice(vector: Vector, condition: ElementType) -> String {
    let kind = Type::from(vector);
    let condition = kind.of(condition);
    let mut main = Function::new(&[condition, kind, kind]);
    let which = holds(&mut main, "%arg0", condition);
    let (yes, bits) = main.bits_of("%arg1", kind);
    let (no, _) = main.bits_of("%arg2", kind);
    let chosen = select(&mut main, &which, &yes, &no, bits);
    let chosen = main.of_bits(&chosen, kind);
    main.finish(&chosen, kind)
}

/// Indices as what they are compared as; unsigned ones that this cannot hold become negative, and
/// no axis has those either.
pub(super) fn places(main: &mut Function, value: &str, indices: Vector) -> (String, Type) {
    let kind = Type::from(indices);
    let all = kind.of(ElementType::I64);
    let value = super::elements::convert(main, value, kind, all);
    (value, all)
}

/// A vector along one axis of others.
pub(super) fn along(main: &mut Function, value: &str, kind: Type, axis: usize, of: Type) -> String {
    let attributes = format!(" {{broadcast_dimensions = array<i64: {axis}>}}");
    let to = of.of(kind.element());
    main.value("broadcast_in_dim", &[(value, kind)], &attributes, to)
}

/// As MLIR writes it, of what elements are moved as.
const fn zero(element: ElementType) -> &'static str {
    match element {
        ElementType::Bool => "false",
        ElementType::F32 | ElementType::F64 => "0.0",
        _ => "0",
    }
}
