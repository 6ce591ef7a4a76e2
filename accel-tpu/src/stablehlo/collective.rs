//! Programs that devices run together, each as one replica.

use meshwork_accel::{ElementType, ReduceOp};

use super::elements::{combine, computed_in, convert, mean, one_nan, plain};
use super::{Function, Type, Vector};

/// A program for several devices at once; lengths are those of one device's input.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Collective {
    /// All inputs combined, on every device; a mean is a sum until it is divided, of the type that
    /// sums are computed in.
    AllReduce(ReduceOp, Vector),
    /// All inputs concatenated, on every device.
    AllGather(Vector),
    /// All inputs combined, of which each device keeps its block.
    ReduceScatter(ReduceOp, Vector),
    /// Block `i` of device `j` becomes block `j` of device `i`.
    AllToAll(Vector),
    /// The input of each first becomes the output of its second; zero where there is none.
    Permute(Vector, Vec<(usize, usize)>),
}

impl Collective {
    /// The program for this many devices in one group, of which lengths that are scattered are
    /// multiples; `None` for an op that the elements do not have.
    pub(crate) fn program(&self, devices: usize) -> Option<String> {
        self.written(&[(0..devices).collect()], None)
    }

    /// The program for devices in groups of one size, as a part of a graph: nobody divides sums
    /// there afterwards, so means are divided here.
    pub(super) fn within(&self, groups: &[Vec<usize>]) -> Option<String> {
        self.written(groups, groups.first().map(Vec::len))
    }

    fn written(&self, groups: &[Vec<usize>], divisor: Option<usize>) -> Option<String> {
        let shares = groups.first().map_or(1, Vec::len).max(1);
        match self {
            Self::AllReduce(op, vector) => {
                let parts = Parts {
                    groups,
                    of: vector.len,
                    keep: Keep::All,
                    divisor,
                };
                reduction(*op, *vector, parts)
            }
            Self::ReduceScatter(op, vector) => {
                let parts = Parts {
                    groups,
                    of: vector.len / shares,
                    keep: Keep::Own,
                    divisor,
                };
                reduction(*op, *vector, parts)
            }
            Self::AllGather(vector) => {
                let mut main = Function::new(&[(*vector).into()]);
                let gathered = Vector {
                    len: vector.len * shares,
                    ..*vector
                };
                let all = gather(&mut main, "%arg0", *vector, groups);
                Some(main.finish(&all, gathered.into()))
            }
            Self::AllToAll(vector) => {
                let mut main = Function::new(&[(*vector).into()]);
                let dealt = deal(&mut main, *vector, groups);
                Some(main.finish(&dealt, (*vector).into()))
            }
            Self::Permute(vector, pairs) => Some(permutation(*vector, pairs)),
        }
    }
}

fn permutation(vector: Vector, pairs: &[(usize, usize)]) -> String {
    let kind = Type::from(vector);
    let mut main = Function::new(&[kind]);
    if pairs.is_empty() {
        let zero = match vector.element {
            ElementType::Bool => "false",
            element if element.is_float() => "0.0",
            _ => "0",
        };
        let zero = main.constant(zero, kind);
        return main.finish(&zero, kind);
    }
    let list: Vec<_> = pairs
        .iter()
        .map(|(from, to)| format!("[{from}, {to}]"))
        .collect();
    let attributes = format!(
        " {{source_target_pairs = dense<[{}]> : tensor<{}x2xi64>}}",
        list.join(", "),
        pairs.len()
    );
    let (input, bits) = main.bits_of("%arg0", kind);
    let moved = main.value(
        "collective_permute",
        &[(input.as_str(), bits)],
        &attributes,
        bits,
    );
    let moved = main.of_bits(&moved, kind);
    main.finish(&moved, kind)
}

/// The part of a reduction's result that each device keeps.
#[derive(Clone, Copy, Debug)]
struct Parts<'a> {
    groups: &'a [Vec<usize>],
    /// Elements of the result.
    of: usize,
    keep: Keep,
    /// What makes a mean of sums; none where they are divided later.
    divisor: Option<usize>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Keep {
    All,
    Own,
}

fn reduction(op: ReduceOp, vector: Vector, parts: Parts<'_>) -> Option<String> {
    if !op.supports(vector.element) {
        return None;
    }
    let divisor = parts.divisor.filter(|_| op == ReduceOp::Mean);
    let reduced = Vector {
        element: match op {
            ReduceOp::Mean => computed_in(vector.element),
            _ => vector.element,
        },
        len: parts.of,
    };
    let result = match divisor {
        Some(_) => Vector {
            len: parts.of,
            ..vector
        },
        None => reduced,
    };
    // What is dealt out stays as it was.
    let mut main = match parts.keep == Keep::All && result == vector {
        true => Function::in_place(&[vector.into()]),
        false => Function::new(&[vector.into()]),
    };
    let value = match is_native(op, vector.element) {
        true => native(&mut main, op, vector, parts, reduced),
        false => fold(&mut main, op, vector, parts)?,
    };
    let finished = match divisor {
        Some(divisor) => mean(&mut main, &value, result.into(), divisor),
        None => one_nan(&mut main, &value, result.into()),
    };
    Some(main.finish(&finished, result.into()))
}

/// By the compiler's own collective. 16-bit floats travel as f32, so that they are rounded once.
fn native(
    main: &mut Function,
    op: ReduceOp,
    vector: Vector,
    parts: Parts<'_>,
    result: Vector,
) -> String {
    let wide = computed_in(vector.element);
    let scalar = Type::Scalar(wide);
    let input = convert(main, "%arg0", vector.into(), Type::from(vector).of(wide));
    let region = format!(
        " ({{\n  ^bb0(%a: {scalar}, %b: {scalar}):\n    \
         %r = \"stablehlo.{}\"(%a, %b) : ({scalar}, {scalar}) -> {scalar}\n    \
         \"stablehlo.return\"(%r) : ({scalar}) -> ()\n  }})",
        plain(op, vector.element)
    );
    let operand = [(input.as_str(), Type::from(vector).of(wide))];
    let result = Type::from(result);
    let groups = listed(parts.groups);
    let (collective, rest) = match parts.keep {
        Keep::All => ("all_reduce", format!("{region} {{{groups}}}")),
        Keep::Own => (
            "reduce_scatter",
            format!("{region} {{scatter_dimension = 0 : i64, {groups}}}"),
        ),
    };
    let reduced = main.value(collective, &operand, &rest, result.of(wide));
    convert(main, &reduced, result.of(wide), result)
}

/// Whether every compiler has a collective that does this, with the bits that are defined: none
/// does for the bits of integers, and for extremes of floats they differ in NaN and the sign of
/// zero.
const fn is_native(op: ReduceOp, element: ElementType) -> bool {
    match op {
        ReduceOp::Sum | ReduceOp::Product | ReduceOp::Mean => true,
        ReduceOp::Min | ReduceOp::Max => {
            !element.is_float() && !matches!(element, ElementType::Bool)
        }
        _ => false,
    }
}

/// For other ops: all inputs everywhere, combined one by one.
fn fold(main: &mut Function, op: ReduceOp, vector: Vector, parts: Parts<'_>) -> Option<String> {
    let result = Vector {
        len: parts.of,
        ..vector
    };
    let shares = parts.groups.first().map_or(1, Vec::len);
    let all = match parts.keep {
        Keep::All => gather(main, "%arg0", vector, parts.groups),
        // Each device only needs its own block of the others.
        Keep::Own => deal(main, vector, parts.groups),
    };
    let source = Vector {
        len: result.len * shares,
        ..vector
    };
    let mut total: Option<String> = None;
    for share in 0..shares {
        let start = share * result.len;
        let attributes = format!(
            " {{start_indices = array<i64: {start}>, limit_indices = array<i64: {}>, strides = array<i64: 1>}}",
            start + result.len
        );
        let part = main.value(
            "slice",
            &[(all.as_str(), source.into())],
            &attributes,
            result.into(),
        );
        total = Some(match total {
            None => part,
            Some(total) => combine(main, op, result, [&total, &part])?,
        });
    }
    total
}

/// Block `i` of device `j` of a group becomes block `j` of device `i`.
fn deal(main: &mut Function, vector: Vector, groups: &[Vec<usize>]) -> String {
    let shares = groups.first().map_or(1, Vec::len);
    let attributes = format!(
        " {{split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = {shares} : i64, {}}}",
        listed(groups)
    );
    let (input, bits) = main.bits_of("%arg0", vector.into());
    let dealt = main.value("all_to_all", &[(input.as_str(), bits)], &attributes, bits);
    main.of_bits(&dealt, vector.into())
}

fn gather(main: &mut Function, input: &str, vector: Vector, groups: &[Vec<usize>]) -> String {
    let shares = groups.first().map_or(1, Vec::len);
    let gathered = Vector {
        len: vector.len * shares,
        ..vector
    };
    let attributes = format!(" {{all_gather_dim = 0 : i64, {}}}", listed(groups));
    let (input, bits) = main.bits_of(input, vector.into());
    let kind = Type::from(gathered);
    let all = main.value(
        "all_gather",
        &[(input.as_str(), bits)],
        &attributes,
        kind.bits(),
    );
    main.of_bits(&all, kind)
}

/// Groups of one size as an attribute.
fn listed(groups: &[Vec<usize>]) -> String {
    let size = groups.first().map_or(0, Vec::len);
    let list = groups.iter().map(|group| {
        let places: Vec<String> = group.iter().map(ToString::to_string).collect();
        format!("[{}]", places.join(", "))
    });
    let list: Vec<String> = list.collect();
    format!(
        "replica_groups = dense<[{}]> : tensor<{}x{size}xi64>",
        list.join(", "),
        groups.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_is_in_the_group_and_the_region_has_the_op() {
        let vector = Vector {
            element: ElementType::I32,
            len: 6,
        };
        let program = Collective::AllReduce(ReduceOp::Max, vector)
            .program(3)
            .unwrap();
        assert!(
            program.contains("dense<[[0, 1, 2]]> : tensor<1x3xi64>"),
            "{program}"
        );
        assert!(program.contains("\"stablehlo.maximum\"(%a, %b) : (tensor<i32>, tensor<i32>)"));
        let program = Collective::ReduceScatter(ReduceOp::Max, vector)
            .program(3)
            .unwrap();
        assert!(program.contains("-> tensor<2xi32>"), "{program}");
    }

    #[test]
    fn short_floats_travel_as_f32() {
        let vector = Vector {
            element: ElementType::Bf16,
            len: 6,
        };
        let program = Collective::AllReduce(ReduceOp::Sum, vector)
            .program(2)
            .unwrap();
        assert!(
            program.contains("(%a: tensor<f32>, %b: tensor<f32>)"),
            "{program}"
        );
    }

    #[test]
    fn sums_that_are_to_be_divided_are_not_rounded_before() {
        let vector = Vector {
            element: ElementType::F16,
            len: 6,
        };
        for (op, result) in [(ReduceOp::Mean, "f32"), (ReduceOp::Sum, "f16")] {
            let all = Collective::AllReduce(op, vector).program(3).unwrap();
            assert!(all.contains(&format!("-> tensor<6x{result}> {{")), "{all}");
            let own = Collective::ReduceScatter(op, vector).program(3).unwrap();
            assert!(own.contains(&format!("-> tensor<2x{result}> {{")), "{own}");
        }
    }

    #[test]
    fn there_is_a_program_for_exactly_the_ops_that_elements_have() {
        for op in ReduceOp::ALL {
            for element in ElementType::ALL {
                let vector = Vector { element, len: 4 };
                let program = Collective::AllReduce(op, vector).program(2);
                assert_eq!(program.is_some(), op.supports(element), "{op} of {element}");
                let program = Collective::ReduceScatter(op, vector).program(2);
                assert_eq!(program.is_some(), op.supports(element), "{op} of {element}");
            }
        }
    }
}
