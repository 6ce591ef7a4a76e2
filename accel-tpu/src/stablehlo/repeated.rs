//! A loop of a graph as a function: the body is one more, which is called each time. The compiler
//! works on it once, however often it is carried out.
//!
//! ```text
//!     func.func private @f3(%arg0: carried, %arg1: stack, ...) -> (carried, stack) {
//!       %w:5 = stablehlo.while (%at, carried, stack, ..., new stack)
//!         cond: %at < count       do: func.call @f2(carried, slice of stack at %at, ...)
//! ```

use std::fmt::Write;

use meshwork_accel::{ElementType, Error, Loop};

use super::module::{Functions, Writer, kinds};
use super::{Kernel, Type, Vector};

/// The program of a loop, of which the functions are among the module's.
pub(super) fn program(of: &Loop, functions: &mut Functions) -> Result<String, Error> {
    let body = Writer::written(of.body(), functions)?;
    let mut writer = Repeated {
        body: functions.number(body),
        functions,
        of,
        operands: of.operands()?,
        results: of.results()?,
        text: String::new(),
        temporaries: 0,
    };
    writer.write();
    Ok(writer.text)
}

struct Repeated<'a> {
    of: &'a Loop,
    /// The number of the function that is called each time.
    body: usize,
    functions: &'a mut Functions,
    operands: Vec<Vector>,
    results: Vec<Vector>,
    text: String,
    temporaries: usize,
}

impl Repeated<'_> {
    /// The values of the loop: the number of times so far, what is given, and new stacks.
    fn write(&mut self) {
        let (count, carried) = (self.of.count(), self.of.carried_count());
        let stacks = self.results[carried..].to_vec();
        let mut state_kinds = vec![SCALAR.to_owned()];
        state_kinds.extend(self.operands.iter().chain(&stacks).map(|own| kind(*own)));
        let arguments = self.operands.iter().enumerate();
        let arguments = arguments.map(|(place, own)| format!("%arg{place}: {}", kind(*own)));
        let arguments = arguments.collect::<Vec<_>>().join(", ");
        let made = kinds(&self.results);
        self.line(format_args!(
            "func.func public @main({arguments}) -> ({made}) {{"
        ));
        self.constant("%zero", "0");
        self.constant("%one", "1");
        self.constant("%count", &count.to_string());
        let mut given = vec!["%zero".to_owned()];
        given.extend((0..self.operands.len()).map(|place| format!("%arg{place}")));
        for (place, stack) in stacks.iter().enumerate() {
            self.empty(place, *stack);
            given.push(format!("%empty{place}"));
        }
        let inside = state_kinds.iter().enumerate();
        let inside = inside.map(|(place, kind)| format!("%s{place}: {kind}"));
        let inside = inside.collect::<Vec<_>>().join(", ");
        self.line(format_args!(
            "%w:{} = \"stablehlo.while\"({}) ({{",
            state_kinds.len(),
            given.join(", ")
        ));
        self.line(format_args!("^bb0({inside}):"));
        self.line(format_args!(
            "%go = \"stablehlo.compare\"(%s0, %count) {{comparison_direction = \
             #stablehlo<comparison_direction LT>}} : ({SCALAR}, {SCALAR}) -> tensor<i1>"
        ));
        self.line(format_args!(
            "\"stablehlo.return\"(%go) : (tensor<i1>) -> ()"
        ));
        self.line(format_args!("}}, {{"));
        self.line(format_args!("^bb0({inside}):"));
        self.once(&state_kinds.join(", "));
        let all = state_kinds.join(", ");
        self.line(format_args!("}}) : ({all}) -> ({all})"));
        let carried_names = 1..=carried;
        let first_stack = 1 + self.operands.len();
        let stack_names = (0..stacks.len()).map(|place| first_stack + place);
        let names = carried_names.chain(stack_names);
        let names = names.map(|place| format!("%w#{place}"));
        let names = names.collect::<Vec<_>>().join(", ");
        self.line(format_args!("return {names} : {made}"));
        self.line(format_args!("}}"));
    }

    /// What is done each time.
    fn once(&mut self, all: &str) {
        let (carried, stacked) = (self.of.carried_count(), self.of.stacked_count());
        let at = match self.of.is_reversed() {
            true => {
                self.binary("%last", "subtract", "%count", "%one");
                self.binary("%at", "subtract", "%last", "%s0");
                "%at"
            }
            false => "%s0",
        };
        let inputs = self.of.body().inputs().to_vec();
        let given = inputs.iter().enumerate().map(|(place, slice)| {
            match (carried..carried + stacked).contains(&place) {
                true => self.slice(place, slice.len, at),
                false => format!("%s{}", 1 + place),
            }
        });
        let given = given.collect::<Vec<_>>().join(", ");
        let outputs = self.of.body().outputs().iter();
        let outputs = outputs.map(|value| self.of.body().vector(*value));
        let outputs: Vec<Vector> = outputs.collect();
        let body = self.body;
        self.line(format_args!(
            "%b:{} = func.call @f{body}({given}) : ({}) -> ({})",
            outputs.len(),
            kinds(&inputs),
            kinds(&outputs)
        ));
        self.binary("%next", "add", "%s0", "%one");
        let mut next = vec!["%next".to_owned()];
        next.extend((0..carried).map(|place| format!("%b#{place}")));
        next.extend((carried..self.operands.len()).map(|place| format!("%s{}", 1 + place)));
        for (place, slice) in outputs.iter().enumerate().skip(carried) {
            next.push(self.put(place, slice.len, at));
        }
        let next = next.join(", ");
        self.line(format_args!("\"stablehlo.return\"({next}) : ({all}) -> ()"));
    }

    /// One slice of an operand.
    fn slice(&mut self, place: usize, len: usize, at: &str) -> String {
        let whole = self.operands[place];
        let start = self.start(len, at);
        let slice = kind(Vector { len, ..whole });
        let name = format!("%x{place}");
        let function = self.kernel(&Kernel::Slice(whole, len));
        let whole = kind(whole);
        self.line(format_args!(
            "{name} = func.call @f{function}(%s{}, {start}) : ({whole}, {SCALAR}) -> {slice}",
            1 + place
        ));
        name
    }

    /// An output as one slice of its stack.
    fn put(&mut self, output: usize, len: usize, at: &str) -> String {
        let whole = self.results[output];
        let start = self.start(len, at);
        let slice = kind(Vector { len, ..whole });
        let stack = 1 + self.operands.len() + output - self.of.carried_count();
        let name = format!("%y{output}");
        let function = self.kernel(&Kernel::Update(whole, len));
        let whole = kind(whole);
        self.line(format_args!(
            "{name} = func.call @f{function}(%s{stack}, %b#{output}, {start}) : \
             ({whole}, {slice}, {SCALAR}) -> {whole}"
        ));
        name
    }

    /// Where a slice of so many elements begins.
    fn start(&mut self, len: usize, at: &str) -> String {
        let number = self.temporaries;
        self.temporaries += 1;
        self.constant(&format!("%len{number}"), &len.to_string());
        let name = format!("%start{number}");
        self.binary(&name, "multiply", at, &format!("%len{number}"));
        name
    }

    /// A stack of which nothing is there yet.
    fn empty(&mut self, place: usize, stack: Vector) {
        let zero = match (stack.element == ElementType::Bool, stack.element.is_float()) {
            (true, _) => "false",
            (false, true) => "0.0",
            (false, false) => "0",
        };
        let kind = kind(stack);
        self.line(format_args!(
            "%empty{place} = \"stablehlo.constant\"() {{value = dense<{zero}> : {kind}}} : () -> {kind}"
        ));
    }

    fn kernel(&mut self, kernel: &Kernel) -> usize {
        let program = kernel.program();
        let program = program.expect("parts of vectors have a program of any elements");
        self.functions.number(program)
    }

    fn constant(&mut self, name: &str, literal: &str) {
        self.line(format_args!(
            "{name} = \"stablehlo.constant\"() {{value = dense<{literal}> : {SCALAR}}} : () -> {SCALAR}"
        ));
    }

    fn binary(&mut self, name: &str, op: &str, left: &str, right: &str) {
        self.line(format_args!(
            "{name} = \"stablehlo.{op}\"({left}, {right}) : ({SCALAR}, {SCALAR}) -> {SCALAR}"
        ));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }
}

/// The type of a number of times, which is a scalar.
const SCALAR: &str = "tensor<i64>";

fn kind(of: Vector) -> String {
    Type::from(of).to_string()
}
