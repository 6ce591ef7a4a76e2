//! Programs as StableHLO text: what the accelerator runs on its devices.
//!
//! Operations are written in MLIR's generic form, which every version of the dialect reads.

mod arrange;
mod choose;
mod collective;
mod compute;
mod convert;
mod convolution;
mod each;
mod elements;
mod index;
mod module;
mod repeated;
mod sample;
mod windows;

use std::fmt::{self, Display, Write};
use std::ops::Range;

pub(crate) use meshwork_accel::Vector;
use meshwork_accel::{
    Arrangement, ElementType, Pairwise, Pointwise, ProductShape, ReduceOp, Region, StridedSlice,
};

pub(crate) use arrange::MOST_AXES;
pub(crate) use collective::Collective;
pub(crate) use elements::divided_in;
pub use module::module;
pub use sample::CollectiveProgram;

use arrange::Sizes;

/// A program for one device.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Kernel {
    /// The vector whose elements are all the scalar given.
    Fill(Vector),
    /// A slice of this many elements of a vector, starting at the index given.
    Slice(Vector, usize),
    /// The vector with this many of its elements, from the index given on, replaced by others.
    Update(Vector, usize),
    /// Each element combined with the same one of another vector.
    Reduce(ReduceOp, Vector),
    /// Each sum, of the type that it was computed in, divided by the scalar given, integers towards
    /// zero; the scalar is of the type that [`divided_in`] says. As a constant it would become a
    /// product with its inverse.
    Divide(Vector),
    /// The op of each element, which is a float.
    Pointwise(Pointwise, Vector),
    /// The op of each element and the same one of another vector; both are floats.
    Pairwise(Pairwise, Vector),
    /// The products of row-major matrices of floats.
    Product(ProductShape, ElementType),
    /// A box of a whole.
    Cut(Region, ElementType),
    /// The whole with a box replaced.
    Paste(Region, ElementType),
    /// Axes in other places, and repeated.
    Arrange(Arrangement, ElementType),
    /// The elements along the middle one of three axes made one.
    Fold(ReduceOp, [usize; 3], ElementType),
    /// Each element along the middle one of three axes made the op of it and all before it.
    Scan(ReduceOp, [usize; 3], ElementType),
    /// Where along the middle one of three axes the first of the smallest or largest elements is.
    ArgReduce(ReduceOp, [usize; 3], ElementType),
    /// Some indices along each axis of a whole.
    Step(StridedSlice, ElementType),
    /// The elements along the middle one of three axes at the indices given, which are such a
    /// vector.
    Take([usize; 3], ElementType, Vector),
    /// A row for each of the indices given, which are such a vector, with 1 for its class.
    OneHot(Vector, Range<usize>, ElementType),
    /// The elements as those of another type.
    Convert(Vector, ElementType),
    /// The elements of one such vector where those of another, of the type named, are not 0, and
    /// else those of a third.
    Select(Vector, ElementType),
}

impl Kernel {
    /// The type that is computed with, where it is arithmetic that not every device has for it.
    pub(crate) const fn arithmetic(&self) -> Option<ElementType> {
        match self {
            Self::Pointwise(_, vector) | Self::Pairwise(_, vector) => Some(vector.element),
            Self::Product(_, element)
            | Self::Fold(_, _, element)
            | Self::Scan(_, _, element)
            | Self::ArgReduce(_, _, element)
            | Self::Convert(_, element) => Some(*element),
            _ => None,
        }
    }

    /// The program; `None` for an op that the elements do not have.
    ///
    /// Where the result is as long as the first argument it may take its memory.
    pub(crate) fn program(&self) -> Option<String> {
        match *self {
            Self::Fill(vector) => Some(fill(vector)),
            Self::Slice(whole, len) => Some(slice(whole, len)),
            Self::Update(whole, len) => Some(update(whole, len)),
            Self::Reduce(op, vector) => {
                let mut main = Function::in_place(&[vector.into(), vector.into()]);
                let reduced = elements::combine(&mut main, op, vector, ["%arg0", "%arg1"])?;
                Some(main.finish(&reduced, vector.into()))
            }
            Self::Divide(vector) => Some(elements::division(vector)),
            Self::Pointwise(op, vector) => compute::pointwise(op, vector),
            Self::Pairwise(op, vector) => compute::pairwise(op, vector),
            Self::Product(shape, element) => compute::product(shape, element),
            Self::Cut(ref part, element) => Some(arrange::cut(part, element)),
            Self::Paste(ref part, element) => Some(arrange::paste(part, element)),
            Self::Arrange(ref to, element) => Some(arrange::arrange(to, element)),
            Self::Fold(op, sizes, element) => arrange::fold(op, sizes, element),
            Self::Scan(op, sizes, element) => arrange::scan(op, sizes, element),
            Self::ArgReduce(op, sizes, element) => index::arg_reduce(op, sizes, element),
            Self::Step(ref by, element) => Some(choose::step(by, element)),
            Self::Take(sizes, element, indices) => Some(choose::take(sizes, element, indices)),
            Self::OneHot(indices, ref classes, element) => {
                Some(choose::one_hot(indices, classes, element))
            }
            Self::Convert(vector, to) => Some(convert::conversion(vector, to)),
            Self::Select(vector, condition) => Some(choose::choice(vector, condition)),
        }
    }
}

fn fill(vector: Vector) -> String {
    let scalar = Type::Scalar(vector.element);
    let mut main = Function::new(&[scalar]);
    let (value, _) = main.bits_of("%arg0", scalar);
    let filled = main.broadcast(&value, Type::from(vector).bits());
    let filled = main.of_bits(&filled, vector.into());
    main.finish(&filled, vector.into())
}

fn slice(whole: Vector, len: usize) -> String {
    let (part, index) = (Type::from(Vector { len, ..whole }), Type::INDEX);
    let mut main = Function::new(&[whole.into(), index]);
    let (from, kind) = main.bits_of("%arg0", whole.into());
    let attributes = format!("{{slice_sizes = array<i64: {len}>}}");
    let operands = [(from.as_str(), kind), ("%arg1", index)];
    let sliced = main.value("dynamic_slice", &operands, &attributes, part.bits());
    let sliced = main.of_bits(&sliced, part);
    main.finish(&sliced, part)
}

fn update(whole: Vector, len: usize) -> String {
    let (part, index) = (Type::from(Vector { len, ..whole }), Type::INDEX);
    let mut main = Function::in_place(&[whole.into(), part, index]);
    let (into, kind) = main.bits_of("%arg0", whole.into());
    let (from, part) = main.bits_of("%arg1", part);
    let operands = [
        (into.as_str(), kind),
        (from.as_str(), part),
        ("%arg2", index),
    ];
    let updated = main.value("dynamic_update_slice", &operands, "", kind);
    let updated = main.of_bits(&updated, whole.into());
    main.finish(&updated, whole.into())
}

/// The type of a value in a program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Type {
    Scalar(ElementType),
    Vector(Vector),
    /// Elements along several axes.
    Array(ElementType, Sizes),
}

impl Type {
    /// The type of element indices.
    const INDEX: Self = Self::Scalar(ElementType::I64);

    /// The type as which elements are moved: compilers widen 16-bit floats even to move them, which
    /// changes NaN.
    fn bits(self) -> Self {
        match self.element() {
            ElementType::F16 | ElementType::Bf16 => self.of(ElementType::U16),
            _ => self,
        }
    }

    /// The same number of other elements.
    fn of(self, element: ElementType) -> Self {
        match self {
            Self::Scalar(_) => Self::Scalar(element),
            Self::Vector(vector) => Self::Vector(Vector { element, ..vector }),
            Self::Array(_, sizes) => Self::Array(element, sizes),
        }
    }

    const fn element(self) -> ElementType {
        match self {
            Self::Scalar(element)
            | Self::Vector(Vector { element, .. })
            | Self::Array(element, _) => element,
        }
    }
}

impl From<Vector> for Type {
    fn from(vector: Vector) -> Self {
        Self::Vector(vector)
    }
}

impl Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scalar(element) => write!(f, "tensor<{}>", name(*element)),
            Self::Vector(Vector { element, len }) => write!(f, "tensor<{len}x{}>", name(*element)),
            Self::Array(element, sizes) => write!(f, "tensor<{sizes}{}>", name(*element)),
        }
    }
}

/// What says that a result may take the memory of an argument.
const IN_PLACE: &str = " {tf.aliasing_output = 0 : i32}";

/// A program of one function, as far as it is written.
#[derive(Debug)]
struct Function {
    arguments: String,
    body: String,
    values: usize,
}

impl Function {
    fn new(arguments: &[Type]) -> Self {
        Self::with(arguments, "")
    }

    /// A function whose result may take the memory of its first argument.
    fn in_place(arguments: &[Type]) -> Self {
        Self::with(arguments, IN_PLACE)
    }

    fn with(arguments: &[Type], first: &str) -> Self {
        let attributes = [first].into_iter().chain(std::iter::repeat(""));
        let declared = arguments.iter().zip(attributes).enumerate();
        let declared =
            declared.map(|(index, (kind, attributes))| format!("%arg{index}: {kind}{attributes}"));
        Self {
            arguments: declared.collect::<Vec<_>>().join(", "),
            body: String::new(),
            values: 0,
        }
    }

    /// Appends an operation, and names its result; `rest` is its function, if it has one, and its
    /// attributes.
    fn value(&mut self, op: &str, operands: &[(&str, Type)], rest: &str, result: Type) -> String {
        let name = format!("%{}", self.values);
        self.values += 1;
        let (names, kinds): (Vec<_>, Vec<_>) = operands
            .iter()
            .map(|(name, kind)| (*name, kind.to_string()))
            .unzip();
        let line = format!(
            "  {name} = \"stablehlo.{op}\"({}){rest} : ({}) -> {result}",
            names.join(", "),
            kinds.join(", ")
        );
        self.body.push_str(&line);
        self.body.push('\n');
        name
    }

    /// A value as what it is moved as.
    fn bits_of(&mut self, value: &str, kind: Type) -> (String, Type) {
        let bits = kind.bits();
        let name = match bits == kind {
            true => value.to_owned(),
            false => self.value("bitcast_convert", &[(value, kind)], "", bits),
        };
        (name, bits)
    }

    /// The inverse of [`bits_of`](Self::bits_of), for a value that is to be of this type.
    fn of_bits(&mut self, value: &str, kind: Type) -> String {
        match kind.bits() == kind {
            true => value.to_owned(),
            false => self.value("bitcast_convert", &[(value, kind.bits())], "", kind),
        }
    }

    /// The same value everywhere.
    fn broadcast(&mut self, scalar: &str, to: Type) -> String {
        let from = Type::Scalar(to.element());
        if from == to {
            return scalar.to_owned();
        }
        let attributes = "{broadcast_dimensions = array<i64>}";
        self.value("broadcast_in_dim", &[(scalar, from)], attributes, to)
    }

    /// A constant, everywhere the same; `literal` as MLIR writes it.
    fn constant(&mut self, literal: &str, to: Type) -> String {
        let attributes = format!("{{value = dense<{literal}> : {to}}}");
        self.value("constant", &[], &attributes, to)
    }

    fn finish(mut self, result: &str, kind: Type) -> String {
        // Writing to a string cannot fail.
        let _ = writeln!(self.body, "  return {result} : {kind}");
        format!(
            "func.func public @main({}) -> {kind} {{\n{}}}\n",
            self.arguments, self.body
        )
    }
}

/// MLIR's name of an element type.
const fn name(element: ElementType) -> &'static str {
    match element {
        ElementType::Bool => "i1",
        ElementType::I8 => "i8",
        ElementType::I16 => "i16",
        ElementType::I32 => "i32",
        ElementType::I64 => "i64",
        ElementType::U8 => "ui8",
        ElementType::U16 => "ui16",
        ElementType::U32 => "ui32",
        ElementType::U64 => "ui64",
        ElementType::F16 => "f16",
        ElementType::Bf16 => "bf16",
        ElementType::F32 => "f32",
        ElementType::F64 => "f64",
        // Not a name of StableHLO: such a program does not compile.
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_one_addition_that_may_work_in_place() {
        let vector = Vector {
            element: ElementType::I32,
            len: 5,
        };
        assert_eq!(
            Kernel::Reduce(ReduceOp::Sum, vector).program().unwrap(),
            "func.func public @main(%arg0: tensor<5xi32> {tf.aliasing_output = 0 : i32}, %arg1: tensor<5xi32>) -> tensor<5xi32> {\n\
             \x20 %0 = \"stablehlo.add\"(%arg0, %arg1) : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi32>\n\
             \x20 return %0 : tensor<5xi32>\n}\n"
        );
    }

    #[test]
    fn there_is_a_program_for_exactly_the_ops_that_elements_have() {
        for op in ReduceOp::ALL {
            for element in ElementType::ALL {
                let program = Kernel::Reduce(op, Vector { element, len: 3 }).program();
                assert_eq!(program.is_some(), op.supports(element), "{op} of {element}");
            }
        }
    }

    #[test]
    fn element_types_have_names_of_their_own() {
        let mut names: Vec<_> = ElementType::ALL.map(name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ElementType::ALL.len());
    }
}
