//! Elements put in other places, and made one along an axis.

use std::fmt::{self, Display};

use meshwork_accel::{Arrangement, ElementType, ReduceOp, Region};

use super::elements::{computed_in, convert, plain};
use super::{Function, Type, Vector};

/// The most axes that programs have.
pub(crate) const MOST_AXES: usize = 12;

/// The sizes of a bounded number of axes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Sizes {
    sizes: [usize; MOST_AXES],
    axes: usize,
}

impl Sizes {
    /// Of these axes; those beyond the most were refused before.
    pub(super) fn of(sizes: &[usize]) -> Self {
        let mut own = [1; MOST_AXES];
        let axes = sizes.len().min(MOST_AXES);
        own[..axes].copy_from_slice(&sizes[..axes]);
        Self { sizes: own, axes }
    }
}

impl Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sizes[..self.axes]
            .iter()
            .try_for_each(|size| write!(f, "{size}x"))
    }
}

/// The program that cuts out a box.
pub(super) fn cut(part: &Region, element: ElementType) -> String {
    let from = flat(element, part.whole_len());
    let mut main = Function::new(&[from]);
    let (whole, kind) = shaped(&mut main, "%arg0", from, part.whole());
    let sizes: Vec<usize> = part.part().iter().map(ExactSizeIterator::len).collect();
    let ends = part.part().iter().map(|range| range.end);
    let attributes = format!(
        " {{start_indices = {}, limit_indices = {}, strides = {}}}",
        list(part.part().iter().map(|range| range.start)),
        list(ends),
        list(sizes.iter().map(|_| 1))
    );
    let cut = Type::Array(kind.element(), Sizes::of(&sizes));
    let value = main.value("slice", &[(whole.as_str(), kind)], &attributes, cut);
    finish(main, &value, cut, flat(element, part.len()))
}

/// The program that replaces a box, in the memory of the whole.
pub(super) fn paste(part: &Region, element: ElementType) -> String {
    let (into, from) = (flat(element, part.whole_len()), flat(element, part.len()));
    let mut main = Function::in_place(&[into, from]);
    let sizes: Vec<usize> = part.part().iter().map(ExactSizeIterator::len).collect();
    let (whole, kind) = shaped(&mut main, "%arg0", into, part.whole());
    let (by, by_kind) = shaped(&mut main, "%arg1", from, &sizes);
    let starts = part.part().iter();
    let starts: Vec<String> = starts
        .map(|range| main.constant(&range.start.to_string(), Type::INDEX))
        .collect();
    let mut operands = vec![(whole.as_str(), kind), (by.as_str(), by_kind)];
    operands.extend(starts.iter().map(|start| (start.as_str(), Type::INDEX)));
    let value = main.value("dynamic_update_slice", &operands, "", kind);
    finish(main, &value, kind, into)
}

/// The program that puts axes in other places, and repeats along the rest.
pub(super) fn arrange(to: &Arrangement, element: ElementType) -> String {
    let from = flat(element, to.from_len());
    let mut main = Function::new(&[from]);
    let (value, kind) = shaped(&mut main, "%arg0", from, to.from());
    // First in the order of their places, as compilers want them.
    let mut order: Vec<usize> = (0..to.from().len()).collect();
    order.sort_by_key(|axis| to.places()[*axis]);
    let sizes: Vec<usize> = order.iter().map(|axis| to.from()[*axis]).collect();
    let turned = Type::Array(kind.element(), Sizes::of(&sizes));
    let attributes = format!(" {{permutation = {}}}", list(order.iter().copied()));
    let value = main.value("transpose", &[(value.as_str(), kind)], &attributes, turned);
    let places = order.iter().map(|axis| to.places()[*axis]);
    let attributes = format!(" {{broadcast_dimensions = {}}}", list(places));
    let wide = Type::Array(kind.element(), Sizes::of(to.to()));
    let value = main.value(
        "broadcast_in_dim",
        &[(value.as_str(), turned)],
        &attributes,
        wide,
    );
    finish(main, &value, wide, flat(element, to.len()))
}

/// The program that makes elements along the middle axis one; `None` for an op that they do not
/// have. 16-bit floats are computed in `f32`, and rounded once.
pub(super) fn fold(op: ReduceOp, sizes: [usize; 3], element: ElementType) -> Option<String> {
    let wide = computed_in(element);
    let from = flat(element, sizes.iter().product());
    let mut main = Function::new(&[from]);
    let kind = Type::Array(element, Sizes::of(&sizes));
    let value = main.value("reshape", &[("%arg0", from)], "", kind);
    let value = convert(&mut main, &value, kind, kind.of(wide));
    let along = Folded {
        op,
        element: wide,
        sizes: &sizes,
        axes: &[1],
    };
    let (value, made) = folded(&mut main, &along, &value).filter(|_| op.supports(element))?;
    let narrow = convert(&mut main, &value, made, made.of(element));
    let flat = flat(element, sizes[0] * sizes[2]);
    let operand = [(narrow.as_str(), made.of(element))];
    let value = main.value("reshape", &operand, "", flat);
    Some(main.finish(&value, flat))
}

/// An array whose elements along some axes are made one.
pub(super) struct Folded<'a> {
    pub(super) op: ReduceOp,
    pub(super) element: ElementType,
    pub(super) sizes: &'a [usize],
    pub(super) axes: &'a [usize],
}

/// Appends that, without these axes; `None` for an op without a fold.
pub(super) fn folded(main: &mut Function, by: &Folded<'_>, value: &str) -> Option<(String, Type)> {
    let scalar = Type::Scalar(by.element);
    let first = main.constant(neutral(by.op, by.element)?, scalar);
    let rest = format!(
        " ({}) {{dimensions = {}}}",
        combiner(plain(by.op, by.element), scalar),
        list(by.axes.iter().copied())
    );
    let left = by.sizes.iter().enumerate();
    let left = left.filter(|(axis, _)| !by.axes.contains(axis));
    let left: Vec<usize> = left.map(|(_, size)| *size).collect();
    let made = Type::Array(by.element, Sizes::of(&left));
    let kind = Type::Array(by.element, Sizes::of(by.sizes));
    let operands = [(value, kind), (first.as_str(), scalar)];
    Some((main.value("reduce", &operands, &rest, made), made))
}

/// The function of two scalars that an operation does.
pub(super) fn combiner(operation: &str, scalar: Type) -> String {
    format!(
        "{{\n  ^bb0(%a: {scalar}, %b: {scalar}):\n    \
         %r = \"stablehlo.{operation}\"(%a, %b) : ({scalar}, {scalar}) -> {scalar}\n    \
         \"stablehlo.return\"(%r) : ({scalar}) -> ()\n  }}"
    )
}

/// The program that makes each element along the middle axis the op of it and all before it; `None`
/// for an op that they do not have. In as many steps as the axis has bits: with each, what is known
/// of twice as many elements before.
pub(super) fn scan(op: ReduceOp, sizes: [usize; 3], element: ElementType) -> Option<String> {
    let wide = computed_in(element);
    let neutral = neutral(op, wide).filter(|_| op.supports(element))?;
    let from = flat(element, sizes.iter().product());
    let mut main = Function::new(&[from]);
    let kind = Type::Array(element, Sizes::of(&sizes));
    let value = main.value("reshape", &[("%arg0", from)], "", kind);
    let mut value = convert(&mut main, &value, kind, kind.of(wide));
    let (kind, scalar) = (kind.of(wide), Type::Scalar(wide));
    let first = main.constant(neutral, scalar);
    let mut known = 1;
    while known < sizes[1] {
        let attributes = format!(
            " {{edge_padding_low = array<i64: 0, {known}, 0>, edge_padding_high = array<i64: 0, -{known}, 0>, \
             interior_padding = array<i64: 0, 0, 0>}}"
        );
        let operands = [(value.as_str(), kind), (first.as_str(), scalar)];
        let before = main.value("pad", &operands, &attributes, kind);
        let operands = [(before.as_str(), kind), (value.as_str(), kind)];
        value = main.value(plain(op, element), &operands, "", kind);
        known *= 2;
    }
    let narrow = convert(&mut main, &value, kind, kind.of(element));
    let value = main.value("reshape", &[(narrow.as_str(), kind.of(element))], "", from);
    Some(main.finish(&value, from))
}

/// A vector's elements along axes of these sizes, as what they are moved as.
pub(super) fn shaped(
    main: &mut Function,
    value: &str,
    from: Type,
    sizes: &[usize],
) -> (String, Type) {
    let (value, bits) = main.bits_of(value, from);
    let kind = Type::Array(bits.element(), Sizes::of(sizes));
    let value = main.value("reshape", &[(value.as_str(), bits)], "", kind);
    (value, kind)
}

/// The elements in a row again, as what they are.
pub(super) fn finish(mut main: Function, value: &str, kind: Type, to: Type) -> String {
    let row = main.value("reshape", &[(value, kind)], "", to.bits());
    let row = main.of_bits(&row, to);
    main.finish(&row, to)
}

pub(super) fn flat(element: ElementType, len: usize) -> Type {
    Type::from(Vector { element, len })
}

/// Numbers as an attribute has them.
pub(super) fn list(numbers: impl Iterator<Item = impl Display>) -> String {
    let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
    match numbers.is_empty() {
        true => "array<i64>".to_owned(),
        false => format!("array<i64: {}>", numbers.join(", ")),
    }
}

/// The neutral element, as MLIR writes it; `None` for ops without a fold.
pub(super) fn neutral(op: ReduceOp, element: ElementType) -> Option<&'static str> {
    use ElementType as E;
    Some(match (op, element) {
        (ReduceOp::Sum, E::F32 | E::F64) => "0.0",
        (ReduceOp::Sum, _) => "0",
        (ReduceOp::Product, E::F32 | E::F64) => "1.0",
        (ReduceOp::Product, _) => "1",
        (ReduceOp::Min, E::F32) => "0x7F800000",
        (ReduceOp::Max, E::F32) => "0xFF800000",
        (ReduceOp::Min, E::F64) => "0x7FF0000000000000",
        (ReduceOp::Max, E::F64) => "0xFFF0000000000000",
        (ReduceOp::Min | ReduceOp::And, E::Bool) => "true",
        (ReduceOp::Max | ReduceOp::Or | ReduceOp::Xor, E::Bool) => "false",
        (ReduceOp::Max | ReduceOp::Or | ReduceOp::Xor, E::U8 | E::U16 | E::U32 | E::U64) => "0",
        (ReduceOp::Min | ReduceOp::And, E::U8) => "255",
        (ReduceOp::Min | ReduceOp::And, E::U16) => "65535",
        (ReduceOp::Min | ReduceOp::And, E::U32) => "4294967295",
        (ReduceOp::Min | ReduceOp::And, E::U64) => "18446744073709551615",
        (ReduceOp::And, E::I8 | E::I16 | E::I32 | E::I64) => "-1",
        (ReduceOp::Or | ReduceOp::Xor, E::I8 | E::I16 | E::I32 | E::I64) => "0",
        (ReduceOp::Min, E::I8) => "127",
        (ReduceOp::Max, E::I8) => "-128",
        (ReduceOp::Min, E::I16) => "32767",
        (ReduceOp::Max, E::I16) => "-32768",
        (ReduceOp::Min, E::I32) => "2147483647",
        (ReduceOp::Max, E::I32) => "-2147483648",
        (ReduceOp::Min, E::I64) => "9223372036854775807",
        (ReduceOp::Max, E::I64) => "-9223372036854775808",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_folds_and_scans_for_exactly_the_ops_that_elements_have_but_means() {
        for op in ReduceOp::ALL {
            for element in ElementType::ALL {
                let is_known = op.supports(element) && op != ReduceOp::Mean;
                for program in [fold, scan] {
                    let program = program(op, [2, 3, 4], element);
                    assert_eq!(program.is_some(), is_known, "{op} of {element}");
                }
            }
        }
    }

    #[test]
    fn folds_of_bits_begin_with_what_changes_none() {
        use ElementType::{Bool, I8, I64, U8, U64};
        for (op, element, first) in [
            (ReduceOp::And, Bool, "dense<true> : tensor<i1>"),
            (ReduceOp::And, I8, "dense<-1> : tensor<i8>"),
            (ReduceOp::And, U8, "dense<255> : tensor<ui8>"),
            (ReduceOp::Or, Bool, "dense<false> : tensor<i1>"),
            (ReduceOp::Or, I64, "dense<0> : tensor<i64>"),
            (ReduceOp::Xor, U64, "dense<0> : tensor<ui64>"),
        ] {
            let program = fold(op, [2, 3, 4], element).unwrap();
            assert!(program.contains(first), "{program}");
            let body = format!("%r = \"stablehlo.{op}\"(%a, %b)");
            assert!(program.contains(&body), "{program}");
        }
    }

    #[test]
    fn short_floats_are_moved_as_bits_and_added_in_f32() {
        let part = Region::new(&[4, 2], &[1..3, 0..2]).unwrap();
        let program = cut(&part, ElementType::Bf16);
        assert!(
            program.contains("(tensor<4x2xui16>) -> tensor<2x2xui16>"),
            "{program}"
        );
        let program = fold(ReduceOp::Sum, [2, 3, 4], ElementType::Bf16).unwrap();
        assert!(program.contains("-> tensor<2x4xf32>"), "{program}");
    }
}
