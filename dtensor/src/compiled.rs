//! `compile`: a step as a program, which is traced once for each combination of shapes and layouts
//! and carried out from then on.

use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::sync::Arc;

use crate::Error;
use crate::program::{Program, symbols, traced};
use crate::record::{AnyTensor, Described, Purpose, Recording};

mod scan;
mod tensors;
mod variables;

pub use scan::{repeat, scan};
use tensors::{Fixed, are_equal};
pub use tensors::{HostValue, Tensors};
use variables::Shown;
pub use variables::{Variable, VariableSet};

/// A tensor of any elements, for traits that others can see.
#[expect(unnameable_types, reason = "nobody else takes it apart")]
#[derive(Clone)]
pub struct Erased(AnyTensor);

impl Debug for Erased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Described::of(&self.0))
    }
}

/// The tensors of a list.
fn listed(list: &impl Tensors) -> Vec<AnyTensor> {
    plain(list.list())
}

fn plain(tensors: Vec<Erased>) -> Vec<AnyTensor> {
    tensors.into_iter().map(|tensor| tensor.0).collect()
}

/// The same tensors, of which nothing is recorded.
fn untraced(tensors: &[AnyTensor]) -> Vec<AnyTensor> {
    tensors.iter().map(|tensor| tensor.untraced()).collect()
}

/// The same as arguments of what is recorded.
fn given_to(recording: &Arc<Recording>, tensors: Vec<AnyTensor>) -> Vec<AnyTensor> {
    let tensors = tensors.into_iter();
    tensors.map(|tensor| tensor.given(recording)).collect()
}

/// Arguments, as they are told to people.
fn described(tensors: &[Described], values: &[Arc<dyn Fixed>]) -> String {
    let values = values.iter().map(|value| format!("{value:?}"));
    let all = tensors.iter().map(ToString::to_string).chain(values);
    all.collect::<Vec<String>>().join(", ")
}

/// Tells that programs are thrown away, once for each time that all have been.
fn warn(function: &str, traces: usize, most: usize, inputs: &str) {
    tracing::warn!(
        "{function} was traced {traces} times, as shapes, layouts, lengths or values of its \
         arguments changed, and {most} programs are kept: give batches one shape, or keep more \
         (Compiled::keep); the last inputs are {inputs}"
    );
}

/// How many programs a compiled function keeps, unless it is told otherwise.
const KEPT: usize = 16;

/// A function of variables and tensors, compiled for the arguments that it was called with.
#[doc(alias = "jit")]
pub struct Compiled<S, I, O, F> {
    function: F,
    /// The one used last is at the end.
    known: Vec<Specialised<O>>,
    most: usize,
    traces: usize,
    arguments: PhantomData<fn(&mut S, &I)>,
}

/// What programs differ by.
#[derive(Debug)]
struct Arguments {
    /// Variables, then inputs.
    tensors: Vec<Described>,
    /// The lengths of vectors of variables and of inputs, which say where each begins, and values
    /// of the host among the inputs.
    values: Vec<Arc<dyn Fixed>>,
}

impl PartialEq for Arguments {
    fn eq(&self, other: &Self) -> bool {
        self.tensors == other.tensors && are_equal(&self.values, &other.values)
    }
}

/// A program for arguments like these.
struct Specialised<O> {
    arguments: Arguments,
    program: Program,
    /// What the variables were, without elements.
    without_elements: Vec<AnyTensor>,
    /// What the function returned, without elements.
    outputs: O,
}

/// Compiles a step: a function that reads variables, assigns to them, and returns tensors.
///
/// The first call carries the function out as it stands, and traces it: what it does with its
/// variables and inputs becomes a [`Program`]. Later calls with the same shapes, layouts, types and
/// lengths of vectors carry out that program, in fewer and cheaper steps, and not the function;
/// others trace it anew.
///
/// A tensor that is neither a variable nor an input is a constant of the program, random numbers
/// included, and so is a value of the host, but for a [`HostValue`] among the inputs. Looking at
/// elements (`to_host`, `unpack`) and functions of your own (`map`) are refused.
///
/// ```
/// use meshwork_core::{Client, Mesh};
/// use meshwork_dtensor::{Context, DTensor, DVariable, Error, Sgd, Tape, compile};
/// use meshwork_layout::Layout;
///
/// let context = Context::alone(Client::new("localhost", 0, 1)?);
/// let rows = Layout::batch_sharded(&Mesh::new([("x", 2)])?, "x", 1)?;
/// let mut weights = DVariable::new(context.zeros::<f32>(&[3], &rows)?);
/// let mut step = compile(|weights: &mut DVariable<f32>, target: &DTensor<f32>| {
///     let tape = Tape::new();
///     let w = tape.watch(weights.value());
///     let error = w.sub(target)?;
///     let loss = error.mul(&error)?.sum_all()?;
///     let [by_w] = tape.gradient(&loss, [&w])?;
///     Sgd::new(0.25).step([(weights, &by_w)])?;
///     Ok::<_, Error>(loss)
/// });
/// let target = context.full(&[3], &rows, 2.0)?;
/// let losses = [0, 1, 2].map(|_| step.call(&mut weights, &target).unwrap());
/// assert_eq!(losses.map(|loss| loss.to_host().unwrap().sum()), [12.0, 3.0, 0.75]);
/// assert_eq!(step.traces(), 1);
/// println!("{}", step.program().unwrap());
/// # Ok::<(), Error>(())
/// ```
pub fn compile<S, I, O, F>(function: F) -> Compiled<S, I, O, F>
where
    S: VariableSet,
    I: Tensors,
    O: Tensors,
    F: FnMut(&mut S, &I) -> Result<O, Error>,
{
    Compiled {
        function,
        known: Vec::new(),
        most: KEPT,
        traces: 0,
        arguments: PhantomData,
    }
}

impl<S, I, O, F> Compiled<S, I, O, F>
where
    S: VariableSet,
    I: Tensors,
    O: Tensors,
    F: FnMut(&mut S, &I) -> Result<O, Error>,
{
    /// The same function, of which at most so many programs are kept, one at least: the one that
    /// was not used for longest goes first, and a warning tells how many there have been.
    #[must_use]
    pub fn keep(mut self, most: usize) -> Self {
        self.most = most.max(1);
        let surplus = self.known.len().saturating_sub(self.most);
        self.known.drain(..surplus);
        self
    }

    /// Calls the function. All clients call it, with arguments that lie alike. With tensors that a
    /// tape watches, and in another compiled function, it is carried out as it stands, so that its
    /// ops are recorded there.
    ///
    /// # Errors
    /// Those of the function and of its ops, and [`Error::NotTraceable`]; variables are then as
    /// they were.
    #[track_caller]
    pub fn call(&mut self, variables: &mut S, inputs: &I) -> Result<O, Error> {
        let Shown { values, lengths } = variables::shown(variables);
        let own = values.len();
        let values = values.into_iter().map(|value| value.0);
        let given: Vec<AnyTensor> = values.chain(listed(inputs)).collect();
        if given.iter().any(|tensor| tensor.trace().is_recorded()) {
            return (self.function)(variables, inputs).or_else(|error| {
                variables::replace(variables, &mut given.into_iter().take(own))?;
                Err(error)
            });
        }
        let arguments = Arguments {
            tensors: given.iter().map(Described::of).collect(),
            values: lengths.into_iter().chain(inputs.fixed()).collect(),
        };
        let known = self.known.iter().position(|one| one.arguments == arguments);
        let Some(known) = known else {
            return self.trace(variables, inputs, arguments);
        };
        let specialised = self.known.remove(known);
        // The program has the only copies, so that it may use their memory up.
        let mut empty = specialised.without_elements.iter().cloned();
        let ran = variables::replace(variables, &mut empty);
        let ran = ran.and_then(|()| specialised.program.run(&given));
        let outputs = specialised.outputs.without_elements();
        self.known.push(specialised);
        let mut made = match ran {
            Ok(made) => made.into_iter(),
            Err(error) => {
                variables::replace(variables, &mut given.into_iter())?;
                return Err(error);
            }
        };
        variables::replace(variables, &mut made)?;
        outputs.replaced(&mut made.map(Erased))
    }

    /// Calls the function as it stands, and keeps what it does.
    #[track_caller]
    fn trace(&mut self, variables: &mut S, inputs: &I, arguments: Arguments) -> Result<O, Error> {
        let recording = Recording::new(Purpose::Program);
        let before = variables::values(variables);
        let watched = given_to(&recording, untraced(&before));
        let taken = given_to(&recording, untraced(&listed(inputs)));
        let inputs = inputs.replaced(&mut taken.iter().cloned().map(Erased))?;
        let replaced = variables::replace(variables, &mut watched.iter().cloned());
        let context = before.iter().chain(&taken).next();
        let context = context.map(|tensor| tensor.context().clone());
        let returned = replaced.and_then(|()| (self.function)(variables, &inputs));
        let specialised = returned.and_then(|returned| {
            let outputs: Vec<AnyTensor> = variables::values(variables)
                .into_iter()
                .chain(listed(&returned))
                .collect();
            let given: Vec<AnyTensor> = watched.into_iter().chain(taken).collect();
            let program = traced(&recording, &given, &outputs)?;
            recording.close();
            let program = match &context {
                Some(context) => program.compiled(context)?,
                None => program,
            };
            Ok((program, returned))
        });
        recording.close();
        let (program, returned) = match specialised {
            Ok(specialised) => specialised,
            Err(error) => {
                variables::replace(variables, &mut before.into_iter())?;
                return Err(error);
            }
        };
        let plain = untraced(&variables::values(variables));
        variables::replace(variables, &mut plain.into_iter())?;
        let plain = untraced(&listed(&returned)).into_iter();
        let returned = returned.replaced(&mut plain.map(Erased))?;
        self.traces += 1;
        if self.known.len() == self.most {
            self.known.remove(0);
            if (self.traces - 1).is_multiple_of(self.most) {
                let function = std::any::type_name::<F>();
                let inputs = described(&arguments.tensors[before.len()..], &inputs.fixed());
                warn(function, self.traces, self.most, &inputs);
            }
        }
        self.known.push(Specialised {
            arguments,
            program,
            without_elements: before.iter().map(|value| value.emptied()).collect(),
            outputs: returned.without_elements(),
        });
        Ok(returned)
    }

    /// The program for arguments like these, which are not looked at, and stay as they are: the
    /// function is called with tensors without elements, and nothing is computed. It is for devices
    /// that are not there, see [`Program::graph`]; a [`call`](Self::call) traces for itself.
    ///
    /// Other than in a call, a tensor that the function captures goes with none that it is given:
    /// pass it as an input, or make it by the [context](crate::DTensor::context) of one.
    ///
    /// ```
    /// # use meshwork_core::{Client, CreateMesh};
    /// # use meshwork_dtensor::{Context, DTensor, Error, compile};
    /// # use meshwork_layout::Layout;
    /// # let context = Context::alone(Client::new("localhost", 0, 1)?.with_devices("CPU", 4)?);
    /// # let mesh = context.create_mesh(CreateMesh::new().dims([("x", 4)]))?;
    /// let x = context.zeros::<f32>(&[8], &Layout::from_names(["x"], &mesh)?)?;
    /// let mut sum = compile(|(): &mut (), x: &DTensor<f32>| x.exp()?.sum_all());
    /// let program = sum.lower(&mut (), &x)?;
    /// assert_eq!(program.graph(&context)?.devices(), 4);
    /// assert_eq!(sum.traces(), 0);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`call`](Self::call), [`Error::NotHere`] without any argument,
    /// [`Error::NotOneGraph`] for one whose shards differ in size, and [`Error::NotGiven`] where
    /// the function computes with a tensor that it captures.
    #[track_caller]
    pub fn lower(&mut self, variables: &mut S, inputs: &I) -> Result<Program, Error> {
        let before = variables::values(variables);
        let given: Vec<AnyTensor> = before.iter().cloned().chain(listed(inputs)).collect();
        let first = given.first().ok_or(Error::NotHere)?;
        let recording = Recording::new(Purpose::Program);
        let given = given_to(&recording, symbols(first.context(), &given)?);
        let (own, taken) = given.split_at(before.len());
        let inputs = inputs.replaced(&mut taken.iter().cloned().map(Erased))?;
        let replaced = variables::replace(variables, &mut own.iter().cloned());
        let returned = replaced.and_then(|()| (self.function)(variables, &inputs));
        recording.close();
        let mut outputs = variables::values(variables);
        variables::replace(variables, &mut before.into_iter())?;
        let returned = returned.map_err(|error| match error {
            // All that it was given is of one context.
            Error::OtherContext => Error::NotGiven,
            error => error,
        })?;
        outputs.extend(listed(&returned));
        traced(&recording, &given, &outputs)
    }

    /// The program that was used last; none before the first call.
    #[must_use]
    pub fn program(&self) -> Option<&Program> {
        self.known.last().map(|known| &known.program)
    }

    /// How often the function has been traced: as often as it was called with other shapes,
    /// layouts, lengths or values. A number that grows says that shapes change from call to call.
    #[must_use]
    pub fn traces(&self) -> usize {
        self.traces
    }
}

impl<S, I, O, F> Debug for Compiled<S, I, O, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiled")
            .field("programs", &self.known.len())
            .field("traces", &self.traces)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
