//! Loops that programs have as loops: `scan` and `repeat`.

use meshwork_layout::ShardingSpec;

use super::{Erased, Fixed, Tensors, listed};
use crate::Error;
use crate::program::{Looped, Turn};
use crate::record::{AnyTensor, Described, Direction};

/// Carries tensors through a body, once for each slice of others along their first axis: through
/// the layers of a model, whose weights are stacked. Returns what is carried at last, and what the
/// body made each time, stacked likewise.
///
/// In a [compiled](crate::compile) step and under a [`Tape`](crate::Tape) the body is called once,
/// to be traced, and is one op: the program has it once, however many layers there are. It is then
/// carried out for each slice, on PJRT devices by a loop of the compiled module. Elsewhere the body
/// is called for each slice. Tensors that it captures are the same each time.
///
/// What is carried keeps its shape and elements, and lies as it does at the beginning; lists keep
/// their lengths, and values of the host are the same each time. Stacks are not cut along their
/// first axis.
///
/// ```
/// use meshwork_core::{Client, Mesh};
/// use meshwork_dtensor::{Context, DTensor, Error, Tape, compile, scan};
/// use meshwork_layout::Layout;
///
/// let context = Context::alone(Client::new("localhost", 0, 1)?);
/// let mesh = Mesh::new([("x", 2)])?;
/// let rows = Layout::batch_sharded(&mesh, "x", 2)?;
/// let layers = context.full(&[8, 3, 3], &Layout::replicated(&mesh, 3), 0.25_f32)?;
/// let mut step = compile(|(): &mut (), inputs: &(DTensor<f32>, DTensor<f32>)| {
///     let tape = Tape::new();
///     let weights = tape.watch(&inputs.1);
///     let (last, ()) = scan(inputs.0.clone(), &weights, |x, weights: &DTensor<f32>| {
///         Ok((x.matmul(weights)?.relu()?, ()))
///     })?;
///     let [by_weights] = tape.gradient(&last.sum_all()?, [&weights])?;
///     Ok((last, by_weights))
/// });
/// let inputs = (context.full(&[4, 3], &rows, 1.0)?, layers);
/// let (last, by_weights) = step.call(&mut (), &inputs)?;
/// assert_eq!(by_weights.shape(), [8, 3, 3]);
/// assert_eq!(last.to_host()?.sum(), 12.0 * 0.75_f32.powi(8));
/// // Eight layers forwards, and back.
/// assert_eq!(step.program().unwrap().to_string().matches("scan 8 times").count(), 2);
/// # Ok::<(), Error>(())
/// ```
///
/// # Gradients
///
/// A tape keeps what is carried into each time, and the body is carried out once more on the way
/// back: memory for one layer and not for all of them, for a third more computing.
///
/// # Errors
/// [`Error::NotStacked`] for stacks that differ in size, have none, or are cut along their first
/// axis; [`Error::CarriedDiffers`], [`Error::LoopCount`] and [`Error::LoopValue`] for what the body
/// gives; [`Error::NotTraceable`] where it is traced; those of the body.
#[track_caller]
pub fn scan<C: Tensors, X: Tensors, Y: Tensors>(
    carried: C,
    stacks: &X,
    mut body: impl FnMut(&C, &X) -> Result<(C, Y), Error>,
) -> Result<(C, Y), Error> {
    let given = listed(stacks);
    let count = slices(&given)?;
    let mut like: Option<Y> = None;
    let looped = Looped {
        count,
        direction: Direction::Forward,
        carried: listed(&carried),
        stacks: given,
        at: None,
    };
    let mut turn = |given: Turn| {
        let carry = replaced(&carried, given.carried)?;
        let (carry, made) = body(&carry, &replaced(stacks, given.slices)?)?;
        check_same(&carry, &carried)?;
        check_same(&made, like.as_ref().unwrap_or(&made))?;
        let turn = Turn {
            carried: listed(&carry),
            slices: listed(&made),
        };
        like = Some(made);
        Ok(turn)
    };
    let all = looped.carried_out(&mut turn)?;
    let like = like.ok_or(Error::NotKept)?;
    Ok((
        replaced(&carried, all.carried)?,
        replaced(&like, all.slices)?,
    ))
}

/// Carries tensors through a body so many times, as [`scan`] does without stacks.
///
/// ```
/// # use meshwork_core::{Client, Mesh};
/// # use meshwork_dtensor::{Context, DTensor, Error, repeat};
/// # use meshwork_layout::Layout;
/// # let context = Context::alone(Client::new("localhost", 0, 1)?);
/// # let layout = Layout::replicated(&Mesh::new([("x", 2)])?, 1);
/// let two = context.full(&[3], &layout, 2.0_f64)?;
/// let all = repeat(10, two, |x| x.scale(0.5)?.add_scalar(0.5))?;
/// assert!((all.to_host()?[0] - 1.0).abs() < 0.01);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// Those of [`scan`].
#[track_caller]
#[doc(alias = "fori_loop")]
#[doc(alias = "while_loop")]
pub fn repeat<C: Tensors>(
    times: usize,
    carried: C,
    mut body: impl FnMut(&C) -> Result<C, Error>,
) -> Result<C, Error> {
    if times == 0 {
        return Ok(carried);
    }
    let looped = Looped {
        count: times,
        direction: Direction::Forward,
        carried: listed(&carried),
        stacks: Vec::new(),
        at: None,
    };
    let mut turn = |given: Turn| {
        let carry = body(&replaced(&carried, given.carried)?)?;
        check_same(&carry, &carried)?;
        let carried = listed(&carry);
        let slices = Vec::new();
        Ok(Turn { carried, slices })
    };
    let all = looped.carried_out(&mut turn)?;
    replaced(&carried, all.carried)
}

/// Others of the same types, in their place.
fn replaced<L: Tensors>(list: &L, by: Vec<AnyTensor>) -> Result<L, Error> {
    list.replaced(&mut by.into_iter().map(Erased))
}

/// Refuses lists of other lengths and other values of the host than before: what is done each time
/// is the same.
fn check_same<L: Tensors>(found: &L, expected: &L) -> Result<(), Error> {
    let (found, expected) = (found.fixed(), expected.fixed());
    let both = found.iter().zip(&expected);
    let mut both = both.map(|(found, expected)| (&**found, &**expected));
    match both.find(|&(found, expected)| !stays(found, expected)) {
        None => Ok(()),
        Some((found, expected)) => Err(match (found.length(), expected.length()) {
            (Some(found), Some(expected)) => Error::LoopCount { found, expected },
            _ => Error::LoopValue {
                found: format!("{found:?}"),
                expected: format!("{expected:?}"),
            },
        }),
    }
}

/// Whether a value of the host is what it was. One that is not even equal to itself, as one with a
/// float that is no number, is what it looks like.
fn stays(found: &dyn Fixed, expected: &dyn Fixed) -> bool {
    let is_unequal_to_itself = |own: &dyn Fixed| !own.is(own);
    let are_unequal = is_unequal_to_itself(found) && is_unequal_to_itself(expected);
    found.is(expected) || are_unequal && format!("{found:?}") == format!("{expected:?}")
}

/// How many slices all stacks have.
fn slices(stacks: &[AnyTensor]) -> Result<usize, Error> {
    let size = |stack: &AnyTensor| stack.placement().shape().first().copied();
    let count = stacks.first().and_then(size).filter(|count| *count > 0);
    for (place, stack) in stacks.iter().enumerate() {
        let mut specs = stack.placement().layout().specs();
        let is_whole = specs.next().is_some_and(ShardingSpec::is_unsharded);
        if !is_whole || size(stack) != count {
            let found = Described::of(stack).to_string();
            return Err(Error::NotStacked { place, found });
        }
    }
    let (place, found) = (0, "not there".to_owned());
    count.ok_or(Error::NotStacked { place, found })
}

#[cfg(test)]
mod tests;
