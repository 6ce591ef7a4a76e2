//! Ops on tensors: each client works on its blocks as [`infer`] says, after bringing operands into
//! the layouts that it asks for, and then brings the results into theirs.

use meshwork_layout::ops::{Inferred, Op, PartialAllReduce, TensorLayout, infer};
use meshwork_layout::{Layout, Shape, ShardingSpec};
use ndarray::{ArrayD, ArrayViewD};

use crate::exchange::Block;
use crate::record::{Primitive, Record};
use crate::{Context, DTensor, Error, Scalar};
use local::Local;

mod activation;
mod apply;
mod attention;
mod contract;
mod convolution;
mod devices;
mod einsum;
mod embedding;
mod gradient;
mod join;
mod kernel;
pub(crate) mod local;
mod network;
mod normalize;
mod pointwise;
mod rearrange;
mod reduce;
mod rotary;
mod slice;
mod softmax;

pub use apply::Function;
pub(crate) use convolution::is_short;
pub(crate) use gradient::all;
pub(crate) use kernel::filled;
pub(crate) use local::computes;
pub use normalize::BatchNormOutput;
pub use reduce::ReduceAxes;
pub(crate) use slice::strides;

/// An op that is being carried out.
struct Call {
    context: Context,
    inferred: Inferred,
    record: Record,
}

impl Call {
    /// How an op is carried out on these operands, all of one context.
    #[track_caller]
    fn of(op: &Op, context: &Context, operands: &[&TensorLayout]) -> Result<Self, Error> {
        Ok(Self {
            context: context.clone(),
            inferred: infer(op, operands)?,
            record: Record::of(Primitive::Op(op.clone())),
        })
    }

    /// The same op, of which its parameters do not say everything, by what it does.
    fn named(self, primitive: Primitive) -> Self {
        let record = self.record.named(primitive);
        Self { record, ..self }
    }

    /// An operand in the layout that is needed.
    #[track_caller]
    fn operand<T: Scalar>(&self, number: usize, given: &DTensor<T>) -> Result<DTensor<T>, Error> {
        if !given.context().is_same(&self.context) {
            return Err(Error::OtherContext);
        }
        self.record.note(given);
        given
            .untraced()
            .into_layout(&self.inferred.operands()[number])
    }

    /// The all-reduce of this number among those that are needed on the way, if it is.
    fn within(&self, number: usize) -> Option<&PartialAllReduce> {
        self.inferred.within().get(number)
    }

    /// How many results there are.
    fn results(&self) -> usize {
        self.inferred.results().len()
    }

    /// A result by its block at each place of this client, of which the sizes are known.
    #[track_caller]
    fn result<T: Scalar>(
        &self,
        number: usize,
        block: impl Fn(usize, &[usize]) -> Result<ArrayD<T>, Error>,
    ) -> Result<DTensor<T>, Error> {
        let mut blocks = Vec::new();
        for (place, sizes) in self.sizes(number)?.iter().enumerate() {
            blocks.push(standard(block(place, sizes)?));
        }
        self.made_of(number, blocks)
    }

    /// The sizes of the blocks of a result, in the order of this client's places.
    #[track_caller]
    fn sizes(&self, number: usize) -> Result<Vec<Shape>, Error> {
        let outcome = &self.inferred.results()[number];
        let shape = outcome.placement().shape();
        let device_placement = self.context.device_placement(outcome.produced().mesh())?;
        let sizes = device_placement.local().iter();
        let sizes = sizes.map(|rank| outcome.produced().local_shape(*rank, shape));
        Ok(sizes.collect::<Result<_, _>>()?)
    }

    /// A result that other ops have made of the operands, as that of this op.
    #[track_caller]
    fn composed<T: Scalar>(&self, number: usize, made: &DTensor<T>) -> Result<DTensor<T>, Error> {
        let made = made.untraced();
        let made = made.into_layout(self.inferred.results()[number].layout())?;
        self.record.result(number, made)
    }

    /// A result of what this client's places have made.
    #[track_caller]
    fn finish<T: Scalar>(&self, number: usize, made: Local<T>) -> Result<DTensor<T>, Error> {
        let made = made.tensor(self.produced(number)?)?;
        let made = made.into_layout(self.inferred.results()[number].layout())?;
        self.record.result(number, made)
    }

    /// A result of these blocks.
    #[track_caller]
    fn made_of<T: Scalar>(
        &self,
        number: usize,
        blocks: Vec<Block<T>>,
    ) -> Result<DTensor<T>, Error> {
        let made = DTensor::of(&self.context, self.produced(number)?, blocks)?;
        let made = made.into_layout(self.inferred.results()[number].layout())?;
        self.record.result(number, made)
    }

    /// The layout in which the op produces a result.
    fn produced(&self, number: usize) -> Result<TensorLayout, Error> {
        let outcome = &self.inferred.results()[number];
        let shape = outcome.placement().shape().iter().copied();
        Ok(TensorLayout::new(shape, outcome.produced().clone())?)
    }
}

impl<T: Scalar> DTensor<T> {
    /// The only result of an op with this operand, by a function of its block and of the sizes of
    /// the result's.
    #[track_caller]
    fn by_block<R: Scalar>(
        &self,
        op: &Op,
        kernel: impl Fn(ArrayViewD<'_, T>, &[usize]) -> ArrayD<R>,
    ) -> Result<DTensor<R>, Error> {
        let call = Call::of(op, self.context(), &[self.placement()])?;
        let operand = call.operand(0, self)?;
        call.result(0, |place, sizes| {
            Ok(kernel(operand.unpack()?[place].view(), sizes))
        })
    }

    /// The only result of an op with this operand, by what a client makes of its blocks and of the
    /// sizes of the result's.
    #[track_caller]
    fn by_local(
        &self,
        op: &Op,
        make: impl Fn(Local<T>, &[Shape]) -> Result<Local<T>, Error>,
    ) -> Result<Self, Error> {
        let call = Call::of(op, self.context(), &[self.placement()])?;
        let operand = call.operand(0, self)?;
        let made = make(Local::of(&operand), &call.sizes(0)?)?;
        call.finish(0, made)
    }

    /// Blocks that have this tensor's layout but for some axes, which have size 1, made the same
    /// along them by an all-reduce if one is needed.
    #[track_caller]
    fn joined(
        &self,
        axes: &[usize],
        blocks: Local<T>,
        collective: Option<&PartialAllReduce>,
    ) -> Result<Local<T>, Error> {
        let Some(collective) = collective else {
            return Ok(blocks);
        };
        let specs = self.layout().specs().cloned().enumerate();
        let specs = specs.map(|(place, spec)| match axes.contains(&place) {
            true => ShardingSpec::unsharded(),
            false => spec,
        });
        let layout = Layout::new(specs, self.layout().mesh())?;
        let layout = layout.with_partial(collective.dims(), collective.reduction())?;
        let mut shape = Shape::from(self.shape());
        axes.iter().for_each(|&axis| shape[axis] = 1);
        let terms = blocks.tensor(TensorLayout::new(shape, layout)?)?;
        Ok(Local::of(&terms.reduce_partial()?))
    }
}

/// The blocks of several tensors at one place.
fn views<T: Scalar>(tensors: &[DTensor<T>], place: usize) -> Result<Vec<ArrayViewD<'_, T>>, Error> {
    let views = tensors
        .iter()
        .map(|tensor| Ok(tensor.unpack()?[place].view()));
    views.collect()
}

/// The same block with its elements row-major in memory.
fn standard<T: Scalar>(block: ArrayD<T>) -> Block<T> {
    match block.is_standard_layout() {
        true => block.into_shared(),
        false => block.as_standard_layout().into_owned().into_shared(),
    }
}

/// The place of an axis that may be counted from the end; one that is known to exist.
pub(crate) fn place(axis: isize, rank: usize) -> usize {
    match axis < 0 {
        true => rank.saturating_sub(axis.unsigned_abs()),
        false => axis.unsigned_abs(),
    }
}

#[cfg(test)]
mod tests;
