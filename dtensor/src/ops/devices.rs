//! Arithmetic by the backend of a mesh's devices; what it does not have the host does.

use meshwork_accel::{Pairwise, Pointwise, ProductShape};
use meshwork_layout::Shape;
use meshwork_layout::ops::{Op, Orientation};

use super::local::Local;
use super::{Call, kernel};
use crate::record::{Primitive, Record};
use crate::{DTensor, Error, Number};

impl Call {
    /// Products of matrices, by their devices; none where the host has to make them.
    #[track_caller]
    pub(super) fn multiplied<T: Number>(
        &self,
        operands: [&DTensor<T>; 2],
        stored: [Orientation; 2],
    ) -> Result<Option<DTensor<T>>, Error> {
        let sizes = self.sizes(0)?;
        let [left, right] = operands.map(Local::of);
        if left.computing().is_none() {
            return Ok(None);
        }
        let left = left.stacked(stored[0], &sizes)?;
        let right = right.stacked(stored[1], &sizes)?;
        let product = left.times(&right, &sizes)?;
        product.map(|made| self.finish(0, made)).transpose()
    }
}

impl<T: Number> DTensor<T> {
    /// An op of the elements at the same index, by the backend's name and the host's function.
    #[track_caller]
    pub(super) fn combined(
        &self,
        op: &Op,
        pairwise: Pairwise,
        function: impl Fn(T, T) -> T,
        other: &Self,
    ) -> Result<Self, Error> {
        let call = Call::of(op, self.context(), &[self.placement(), other.placement()])?;
        let call = match op {
            Op::Elementwise => call.named(Primitive::Pairwise(pairwise)),
            _ => call,
        };
        let (left, right) = (call.operand(0, self)?, call.operand(1, other)?);
        let (left, right) = (Local::of(&left), Local::of(&right));
        call.finish(
            0,
            left.pairwise(pairwise, function, &right, &call.sizes(0)?)?,
        )
    }

    /// An op of each element, by the backend's name and the host's function.
    #[track_caller]
    pub(super) fn alone(
        &self,
        pointwise: Pointwise,
        function: impl Fn(T) -> T,
    ) -> Result<Self, Error> {
        let reduced = self.reduce_partial()?;
        let made = Local::of(&reduced).pointwise(pointwise, function)?;
        let made = made.tensor(reduced.placement().clone())?;
        Record::of(Primitive::Pointwise(pointwise))
            .with(&reduced)
            .result(0, made)
    }

    /// An op of each element and a number.
    #[track_caller]
    pub(crate) fn by_number(
        &self,
        pairwise: Pairwise,
        function: impl Fn(T, T) -> T,
        number: T,
    ) -> Result<Self, Error> {
        let reduced = self.reduce_partial()?;
        let record =
            Record::of(Primitive::ByNumber(pairwise, number.to_f64().into())).with(&reduced);
        let local = Local::of(&reduced);
        if local.shaped().is_none() {
            let made = local.here(|_, block| block.mapv(|element| function(element, number)))?;
            return record.result(0, made.tensor(reduced.placement().clone())?);
        }
        let sizes = local.sizes().to_vec();
        let numbers = sizes.iter().map(|sizes| {
            let one = vec![1; sizes.len()];
            kernel::filled(&one, [number])
        });
        let mesh = reduced.layout().mesh();
        let numbers = Local::on(self.context(), mesh, numbers.collect());
        let made = local.pairwise(pairwise, function, &numbers.carried()?, &sizes)?;
        record.result(0, made.tensor(reduced.placement().clone())?)
    }
}

impl<T: Number> Local<T> {
    /// The matrices as they are meant, one for each place of the product's stack.
    fn stacked(&self, stored: Orientation, products: &[Shape]) -> Result<Self, Error> {
        let own = self.carried()?;
        let rank = own.sizes().first().map_or(2, |sizes| sizes.len());
        let turned = match stored {
            Orientation::Plain => own,
            Orientation::Transposed => {
                let mut order: Vec<usize> = (0..rank).collect();
                order.swap(rank - 2, rank - 1);
                own.transposed(&order)?
            }
        };
        let wide = turned.sizes().iter().zip(products).map(|(own, product)| {
            let (stack, matrix) = (&product[..product.len() - 2], &own[own.len() - 2..]);
            Shape::from([stack, matrix].concat())
        });
        let wide: Vec<Shape> = wide.collect();
        turned.spread(&wide)
    }

    /// The products of stacks of matrices, which have these sizes; none where the backend does not
    /// have them.
    fn times(&self, right: &Self, sizes: &[Shape]) -> Result<Option<Self>, Error> {
        let Some(site) = self.computing() else {
            return Ok(None);
        };
        let (lefts, rights) = (self.at(site)?, right.at(site)?);
        self.there(sizes.to_vec(), |place| {
            let (stack, matrix) = sizes[place].split_at(sizes[place].len() - 2);
            let inner = right.sizes()[place][sizes[place].len() - 2];
            let matrices = [matrix[0], inner, matrix[1]];
            let shape = ProductShape::stacked(stack.iter().product(), matrices)?;
            site.backend
                .product(shape, size_of::<T>(), &lefts[place], &rights[place])
        })
    }

    /// The products of stacks of matrices, which have these sizes, wherever they are made.
    pub(super) fn multiplied(&self, right: &Self, sizes: &[Shape]) -> Result<Self, Error> {
        if let Some(products) = self.times(right, sizes)? {
            return Ok(products);
        }
        let rights = right.views()?;
        self.here(|place, block| {
            let matrices = [block, rights[place].view()];
            kernel::matmul(matrices, [Orientation::Plain; 2], &sizes[place])
        })
    }

    /// The same blocks, on their devices too where those compute and arrange.
    pub(super) fn carried(&self) -> Result<Self, Error> {
        if let Some(site) = self.computing().filter(|site| site.backend.arranges()) {
            self.at(site)?;
        }
        Ok(self.clone())
    }
}
