//! What each op does to two elements, with the bits that `meshwork-accel` defines.

use meshwork_accel::{ElementType, ReduceOp};

use super::{Function, Type, Vector};

/// Appends the op of the two vectors; `None` for an op that the elements do not have.
pub(super) fn combine(
    main: &mut Function,
    op: ReduceOp,
    vector: Vector,
    [left, right]: [&str; 2],
) -> Option<String> {
    let element = vector.element;
    if !op.supports(element) {
        return None;
    }
    let kind = Type::from(vector);
    let extreme = matches!(op, ReduceOp::Min | ReduceOp::Max);
    if element.is_float() && extreme {
        return Some(float_extreme(main, op, kind, [left, right]));
    }
    if !element.is_float() {
        let operands = [(left, kind), (right, kind)];
        return Some(main.value(plain(op, element), &operands, "", kind));
    }
    // 16-bit floats are computed in f32, and rounded once.
    let wide = kind.of(computed_in(element));
    let (left, right) = (
        convert(main, left, kind, wide),
        convert(main, right, kind, wide),
    );
    let operands = [(left.as_str(), wide), (right.as_str(), wide)];
    let result = main.value(plain(op, element), &operands, "", wide);
    let narrow = convert(main, &result, wide, kind);
    Some(one_nan(main, &narrow, kind))
}

/// The operation that does this to integers, truth values, or floats that are summed or multiplied.
pub(super) const fn plain(op: ReduceOp, element: ElementType) -> &'static str {
    let truth = matches!(element, ElementType::Bool);
    match op {
        ReduceOp::Product => "multiply",
        ReduceOp::Min if truth => "and",
        ReduceOp::Max if truth => "or",
        ReduceOp::Min => "minimum",
        ReduceOp::Max => "maximum",
        ReduceOp::And => "and",
        ReduceOp::Or => "or",
        ReduceOp::Xor => "xor",
        // A mean is a sum until it is divided.
        ReduceOp::Sum | ReduceOp::Mean => "add",
        // Not a name of StableHLO: such a program does not compile.
        _ => "unknown",
    }
}

/// The type that sums and products of this one are computed in.
pub(super) const fn computed_in(element: ElementType) -> ElementType {
    match element {
        ElementType::F16 | ElementType::Bf16 => ElementType::F32,
        other => other,
    }
}

/// The type that elements are divided in, and that the divisor has: integers in 64 bits, where any
/// number of contributions fits.
pub(crate) const fn divided_in(element: ElementType) -> ElementType {
    match element {
        ElementType::I8 | ElementType::I16 | ElementType::I32 => ElementType::I64,
        ElementType::U8 | ElementType::U16 | ElementType::U32 => ElementType::U64,
        other => computed_in(other),
    }
}

/// The program that divides all sums, of the type that they were computed in, by its second
/// argument.
pub(super) fn division(vector: Vector) -> String {
    let kind = Type::from(vector);
    let sums = kind.of(computed_in(vector.element));
    let arguments = [sums, Type::Scalar(divided_in(vector.element))];
    let mut main = match sums == kind {
        true => Function::in_place(&arguments),
        false => Function::new(&arguments),
    };
    let divided = divided(&mut main, "%arg0", kind, "%arg1");
    main.finish(&divided, kind)
}

/// Sums divided by a number that is known here.
pub(super) fn mean(main: &mut Function, sums: &str, kind: Type, number: usize) -> String {
    let scalar = Type::Scalar(divided_in(kind.element()));
    let number = match scalar.element().is_float() {
        true => format!("{number}.0"),
        false => number.to_string(),
    };
    let number = main.constant(&number, scalar);
    // The compiler is not to know it: it would multiply by the inverse.
    let operand = [(number.as_str(), scalar)];
    let hidden = main.value("optimization_barrier", &operand, "", scalar);
    divided(main, sums, kind, &hidden)
}

/// Sums, of the type that they were computed in, divided by a scalar of the type that
/// [`divided_in`] says.
fn divided(main: &mut Function, sums: &str, kind: Type, by: &str) -> String {
    let element = kind.element();
    let wide = kind.of(divided_in(element));
    let by = main.broadcast(by, wide);
    let values = convert(main, sums, kind.of(computed_in(element)), wide);
    let operands = [(values.as_str(), wide), (by.as_str(), wide)];
    let divided = main.value("divide", &operands, "", wide);
    let divided = convert(main, &divided, wide, kind);
    one_nan(main, &divided, kind)
}

pub(super) fn convert(main: &mut Function, value: &str, from: Type, to: Type) -> String {
    match from == to {
        true => value.to_owned(),
        false => main.value("convert", &[(value, from)], "", to),
    }
}

/// The value with every NaN replaced by the one that comes out of all reductions.
pub(super) fn one_nan(main: &mut Function, value: &str, kind: Type) -> String {
    let element = kind.element();
    if !element.is_float() {
        return value.to_owned();
    }
    let nan = main.constant(nan(element), kind);
    let wrong = compare(main, Compare::Unequal, kind, [value, value]);
    select(main, &wrong, &nan, value, kind)
}

/// The smaller or larger, of which −0 is the smaller zero; NaN if either is.
fn float_extreme(
    main: &mut Function,
    op: ReduceOp,
    kind: Type,
    [left, right]: [&str; 2],
) -> String {
    let wanted = match op {
        ReduceOp::Min => Compare::Below,
        _ => Compare::Above,
    };
    let first = compare(main, wanted, kind, [left, right]);
    let extreme = select(main, &first, left, right, kind);
    let element = kind.element();
    let nan = main.constant(nan(element), kind);
    let mut result = extreme;
    for side in [left, right] {
        let wrong = compare(main, Compare::Unequal, kind, [side, side]);
        result = select(main, &wrong, &nan, &result, kind);
    }
    result
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Compare {
    /// As numbers, so that NaN differs from itself.
    Unequal,
    /// As numbers, so that NaN is neither that nor more.
    AtMost,
    /// In the total order of bits, where −0 is below +0.
    Below,
    /// As above.
    Above,
}

pub(super) fn compare(
    main: &mut Function,
    how: Compare,
    kind: Type,
    [left, right]: [&str; 2],
) -> String {
    let (direction, order) = match how {
        Compare::Unequal => ("NE", "FLOAT"),
        Compare::AtMost => ("LE", "FLOAT"),
        Compare::Below => ("LT", "TOTALORDER"),
        Compare::Above => ("GT", "TOTALORDER"),
    };
    let attributes = format!(
        " {{comparison_direction = #stablehlo<comparison_direction {direction}>, \
         compare_type = #stablehlo<comparison_type {order}>}}"
    );
    let operands = [(left, kind), (right, kind)];
    main.value(
        "compare",
        &operands,
        &attributes,
        kind.of(ElementType::Bool),
    )
}

pub(super) fn select(main: &mut Function, which: &str, yes: &str, no: &str, kind: Type) -> String {
    let operands = [(which, kind.of(ElementType::Bool)), (yes, kind), (no, kind)];
    main.value("select", &operands, "", kind)
}

/// The bits of the one NaN.
const fn nan(element: ElementType) -> &'static str {
    match element {
        ElementType::F16 => "0x7E00",
        ElementType::Bf16 => "0x7FC0",
        ElementType::F32 => "0x7FC00000",
        _ => "0x7FF8000000000000",
    }
}
