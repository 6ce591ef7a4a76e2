//! `{"kind"}`: small programs with variables, scopes, checkpoints and plain values, on a mesh x=2,
//! y=4.

use std::path::Path;

use meshwork_core::Mesh;
use meshwork_dtensor::{
    Context, DTensor, DVariable, Error, ReduceAxes, SavedAs, Scalar, current_default_mesh, range,
    zeros,
};
use meshwork_layout::Layout;
use meshwork_layout::ops::Op;
use serde_json::{Map, Value, json};

use super::values::{context, differs, mesh, numbered, same};
use crate::deviations::Deviation;
use crate::deviations::dtensor::{
    CHECKPOINT_FILES, PLAIN_ARRAYS, RANDOM_NUMBERS, SCOPES_END, SEEDED_GRADIENTS, SHOWN,
};
use crate::harness::Verdict;
use crate::mesh::answers::text;
use crate::not_askable::{CUSTOM_DEVICE, ONE_PROCESS, TEXTS, TYPES, UNTOLD};

pub(super) fn judge(case: &Value) -> Verdict {
    let folder = tempfile::tempdir().expect("a folder for checkpoints");
    judge_in(case, &context(), folder.path())
}

/// Judges what one of several clients holds, or the only one; all have the same folder for
/// checkpoints.
pub(super) fn judge_in(case: &Value, context: &Context, folder: &Path) -> Verdict {
    let kind = text(&case["input"]["kind"]);
    // What a client prints are the devices that it has.
    if kind == "print_repr" && !context.is_alone() {
        return Verdict::NotAskable(ONE_PROCESS);
    }
    let world = World::new(context, folder);
    let judged = match kind {
        "save_as_bf16_float" | "save_as_bf16_int" | "print_repr" | "ops_in_default_mesh" => {
            world.shown(kind, &case["expect"])
        }
        "barrier" | "barrier_named" | "default_mesh_nesting" | "numpy_small_replicated" => {
            world.told(kind, &case["expect"])
        }
        "default_mesh_exception_leak"
        | "optimizer_like_update"
        | "gradient_variable_layout"
        | "mixed_operand_scalars"
        | "name_based_save_restore"
        | "train_checkpoint" => world.otherwise(kind, &case["expect"]),
        "optimizer_like_update_default_mesh" => world.trained(&case["expect"]),
        "string_tensor" => Ok(Verdict::NotAskable(TEXTS)),
        "device_name" => Ok(Verdict::NotAskable(CUSTOM_DEVICE)),
        // A program cannot hand over a plain array where a tensor is asked for, nor leave out the
        // layout.
        "from_plain_no_layout"
        | "assign_plain"
        | "dtensor_plus_large_plain"
        | "dtensor_plus_small_plain" => Ok(Verdict::unsayable(case, TYPES)),
        _ if VALUES.contains(&kind) => Ok(judge_outcome(case, &world.value(kind))),
        // A misuse that no type allows, such as a default mesh that is no mesh.
        _ if case.get("expect_error").is_some() => Ok(Verdict::NotAskable(TYPES)),
        _ => world.named_by_answer(kind, case),
    };
    judged.unwrap_or_else(|error| Verdict::Failed(error.to_string()))
}

/// Programs that end with a tensor, or fail when they run here, too.
const VALUES: &[&str] = &[
    "assign",
    "assign_add",
    "assign_add_other_layout",
    "assign_other_layout",
    "assign_sub",
    "assign_wrong_shape",
    "cond",
    "conflicting_layout",
    "fetch_layout_of_variable",
    "from_plain_with_layout",
    "function_with_layout",
    "mixed_mesh_add",
    "while_loop",
];

fn judge_outcome(case: &Value, result: &Result<DTensor<f32>, Error>) -> Verdict {
    let problem = match (result, case.get("expect")) {
        (Ok(tensor), Some(expected)) => differs(tensor, expected),
        (Ok(tensor), None) => Some(format!("{tensor:?} instead of {}", case["expect_error"])),
        (Err(error), Some(_)) => Some(error.to_string()),
        (Err(error), None) => {
            let crosses = matches!(
                error,
                Error::Op(meshwork_layout::ops::OpError::MeshesDiffer { .. })
            );
            let wanted = case["expect_error"]["category"] == "cross_mesh";
            (crosses != wanted).then(|| format!("{error:?}"))
        }
    };
    problem.map_or(Verdict::Passed, Verdict::Failed)
}

fn verdict(problem: Option<String>) -> Verdict {
    problem.map_or(Verdict::Passed, Verdict::Failed)
}

/// Passes by another rule, if what is found instead is right.
fn deviates(deviation: Deviation, found: Found) -> Verdict {
    match found {
        Found::Right => Verdict::by(deviation),
        Found::Wrong => Verdict::Failed("what is done instead is not right".to_owned()),
    }
}

enum Found {
    Right,
    Wrong,
}

impl Found {
    fn is(right: &[bool]) -> Self {
        match right.iter().all(|right| *right) {
            true => Self::Right,
            false => Self::Wrong,
        }
    }
}

struct World<'a> {
    context: &'a Context,
    mesh: Mesh,
    folder: &'a Path,
}

impl<'a> World<'a> {
    fn new(context: &'a Context, folder: &'a Path) -> Self {
        let mesh = mesh(context, &json!([["x", 2], ["y", 4]]));
        Self {
            mesh: mesh.expect("a mesh of eight CPUs"),
            context,
            folder,
        }
    }

    fn layout(&self, names: [&str; 2]) -> Layout {
        Layout::from_names(names, &self.mesh).expect("a layout of the mesh")
    }

    fn rows(&self) -> Layout {
        self.layout(["x", "unsharded"])
    }

    /// The numbers from 0 to 15, by rows.
    fn numbers<T: Scalar>(&self, layout: &Layout) -> Result<DTensor<T>, Error> {
        self.context.copy_to_mesh(numbered::<T>(&[4, 4]), layout)
    }

    /// What programs that end with a tensor end with.
    fn value(&self, kind: &str) -> Result<DTensor<f32>, Error> {
        let rows = self.rows();
        let numbers = self.numbers::<f32>(&rows)?;
        let columns = numbers.relayout(&self.layout(["unsharded", "y"]))?;
        let mut variable = DVariable::with_layout(numbers.clone(), &rows)?;
        match kind {
            "from_plain_with_layout" => {
                variable.assign(&self.context.full(&[4, 4], &rows, 1.0)?)?;
            }
            "conflicting_layout" => {
                return Ok(DVariable::with_layout(numbers, columns.layout())?
                    .value()
                    .clone());
            }
            "assign" => variable.assign(&numbers.scale(2.0)?)?,
            "assign_other_layout" => variable.assign(&columns.scale(2.0)?)?,
            "assign_add" => variable.assign_add(&numbers)?,
            "assign_add_other_layout" => variable.assign_add(&columns)?,
            "assign_sub" => variable.assign_sub(&numbers)?,
            "assign_wrong_shape" => variable.assign(&self.context.zeros(&[4, 8], &rows)?)?,
            "mixed_mesh_add" => {
                let other = self.mesh.clone().with_name("other")?;
                let there = Layout::from_names(["x", "unsharded"], &other)?;
                return numbers.add(&self.numbers(&there)?);
            }
            "function_with_layout" => {
                let product = || numbers.matmul(&numbers);
                return self
                    .context
                    .call_with_layout(&self.layout(["x", "y"]), product);
            }
            "while_loop" => {
                let mut sum = numbers;
                for _ in 0..3 {
                    sum = sum.add_scalar(1.0)?;
                }
                return Ok(sum);
            }
            "cond" => {
                let is_large = numbers.sum_all()?.to_host()?.sum() > 0.0;
                return numbers.add_scalar(if is_large { 1.0 } else { -1.0 });
            }
            // A variable made of a tensor, called for or not, with its layout or without.
            _ => {}
        }
        Ok(variable.value().clone())
    }

    /// A program of another name, if what is recorded says what it does.
    fn named_by_answer(&self, kind: &str, case: &Value) -> Result<Verdict, Error> {
        let expected = &case["expect"];
        if expected.get("attr_layout").is_some() {
            return Ok(judge_outcome(case, &self.value(kind)));
        }
        // A variable that was written, and read by the layout that it has then.
        if let Some(names) = expected["var"]["layout"].as_array() {
            let mut known = expected.as_object().into_iter().flatten();
            if known.all(|(field, _)| ["files", "var"].contains(&field.as_str())) {
                let names: Vec<&str> = names.iter().map(text).collect();
                let names = names.try_into().expect("a matrix");
                let read = self.saved(&self.numbers::<f32>(&self.rows())?, names)?;
                return Ok(
                    match (differs(&read, &expected["var"]), expected.get("files")) {
                        (None, Some(_)) => Verdict::by(CHECKPOINT_FILES),
                        (problem, _) => Verdict::of(problem),
                    },
                );
            }
        }
        match expected.as_object() {
            Some(by_layout) if kind.contains("random") => self.random(by_layout),
            _ => Ok(Verdict::NotAskable(UNTOLD)),
        }
    }

    /// Random numbers by each layout, which are the same here as by any other.
    fn random(&self, by_layout: &Map<String, Value>) -> Result<Verdict, Error> {
        let draw = |layout: &Layout| self.context.random_uniform::<f32>(1, &[8, 8], layout);
        let whole = draw(&Layout::replicated(&self.mesh, 2))?.to_host()?;
        for names in by_layout.keys() {
            let names = names.split(',').map(str::trim);
            let Ok(layout) = Layout::from_names(names, &self.mesh) else {
                return Ok(Verdict::NotAskable(UNTOLD));
            };
            if layout.rank() != 2 {
                return Ok(Verdict::NotAskable(UNTOLD));
            }
            if draw(&layout)?.to_host()? != whole {
                return Ok(Verdict::Failed(format!("other numbers by {layout}")));
            }
        }
        Ok(Verdict::by(RANDOM_NUMBERS))
    }

    /// What a program says about what it made.
    fn shown(&self, kind: &str, expected: &Value) -> Result<Verdict, Error> {
        let numbers = self.numbers::<f32>(&self.rows())?;
        let is_rounded = |saved_as| json!({"save_as_bf16": saved_as == SavedAs::Bf16});
        let same = match kind {
            "save_as_bf16_float" => {
                is_rounded(DVariable::new(numbers).save_as(SavedAs::Bf16).saved_as()) == *expected
            }
            "save_as_bf16_int" => {
                // Whole numbers have nothing to be rounded with.
                is_rounded(DVariable::new(numbers.cast::<i32>()?).saved_as()) == *expected
            }
            "print_repr" => {
                let whole = numbered::<i32>(&[2, 2]);
                let tensor = self.context.copy_to_mesh(whole, &self.rows())?;
                let shown = format!("{tensor:?}");
                return Ok(match shows(&shown, text(&expected["repr"])) {
                    true => Verdict::by(SHOWN),
                    false => Verdict::Failed(format!("{shown} for {}", expected["repr"])),
                });
            }
            _ => {
                let scope = self.context.default_mesh(&self.mesh);
                let zeros = differs(&zeros::<f32>(&[4, 4])?, &expected["zeros"]);
                let range = differs(&range::<i32>(4)?, &expected["range"]);
                drop(scope);
                // A constant is an array of the host here, in a scope or not.
                let constant = expected["constant"]["not_a_dtensor"] == true;
                return Ok(verdict(
                    zeros
                        .or(range)
                        .or_else(|| (!constant).then(|| "constant".to_owned())),
                ));
            }
        };
        Ok(verdict((!same).then(|| format!("instead of {expected}"))))
    }

    /// Barriers, scopes, and what the host gets.
    fn told(&self, kind: &str, expected: &Value) -> Result<Verdict, Error> {
        let found = match kind {
            "default_mesh_nesting" => {
                let other = self.mesh.clone().with_name("other")?;
                let before = current_default_mesh().is_none();
                let outer = self.context.default_mesh(&self.mesh);
                let in_outer = current_default_mesh().as_ref() == Some(&self.mesh);
                let inner = self.context.default_mesh(&other);
                let in_inner = current_default_mesh().as_ref() == Some(&other);
                drop(inner);
                let back = current_default_mesh().as_ref() == Some(&self.mesh);
                drop(outer);
                let after = current_default_mesh().is_none();
                json!({"checks": [before, in_outer, in_inner, back, after]})
            }
            "numpy_small_replicated" => {
                let whole = Layout::replicated(&self.mesh, 2);
                let tensor = self
                    .context
                    .copy_to_mesh(numbered::<i32>(&[2, 2]), &whole)?;
                json!({"r": super::values::nested(&tensor.to_host()?.view())})
            }
            "barrier_named" => {
                self.context.barrier("named")?;
                json!({"ok": true})
            }
            _ => {
                self.context.barrier("")?;
                json!({"ok": true})
            }
        };
        let equal = match expected.get("r") {
            Some(expected) => same(&found["r"], expected),
            None => found == *expected,
        };
        Ok(verdict(
            (!equal).then(|| format!("{found} instead of {expected}")),
        ))
    }

    /// What is done otherwise on purpose.
    fn otherwise(&self, kind: &str, expected: &Value) -> Result<Verdict, Error> {
        let numbers = self.numbers::<f32>(&self.rows())?;
        Ok(match kind {
            "default_mesh_exception_leak" => {
                let whole = Layout::replicated(&self.mesh, 1);
                let fails = || Err::<DTensor<f32>, _>(Error::NotHere);
                let failed = self.context.call_with_layout(&whole, fails).is_err();
                deviates(
                    SCOPES_END,
                    Found::is(&[failed, current_default_mesh().is_none()]),
                )
            }
            "mixed_operand_scalars" => {
                let scalars = ["python_float", "np_scalar", "tf_scalar"];
                let sum = numbers.add_scalar(1.5)?;
                let kept = scalars
                    .iter()
                    .all(|form| differs(&sum, &expected[form]).is_none());
                // A whole number is one of the elements' type here; arrays are copied by name.
                let copied = self
                    .context
                    .copy_to_mesh(numbered::<f32>(&[4]), &Layout::replicated(&self.mesh, 1))?;
                let lies = numbers.add(&copied)?.layout() == numbers.layout();
                deviates(PLAIN_ARRAYS, Found::is(&[kept, lies]))
            }
            "name_based_save_restore" => {
                let a = self.saved(&self.numbers::<f32>(&self.rows())?, ["unsharded", "x"])?;
                let wide = numbered::<i32>(&[4, 8]);
                let wide = self
                    .context
                    .copy_to_mesh(wide, &self.layout(["x", "unsharded"]))?;
                let b = self.saved(&wide, ["unsharded", "y"])?;
                let problem = differs(&a, &expected["a"]).or_else(|| differs(&b, &expected["b"]));
                // Which files there are is left out: their form is another.
                problem.map_or_else(|| Verdict::by(CHECKPOINT_FILES), Verdict::Failed)
            }
            "train_checkpoint" => {
                let read = self.saved(&numbers, ["x", "unsharded"])?;
                let problem = differs(&read, &expected["var"]);
                problem.map_or_else(|| Verdict::by(CHECKPOINT_FILES), Verdict::Failed)
            }
            _ => {
                let gradient = squares_gradient(&numbers)?;
                let right = gradient.to_host()? == numbered::<f32>(&[4, 4]).mapv(|x| 2.0 * x);
                deviates(SEEDED_GRADIENTS, Found::is(&[right]))
            }
        })
    }

    /// A tensor written, and read by another layout.
    fn saved<T: Scalar>(&self, tensor: &DTensor<T>, names: [&str; 2]) -> Result<DTensor<T>, Error> {
        // Another name each time: clients that are behind still read the one before.
        let from = tensor.layout().specs().map(ToString::to_string);
        let name = [&from.collect::<Vec<_>>().join("-"), names[0], names[1]].join("-");
        let prefix = self.folder.join(name);
        self.context.save(&prefix, &[("t", tensor)])?;
        self.context.restore(&prefix, "t", &self.layout(names))
    }

    /// A step of gradient descent on the sum of squares.
    fn trained(&self, expected: &Value) -> Result<Verdict, Error> {
        let mut variable = DVariable::new(self.numbers::<f32>(&self.rows())?);
        let gradient = squares_gradient(variable.value())?;
        variable.assign_sub(&gradient.scale(0.5)?)?;
        let problem = differs(&gradient, &expected["grad"]);
        Ok(verdict(
            problem.or_else(|| differs(variable.value(), &expected["var"])),
        ))
    }
}

/// The gradient of the sum of the squares of a tensor.
fn squares_gradient(tensor: &DTensor<f32>) -> Result<DTensor<f32>, Error> {
    let squares = tensor.mul(tensor)?;
    let sum = squares.sum(&ReduceAxes::axes([0, 1]))?;
    let seed = sum.map(|_| 1.0)?;
    let op = Op::Reduce {
        reducer: meshwork_layout::ops::Reducer::Sum,
        axes: vec![0, 1],
        reduced: meshwork_layout::ops::ReducedAxes::Removed,
    };
    let by_squares = DTensor::gradients(&op, &[&squares], &seed, &|_, _| 0.0)?.remove(0);
    let slope = |_, x: &[f32]| 2.0 * x[0] * x[1];
    Ok(DTensor::gradients(&Op::Elementwise, &[tensor], &by_squares, &slope)?.remove(0))
}

/// Whether what is shown of a tensor has all that TensorFlow prints of it: the shape, the block of
/// each device in order, and the layout, of which the beginning is recorded.
fn shows(shown: &str, recorded: &str) -> bool {
    let part = |begin: &str, end: &str| {
        let rest = &recorded[recorded.find(begin)? + begin.len()..];
        Some(&rest[..rest.find(end).unwrap_or(rest.len())])
    };
    let (Some(shape), Some(blocks), Some(layout)) = (
        part("shape=(", ")"),
        part("value={", "}"),
        part("layout=\"", "\""),
    ) else {
        return false;
    };
    let mut rest = shown;
    let mut follows = |text: &str| {
        let found = rest.find(text).map(|at| at + text.len());
        rest = found.map_or("", |end| &rest[end..]);
        found.is_some()
    };
    let mut blocks = blocks
        .split("\"CPU:")
        .skip(1)
        .filter_map(|block| block.split_once(": "));
    follows(&format!("shape: [{shape}]"))
        && follows(&format!("layout: \"{layout}"))
        && blocks.all(|(device, block)| {
            let numbers = block.trim_end_matches(", ").replace(' ', ", ");
            follows(&format!(
                "(MeshRank({}), {numbers}",
                device.trim_end_matches('"')
            ))
        })
}
