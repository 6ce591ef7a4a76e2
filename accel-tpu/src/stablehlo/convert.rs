//! Elements as those of another type, as `meshwork-accel` defines it: what devices make of numbers
//! that do not fit is their own choice.

use meshwork_accel::ElementType;

use super::elements::{computed_in, convert, select};
use super::{Function, Type, Vector};

/// The program that makes elements those of another type.
pub(super) fn conversion(vector: Vector, to: ElementType) -> String {
    let kind = Type::from(vector);
    let mut main = Function::new(&[kind]);
    let value = match (Ends::of(vector.element), Ends::of(to)) {
        _ if to == ElementType::Bool => holds(&mut main, "%arg0", kind),
        (Some(own), Some(ends)) => {
            let inside = clamped(&mut main, "%arg0", kind, own.within(ends));
            convert(&mut main, &inside, kind, kind.of(to))
        }
        (None, Some(ends)) if vector.element.is_float() => {
            truncated(&mut main, "%arg0", kind, to, ends)
        }
        _ if computed_in(to) != to && vector.element != to => {
            let odd = within_f32(&mut main, "%arg0", kind);
            let single = kind.of(computed_in(to));
            let value = convert(&mut main, &odd, kind, single);
            convert(&mut main, &value, single, kind.of(to))
        }
        _ => convert(&mut main, "%arg0", kind, kind.of(to)),
    };
    main.finish(&value, kind.of(to))
}

/// Whether elements are not 0.
pub(super) fn holds(main: &mut Function, value: &str, kind: Type) -> String {
    let element = kind.element();
    if element == ElementType::Bool {
        return value.to_owned();
    }
    let zero = main.constant(if element.is_float() { "0.0" } else { "0" }, kind);
    compared(main, "NE", order(element), kind, [value, &zero])
}

pub(super) fn compared(
    main: &mut Function,
    direction: &str,
    order: &str,
    kind: Type,
    [left, right]: [&str; 2],
) -> String {
    let attributes = format!(
        " {{comparison_direction = #stablehlo<comparison_direction {direction}>, \
         compare_type = #stablehlo<comparison_type {order}>}}"
    );
    let operands = [(left, kind), (right, kind)];
    let truth = kind.of(ElementType::Bool);
    main.value("compare", &operands, &attributes, truth)
}

/// How elements of a type are compared.
pub(super) const fn order(element: ElementType) -> &'static str {
    use ElementType as E;
    match element {
        E::U8 | E::U16 | E::U32 | E::U64 | E::Bool => "UNSIGNED",
        E::I8 | E::I16 | E::I32 | E::I64 => "SIGNED",
        _ => "FLOAT",
    }
}

/// The least and the largest of a whole type.
#[derive(Clone, Copy)]
struct Ends {
    least: i128,
    most: i128,
}

impl Ends {
    /// None for what is no whole number.
    const fn of(element: ElementType) -> Option<Self> {
        use ElementType as E;
        let bits = 8 * element.size();
        Some(match element {
            E::U8 | E::U16 | E::U32 | E::U64 => Self {
                least: 0,
                most: (1 << bits) - 1,
            },
            E::I8 | E::I16 | E::I32 | E::I64 => Self {
                least: -(1 << (bits - 1)),
                most: (1 << (bits - 1)) - 1,
            },
            _ => return None,
        })
    }

    /// The intersection of both; `None` where that is all of `self`.
    fn within(self, other: Self) -> Option<Self> {
        let least = self.least.max(other.least);
        let most = self.most.min(other.most);
        (least > self.least || most < self.most).then_some(Self { least, most })
    }
}

fn clamped(main: &mut Function, value: &str, kind: Type, within: Option<Ends>) -> String {
    let Some(Ends { least, most }) = within else {
        return value.to_owned();
    };
    let scalar = Type::Scalar(kind.element());
    let [least, most] = [least, most].map(|end| main.constant(&end.to_string(), scalar));
    let operands = [
        (least.as_str(), scalar),
        (value, kind),
        (most.as_str(), scalar),
    ];
    main.value("clamp", &operands, "", kind)
}

/// Floats towards zero, stopped at the ends; 0 for NaN.
fn truncated(main: &mut Function, value: &str, kind: Type, to: ElementType, ends: Ends) -> String {
    let (wide, whole) = (kind.of(computed_in(kind.element())), kind.of(to));
    let value = convert(main, value, kind, wide);
    let inside = main.value("convert", &[(value.as_str(), wide)], "", whole);
    // Powers of two, which floats have exactly.
    let mut result = inside;
    for (direction, bound, end) in [
        ("LE", ends.least, ends.least),
        ("GE", ends.most + 1, ends.most),
    ] {
        let bound = main.constant(&format!("{bound}.0"), wide);
        let beyond = compared(main, direction, "FLOAT", wide, [&value, &bound]);
        let end = main.constant(&end.to_string(), whole);
        result = select(main, &beyond, &end, &result, whole);
    }
    let none = compared(main, "NE", "FLOAT", wide, [&value, &value]);
    let zero = main.constant("0", whole);
    select(main, &none, &zero, &result, whole)
}

/// Numbers of 32 and 64 bits as some that `f32` has, from which shorter floats are rounded as from
/// the numbers themselves: compilers round them to `f32` first, and what was rounded twice may not
/// be the nearest.
fn within_f32(main: &mut Function, value: &str, kind: Type) -> String {
    let element = kind.element();
    if element == ElementType::F64 {
        let bits = kind.of(ElementType::U64);
        let value = main.value("bitcast_convert", &[(value, kind)], "", bits);
        let odd = odd(main, &value, bits, 29);
        return main.value("bitcast_convert", &[(odd.as_str(), bits)], "", kind);
    }
    let mut value = value.to_owned();
    let Some(own) = Ends::of(element) else {
        return value;
    };
    // What is left fits the 24 bits of f32; bf16 needs 10 of them: its own 8, and 2 to round by.
    for dropped in [15, 30, 45] {
        let end = 1 << (dropped + 9);
        let (least, most) = (-end, end);
        let Some(ends) = own.within(Ends { least, most }) else {
            break;
        };
        let inside = clamped(main, &value, kind, Some(ends));
        let beyond = compared(main, "NE", order(element), kind, [&value, &inside]);
        let odd = odd(main, &value, kind, dropped);
        value = select(main, &beyond, &odd, &value, kind);
    }
    value
}

/// Without the lowest bits, of which the last one that stays is set if any of them was.
fn odd(main: &mut Function, value: &str, kind: Type, dropped: u32) -> String {
    let lowest = main.constant(&((1_u64 << dropped) - 1).to_string(), kind);
    let mut of = |op: &str, left: &str, right: &str| {
        let operands = [(left, kind), (right, kind)];
        main.value(op, &operands, "", kind)
    };
    let low = of("and", value, &lowest);
    let carry = of("add", &low, &lowest);
    let set = of("or", value, &carry);
    let all = of("or", &set, &lowest);
    of("xor", &all, &lowest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(from: ElementType, to: ElementType) -> String {
        let vector = Vector {
            element: from,
            len: 6,
        };
        conversion(vector, to)
    }

    #[test]
    fn whole_numbers_are_held_within_the_type_that_they_become() {
        let narrow = program(ElementType::I32, ElementType::U8);
        assert!(narrow.contains("dense<255> : tensor<i32>"), "{narrow}");
        assert!(narrow.contains("\"stablehlo.clamp\""), "{narrow}");
        let wide = program(ElementType::U8, ElementType::I32);
        assert!(!wide.contains("clamp"), "{wide}");
    }

    #[test]
    fn what_f32_does_not_have_is_made_odd_before_it_becomes_shorter() {
        use ElementType as E;
        for (from, times) in [
            (E::F64, 1),
            (E::I32, 1),
            (E::U32, 1),
            (E::I64, 3),
            (E::U64, 3),
            (E::F32, 0),
            (E::U16, 0),
        ] {
            let text = program(from, E::Bf16);
            assert_eq!(text.matches("stablehlo.xor").count(), times, "{text}");
            assert!(
                text.contains("-> tensor<6xf32>") || from == E::F32,
                "{text}"
            );
        }
    }

    #[test]
    fn floats_stop_at_powers_of_two() {
        let program = program(ElementType::Bf16, ElementType::I64);
        let bound = "dense<9223372036854775808.0> : tensor<6xf32>";
        assert!(program.contains(bound), "{program}");
        assert!(
            program.contains("dense<9223372036854775807> : tensor<6xi64>"),
            "{program}"
        );
    }
}
