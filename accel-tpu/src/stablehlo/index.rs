//! The indices of the smallest and the largest elements.

use meshwork_accel::{ElementType, ReduceOp};

use super::arrange::{Folded, Sizes, flat, folded, neutral};
use super::convert::{compared, order};
use super::elements::{computed_in, convert, select};
use super::{Function, Type};

/// The program that says where along the middle axis the first of the smallest or largest elements
/// is; `None` for elements that are in no order. NaN is neither, but for one at index 0.
///
/// With the extreme known, the index is the smallest of those that have it: two folds, which
/// compilers run as fast as memory allows, and not one of pairs.
pub(super) fn arg_reduce(op: ReduceOp, sizes: [usize; 3], element: ElementType) -> Option<String> {
    let wide = computed_in(element);
    let worst = neutral(op, wide).filter(|_| op.has_index(element))?;
    let [outer, len, inner] = sizes;
    let from = flat(element, outer * len * inner);
    let mut main = Function::new(&[from]);
    let kind = Type::Array(element, Sizes::of(&sizes));
    let value = main.value("reshape", &[("%arg0", from)], "", kind);
    let (value, kind) = (
        convert(&mut main, &value, kind, kind.of(wide)),
        kind.of(wide),
    );
    let none = main.constant(worst, kind);
    // Whole numbers equal themselves, and compilers know it.
    let is_none = compared(&mut main, "NE", order(wide), kind, [&value, &value]);
    let value = select(&mut main, &is_none, &none, &value, kind);
    let fold = |op, element| Folded {
        op,
        element,
        sizes: &sizes,
        axes: &[1],
    };
    let (extreme, line) = folded(&mut main, &fold(op, wide), &value)?;
    let extreme = spread(&mut main, &extreme, line, kind);
    let is_it = compared(&mut main, "EQ", order(wide), kind, [&value, &extreme]);
    let places = kind.of(ElementType::I64);
    let own = main.value("iota", &[], " {iota_dimension = 1 : i64}", places);
    let beyond = main.constant(&len.to_string(), places);
    let candidates = select(&mut main, &is_it, &own, &beyond, places);
    let least = fold(ReduceOp::Min, ElementType::I64);
    let (first, line) = folded(&mut main, &least, &candidates)?;
    let is_first = at_first(&mut main, &is_none, places.of(ElementType::Bool), sizes);
    let zero = main.constant("0", line);
    let index = select(&mut main, &is_first, &zero, &first, line);
    let row = flat(ElementType::I64, outer * inner);
    let index = main.value("reshape", &[(index.as_str(), line)], "", row);
    Some(main.finish(&index, row))
}

/// What holds at index 0 of the middle axis.
fn at_first(main: &mut Function, value: &str, kind: Type, [outer, _, inner]: [usize; 3]) -> String {
    let attributes = format!(
        " {{start_indices = array<i64: 0, 0, 0>, limit_indices = array<i64: {outer}, 1, {inner}>, \
         strides = array<i64: 1, 1, 1>}}"
    );
    let one = Type::Array(kind.element(), Sizes::of(&[outer, 1, inner]));
    let first = main.value("slice", &[(value, kind)], &attributes, one);
    let line = Type::Array(kind.element(), Sizes::of(&[outer, inner]));
    main.value("reshape", &[(first.as_str(), one)], "", line)
}

/// The same along a new middle axis.
fn spread(main: &mut Function, value: &str, line: Type, to: Type) -> String {
    let attributes = " {broadcast_dimensions = array<i64: 0, 2>}";
    main.value("broadcast_in_dim", &[(value, line)], attributes, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_indices_for_exactly_what_has_an_order() {
        for element in ElementType::ALL {
            for op in ReduceOp::ALL {
                let program = arg_reduce(op, [2, 3, 4], element);
                let is_known =
                    matches!(op, ReduceOp::Min | ReduceOp::Max) && element != ElementType::Bool;
                assert_eq!(program.is_some(), is_known, "{op} of {element}");
            }
        }
    }

    #[test]
    fn the_result_is_whole_numbers_without_the_axis() {
        let program = arg_reduce(ReduceOp::Max, [2, 3, 4], ElementType::Bf16).unwrap();
        assert!(
            program.contains("func.func public @main(%arg0: tensor<24xbf16>) -> tensor<8xi64>")
        );
        assert!(program.contains("tensor<2x3x4xf32>"), "{program}");
    }
}
