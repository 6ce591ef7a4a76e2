//! Arithmetic on the values of tensors. 16-bit floats are computed in f32, and rounded once.

use meshwork_accel::{ElementType, Pairwise, Pointwise, ProductShape};

use super::arrange::Sizes;
use super::elements::{Compare, compare, computed_in, convert, select};
use super::{Function, Type, Vector};

/// The program that replaces each element by the op of it; `None` for what is no float.
pub(super) fn pointwise(op: Pointwise, vector: Vector) -> Option<String> {
    let (kind, wide) = types(vector)?;
    let mut main = Function::in_place(&[kind]);
    let value = convert(&mut main, "%arg0", kind, wide);
    let operand = [(value.as_str(), wide)];
    let result = match op {
        Pointwise::Negate => main.value("negate", &operand, "", wide),
        Pointwise::Relu => relu(&mut main, &value, wide),
        Pointwise::Exp => main.value("exponential", &operand, "", wide),
        Pointwise::Ln => main.value("log", &operand, "", wide),
    };
    let narrow = convert(&mut main, &result, wide, kind);
    Some(main.finish(&narrow, kind))
}

/// The program that combines the elements at one place; `None` for what is no float.
pub(super) fn pairwise(op: Pairwise, vector: Vector) -> Option<String> {
    let (kind, wide) = types(vector)?;
    let mut main = Function::in_place(&[kind, kind]);
    let [left, right] = ["%arg0", "%arg1"].map(|value| convert(&mut main, value, kind, wide));
    let name = match op {
        Pairwise::Add => "add",
        Pairwise::Subtract => "subtract",
        Pairwise::Multiply => "multiply",
        Pairwise::Divide => "divide",
    };
    let operands = [(left.as_str(), wide), (right.as_str(), wide)];
    let result = main.value(name, &operands, "", wide);
    let narrow = convert(&mut main, &result, wide, kind);
    Some(main.finish(&narrow, kind))
}

/// The program that multiplies stacks of matrices, all of which have elements; `None` for what is
/// no float.
pub(super) fn product(shape: ProductShape, element: ElementType) -> Option<String> {
    let (depth, rows) = (shape.depth(), shape.rows());
    let (inner, columns) = (shape.inner(), shape.columns());
    let flat = |len| Type::from(Vector { element, len });
    let (_, wide) = types(Vector {
        element,
        len: shape.product(),
    })?;
    let mut main = Function::new(&[flat(shape.left()), flat(shape.right())]);
    let left_kind = Type::Array(element, Sizes::of(&[depth, rows, inner]));
    let right_kind = Type::Array(element, Sizes::of(&[depth, inner, columns]));
    let left = main.value("reshape", &[("%arg0", flat(shape.left()))], "", left_kind);
    let right = main.value("reshape", &[("%arg1", flat(shape.right()))], "", right_kind);
    // Terms are added in the wider type without a pass over the matrices to widen them first.
    let sums = Type::Array(wide.element(), Sizes::of(&[depth, rows, columns]));
    let operands = [(left.as_str(), left_kind), (right.as_str(), right_kind)];
    let product = main.value("dot_general", &operands, ROWS_BY_COLUMNS, sums);
    let product = main.value("reshape", &[(product.as_str(), sums)], "", wide);
    let narrow = convert(&mut main, &product, wide, flat(shape.product()));
    Some(main.finish(&narrow, flat(shape.product())))
}

/// The default precision lets TPUs round f32 to bf16 before they multiply.
const ROWS_BY_COLUMNS: &str = " {dot_dimension_numbers = #stablehlo.dot<\
    lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], \
    lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>, \
    precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}";

/// The type of the elements, and the type that they are computed in.
fn types(vector: Vector) -> Option<(Type, Type)> {
    let kind = Type::from(vector);
    let wide = kind.of(computed_in(vector.element));
    vector.element.is_float().then_some((kind, wide))
}

/// Not the maximum with zero, which leaves the sign of zero to the device.
fn relu(main: &mut Function, value: &str, kind: Type) -> String {
    let zero = main.constant("0.0", kind);
    let none = compare(main, Compare::AtMost, kind, [value, &zero]);
    select(main, &none, &zero, value, kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(element: ElementType) -> Vector {
        Vector { element, len: 6 }
    }

    #[test]
    fn there_is_a_program_for_floats_and_nothing_else() {
        let shape = ProductShape::new(2, 3, 4).unwrap();
        for element in ElementType::ALL {
            let of = vector(element);
            let programs = [
                pointwise(Pointwise::Relu, of),
                pairwise(Pairwise::Divide, of),
                product(shape, element),
            ];
            for program in programs {
                assert_eq!(program.is_some(), element.is_float(), "{element}");
            }
        }
    }

    #[test]
    fn short_floats_are_computed_in_f32_and_keep_their_type() {
        let program = pairwise(Pairwise::Multiply, vector(ElementType::Bf16)).unwrap();
        assert!(program.contains(": (tensor<6xf32>, tensor<6xf32>) -> tensor<6xf32>"));
        assert!(
            program.ends_with("return %3 : tensor<6xbf16>\n}\n"),
            "{program}"
        );
    }

    #[test]
    fn a_product_is_one_of_rows_and_columns_without_rounding_before() {
        let shape = ProductShape::new(2, 3, 4).unwrap();
        let program = product(shape, ElementType::F16).unwrap();
        assert!(
            program.contains("(tensor<1x2x3xf16>, tensor<1x3x4xf16>) -> tensor<1x2x4xf32>"),
            "{program}"
        );
        assert!(program.contains("precision HIGHEST"), "{program}");
    }
}
