//! Arithmetic by the backend of a mesh's devices; what it does not have the host does.

use meshwork_accel::{Pairwise, Pointwise, ProductShape};
use meshwork_layout::Shape;
use meshwork_layout::ops::{Op, Orientation};

use super::{Call, kernel};
use crate::backend::Made;
use crate::blocks::{Site, There};
use crate::{DTensor, Error, Number, Scalar};

impl Call {
    /// Where arithmetic for a result is done; none where that is the host.
    fn site<T: Scalar>(&self, number: usize) -> Option<Site> {
        let mesh = self.inferred.results()[number].produced().mesh();
        let site = self.context.site(mesh)?;
        site.backend.computes(T::TYPE).then_some(site)
    }

    /// A result by its block on each device, by place and sizes; none where the backend does not have
    /// the op.
    #[track_caller]
    fn there<T: Scalar>(
        &self,
        number: usize,
        block: impl Fn(usize, &[usize]) -> Made,
    ) -> Result<Option<DTensor<T>>, Error> {
        let sizes = self.sizes(number)?;
        let mut blocks = Vec::new();
        for (place, sizes) in sizes.iter().enumerate() {
            match block(place, sizes)? {
                Some(block) => blocks.push(block),
                None => return Ok(None),
            }
        }
        let made = DTensor::stored(&self.context, self.produced(number)?, (sizes, blocks))?;
        let layout = self.inferred.results()[number].layout();
        made.into_layout(layout).map(Some)
    }

    /// Products of matrices, by their devices.
    #[track_caller]
    pub(super) fn multiplied<T: Number>(
        &self,
        [left, right]: [&DTensor<T>; 2],
        stored: [Orientation; 2],
    ) -> Result<Option<DTensor<T>>, Error> {
        let Some(site) = self.site::<T>(0) else {
            return Ok(None);
        };
        let sizes = self.sizes(0)?;
        let lefts = left.stacked_at(&site, stored[0], &sizes)?;
        let rights = right.stacked_at(&site, stored[1], &sizes)?;
        let along = match stored[0] {
            Orientation::Plain => left.rank() - 1,
            Orientation::Transposed => left.rank() - 2,
        };
        self.there(0, |place, sizes| {
            let (stack, matrix) = sizes.split_at(sizes.len() - 2);
            let inner = left.blocks().shapes()[place][along];
            let sizes = [matrix[0], inner, matrix[1]];
            let shape = ProductShape::stacked(stack.iter().product(), sizes)?;
            let shape = (shape, size_of::<T>());
            site.backend.product(shape, &lefts[place], &rights[place])
        })
    }
}

impl<T: Number> DTensor<T> {
    /// An op of the elements at the same index, by the backend's name and the host's function.
    #[track_caller]
    pub(super) fn combined(
        &self,
        op: &Op,
        (pairwise, function): (Pairwise, impl Fn(T, T) -> T),
        other: &Self,
    ) -> Result<Self, Error> {
        let call = Call::of(op, self.context(), &[self.placement(), other.placement()])?;
        let operands = [call.operand(0, self)?, call.operand(1, other)?];
        if let Some(site) = call.site::<T>(0) {
            let [left, right] = operands
                .each_ref()
                .map(|operand| operand.spread_at(&call, &site));
            let (left, right) = (left?, right?);
            let made = call.there(0, |place, _| {
                site.backend.pairwise(pairwise, &left[place], &right[place])
            })?;
            if let Some(made) = made {
                return Ok(made);
            }
        }
        let [left, right] = operands;
        call.result(0, |place, sizes| {
            let blocks = (left.unpack()?[place].view(), right.unpack()?[place].view());
            Ok(kernel::zip(blocks, sizes, &function))
        })
    }

    /// The blocks on the devices, repeated to the sizes of the result's.
    fn spread_at(&self, call: &Call, site: &Site) -> Result<There, Error> {
        let sizes = call.sizes(0)?;
        if self.blocks().shapes() == sizes {
            return self.blocks().at(site);
        }
        let blocks = self.unpack()?.iter().zip(&sizes).zip(&site.devices);
        let blocks = blocks.map(|((block, sizes), device)| {
            let block = block.view();
            let wide = kernel::spread(&block, sizes);
            site.backend.upload(*device, &wide)
        });
        blocks.collect()
    }

    /// The matrices on the devices as they are meant, one for each place of the product's stack.
    fn stacked_at(
        &self,
        site: &Site,
        stored: Orientation,
        products: &[Shape],
    ) -> Result<There, Error> {
        let lies = |(own, product): (&Shape, &Shape)| {
            own.len() == product.len() && own[..own.len() - 2] == product[..own.len() - 2]
        };
        let mut both = self.blocks().shapes().iter().zip(products);
        if stored == Orientation::Plain && both.all(lies) {
            return self.blocks().at(site);
        }
        let blocks = self.unpack()?.iter().zip(products).zip(&site.devices);
        let blocks = blocks.map(|((block, product), device)| {
            let stack = kernel::stack(block.view(), stored, product);
            site.backend.upload(*device, &stack.view())
        });
        blocks.collect()
    }

    /// An op of each element, by the backend's name and the host's function.
    #[track_caller]
    pub(super) fn alone(
        &self,
        pointwise: Pointwise,
        function: impl Fn(T) -> T,
    ) -> Result<Self, Error> {
        let settled = self.settled()?;
        match settled.alone_there(pointwise)? {
            Some(made) => Ok(made),
            None => settled.map(function),
        }
    }

    fn alone_there(&self, pointwise: Pointwise) -> Result<Option<Self>, Error> {
        let site = self.context().site(self.layout().mesh());
        let Some(site) = site.filter(|site| site.backend.computes(T::TYPE)) else {
            return Ok(None);
        };
        let blocks = self.blocks().at(&site)?.into_iter();
        let made = blocks.map(|block| site.backend.pointwise(pointwise, &block));
        let Some(made) = made.collect::<Result<Option<Vec<_>>, _>>()? else {
            return Ok(None);
        };
        let blocks = (self.blocks().shapes().to_vec(), made);
        Self::stored(self.context(), self.placement().clone(), blocks).map(Some)
    }
}
