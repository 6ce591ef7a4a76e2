//! A graph as one module: a function for each different op, and one that calls them in order.
//!
//! ```text
//!     func.func public @main(%arg0: tensor<6xf32>, %arg1: tensor<6xf32>) -> (tensor<6xf32>) {
//!       %v2 = func.call @f0(%arg0, %arg1) : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xf32>
//!       return %v2 : tensor<6xf32>
//!     }
//!     func.func private @f0(%arg0: tensor<6xf32>, ...
//! ```
//!
//! The functions are the programs by which ops are carried out one by one; the compiler puts them
//! in the places of their calls before it does anything else.

use std::collections::HashMap;
use std::fmt::Write;

use meshwork_accel::{ConvolutionShape, ElementType, Error, Graph, GraphOp, Node};

use super::arrange::MOST_AXES;
use super::convolution::{Pass, pass};
use super::{Collective, IN_PLACE, Kernel, Type, Vector, each, repeated, windows};

/// A graph as StableHLO, of one replica for each of its devices.
///
/// ```
/// use meshwork_accel::{ElementType, Graph, GraphOp, Pointwise, Vector};
/// use meshwork_accel_tpu::module;
///
/// let vector = Vector { element: ElementType::F32, len: 6 };
/// let mut graph = Graph::new(8, vec![vector]);
/// let exp = graph.add(GraphOp::Pointwise(Pointwise::Exp), &[0], "exp model.rs:7")?;
/// graph.output(exp)?;
/// assert!(module(&graph)?.contains("stablehlo.exponential"));
/// # Ok::<(), meshwork_accel::Error>(())
/// ```
///
/// # Errors
/// [`Error::UnsupportedOp`] and [`Error::UnsupportedElement`] for an op that elements do not have,
/// [`Error::TooManyAxes`], and [`Error::Unsupported`] for an op that is not known here.
pub fn module(graph: &Graph) -> Result<String, Error> {
    let mut functions = Functions::default();
    let main = Writer::written(graph, &mut functions)?;
    Ok(main + &functions.texts)
}

/// The functions of a module.
#[derive(Default)]
pub(super) struct Functions {
    /// The number of each, by its text as a program.
    known: HashMap<String, usize>,
    texts: String,
}

impl Functions {
    /// The number of the function that does what a program does.
    pub(super) fn number(&mut self, program: String) -> usize {
        let next = self.known.len();
        if let Some(known) = self.known.get(&program) {
            return *known;
        }
        let text = program.replacen("public @main", &format!("private @f{next}"), 1);
        self.texts.push_str(&text.replacen(IN_PLACE, "", 1));
        self.known.insert(program, next);
        next
    }
}

pub(super) struct Writer<'a> {
    graph: &'a Graph,
    functions: &'a mut Functions,
    body: String,
}

impl<'a> Writer<'a> {
    /// A graph as a program of one function, which calls others.
    pub(super) fn written(graph: &'a Graph, functions: &'a mut Functions) -> Result<String, Error> {
        let mut writer = Self {
            graph,
            functions,
            body: String::new(),
        };
        let inputs = graph.inputs().len();
        for (number, node) in graph.nodes().iter().enumerate() {
            writer.node(inputs + number, node)?;
        }
        Ok(writer.finish())
    }

    fn node(&mut self, value: usize, node: &Node) -> Result<(), Error> {
        let (results, made) = match node.op() {
            // It is a name of another value.
            GraphOp::LoopResult(_) => return Ok(()),
            GraphOp::Loop(own) => {
                let made = own.results()?;
                (format!(":{}", made.len()), format!("({})", kinds(&made)))
            }
            _ => (String::new(), kinds(&[self.graph.vector(value)])),
        };
        let operands = node.operands().iter();
        let operands: Vec<Vector> = operands.map(|own| self.graph.vector(*own)).collect();
        let program = match node.op() {
            GraphOp::Loop(own) => repeated::program(own, self.functions)?,
            op => program(op, &operands, self.graph.vector(value))?,
        };
        let function = self.functions.number(program);
        let names: Vec<String> = node.operands().iter().map(|own| self.name(*own)).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(
            self.body,
            "  %v{value}{results} = func.call @f{function}({}) : ({}) -> {made} loc({:?})",
            names.join(", "),
            kinds(&operands),
            plain(node.origin()),
        );
        Ok(())
    }

    fn name(&self, value: usize) -> String {
        let Some(number) = value.checked_sub(self.graph.inputs().len()) else {
            return format!("%arg{value}");
        };
        let node = &self.graph.nodes()[number];
        match node.op() {
            GraphOp::Loop(_) => format!("%v{value}#0"),
            GraphOp::LoopResult(own) => format!("%v{}#{}", node.operands()[0], own.place),
            _ => format!("%v{value}"),
        }
    }

    fn finish(self) -> String {
        let heir = |input: usize| {
            let mut heirs = self.graph.heirs().iter();
            heirs.find(|pair| pair.0 == input).map(|pair| pair.1)
        };
        let inputs = self.graph.inputs().iter().enumerate();
        let inputs = inputs.map(|(number, vector)| {
            let kind = Type::from(*vector);
            let alias =
                heir(number).map(|output| format!(" {{tf.aliasing_output = {output} : i32}}"));
            format!("%arg{number}: {kind}{}", alias.as_deref().unwrap_or(""))
        });
        let outputs = self.graph.outputs().iter();
        let names: Vec<String> = outputs.clone().map(|value| self.name(*value)).collect();
        let made: Vec<Vector> = outputs.map(|value| self.graph.vector(*value)).collect();
        let kinds = kinds(&made);
        format!(
            "func.func public @main({}) -> ({kinds}) {{\n{}  return {} : {kinds}\n}}\n",
            inputs.collect::<Vec<_>>().join(", "),
            self.body,
            names.join(", "),
        )
    }
}

/// The types of values, with commas between.
pub(super) fn kinds(of: &[Vector]) -> String {
    let kinds = of.iter().map(|own| Type::from(*own).to_string());
    kinds.collect::<Vec<_>>().join(", ")
}

/// The op as a program by itself.
fn program(op: &GraphOp, of: &[Vector], made: Vector) -> Result<String, Error> {
    axes(op)?;
    let first = of.first().copied().unwrap_or(made);
    let element = first.element;
    let kernel = match op {
        GraphOp::Pointwise(op) => Kernel::Pointwise(*op, first),
        GraphOp::Pairwise(op) => Kernel::Pairwise(*op, first),
        GraphOp::Reduce(op) => Kernel::Reduce(*op, first),
        GraphOp::Product(shape) => Kernel::Product(*shape, element),
        GraphOp::Convert(to) => Kernel::Convert(first, *to),
        GraphOp::Select => Kernel::Select(made, element),
        GraphOp::Arrange(to) => Kernel::Arrange(to.clone(), element),
        GraphOp::Fold(op, sizes) => Kernel::Fold(*op, *sizes, element),
        GraphOp::Scan(op, sizes) => Kernel::Scan(*op, *sizes, element),
        GraphOp::ArgReduce(op, sizes) => Kernel::ArgReduce(*op, *sizes, element),
        GraphOp::Step(by) => Kernel::Step(by.clone(), element),
        GraphOp::Take(sizes) => Kernel::Take(*sizes, element, second(of)?),
        other => {
            return match in_graphs(other, element) {
                Some(text) => text.ok_or_else(|| refused(op, element)),
                None => differing(other, of, made),
            };
        }
    };
    kernel.program().ok_or_else(|| refused(op, element))
}

/// Ops that devices have in graphs only; none for another op, and no text for elements that they do
/// not have.
fn in_graphs(op: &GraphOp, element: ElementType) -> Option<Option<String>> {
    Some(match op {
        GraphOp::Convolution(shape) => pass(Pass::Sums, shape, element),
        GraphOp::ConvolutionInputGradient(shape) => pass(Pass::ByImages, shape, element),
        GraphOp::ConvolutionFilterGradient(shape) => pass(Pass::ByFilter, shape, element),
        GraphOp::Pool(by, over) => windows::pool(*by, over, element),
        GraphOp::PoolGradient(by, over) => windows::pool_gradient(*by, over, element),
        _ => return None,
    })
}

/// Ops that may differ from device to device, and collectives.
fn differing(op: &GraphOp, of: &[Vector], made: Vector) -> Result<String, Error> {
    let first = of.first().copied().unwrap_or(made);
    let element = first.element;
    let text = match op {
        GraphOp::Constant(element, bytes) => Some(each::constant(*element, bytes)),
        GraphOp::Cut(part) => match part.same() {
            Some(part) => Kernel::Cut(part.clone(), element).program(),
            None => each::cut(part.values(), element),
        },
        GraphOp::Paste(part) => match part.same() {
            Some(part) => Kernel::Paste(part.clone(), element).program(),
            None => each::paste(part.values(), element),
        },
        GraphOp::OneHot(classes, to) => match classes.same() {
            Some(classes) => Kernel::OneHot(first, classes.clone(), *to).program(),
            None => each::one_hot(first, classes.values(), *to),
        },
        GraphOp::AddRows(rows) => each::add_rows([first, second(of)?], rows),
        GraphOp::TakeRows(rows) => Some(each::take_rows(element, second(of)?, rows)),
        GraphOp::AllReduce(by, groups) => Collective::AllReduce(*by, first).within(groups),
        GraphOp::Permute(pairs) => Collective::Permute(first, pairs.clone()).within(&[]),
        GraphOp::AllGather(groups) => Collective::AllGather(first).within(groups),
        GraphOp::ReduceScatter(by, groups) => Collective::ReduceScatter(*by, first).within(groups),
        GraphOp::AllToAll(groups) => Collective::AllToAll(first).within(groups),
        _ => {
            let operation = "an op of graphs that is not known here";
            return Err(Error::Unsupported { operation });
        }
    };
    text.ok_or_else(|| refused(op, element))
}

fn second(of: &[Vector]) -> Result<Vector, Error> {
    let (inputs, outputs) = (of.len(), 2);
    let second = of.get(1).copied();
    second.ok_or(Error::CountMismatch { inputs, outputs })
}

/// Programs have a bounded number of axes.
fn axes(op: &GraphOp) -> Result<(), Error> {
    let axes = match op {
        GraphOp::Cut(part) | GraphOp::Paste(part) => part.first().whole().len(),
        GraphOp::Arrange(to) => to.from().len().max(to.to().len()),
        GraphOp::Step(by) => by.whole().len(),
        GraphOp::Convolution(shape)
        | GraphOp::ConvolutionInputGradient(shape)
        | GraphOp::ConvolutionFilterGradient(shape) => convolved_axes(shape),
        GraphOp::Pool(_, over) | GraphOp::PoolGradient(_, over) => over.along().len() + 2,
        _ => 0,
    };
    let most = MOST_AXES;
    match axes <= most {
        true => Ok(()),
        false => Err(Error::TooManyAxes { axes, most }),
    }
}

/// The axes of a filter of several groups are one more, for a while.
fn convolved_axes(shape: &ConvolutionShape) -> usize {
    let filter = shape.filter().len();
    filter + usize::from(shape.groups() > 1)
}

/// Why there is no program of an op.
fn refused(op: &GraphOp, element: ElementType) -> Error {
    match op {
        GraphOp::Reduce(op)
        | GraphOp::Fold(op, _)
        | GraphOp::Scan(op, _)
        | GraphOp::ArgReduce(op, _)
        | GraphOp::AllReduce(op, _)
        | GraphOp::ReduceScatter(op, _) => Error::UnsupportedOp { op: *op, element },
        _ => Error::UnsupportedElement { element },
    }
}

/// What may stand in a string of the module.
fn plain(text: &str) -> String {
    let is_plain = |letter: &char| letter.is_ascii_graphic() && !matches!(letter, '"' | '\\');
    text.chars()
        .filter(|letter| is_plain(letter) || *letter == ' ')
        .collect()
}

#[cfg(test)]
mod tests {
    use meshwork_accel::{Loop, LoopResult, Pairwise, PerDevice, Pointwise, ReduceOp, Region};

    use super::*;

    const ELEMENT: ElementType = ElementType::F32;

    fn vector(len: usize) -> Vector {
        Vector {
            element: ELEMENT,
            len,
        }
    }

    #[test]
    fn an_op_that_is_there_twice_is_one_function_and_inputs_are_inherited() {
        let mut graph = Graph::new(1, vec![vector(6), vector(6)]);
        let add = GraphOp::Pairwise(Pairwise::Add);
        let sum = graph.add(add.clone(), &[0, 1], "add model.rs:3").unwrap();
        let sum = graph.add(add, &[sum, 1], "add \"model.rs\":4").unwrap();
        graph.output(sum).unwrap();
        assert!(graph.inherit(0, 0) && !graph.inherit(1, 0));
        let text = module(&graph).unwrap();
        let begin = "func.func public @main(%arg0: tensor<6xf32> {tf.aliasing_output = 0 : i32}, \
                     %arg1: tensor<6xf32>) -> (tensor<6xf32>) {\n  \
                     %v2 = func.call @f0(%arg0, %arg1) : (tensor<6xf32>, tensor<6xf32>) -> \
                     tensor<6xf32> loc(\"add model.rs:3\")\n  \
                     %v3 = func.call @f0(%v2, %arg1)";
        assert!(text.starts_with(begin), "{text}");
        assert_eq!(text.matches("private @f").count(), 1, "{text}");
        assert_eq!(text.matches("aliasing").count(), 1, "{text}");
    }

    #[test]
    fn what_differs_is_a_table_and_what_does_not_is_none() {
        let region = |start: usize| Region::new(&[4, 1], &[start..start + 2, 0..1]).unwrap();
        for (second, tables) in [(0, 0), (2, 1)] {
            let mut graph = Graph::new(2, vec![vector(4)]);
            let each = PerDevice::each(vec![region(0), region(second)]).unwrap();
            let cut = graph.add(GraphOp::Cut(each), &[0], "cut").unwrap();
            graph.output(cut).unwrap();
            let text = module(&graph).unwrap();
            assert_eq!(text.matches("dense<[0, 2]>").count(), tables, "{text}");
            assert_eq!(text.matches("replica_id").count(), tables, "{text}");
        }
    }

    #[test]
    fn a_mean_over_devices_is_divided_and_has_the_type_of_its_elements() {
        let groups = || vec![vec![0, 2], vec![1, 3]];
        for (op, len) in [
            (GraphOp::AllReduce(ReduceOp::Mean, groups()), 6),
            (GraphOp::ReduceScatter(ReduceOp::Mean, groups()), 3),
        ] {
            for (element, name, divisor) in [
                (ElementType::F16, "f16", "dense<2.0> : tensor<f32>"),
                (ElementType::I8, "i8", "dense<2> : tensor<i64>"),
            ] {
                let mut graph = Graph::new(4, vec![Vector { element, len: 6 }]);
                let mean = graph.add(op.clone(), &[0], "mean").unwrap();
                graph.output(mean).unwrap();
                let text = module(&graph).unwrap();
                assert!(text.contains(divisor), "{text}");
                for op in ["stablehlo.divide", "stablehlo.optimization_barrier"] {
                    assert_eq!(text.matches(op).count(), 1, "{text}");
                }
                let made = format!("(%arg0: tensor<6x{name}>) -> tensor<{len}x{name}> {{");
                assert!(text.contains(&made), "{text}");
            }
        }
    }

    #[test]
    fn a_loop_is_written_once_however_many_turns_it_has() {
        let written = |turns: usize| {
            let mut body = Graph::new(2, vec![vector(2), vector(3)]);
            let exp = GraphOp::Pointwise(Pointwise::Exp);
            let exp = body.add(exp, &[0], "exp").unwrap();
            body.output(exp).unwrap();
            body.output(1).unwrap();
            let own = Loop::new(body, turns).unwrap().carried(1).unwrap();
            let own = GraphOp::Loop(Box::new(own.stacked(1).unwrap().reversed()));
            let mut graph = Graph::new(2, vec![vector(2), vector(3 * turns)]);
            let last = graph.add(own, &[0, 1], "loop").unwrap();
            let (place, vector) = (1, vector(3 * turns));
            let result = GraphOp::LoopResult(LoopResult { place, vector });
            let stack = graph.add(result, &[last], "loop").unwrap();
            graph.output(stack).unwrap();
            graph.output(last).unwrap();
            module(&graph).unwrap()
        };
        let (two, many) = (written(2), written(200));
        assert_eq!(two.lines().count(), many.lines().count());
        assert_eq!(many.matches("stablehlo.while").count(), 1, "{many}");
        assert_eq!(many.matches("stablehlo.exponential").count(), 1, "{many}");
        assert!(many.contains("return %v2#1, %v2#0"), "{many}");
    }

    #[test]
    fn an_op_that_elements_do_not_have_is_refused_by_name() {
        let element = ElementType::I32;
        let mut graph = Graph::new(1, vec![Vector { element, len: 2 }]);
        let exp = GraphOp::Pointwise(Pointwise::Exp);
        graph.add(exp, &[0], "exp").unwrap();
        let refused = module(&graph).unwrap_err();
        assert_eq!(refused, Error::UnsupportedElement { element });
    }
}
