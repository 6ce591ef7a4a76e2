//! Every public op of tensors is recorded, or is in a list of those that are not, with the reason:
//! one that forgot to be recorded would have no gradient, and be missing in programs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use meshwork_layout::ops::{
    Activation, AttentionMask, Convolution, Normalization, Pool, Pooling, Turn, Windows,
};
use meshwork_layout::{LayoutPattern, SpecPattern};

use super::*;
use crate::record::AnyTensor;
use crate::{DTensor, Error};

type Results = Result<Vec<AnyTensor>, Error>;
type Call = fn(&DTensor<f64>) -> Results;

/// What makes other tensors of one with nobody to record it, and why that is right.
const UNRECORDED: [(&str, &str, Call); 2] = [
    ("stop_gradient", "it is there to end recording", |x| {
        one(Ok(x.stop_gradient()))
    }),
    ("zeros_like", "no element of it depends on one", |x| {
        one(x.zeros_like())
    }),
];

fn one<T: crate::Scalar>(made: Result<DTensor<T>, Error>) -> Results {
    Ok(vec![Arc::new(made?)])
}

fn all<T: crate::Scalar>(made: impl IntoIterator<Item = DTensor<T>>) -> Results {
    Ok(made
        .into_iter()
        .map(|made| Arc::new(made) as AnyTensor)
        .collect())
}

/// Four rows of four as images of one channel.
fn images(x: &DTensor<f64>) -> Result<DTensor<f64>, Error> {
    x.reshape(&[Some(1), Some(4), Some(4), Some(1)])
}

/// The same as a filter.
fn filter(x: &DTensor<f64>) -> Result<DTensor<f64>, Error> {
    x.reshape(&[Some(4), Some(4), Some(1), Some(1)])
}

/// Its first row.
fn row(x: &DTensor<f64>) -> Result<DTensor<f64>, Error> {
    x.slice(&[0, 0], &[Some(1), None])?.reshape(&[Some(4)])
}

fn indices(x: &DTensor<f64>) -> Result<DTensor<i64>, Error> {
    let layout = Layout::replicated(x.layout().mesh(), 1);
    x.context().copy_to_mesh(array![1_i64, 0, 3, 1], &layout)
}

fn square() -> (Convolution, Pool) {
    let pool = Pool::new(Pooling::Mean, [2, 2]);
    (Convolution::new(Windows::strides([1, 1])), pool)
}

/// Ops of elements, and of elements along axes.
const ELEMENTS: &[(&str, Call)] = &[
    ("activation", |x| one(x.activation(Activation::Silu))),
    ("activation_gradient", |x| {
        one(x.activation_gradient(x, Activation::Tanh))
    }),
    ("gelu", |x| one(x.gelu())),
    ("silu", |x| one(x.silu())),
    ("sigmoid", |x| one(x.sigmoid())),
    ("tanh", |x| one(x.tanh())),
    ("elementwise", |x| {
        one(DTensor::elementwise(&[x, x], &|at| at[0] - at[1]))
    }),
    ("apply", |x| {
        all(DTensor::apply(&Op::Softmax { axis: 0 }, &[x], &|_| 0.0)?)
    }),
    ("gradients", |x| {
        let op = Op::Softmax { axis: 0 };
        all(DTensor::gradients(&op, &[x], x, &|_, _| 0.0)?)
    }),
    ("zip_with", |x| one(x.zip_with(x, |a, b| a * b))),
    ("map", |x| one(x.map(|a| a * a))),
    ("cast", |x| one(x.cast::<f32>())),
    ("select", |x| one(x.cast::<bool>()?.select(x, x))),
    ("add", |x| one(x.add(x))),
    ("sub", |x| one(x.sub(x))),
    ("mul", |x| one(x.mul(x))),
    ("div", |x| one(x.div(x))),
    ("neg", |x| one(x.neg())),
    ("relu", |x| one(x.relu())),
    ("scale", |x| one(x.scale(2.0))),
    ("add_scalar", |x| one(x.add_scalar(2.0))),
    ("bias_add", |x| one(x.bias_add(&row(x)?))),
    ("cumsum", |x| one(x.cumsum(0))),
    ("exp", |x| one(x.exp())),
    ("ln", |x| one(x.ln())),
    ("sum", |x| one(x.sum(&ReduceAxes::axes([0])))),
    ("sum_all", |x| one(x.sum_all())),
    ("mean_all", |x| one(x.mean_all())),
    ("mean", |x| one(x.mean(&ReduceAxes::axes([0])))),
    ("product", |x| one(x.product(&ReduceAxes::axes([0])))),
    ("min", |x| one(x.min(&ReduceAxes::axes([0])))),
    ("max", |x| one(x.max(&ReduceAxes::axes([0])))),
    ("argmax", |x| one(x.argmax(0))),
    ("argmin", |x| one(x.argmin(0))),
    ("any", |x| {
        one(x.cast::<bool>()?.any(&ReduceAxes::axes([0])))
    }),
    ("all", |x| {
        one(x.cast::<bool>()?.all(&ReduceAxes::axes([0])))
    }),
    ("softmax", |x| one(x.softmax(0))),
    ("log_softmax", |x| one(x.log_softmax(0))),
    ("cross_entropy", |x| {
        let (loss, slope) = x.cross_entropy(x)?;
        all([loss, slope])
    }),
    ("sparse_cross_entropy", |x| {
        let (loss, slope) = x.sparse_cross_entropy(&indices(x)?)?;
        all([loss, slope])
    }),
];

/// Ops that move elements.
const MOVES: &[(&str, Call)] = &[
    ("transpose", |x| one(x.transpose(&[1, 0]))),
    ("reshape", |x| one(x.reshape(&[Some(16)]))),
    ("expand_dims", |x| one(x.expand_dims(0))),
    ("squeeze", |x| one(x.expand_dims(0)?.squeeze(&[0]))),
    ("broadcast_to", |x| one(x.broadcast_to(&[2, 4, 4]))),
    ("tile", |x| one(x.tile(&[2, 1]))),
    ("pad", |x| one(x.pad(&[(1, 0), (0, 0)]))),
    ("shape_of", |x| one(x.shape_of())),
    ("concat", |x| one(DTensor::concat(0, &[x, x]))),
    ("stack", |x| one(DTensor::stack(0, &[x, x]))),
    ("split", |x| all(x.split(0, &Parts::Equal(2))?)),
    ("unstack", |x| all(x.unstack(0)?)),
    ("slice", |x| one(x.slice(&[1, 0], &[None, None]))),
    ("strided_slice", |x| one(x.strided_slice(&[Index::At(1)]))),
    ("gather", |x| one(x.gather(&indices(x)?, 0))),
    ("one_hot", |x| one(x.one_hot::<f64>(4))),
    ("into_devices", |x| one(x.clone().into_devices())),
    ("relayout", |x| one(x.relayout(&layouts(2)[2]))),
    ("into_layout", |x| {
        one(x.clone().into_layout(&layouts(2)[2]))
    }),
    ("relayout_by", |x| {
        let both = [SpecPattern::Any, SpecPattern::Any];
        one(x.relayout_by(&LayoutPattern::new(both, x.layout().mesh())?))
    }),
    ("relayout_like", |x| one(x.relayout_like(&x.cast::<f32>()?))),
    ("replicate", |x| one(x.replicate())),
];

/// Products, and ops of networks.
const NETWORKS: &[(&str, Call)] = &[
    ("matmul", |x| one(x.matmul(x))),
    ("matmul_stored", |x| {
        one(x.matmul_stored(x, [Orientation::Transposed; 2]))
    }),
    ("einsum", |x| {
        let equation: Equation = "ab,bc->ac".parse().unwrap();
        one(x.einsum(&equation, &[x]))
    }),
    ("attention", |x| {
        one(x.attention(x, x, AttentionMask::Causal))
    }),
    ("rotary", |x| one(x.rotary(100.0, Turn::Forward))),
    ("convolution", |x| {
        one(images(x)?.convolution(&filter(x)?, &square().0))
    }),
    ("convolution_input_gradient", |x| {
        let upstream = x.sum_all()?.reshape(&[Some(1); 4])?;
        one(upstream.convolution_input_gradient(&filter(x)?, &square().0, &[4, 4]))
    }),
    ("convolution_filter_gradient", |x| {
        let upstream = x.sum_all()?.reshape(&[Some(1); 4])?;
        one(images(x)?.convolution_filter_gradient(&upstream, &square().0, &[4, 4]))
    }),
    ("pool", |x| one(images(x)?.pool(&square().1))),
    ("pool_gradient", |x| {
        let upstream = images(x)?.pool(&square().1)?;
        one(images(x)?.pool_gradient(&upstream, &square().1))
    }),
    ("embedding", |x| one(x.embedding(&indices(x)?))),
    ("embedding_gradient", |x| {
        one(x.embedding_gradient(&indices(x)?, x))
    }),
    ("normalize", |x| {
        one(x.normalize(&Normalization::new([-1], 1e-3)))
    }),
    ("moments", |x| {
        let (mean, variance) = x.moments(&[0])?;
        all([mean, variance])
    }),
    ("standardize", |x| {
        one(x.standardize(&row(x)?, &row(x)?.exp()?, 1e-3))
    }),
    ("layer_norm", |x| {
        one(x.layer_norm(&row(x)?, &row(x)?, 1e-3))
    }),
    ("rms_norm", |x| one(x.rms_norm(&row(x)?, 1e-3))),
    ("batch_norm", |x| {
        let made = x.batch_norm(&row(x)?, &row(x)?, 1e-3)?;
        all([made.output, made.mean, made.variance])
    }),
    ("batch_norm_by", |x| {
        let row = row(x)?;
        let power = row.exp()?;
        one(x.batch_norm_by([&row, &power], [&row, &row], 1e-3))
    }),
    ("group_norm", |x| {
        one(x.group_norm(2, [&row(x)?, &row(x)?], 1e-3))
    }),
];

/// The names of public functions in `impl` blocks of tensors that return tensors, and of those
/// within what they return.
fn declared(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            declared(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(declared_in(&fs::read_to_string(&path).unwrap()));
        }
    }
}

fn declared_in(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for block in text.split("\nimpl").skip(1) {
        let block = &block[..block.find("\n}").unwrap_or(block.len())];
        let (head, body) = block.split_once('{').unwrap();
        if !head.contains(" DTensor<") || head.contains(" for ") {
            continue;
        }
        for function in body.split("\n    pub fn ").skip(1) {
            let (name, rest) = function.split_once(['(', '<']).unwrap();
            let head = &rest[..rest.find(" {\n").unwrap()];
            let made = head.rsplit_once("->").map_or("", |(_, made)| made);
            let is_tensor = ["Self", "DTensor<", "BatchNormOutput<"];
            if is_tensor.iter().any(|kind| made.contains(kind)) {
                names.push(name.to_owned());
            }
        }
    }
    names
}

#[test]
fn every_public_op_is_in_a_list_of_those_that_are_recorded_or_not() {
    let mut declared_ops = BTreeSet::new();
    declared(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut declared_ops,
    );
    let recorded = [ELEMENTS, MOVES, NETWORKS].into_iter().flatten();
    let listed = recorded.map(|(name, _)| *name);
    let listed = listed.chain(UNRECORDED.iter().map(|(name, ..)| *name));
    let listed: BTreeSet<String> = listed.map(str::to_owned).collect();
    let missing: Vec<_> = declared_ops.difference(&listed).collect();
    assert!(missing.is_empty(), "in no list of this test: {missing:?}");
    let gone: Vec<_> = listed.difference(&declared_ops).collect();
    assert!(
        gone.is_empty(),
        "listed, and no public op of tensors: {gone:?}"
    );
}

/// Recorded, and without a gradient: functions of the program, and what has no rule.
const WITHOUT_GRADIENT: [&str; 4] = ["elementwise", "map", "product", "zip_with"];

/// A gradient by `x` of what an op made of it is a function of `x` too, and recorded as such.
fn check_gradient(name: &str, made: &DTensor<f64>, tapes: [&Tape; 2], x: &DTensor<f64>) {
    let [outer, inner] = tapes;
    let target = made.mul(made).unwrap().sum_all().unwrap();
    match inner.gradients(&target, &[x]) {
        Ok(found) => {
            let found = found[0].as_ref();
            let value = found.map(|found| found.trace().value_in(&outer.recording));
            let is_recorded = matches!(value, Some(Some(_)));
            assert_eq!(is_recorded, name != "one_hot", "{name}: {found:?}");
        }
        Err(Error::NoDerivative { .. }) => assert!(WITHOUT_GRADIENT.contains(&name), "{name}"),
        Err(other) => panic!("{name}: {other}"),
    }
}

#[test]
fn ops_are_recorded_as_their_list_says_and_so_are_their_gradients() {
    let layout = &Layout::replicated(&mesh(), 2);
    let whole = numbers(&[4, 4]).mapv(|x| x.abs() + 0.5);
    let given = context().copy_to_mesh(whole, layout).unwrap();
    for (name, call) in [ELEMENTS, MOVES, NETWORKS].into_iter().flatten() {
        let (outer, inner) = (Tape::new(), Tape::persistent());
        let x = inner.watch(&outer.watch(&given));
        for made in call(&x).unwrap_or_else(|error| panic!("{name}: {error}")) {
            let value = made.trace().value_in(&inner.recording);
            assert!(value.is_some(), "{name} is not recorded");
            if let Some(made) = made.typed() {
                check_gradient(name, made, [&outer, &inner], &x);
            }
        }
    }
    for (name, why, call) in UNRECORDED {
        let tape = Tape::new();
        for made in call(&tape.watch(&given)).unwrap() {
            assert!(
                !made.trace().is_recorded(),
                "{name} is recorded, though {why}"
            );
        }
    }
}

#[test]
fn an_op_that_is_in_no_list_is_found() {
    let text = "\nimpl<T: Scalar> DTensor<T> {\n    /// Docs.\n    pub fn cube(&self) -> Result<Self, Error> {\n    \
        }\n\n    pub fn rank(&self) -> usize {\n    }\n\n    fn own(&self) -> Self {\n    }\n}\n\
        \nimpl<T: Scalar> Debug for DTensor<T> {\n    pub fn other(&self) -> Self {\n    }\n}\n";
    assert_eq!(declared_in(text), ["cube"]);
}
