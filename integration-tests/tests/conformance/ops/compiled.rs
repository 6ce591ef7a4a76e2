//! The same functions in compiled programs, which are traced in a first call and carried out in a
//! second.

use std::sync::Mutex;

use meshwork_dtensor::{Context, DTensor, Error, compile};

use super::carry_out::Answer;
use super::case::Case;
use super::on_devices::{Found, carried_out, compare_results, operands};

/// Functions that no program has: the tensor itself knows the number that they give.
const NOT_IN_PROGRAMS: [&str; 2] = ["rank", "size"];

/// What programs came to be.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Programs {
    /// Those that are one module of all devices.
    pub(crate) whole: usize,
    /// Those of which steps are carried out by themselves.
    pub(crate) in_parts: usize,
    /// Those that do nothing, as they return what they are given.
    pub(crate) empty: usize,
    /// Functions that are in no program.
    pub(crate) none: usize,
}

/// How results of a program differ from those that were found otherwise, if they do.
pub(super) fn compare(
    case: &Case,
    context: &Context,
    answers: &[Answer],
    programs: &Mutex<Programs>,
) -> Option<String> {
    let problem = match results(case, context, programs) {
        Ok(Some(both)) => {
            let mut both = both.into_iter();
            both.find_map(|found| compare_results(Ok(found), answers))
        }
        Ok(None) => None,
        Err(error) => compare_results(Err(error), answers),
    };
    problem.map(|problem| format!("in a program, {problem}"))
}

/// The results of the call that traces, and of the program; none where there is no program.
pub(super) fn results(
    case: &Case,
    context: &Context,
    programs: &Mutex<Programs>,
) -> Result<Option<[Vec<Found>; 2]>, Error> {
    let count = || programs.lock().expect("whoever counts does nothing else");
    if NOT_IN_PROGRAMS.contains(&case.op.as_str()) {
        count().none += 1;
        return Ok(None);
    }
    let given = operands(case, context)?;
    let mut function = compile(|(): &mut (), given: &Vec<DTensor<f64>>| {
        let made = carried_out(case, given.clone())?.into_iter();
        let tensors = made.filter_map(|found| match found {
            Found::Tensor(tensor) => Some(*tensor),
            Found::Number(_) => None,
        });
        Ok(tensors.collect::<Vec<_>>())
    });
    let both = [
        function.call(&mut (), &given)?,
        function.call(&mut (), &given)?,
    ];
    let program = function.program().ok_or(Error::NotHere)?;
    match (program.modules(), program.steps_apart(), program.is_empty()) {
        (_, _, true) => count().empty += 1,
        (1, 0, false) => count().whole += 1,
        (_, _, false) => count().in_parts += 1,
    }
    Ok(Some(both.map(|made| {
        let found = made.into_iter().map(Box::new);
        found.map(Found::Tensor).collect()
    })))
}
