//! What a compiled function keeps: its variables where it fails, and not too many programs.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::*;

/// Two variables of one type and one of another, whose second is once shown last.
struct Fickle {
    first: DVariable<f64>,
    second: DVariable<f64>,
    third: DVariable<f32>,
    visits: usize,
    /// The number of the visit in which the order is another.
    fickle: usize,
}

impl Fickle {
    fn new(fickle: usize, like: &DTensor<f64>) -> Self {
        let (context, layout) = (like.context(), like.layout());
        Self {
            first: DVariable::new(context.full(&[4], layout, 1.0).unwrap()),
            second: DVariable::new(context.full(&[4], layout, 2.0).unwrap()),
            third: DVariable::new(context.full(&[4], layout, 3.0).unwrap()),
            visits: 0,
            fickle,
        }
    }

    /// What is there: the elements, or why there are none.
    fn elements(&self) -> Result<[f64; 3], Error> {
        let [first, second] = [&self.first, &self.second].map(|own| own.value().to_host());
        let third = self.third.value().to_host()?;
        Ok([first?[0], second?[0], third[0].into()])
    }

    fn step(&mut self, by: &DTensor<f64>) -> Result<DTensor<f64>, Error> {
        self.first.assign(&self.first.value().mul(by)?)?;
        self.second.value().add(by)
    }
}

impl VariableSet for Fickle {
    fn visit(&mut self, visit: &mut dyn FnMut(&mut dyn Variable)) {
        self.visits += 1;
        visit(&mut self.first);
        if self.visits == self.fickle {
            visit(&mut self.third);
            visit(&mut self.second);
        } else {
            visit(&mut self.second);
            visit(&mut self.third);
        }
    }
}

/// A tensor of fives on two devices.
fn fives() -> DTensor<f64> {
    let client = Client::new("localhost", 0, 1).unwrap();
    let context = Context::alone(client.with_devices("CPU", 2).unwrap());
    let mesh = context.create_mesh(CreateMesh::new().along("x")).unwrap();
    let rows = Layout::batch_sharded(&mesh, "x", 1).unwrap();
    context.full(&[4], &rows, 5.0).unwrap()
}

#[test]
fn a_lowered_step_leaves_variables_as_they_were_and_is_no_trace() {
    let by = fives();
    let mut model = Fickle::new(0, &by);
    let mut step = compile(Fickle::step);
    let program = step.lower(&mut model, &by).unwrap();
    assert_eq!(program.recorded(), 2, "{program}");
    assert_eq!((step.traces(), step.program().is_none()), (0, true));
    assert_eq!(model.elements().unwrap(), [1.0, 2.0, 3.0]);
    // The same as the program that a call makes.
    step.call(&mut model, &by).unwrap();
    let called = step.program().unwrap().to_string();
    assert_eq!(called.lines().next(), program.to_string().lines().next());
    assert_eq!(model.elements().unwrap(), [5.0, 2.0, 3.0]);
}

#[test]
fn variables_are_as_they_were_where_a_function_fails_or_shows_others() {
    let by = fives();
    let mut failing =
        compile(|own: &mut Fickle, by: &DTensor<f64>| own.step(by)?.reshape(&[Some(3)]));
    let mut model = Fickle::new(0, &by);
    let lowered = failing.lower(&mut model, &by).map(drop);
    let called = failing.call(&mut model, &by).map(drop);
    let tape = Tape::new();
    let taped = failing.call(&mut model, &tape.watch(&by)).map(drop);
    for refused in [lowered, called, taped] {
        assert!(matches!(refused, Err(Error::Op(_))), "{refused:?}");
    }
    assert_eq!(model.elements().unwrap(), [1.0, 2.0, 3.0]);

    let mut step = compile(Fickle::step);
    // The values are read in the first visit, and replaced in the second.
    let mut model = Fickle::new(2, &by);
    let refused = step.lower(&mut model, &by).unwrap_err();
    assert!(matches!(refused, Error::VariablesChanged), "{refused}");
    assert_eq!(model.elements().unwrap(), [1.0, 2.0, 3.0]);
    let mut model = Fickle::new(2, &by);
    let refused = step.call(&mut model, &by).unwrap_err();
    assert!(matches!(refused, Error::VariablesChanged), "{refused}");
    assert_eq!(model.elements().unwrap(), [1.0, 2.0, 3.0]);

    let mut model = Fickle::new(0, &by);
    step.call(&mut model, &by).unwrap();
    (model.visits, model.fickle) = (0, 2);
    let refused = step.call(&mut model, &by).unwrap_err();
    assert!(matches!(refused, Error::VariablesChanged), "{refused}");
    assert_eq!(model.elements().unwrap(), [5.0, 2.0, 3.0]);
}

#[test]
fn a_variable_that_a_failing_function_adds_is_refused_and_gets_no_input() {
    let by = fives();
    let mut step = compile(|own: &mut Vec<DVariable<f64>>, by: &DTensor<f64>| {
        own.push(DVariable::new(by.mul(by)?));
        by.reshape(&[Some(3)])
    });
    let tape = Tape::new();
    for given in [by.clone(), tape.watch(&by)] {
        let mut model = vec![DVariable::new(by.clone())];
        let refused = step.call(&mut model, &given).unwrap_err();
        assert!(matches!(refused, Error::VariablesChanged), "{refused}");
    }
}

#[test]
fn a_tensor_that_a_lowered_function_captures_is_refused_with_a_remedy() {
    let by = fives();
    let mut model = Fickle::new(0, &by);
    let mut step = compile(|model: &mut Fickle, given: &DTensor<f64>| model.step(&given.mul(&by)?));
    let refused = step.lower(&mut model, &by).unwrap_err();
    assert!(matches!(refused, Error::NotGiven), "{refused}");
    assert_eq!(model.elements().unwrap(), [1.0, 2.0, 3.0]);
    // In a call it is a constant.
    step.call(&mut model, &by).unwrap();
    assert_eq!(model.elements().unwrap(), [25.0, 2.0, 3.0]);

    type Given = (DTensor<f64>, DTensor<f64>);
    let mut step = compile(|(): &mut (), (x, by): &Given| {
        let made = x.context().full(&[4], x.layout(), 2.0)?;
        x.mul(by)?.mul(&made)
    });
    let program = step.lower(&mut (), &(by.clone(), by.clone())).unwrap();
    assert_eq!(program.recorded(), 2, "{program}");
}

#[test]
fn programs_that_are_more_than_are_kept_from_now_on_are_given_up() {
    let (context, layout) = (context(), layouts(1).remove(1));
    let mut step = compile(|(): &mut (), x: &DTensor<f32>| x.exp());
    for (number, size) in [3, 4, 5, 6, 7, 8, 6].into_iter().enumerate() {
        if number == 3 {
            step = step.keep(1);
        }
        let zeros = context.zeros(&[size], &layout).unwrap();
        step.call(&mut (), &zeros).unwrap();
    }
    assert_eq!(step.traces(), 7);
}

/// Notes warnings.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

struct Message<'a>(&'a mut Vec<String>);

impl Visit for Message<'_> {
    fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
        self.0.push(format!("{value:?}"));
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Message(&mut self.0.lock().unwrap()));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn each_value_of_the_host_has_a_program_of_its_own_wherever_it_is_among_the_inputs() {
    let x = fives();
    type Given = (Vec<(DTensor<f64>, HostValue<i32>)>, HostValue<&'static str>);
    let mut step = compile(|(): &mut (), (terms, how): &Given| {
        let (x, times) = &terms[0];
        let many = x.scale(times.0.into())?;
        match how.0 {
            "negated" => many.neg(),
            _ => Ok(many),
        }
    });
    let calls = [(2, "", 10.0), (3, "", 15.0), (2, "negated", -10.0)];
    for (traces, (times, how, expected)) in (1..=6).zip(calls.into_iter().cycle()) {
        let given = (vec![(x.clone(), HostValue(times))], HostValue(how));
        let made = step.call(&mut (), &given).unwrap().to_host().unwrap();
        assert_eq!((made[0], step.traces()), (expected, traces.min(3)));
    }
}

#[test]
fn a_function_whose_shapes_keep_changing_warns_with_counts_and_a_remedy() {
    let (context, layout) = (context(), layouts(1).remove(1));
    let warnings = Warnings::default();
    tracing::subscriber::with_default(warnings.clone(), || {
        let mut step = compile(|(): &mut (), x: &DTensor<f32>| x.exp()).keep(2);
        for (size, warned) in [(3, 0), (4, 0), (3, 0), (5, 1), (6, 1), (7, 2)] {
            let zeros = context.zeros(&[size], &layout).unwrap();
            step.call(&mut (), &zeros).unwrap();
            assert_eq!(
                warnings.0.lock().unwrap().len(),
                warned,
                "of {size} elements"
            );
        }
    });
    let told = warnings.0.lock().unwrap().join("\n");
    for part in [
        "traced 3 times",
        "2 programs are kept",
        "Compiled::keep",
        "[5] f32",
        "traced 5 times",
    ] {
        assert!(told.contains(part), "{told}");
    }
}

#[test]
fn a_warning_tells_how_long_the_lists_of_inputs_are() {
    let (x, warnings) = (fives(), Warnings::default());
    tracing::subscriber::with_default(warnings.clone(), || {
        let mut step = compile(|own: &mut Vec<DVariable<f64>>, x: &Vec<DTensor<f64>>| {
            own[0].value().add(&x[0])
        });
        step = step.keep(1);
        for count in [1, 2] {
            let mut own = vec![DVariable::new(x.clone())];
            step.call(&mut own, &vec![x.clone(); count]).unwrap();
        }
    });
    let told = warnings.0.lock().unwrap().join("\n");
    let is_told = told.ends_with(", a list of 2") && !told.contains("a list of 1");
    assert!(is_told, "{told}");
}
