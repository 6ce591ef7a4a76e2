//! What one client does with its blocks in the middle of an op: on their devices as far as the
//! backend has it, else on the host.
//!
//! Arithmetic takes blocks to the devices; what moves them or makes them fewer is done where they
//! are.

use std::ops::Range;
use std::sync::Arc;

use meshwork_accel::{Arrangement, Pairwise, Pointwise, ReduceOp, Region};
use meshwork_core::Mesh;
use meshwork_layout::Shape;
use meshwork_layout::ops::TensorLayout;
use ndarray::{ArrayD, ArrayViewD};

use super::kernel::{self, Monoid};
use super::standard;
use crate::backend::{BackendResult, DeviceBlocks, LocalDevices, Whole};
use crate::blocks::Blocks;
use crate::{Context, DTensor, Error, Scalar};

mod choose;
mod graph;

/// The blocks of all of this client's places.
pub(crate) struct Local<T: Scalar> {
    context: Context,
    site: Option<Arc<LocalDevices>>,
    blocks: Arc<Blocks<T>>,
}

impl<T: Scalar> Local<T> {
    pub(crate) fn of(tensor: &DTensor<T>) -> Self {
        let context = tensor.context().clone();
        let site = context.site(tensor.layout().mesh()).map(Arc::new);
        Self {
            context,
            site,
            blocks: Arc::clone(tensor.blocks()),
        }
    }

    /// Blocks of the host for the places of a mesh.
    pub(super) fn on(context: &Context, mesh: &Mesh, blocks: Vec<ArrayD<T>>) -> Self {
        let blocks = blocks.into_iter().map(standard).collect();
        Self {
            context: context.clone(),
            site: context.site(mesh).map(Arc::new),
            blocks: Blocks::here(context, blocks),
        }
    }

    /// Other blocks of the host for the same places.
    pub(super) fn beside(&self, blocks: Vec<ArrayD<T>>) -> Self {
        let blocks = blocks.into_iter().map(standard).collect();
        self.with(Blocks::here(&self.context, blocks))
    }

    /// A tensor that has these blocks, which fit.
    pub(crate) fn tensor(self, placement: TensorLayout) -> Result<DTensor<T>, Error> {
        DTensor::made(&self.context, placement, self.blocks)
    }

    pub(super) fn sizes(&self) -> &[Shape] {
        self.blocks.shapes()
    }

    /// The blocks on the host.
    pub(super) fn views(&self) -> Result<Vec<ArrayViewD<'_, T>>, Error> {
        let blocks = self.blocks.fetched()?.blocks();
        Ok(blocks.iter().map(|block| block.view()).collect())
    }

    /// The op of each element, by the backend's name and the host's function.
    pub(super) fn pointwise(
        &self,
        op: Pointwise,
        function: impl Fn(T) -> T,
    ) -> Result<Self, Error> {
        if let Some(site) = self.computing() {
            let blocks = self.blocks.at(site)?;
            let made = self.there(self.sizes().to_vec(), |place| {
                site.backend.pointwise(op, &blocks[place])
            })?;
            if let Some(made) = made {
                return Ok(made);
            }
        }
        self.here(|_, block| block.mapv(&function))
    }

    /// The op of the elements at one place, by the backend's name and the host's function, after
    /// repetition to these sizes.
    pub(super) fn pairwise(
        &self,
        op: Pairwise,
        function: impl Fn(T, T) -> T,
        other: &Self,
        sizes: &[Shape],
    ) -> Result<Self, Error> {
        if let Some(site) = self.computing() {
            let left = self.spread(sizes)?.blocks.at(site)?;
            let right = other.spread(sizes)?.blocks.at(site)?;
            let made = self.there(sizes.to_vec(), |place| {
                site.backend.pairwise(op, &left[place], &right[place])
            })?;
            if let Some(made) = made {
                return Ok(made);
            }
        }
        let others = other.views()?;
        self.here(|place, block| kernel::zip(block, others[place].view(), &sizes[place], &function))
    }

    /// Each block repeated along axes of size 1 and new leading ones, to these sizes.
    pub(super) fn spread(&self, sizes: &[Shape]) -> Result<Self, Error> {
        if self.sizes() == sizes {
            return Ok(self.clone());
        }
        let arrangement = |place: usize| {
            let (from, to) = (&self.sizes()[place], &sizes[place]);
            let places: Vec<usize> = (to.len() - from.len()..to.len()).collect();
            Arrangement::new(from, &places, to)
        };
        self.arranged(arrangement, |place, block| {
            kernel::spread(&block, &sizes[place]).to_owned()
        })
    }

    /// Axis `i` of each block from axis `order[i]`.
    pub(super) fn transposed(&self, order: &[usize]) -> Result<Self, Error> {
        let arrangement = |place: usize| {
            let from = &self.sizes()[place];
            let to: Vec<usize> = order.iter().map(|axis| from[*axis]).collect();
            let place_of = |axis| order.iter().position(|other| *other == axis);
            let places: Vec<usize> = (0..from.len()).filter_map(place_of).collect();
            Arrangement::new(from, &places, &to)
        };
        self.arranged(arrangement, |_, block| {
            block.permuted_axes(order).to_owned()
        })
    }

    /// The elements of each block, row after row, in other sizes, which hold as many.
    pub(super) fn reshaped(&self, sizes: &[Shape]) -> Result<Self, Error> {
        if let Some((_, blocks)) = self.stored() {
            return Ok(self.with(Blocks::there(&self.context, sizes.to_vec(), blocks.clone())));
        }
        let blocks = self.blocks.fetched()?.blocks().iter().zip(sizes);
        let blocks = blocks.map(|(block, sizes)| {
            let same = block.clone().into_shape_with_order(&**sizes).ok();
            // Where elements are not row after row they have to be moved.
            let same = same.filter(|block| block.is_standard_layout());
            same.unwrap_or_else(|| standard(kernel::reshaped(&block.view(), sizes)))
        });
        Ok(self.with(Blocks::here(&self.context, blocks.collect())))
    }

    /// Zeros in blocks of the same sizes, where these are.
    pub(super) fn zeros(&self) -> Result<Self, Error> {
        let sizes = self.sizes();
        if let Some((site, _)) = self.stored() {
            let made = self.there(sizes.to_vec(), |place| {
                let len = sizes[place].iter().product();
                site.backend.zeros(site.devices[place], T::TYPE, len)
            })?;
            if let Some(made) = made {
                return Ok(made);
            }
        }
        let zeros = sizes
            .iter()
            .map(|sizes| standard(ArrayD::default(&**sizes)));
        Ok(self.with(Blocks::here(&self.context, zeros.collect())))
    }

    /// A box of each block.
    pub(super) fn cut(&self, part: impl Fn(usize) -> Vec<Range<usize>>) -> Result<Self, Error> {
        if let Some((site, blocks)) = self.shaped() {
            let mut regions = Vec::new();
            for (place, whole) in self.sizes().iter().enumerate() {
                regions.push(Region::new(whole, &part(place))?);
            }
            let sizes = regions.iter();
            let sizes = sizes.map(|region| region.part().iter().map(Range::len).collect());
            let made = self.there(sizes.collect(), |place| {
                site.backend.cut(&blocks[place], &regions[place])
            })?;
            if let Some(made) = made {
                return Ok(made);
            }
        }
        self.here(|place, block| {
            let part = part(place);
            kernel::cut(&block, |axis| part[axis].clone().into()).to_owned()
        })
    }

    /// The elements along some axes of each block made one, which leaves these sizes: by the
    /// backend's op, or the host's monoid.
    pub(super) fn fold(
        &self,
        op: ReduceOp,
        axes: &[usize],
        sizes: &[Shape],
        monoid: &Monoid<T, impl Fn(T, T) -> T>,
    ) -> Result<Self, Error> {
        let mut order = axes.to_vec();
        order.sort_unstable();
        if let Some((site, blocks)) = self.shaped() {
            // Of several axes, each would round.
            if let (2.., Some(wide)) = (order.len(), kernel::wider::<T>(op)) {
                return self
                    .converted::<f32>()?
                    .fold(op, axes, sizes, &wide)?
                    .converted();
            }
            let made = self.there(sizes.to_vec(), |place| {
                let mut whole = self.sizes()[place].to_vec();
                let mut folded = Arc::clone(&blocks[place]);
                for &axis in order.iter().rev() {
                    let (outer, rest) = whole.split_at(axis);
                    let along = [outer.iter().product(), rest[0], rest[1..].iter().product()];
                    match site.backend.fold(op, along, &folded)? {
                        Some(made) => folded = made,
                        None => return Ok(None),
                    }
                    whole[axis] = 1;
                }
                Ok(Some(folded))
            })?;
            if let Some(made) = made {
                return Ok(made);
            }
        }
        self.here(|place, block| {
            let sizes = &sizes[place];
            kernel::fold_wider(op, &block, axes, sizes)
                .unwrap_or_else(|| kernel::fold(&block, axes, sizes, monoid))
        })
    }

    /// The blocks of several, of which this is one, concatenated along an axis.
    pub(super) fn concatenated(
        &self,
        axis: usize,
        all: &[Self],
        sizes: &[Shape],
    ) -> Result<Self, Error> {
        let there = all.iter().map(|local| Some((local, local.shaped()?.1)));
        let there: Option<Vec<(&Self, &DeviceBlocks)>> = there.collect();
        if let (Some((site, _)), Some(there)) = (self.shaped(), there) {
            let made = self.there(sizes.to_vec(), |place| {
                let (mut start, mut parts) = (0, Vec::new());
                for (local, blocks) in &there {
                    let own = &local.sizes()[place];
                    let along = |(at, size): (usize, &usize)| match at == axis {
                        true => start..start + size,
                        false => 0..*size,
                    };
                    let part: Vec<Range<usize>> = own.iter().enumerate().map(along).collect();
                    let region = Region::new(&sizes[place], &part)?;
                    parts.push((Arc::clone(&blocks[place]), region));
                    start += own[axis];
                }
                let whole = Whole {
                    device: site.devices[place],
                    element: T::TYPE,
                    len: sizes[place].iter().product(),
                    fill: None,
                };
                site.backend.assemble(whole, &parts)
            })?;
            if let Some(made) = made {
                return Ok(made);
            }
        }
        let views: Vec<Vec<ArrayViewD<'_, T>>> =
            all.iter().map(Self::views).collect::<Result<_, _>>()?;
        self.here(|place, _| {
            let views = views.iter().map(|views| views[place].view());
            kernel::concatenated(axis, &views.collect::<Vec<_>>())
        })
    }

    /// New blocks on the devices, of these sizes; none as soon as the backend does not make one.
    pub(super) fn there<R: Scalar>(
        &self,
        sizes: Vec<Shape>,
        make: impl Fn(usize) -> BackendResult,
    ) -> Result<Option<Local<R>>, Error> {
        let made = all_made(sizes.len(), &make)?;
        Ok(made.map(|made| self.with(Blocks::there(&self.context, sizes, made))))
    }

    /// Where arithmetic is done; none where that is the host.
    pub(super) fn computing(&self) -> Option<&LocalDevices> {
        let site = self.site.as_deref();
        site.filter(|site| site.backend.computes(T::TYPE))
    }

    /// The blocks on the devices of a site.
    pub(super) fn at(&self, site: &LocalDevices) -> Result<DeviceBlocks, Error> {
        self.blocks.at(site)
    }

    fn arranged(
        &self,
        to: impl Fn(usize) -> Result<Arrangement, meshwork_accel::Error>,
        host: impl Fn(usize, ArrayViewD<'_, T>) -> ArrayD<T>,
    ) -> Result<Self, Error> {
        if let Some((site, blocks)) = self.shaped() {
            let places = 0..blocks.len();
            let arrangements: Vec<Arrangement> = places.map(to).collect::<Result<_, _>>()?;
            let sizes = arrangements.iter().map(|to| Shape::from(to.to()));
            let made = self.there(sizes.collect(), |place| {
                site.backend.arrange(&blocks[place], &arrangements[place])
            })?;
            if let Some(made) = made {
                return Ok(made);
            }
        }
        self.here(host)
    }

    /// The blocks on devices that arrange them; none where they are only on the host.
    pub(super) fn shaped(&self) -> Option<(&LocalDevices, &DeviceBlocks)> {
        self.stored().filter(|(site, _)| site.backend.arranges())
    }

    fn stored(&self) -> Option<(&LocalDevices, &DeviceBlocks)> {
        let (site, blocks) = self.site.as_deref().zip(self.blocks.stored())?;
        site.has(blocks).then_some((site, blocks))
    }

    /// New blocks on the host.
    pub(super) fn here<R: Scalar>(
        &self,
        make: impl Fn(usize, ArrayViewD<'_, T>) -> ArrayD<R>,
    ) -> Result<Local<R>, Error> {
        self.all_here(&make)
    }

    /// By a trait object, as [`all_made`].
    fn all_here<R: Scalar>(
        &self,
        make: &dyn Fn(usize, ArrayViewD<'_, T>) -> ArrayD<R>,
    ) -> Result<Local<R>, Error> {
        let mut made = Vec::new();
        for (place, view) in self.views()?.into_iter().enumerate() {
            made.push(standard(make(place, view)));
        }
        Ok(self.with(Blocks::here(&self.context, made)))
    }

    fn with<R: Scalar>(&self, blocks: Arc<Blocks<R>>) -> Local<R> {
        Local {
            context: self.context.clone(),
            site: self.site.clone(),
            blocks,
        }
    }
}

/// What is made of each place; by a trait object, as hundreds of closures would each have a copy.
fn all_made(
    places: usize,
    make: &dyn Fn(usize) -> BackendResult,
) -> Result<Option<DeviceBlocks>, Error> {
    (0..places).map(make).collect()
}

/// Whether a backend computes with the elements of a tensor.
pub(crate) fn computes<T: Scalar>(tensor: &DTensor<T>) -> bool {
    Local::of(tensor).computing().is_some()
}

impl<T: Scalar> Clone for Local<T> {
    fn clone(&self) -> Self {
        Self {
            context: self.context.clone(),
            site: self.site.clone(),
            blocks: Arc::clone(&self.blocks),
        }
    }
}
