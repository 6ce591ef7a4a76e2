//! Convolutions and pooling: on the host products of matrices and walks over windows, on devices
//! ops of graphs.

use std::num::NonZeroUsize;

use meshwork_accel::{ConvolutionShape, ElementType, GraphOp, ImageWindows, ReduceOp, WindowRange};
use meshwork_layout::ops::{Convolution, Op, Pool, Pooling, WindowAxis};
use ndarray::{ArrayD, ArrayViewD};

use super::Call;
use super::kernel::{ConvolutionShapes, Convolver, Pooler};
use super::local::Local;
use crate::{DTensor, Error, Float, Scalar};

impl<T: Float> DTensor<T> {
    /// The convolution of images with a filter, as TensorFlow's `tf.nn.convolution` has it.
    ///
    /// ```
    /// use meshwork_core::{Client, Mesh};
    /// use meshwork_dtensor::{Context, Error};
    /// use meshwork_layout::Layout;
    /// use meshwork_layout::ops::{Convolution, Padding, Windows};
    ///
    /// let context = Context::alone(Client::new("localhost", 0, 1)?);
    /// let mesh = Mesh::new([("batch", 2)])?;
    /// let images = context.full(&[4, 28, 28, 1], &Layout::batch_sharded(&mesh, "batch", 4)?, 1.0)?;
    /// let filter = context.full(&[3, 3, 1, 8], &Layout::replicated(&mesh, 4), 1.0_f32)?;
    /// let of = Convolution::new(Windows::strides([1, 1]).padded(Padding::Same));
    /// let sums = images.convolution(&filter, &of)?;
    /// assert_eq!(sums.shape(), [4, 28, 28, 8]);
    /// assert_eq!(sums.to_host()?[[0, 0, 1, 0]], 6.0); // three of nine are padding
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Shapes
    /// `[batch, spatial.., channels]` and `[window.., channels / groups, outputs]` give
    /// `[batch, windows.., outputs]`.
    ///
    /// # Errors
    /// [`Error::Op`] for shapes that do not fit, [`Error::OtherContext`], and those of
    /// [`relayout`](Self::relayout).
    #[track_caller]
    #[doc(alias = "conv2d")]
    pub fn convolution(&self, filter: &Self, of: &Convolution) -> Result<Self, Error> {
        if is_short::<T>() {
            return self.cast::<f32>()?.convolution(&filter.cast()?, of)?.cast();
        }
        let op = Op::Convolution(of.clone());
        let graph = |[images, filter, _]: [&[usize]; 3]| {
            Ok(GraphOp::Convolution(convolved(of, images, filter)?))
        };
        self.by_pair(&op, filter, graph, |images, filter, sizes| {
            let (input, window) = (images.shape(), filter.shape());
            let shapes = ConvolutionShapes {
                input,
                filter: window,
            };
            Ok(Convolver::new(of, shapes)?.forward(&images, &filter, sizes))
        })
    }

    /// The gradient of a [`convolution`](Self::convolution) by its images, of which `spatial` are
    /// the sizes of the spatial axes; this is that by its result.
    ///
    /// # Errors
    /// Those of [`convolution`](Self::convolution).
    #[track_caller]
    #[doc(alias = "conv2d_transpose")]
    pub fn convolution_input_gradient(
        &self,
        filter: &Self,
        of: &Convolution,
        spatial: &[usize],
    ) -> Result<Self, Error> {
        if is_short::<T>() {
            let wide = self.cast::<f32>()?;
            let made = wide.convolution_input_gradient(&filter.cast()?, of, spatial)?;
            return made.cast();
        }
        let op = Op::ConvolutionInputGradient {
            of: of.clone(),
            spatial: spatial.to_vec(),
        };
        let graph = |[_, filter, images]: [&[usize]; 3]| {
            let shape = convolved(of, images, filter)?;
            Ok(GraphOp::ConvolutionInputGradient(shape))
        };
        self.by_pair(&op, filter, graph, |upstream, filter, sizes| {
            let shapes = ConvolutionShapes {
                input: sizes,
                filter: filter.shape(),
            };
            Ok(Convolver::new(of, shapes)?.by_input(&upstream, &filter, sizes))
        })
    }

    /// The gradient of a [`convolution`](Self::convolution) of these images by its filter, of which
    /// `window` are the sizes of a window; `upstream` is that by its result.
    ///
    /// # Errors
    /// Those of [`convolution`](Self::convolution).
    #[track_caller]
    pub fn convolution_filter_gradient(
        &self,
        upstream: &Self,
        of: &Convolution,
        window: &[usize],
    ) -> Result<Self, Error> {
        if is_short::<T>() {
            let wide = self.cast::<f32>()?;
            let made = wide.convolution_filter_gradient(&upstream.cast()?, of, window)?;
            return made.cast();
        }
        let op = Op::ConvolutionFilterGradient {
            of: of.clone(),
            window: window.to_vec(),
        };
        let graph = |[images, _, filter]: [&[usize]; 3]| {
            let shape = convolved(of, images, filter)?;
            Ok(GraphOp::ConvolutionFilterGradient(shape))
        };
        self.by_pair(&op, upstream, graph, |images, upstream, sizes| {
            let shapes = ConvolutionShapes {
                input: images.shape(),
                filter: sizes,
            };
            Ok(Convolver::new(of, shapes)?.by_filter(&images, &upstream, sizes))
        })
    }

    /// The largest or the mean of each window of images, channel by channel. Padding counts for
    /// nothing.
    ///
    /// # Shapes
    /// `[batch, spatial.., channels]` gives `[batch, windows.., channels]`.
    ///
    /// # Errors
    /// [`Error::Op`] for windows that do not fit or lie on padding only, and those of
    /// [`relayout`](Self::relayout).
    #[track_caller]
    #[doc(alias("max_pool", "avg_pool"))]
    pub fn pool(&self, of: &Pool) -> Result<Self, Error> {
        if is_short::<T>() {
            return self.cast::<f32>()?.pool(of)?.cast();
        }
        let call = Call::of(&Op::Pool(of.clone()), self.context(), &[self.placement()])?;
        let images = call.operand(0, self)?;
        let local = Local::of(&images);
        let noted = local.in_graph(&call.sizes(0)?, |place| {
            let over = pooled(of, &local.sizes()[place])?;
            Ok(GraphOp::Pool(operation(of.pooling), over))
        })?;
        if let Some(made) = noted {
            return call.finish(0, made);
        }
        call.result(0, |place, sizes| {
            let images = images.unpack()?[place].view();
            Ok(Pooler::new(of, images.shape())?.forward(&images, sizes))
        })
    }

    /// The gradient of a [`pool`](Self::pool) of these images; `upstream` is that by its result. Of
    /// several largest elements of a window the first has it.
    ///
    /// # Errors
    /// Those of [`pool`](Self::pool), and [`Error::OtherContext`].
    #[track_caller]
    pub fn pool_gradient(&self, upstream: &Self, of: &Pool) -> Result<Self, Error> {
        if is_short::<T>() {
            let wide = self.cast::<f32>()?;
            return wide.pool_gradient(&upstream.cast()?, of)?.cast();
        }
        let op = Op::PoolGradient(of.clone());
        let graph = |[images, ..]: [&[usize]; 3]| {
            let over = pooled(of, images)?;
            Ok(GraphOp::PoolGradient(operation(of.pooling), over))
        };
        self.by_pair(&op, upstream, graph, |images, upstream, _| {
            Ok(Pooler::new(of, images.shape())?.backward(&images, &upstream))
        })
    }
}

impl<T: Float> DTensor<T> {
    /// The only result of an op with this operand and another: by an op of graphs for the sizes of
    /// their blocks and of the result's, or by a function of the blocks.
    #[track_caller]
    fn by_pair(
        &self,
        op: &Op,
        other: &Self,
        graph: impl Fn([&[usize]; 3]) -> Result<GraphOp, Error>,
        kernel: impl Fn(ArrayViewD<'_, T>, ArrayViewD<'_, T>, &[usize]) -> Result<ArrayD<T>, Error>,
    ) -> Result<Self, Error> {
        let call = Call::of(op, self.context(), &[self.placement(), other.placement()])?;
        let (left, right) = (call.operand(0, self)?, call.operand(1, other)?);
        let (first, second) = (Local::of(&left), Local::of(&right));
        let sizes = call.sizes(0)?;
        let noted = first.in_graph_with(&second, &sizes, |place| {
            graph([&first.sizes()[place], &second.sizes()[place], &sizes[place]])
        })?;
        if let Some(made) = noted {
            return call.finish(0, made);
        }
        call.result(0, |place, sizes| {
            let (left, right) = (left.unpack()?[place].view(), right.unpack()?[place].view());
            kernel(left, right, sizes)
        })
    }
}

/// A convolution of blocks of these sizes, of which groups may be elsewhere.
fn convolved(
    of: &Convolution,
    images: &[usize],
    filter: &[usize],
) -> Result<ConvolutionShape, Error> {
    let axes = of.windows.axes();
    let (spatial, channels) = (&images[1..=axes], images[axes + 1]);
    let along = of.windows.along("convolution", spatial, &filter[..axes])?;
    let over = ImageWindows::new(images[0], &ranges(&along), channels)?;
    let groups = match filter[axes] {
        0 => 1,
        each => channels / each,
    };
    Ok(ConvolutionShape::new(over, filter[axes + 1], groups)?)
}

/// The windows of a pooling of blocks of these sizes.
fn pooled(of: &Pool, images: &[usize]) -> Result<ImageWindows, Error> {
    let last = images.len() - 1;
    let along = of.windows.along("pool", &images[1..last], &of.window)?;
    Ok(ImageWindows::new(images[0], &ranges(&along), images[last])?)
}

fn ranges(along: &[WindowAxis]) -> Vec<WindowRange> {
    let some = |number| NonZeroUsize::new(number).expect("windows of 0 are refused by `along`");
    let ranges = along.iter().map(|axis| WindowRange {
        size: axis.size(),
        window: some(axis.window()),
        stride: some(axis.stride()),
        dilation: some(axis.dilation()),
        padding: [axis.before(), axis.after()],
    });
    ranges.collect()
}

fn operation(of: Pooling) -> ReduceOp {
    match of {
        Pooling::Max => ReduceOp::Max,
        Pooling::Mean => ReduceOp::Mean,
    }
}

/// Whether sums of such elements are made in 32 bits, and rounded once.
pub(crate) fn is_short<T: Scalar>() -> bool {
    matches!(T::TYPE, ElementType::F16 | ElementType::Bf16)
}
