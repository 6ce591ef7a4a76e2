//! `DTensor`: shape, layout and blocks of a distributed tensor, and its relayouts. Constructors are
//! in `tensor/make`, ops in `ops`, relayouts step by step in `transfer_plan` and `exchange`, and
//! files in `checkpoint`.

use std::fmt::{self, Debug};
use std::sync::Arc;

use meshwork_layout::ops::{Op, TensorLayout};
use meshwork_layout::{Layout, LayoutPattern, Relayout};
use ndarray::ArrayD;

use crate::backend::{Backend, DeviceBlocks};
use crate::blocks::Blocks;
use crate::device_placement::DevicePlacement;
use crate::exchange::{self, Block};
use crate::record::{Primitive, Record, Trace};
use crate::transfer_plan::TransferPlan;
use crate::{Context, Error, Scalar};

mod make;

/// A distributed tensor, whose elements are on the devices of a mesh in a [`Layout`].
///
/// Each client holds the blocks of its own devices. Ops and relayouts that communicate are called
/// by all clients, in the same order. Clones share their blocks.
///
/// ```
/// use meshwork_core::{Client, CreateMesh};
/// use meshwork_dtensor::{Context, Error};
/// use meshwork_layout::Layout;
/// use ndarray::array;
///
/// let context = Context::alone(Client::new("localhost", 0, 1)?.with_devices("CPU", 2)?);
/// let mesh = context.create_mesh(CreateMesh::new().along("x"))?;
/// let rows = context.copy_to_mesh(array![[1, 2], [3, 4]], &Layout::batch_sharded(&mesh, "x", 2)?)?;
/// assert_eq!(rows.unpack()?[1], array![[3, 4]].into_dyn());
/// let columns = rows.relayout(&Layout::inner_sharded(&mesh, "x", 2)?)?;
/// assert_eq!(columns.unpack()?[1], array![[2], [4]].into_dyn());
/// assert_eq!(columns.to_host()?, rows.to_host()?);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone)]
pub struct DTensor<T: Scalar> {
    context: Context,
    placement: TensorLayout,
    device_placement: Arc<DevicePlacement>,
    blocks: Arc<Blocks<T>>,
    trace: Trace,
}

impl<T: Scalar> DTensor<T> {
    /// A tensor of blocks that fit.
    pub(crate) fn of(
        context: &Context,
        placement: TensorLayout,
        blocks: Vec<Block<T>>,
    ) -> Result<Self, Error> {
        Self::made(context, placement, Blocks::here(context, blocks))
    }

    /// A tensor of blocks that fit, wherever they are.
    pub(crate) fn made(
        context: &Context,
        placement: TensorLayout,
        blocks: Arc<Blocks<T>>,
    ) -> Result<Self, Error> {
        Ok(Self {
            context: context.clone(),
            device_placement: context.device_placement(placement.layout().mesh())?,
            placement,
            blocks,
            trace: Trace::default(),
        })
    }

    /// The layout.
    #[must_use]
    #[doc(alias = "fetch_layout")]
    pub fn layout(&self) -> &Layout {
        self.placement.layout()
    }

    /// The sizes of the axes of the whole tensor, in elements.
    #[must_use]
    #[doc(alias = "global_shape")]
    pub fn shape(&self) -> &[usize] {
        self.placement.shape()
    }

    /// The number of axes.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.shape().len()
    }

    /// The number of elements of the whole tensor.
    #[must_use]
    pub fn size(&self) -> usize {
        self.shape().iter().product()
    }

    /// Shape and layout.
    #[must_use]
    pub fn placement(&self) -> &TensorLayout {
        &self.placement
    }

    /// The context it belongs to.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The blocks of this client's devices, in the order of the mesh's local devices; inverse of
    /// [`Context::pack`]. Those that are on accelerators only are fetched, once.
    ///
    /// # Errors
    /// [`Error::Element`] where an accelerator fails, and [`Error::NotTraceable`] in a compiled
    /// function.
    #[track_caller]
    pub fn unpack(&self) -> Result<&[Block<T>], Error> {
        self.check_untraced()?;
        Ok(self.blocks.fetched()?.blocks())
    }

    /// Refuses to look at elements in a compiled function.
    #[track_caller]
    fn check_untraced(&self) -> Result<(), Error> {
        let (op, at) = ("unpack", std::panic::Location::caller());
        match self.trace.is_in_program() {
            true => Err(Error::NotTraceable { op, at }),
            false => Ok(()),
        }
    }

    /// The same blocks, wherever they are.
    pub(crate) fn blocks(&self) -> &Arc<Blocks<T>> {
        &self.blocks
    }

    /// Who records the tensor.
    pub(crate) fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The same tensor, recorded so.
    pub(crate) fn with_trace(self, trace: Trace) -> Self {
        Self { trace, ..self }
    }

    /// The same tensor, recorded by nobody.
    pub(crate) fn untraced(&self) -> Self {
        self.clone().with_trace(Trace::default())
    }

    /// The same tensor without its elements, for those who ask for shape and layout only.
    pub(crate) fn without_elements(&self) -> Self {
        let shapes = self.blocks.shapes().to_vec();
        Self {
            blocks: Blocks::nowhere(&self.context, shapes),
            ..self.clone()
        }
    }

    /// The same tensor, through which no tape differentiates.
    ///
    /// ```
    /// use meshwork_core::{Client, Mesh};
    /// use meshwork_dtensor::{Context, Error, Tape};
    /// use meshwork_layout::Layout;
    ///
    /// let context = Context::alone(Client::new("localhost", 0, 1)?);
    /// let scalar = Layout::replicated(&Mesh::new([("x", 2)])?, 0);
    /// let tape = Tape::new();
    /// let x = tape.watch(&context.full(&[], &scalar, 3.0_f32)?);
    /// let [slope] = tape.gradient(&x.mul(&x.stop_gradient())?, [&x])?;
    /// assert_eq!(slope.to_host()?.sum(), 3.0); // and not 6
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn stop_gradient(&self) -> Self {
        let trace = self.trace.of_programs();
        self.clone().with_trace(trace)
    }

    /// The same tensor with its blocks on its devices only, where a backend computes for them
    /// ([`Context::compute_on`]); as it is where none does. What the host has of them is given up,
    /// and fetched again when it is asked for.
    ///
    /// ```
    /// use meshwork_dtensor::{DTensor, Error};
    ///
    /// /// Weights, which need no second copy in host memory.
    /// fn weights(made: DTensor<f32>) -> Result<DTensor<f32>, Error> {
    ///     made.into_devices()
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Element`] where an accelerator fails, has no memory, or does not hold such
    /// elements.
    pub fn into_devices(self) -> Result<Self, Error> {
        let Some(site) = self.context.site(self.layout().mesh()) else {
            return Ok(self);
        };
        let (shapes, blocks) = (self.blocks.shapes().to_vec(), self.blocks.at(&site)?);
        let blocks = Blocks::there(&self.context, shapes, blocks);
        let moved = Self::made(&self.context, self.placement.clone(), blocks)?;
        Ok(moved.with_trace(self.trace))
    }

    /// Checks that the tensor has this layout.
    ///
    /// # Errors
    /// [`Error::LayoutDiffers`].
    pub fn check_layout(&self, expected: &Layout) -> Result<(), Error> {
        if self.layout() == expected {
            return Ok(());
        }
        Err(Error::LayoutDiffers {
            found: Box::new(self.layout().clone()),
            expected: Box::new(expected.clone()),
        })
    }

    /// The same tensor by another layout, on this mesh or on another of the same devices or some of
    /// them. What is partial in the old layout and not in the new one is reduced.
    ///
    /// # Errors
    /// [`Error::Layout`] for a layout of other devices or for tensors of another rank,
    /// [`Error::Element`] for a reduction that the elements do not have, [`Error::ClientsDisagree`]
    /// and [`Error::Group`].
    #[track_caller]
    #[doc(alias = "copy_to_mesh")]
    pub fn relayout(&self, layout: &Layout) -> Result<Self, Error> {
        self.clone().into_layout(layout)
    }

    /// The same as [`relayout`](Self::relayout), of a tensor that is not needed any more: its
    /// blocks are given up as soon as they have moved.
    ///
    /// Devices then hold at no time more than
    /// [`Plan::peak_bytes`](meshwork_layout::Plan::peak_bytes), and each client besides 1 MiB for
    /// what is on its way. Large blocks, from 128 KiB on, are made in the memory of those that are
    /// gone; a relayout that makes any gives back the memory that it does not use so. Until the
    /// next one, and until [`Context::leave`], a client keeps at most as much of it as the new
    /// blocks of its largest exchange took.
    ///
    /// # Errors
    /// Those of [`relayout`](Self::relayout).
    #[track_caller]
    pub fn into_layout(self, layout: &Layout) -> Result<Self, Error> {
        if self.layout() == layout {
            return Ok(self);
        }
        if self.trace.is_empty() {
            return self.moved(layout);
        }
        let relayout = Primitive::Op(Op::Relayout(Box::new(layout.clone())));
        let record = Record::of(relayout).with(&self);
        record.result(0, self.untraced().moved(layout)?)
    }

    /// The same tensor in another layout, recorded by nobody.
    #[track_caller]
    fn moved(self, layout: &Layout) -> Result<Self, Error> {
        let placement = TensorLayout::new(self.shape().iter().copied(), layout.clone())?;
        let ends = [self.layout(), layout];
        let transfer_plan = self
            .context
            .transfer_plan(ends, self.shape(), size_of::<T>())?;
        if let Some(blocks) = self.moved_there(&transfer_plan, layout)? {
            return Self::made(&self.context, placement, blocks);
        }
        let (context, held) = (self.context.clone(), self.blocks.fetched()?.clone());
        drop(self);
        Self::of(
            &context,
            placement,
            exchange::run(&context, &transfer_plan, held)?,
        )
    }

    /// The blocks by another layout, where they are on devices and can stay there.
    fn moved_there(
        &self,
        transfer_plan: &TransferPlan,
        layout: &Layout,
    ) -> Result<Option<Arc<Blocks<T>>>, Error> {
        let sites = [self.layout(), layout].map(|layout| self.context.site(layout.mesh()));
        let ([Some(from), Some(to)], Some(blocks)) = (&sites, self.blocks.stored()) else {
            return Ok(None);
        };
        if !from.has(blocks) || !to.has(blocks) {
            return Ok(None);
        }
        if from.backend.recorder().is_some() {
            return self.recorded(layout, &from.backend, blocks);
        }
        let moved =
            exchange::run_there::<T>(transfer_plan, [from, to], self.blocks.shapes(), blocks)?;
        Ok(moved.map(|(sizes, blocks)| Blocks::there(&self.context, sizes, blocks)))
    }

    /// The blocks by another layout, as values of a graph.
    fn recorded(
        &self,
        layout: &Layout,
        backend: &Backend,
        blocks: &DeviceBlocks,
    ) -> Result<Option<Arc<Blocks<T>>>, Error> {
        let plan = Relayout::new(self.layout(), layout, self.shape(), size_of::<T>())?.plan()?;
        let ends = [
            self.context.device_placement(self.layout().mesh())?,
            self.context.device_placement(layout.mesh())?,
        ];
        let moved = exchange::record::<T>(&plan, [&ends[0], &ends[1]], backend, blocks)?;
        Ok(moved.map(|(sizes, blocks)| Blocks::there(&self.context, sizes, blocks)))
    }

    /// Relayouts the tensor by a pattern, which may leave axes as they are.
    ///
    /// # Errors
    /// [`Error::Layout`] where an axis that stays as it is uses a mesh dimension that another one
    /// is to use, and those of [`relayout`](Self::relayout).
    #[track_caller]
    pub fn relayout_by(&self, pattern: &LayoutPattern) -> Result<Self, Error> {
        self.relayout(&pattern.resolve(self.layout())?)
    }

    /// Relayouts the tensor to the layout of another.
    ///
    /// # Errors
    /// Those of [`relayout`](Self::relayout).
    #[track_caller]
    pub fn relayout_like<U: Scalar>(&self, other: &DTensor<U>) -> Result<Self, Error> {
        self.relayout(other.layout())
    }

    /// Relayouts the tensor so that it is whole on every device.
    ///
    /// # Errors
    /// Those of [`relayout`](Self::relayout).
    #[track_caller]
    pub fn replicate(&self) -> Result<Self, Error> {
        self.relayout(&Layout::replicated(self.layout().mesh(), self.rank()))
    }

    /// Gathers all elements on this client, from any layout. All clients call it.
    ///
    /// # Errors
    /// [`Error::NotHere`] where none of the devices is here, and those of
    /// [`relayout`](Self::relayout).
    #[track_caller]
    #[doc(alias = "numpy")]
    pub fn to_host(&self) -> Result<ArrayD<T>, Error> {
        let whole = self.replicate()?;
        whole.check_untraced()?;
        whole.blocks.first()
    }

    /// Each element by a function. Nothing is communicated, but for terms that are still to be
    /// reduced: they are reduced before, which all clients do together.
    ///
    /// # Errors
    /// Those of [`relayout`](Self::relayout).
    #[track_caller]
    pub fn map<U: Scalar>(&self, function: impl Fn(T) -> U) -> Result<DTensor<U>, Error> {
        let reduced = self.reduce_partial()?;
        let mapped = |block: &Block<T>| block.map(|element| function(*element)).into_shared();
        let blocks = reduced.untraced().unpack()?.iter().map(mapped).collect();
        let made = DTensor::of(&self.context, reduced.placement.clone(), blocks)?;
        Record::of(Primitive::Closure("map"))
            .with(&reduced)
            .result(0, made)
    }

    /// The same tensor with nothing partial.
    #[track_caller]
    pub(crate) fn reduce_partial(&self) -> Result<Self, Error> {
        match self.layout().reduction() {
            None => Ok(self.clone()),
            Some(_) => self.relayout(&self.whole_layout()?),
        }
    }

    /// The same layout with nothing partial.
    pub(crate) fn whole_layout(&self) -> Result<Layout, Error> {
        let specs = self.layout().specs().cloned();
        Ok(Layout::new(specs, self.layout().mesh())?)
    }

    /// The ranks of the mesh whose blocks are here, in the order of [`unpack`](Self::unpack).
    #[must_use]
    pub fn local_ranks(&self) -> &[meshwork_core::MeshRank] {
        self.device_placement.local()
    }
}

impl<T: Scalar> Debug for DTensor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is on devices only is not fetched to be shown.
        let here = self.blocks.on_host().unwrap_or_default();
        let blocks = self.device_placement.local().iter().zip(here);
        f.debug_struct("DTensor")
            .field("shape", &self.shape())
            .field("element", &T::TYPE)
            .field("layout", &self.layout().to_string())
            .field("blocks", &blocks.collect::<Vec<_>>())
            .finish()
    }
}

#[cfg(test)]
mod tests;
