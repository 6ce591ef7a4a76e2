//! Normalisation by moments along axes: clients exchange sums where these are cut.

use meshwork_accel::{Pairwise, Pointwise, ReduceOp};
use meshwork_layout::Shape;
use meshwork_layout::ops::{Moments, Normalization, Op, PartialAllReduce};

use super::convolution::is_short;
use super::kernel::{self, Monoid, Spans, flat};
use super::local::Local;
use super::{Call, ReduceAxes, all, place};
use crate::{DTensor, Error, Float};

mod composed;

/// The result of a [batch normalisation](DTensor::batch_norm) with the moments that it used.
#[derive(Clone, Debug)]
pub struct BatchNormOutput<T: Float> {
    /// The normalised batch.
    pub output: DTensor<T>,
    /// The mean of each channel.
    pub mean: DTensor<T>,
    /// The variance of each channel, the mean of the squares of the distances from the mean.
    pub variance: DTensor<T>,
}

impl<T: Float> DTensor<T> {
    /// Each element scaled by the moments of those along some axes, which may be cut: moments are
    /// those of all shards.
    ///
    /// ```
    /// use meshwork_core::{Client, Mesh};
    /// use meshwork_dtensor::{Context, Error};
    /// use meshwork_layout::{Layout, ops::Normalization};
    /// use ndarray::array;
    ///
    /// let context = Context::alone(Client::new("localhost", 0, 1)?);
    /// let mesh = Mesh::new([("batch", 2)])?;
    /// let rows = Layout::batch_sharded(&mesh, "batch", 2)?;
    /// let batch = context.copy_to_mesh(array![[1.0, 5.0], [3.0, 5.0]], &rows)?;
    /// let by = Normalization::new([0], 1e-12);
    /// let normal = batch.normalize(&by)?.to_host()?;
    /// assert!((normal - array![[-1.0, 0.0], [1.0, 0.0]]).iter().all(|x: &f64| x.abs() < 1e-9));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] for an axis that is not there or given twice, or an epsilon that is not
    /// positive, and those of [`relayout`](Self::relayout).
    #[track_caller]
    pub fn normalize(&self, by: &Normalization) -> Result<Self, Error> {
        if is_short::<T>() {
            return self.cast::<f32>()?.normalize(by)?.cast();
        }
        let call = Call::of(
            &Op::Normalize(by.clone()),
            self.context(),
            &[self.placement()],
        )?;
        let run = Axes::of(by, self.rank());
        if let Some(order) = run.order {
            let turned = self.transpose(&order.there)?.normalize(&order.by)?;
            return turned
                .transpose(&order.back)?
                .relayout(call.inferred.results()[0].layout());
        }
        let operand = call.operand(0, self)?;
        let measured = Measured::of(operand, by, &run, &call)?;
        call.finish(0, measured.normal()?)
    }

    /// The gradient of [`normalize`](Self::normalize) of this tensor; `upstream` is that by its
    /// result. With y the result, r the root that was divided by and g this gradient, it is
    /// (g - mean(g) - y · mean(g · y)) / r; without a mean, mean(g) is not there.
    #[track_caller]
    pub(super) fn through_normalize(
        &self,
        by: &Normalization,
        upstream: &Self,
    ) -> Result<Self, Error> {
        if is_short::<T>() {
            let wide = self.cast::<f32>()?;
            return wide.through_normalize(by, &upstream.cast()?)?.cast();
        }
        // What is recorded is made of ops that are known to tapes and programs.
        if self.trace().is_recorded() || upstream.trace().is_recorded() {
            return self.through_normalize_composed(by, upstream);
        }
        let run = Axes::of(by, self.rank());
        if let Some(order) = run.order {
            let turned = self.transpose(&order.there)?;
            let upstream = upstream.transpose(&order.there)?;
            return turned
                .through_normalize(&order.by, &upstream)?
                .transpose(&order.back);
        }
        let call = Call::of(
            &Op::Normalize(by.clone()),
            self.context(),
            &[self.placement()],
        )?;
        let operand = call.operand(0, self)?;
        let upstream = upstream.relayout(operand.layout())?;
        let measured = Measured::of(operand, by, &run, &call)?;
        call.finish(0, measured.gradient(&Local::of(&upstream))?)
    }

    /// The mean along axes and the variance, the mean of the squares of the distances from it; the
    /// axes stay with size 1.
    ///
    /// # Errors
    /// Those of [`sum`](Self::sum).
    #[track_caller]
    pub fn moments(&self, axes: &[isize]) -> Result<(Self, Self), Error> {
        // The square of a distance may be beyond 65,504, where their mean is not.
        if T::TYPE == meshwork_accel::ElementType::F16 {
            let (mean, variance) = self.cast::<f32>()?.moments(axes)?;
            return Ok((mean.cast()?, variance.cast()?));
        }
        let along = ReduceAxes::axes(axes.iter().copied()).keep_dims();
        let mean = self.mean(&along)?;
        let distance = self.sub(&mean)?;
        Ok((mean, distance.mul(&distance)?.mean(&along)?))
    }

    /// (x - mean) / √(variance + epsilon), of tensors that broadcast.
    ///
    /// # Errors
    /// Those of [`zip_with`](Self::zip_with), and [`Error::Op`] for an epsilon that is not
    /// positive.
    #[track_caller]
    pub fn standardize(&self, mean: &Self, variance: &Self, epsilon: f64) -> Result<Self, Error> {
        if is_short::<T>() {
            let [x, mean, variance] = [self.cast::<f32>()?, mean.cast()?, variance.cast()?];
            return x.standardize(&mean, &variance, epsilon)?.cast();
        }
        let op = Op::Standardize {
            epsilon: epsilon.into(),
        };
        let placements = [self.placement(), mean.placement(), variance.placement()];
        let call = Call::of(&op, self.context(), &placements)?;
        let x = Local::of(&call.operand(0, self)?).carried()?;
        let mean = Local::of(&call.operand(1, mean)?).carried()?;
        let variance = Local::of(&call.operand(2, variance)?).carried()?;
        let (sizes, root) = (call.sizes(0)?, variance.root_inverted(epsilon)?);
        let distance = x.pairwise(Pairwise::Subtract, T::minus, &mean, &sizes)?;
        call.finish(
            0,
            distance.pairwise(Pairwise::Multiply, T::times, &root, &sizes)?,
        )
    }

    /// The gradients of [`standardize`](Self::standardize) by all three operands.
    #[track_caller]
    pub(super) fn through_standardize(
        &self,
        operands: [&Self; 3],
        epsilon: f64,
    ) -> Result<Vec<Self>, Error> {
        let [x, mean, variance] = operands;
        let one = mean.zeros_like()?;
        let normal = x.standardize(mean, variance, epsilon)?;
        // The slope by x is that of a distance of 1.
        let root = one
            .add_scalar(T::from_f64(1.0))?
            .standardize(&one, variance, epsilon)?;
        let by_x = self.mul(&root)?;
        let half = T::from_f64(-0.5);
        let by_variance = by_x.mul(&normal)?.mul(&root)?.scale(half)?;
        Ok(vec![
            by_x.summed_to(x.shape())?,
            by_x.neg()?.summed_to(mean.shape())?,
            by_variance.summed_to(variance.shape())?,
        ])
    }

    /// Each row, along the last axis, normalised by its mean and variance, then scaled and shifted.
    ///
    /// # Shapes
    /// `scale` and `offset` are vectors of the size of the last axis.
    ///
    /// # Errors
    /// Those of [`normalize`](Self::normalize) and [`bias_add`](Self::bias_add).
    #[track_caller]
    pub fn layer_norm(&self, scale: &Self, offset: &Self, epsilon: f64) -> Result<Self, Error> {
        let normal = self.normalize(&Normalization::new([-1], epsilon))?;
        normal.scaled(scale)?.bias_add(offset)
    }

    /// Each row, along the last axis, divided by the root of the mean of its squares, then scaled.
    ///
    /// # Errors
    /// Those of [`layer_norm`](Self::layer_norm).
    #[track_caller]
    pub fn rms_norm(&self, scale: &Self, epsilon: f64) -> Result<Self, Error> {
        let moments = Moments::MeanSquare;
        let by = Normalization {
            moments,
            ..Normalization::new([-1], epsilon)
        };
        self.normalize(&by)?.scaled(scale)
    }

    /// Each channel, along the last axis, normalised by its mean and variance over the whole batch,
    /// however it is cut, then scaled and shifted; for training.
    ///
    /// # Errors
    /// Those of [`layer_norm`](Self::layer_norm).
    #[track_caller]
    pub fn batch_norm(
        &self,
        scale: &Self,
        offset: &Self,
        epsilon: f64,
    ) -> Result<BatchNormOutput<T>, Error> {
        if is_short::<T>() {
            return self.batch_norm_wide([scale, offset], epsilon);
        }
        let axes: Vec<isize> = (1..self.rank().cast_signed())
            .map(|axis| axis - 1)
            .collect();
        let (mean, variance) = self.moments(&axes)?;
        let channels = [self.shape().last().copied()];
        let (mean, variance) = (mean.reshape(&channels)?, variance.reshape(&channels)?);
        let output = self.batch_norm_by([&mean, &variance], [scale, offset], epsilon)?;
        Ok(BatchNormOutput {
            output,
            mean,
            variance,
        })
    }

    /// The same by a mean and a variance of each channel that are known; for inference.
    ///
    /// # Errors
    /// Those of [`layer_norm`](Self::layer_norm) and [`standardize`](Self::standardize).
    #[track_caller]
    pub fn batch_norm_by(
        &self,
        [mean, variance]: [&Self; 2],
        [scale, offset]: [&Self; 2],
        epsilon: f64,
    ) -> Result<Self, Error> {
        let (mean, variance) = (self.beside(mean)?, self.beside(variance)?);
        let normal = self.standardize(&mean, &variance, epsilon)?;
        normal.scaled(scale)?.bias_add(offset)
    }

    /// Each group of channels, along the last axis, of each sample, along the first, normalised by
    /// its mean and variance, then scaled and shifted channel by channel.
    ///
    /// # Errors
    /// Those of [`layer_norm`](Self::layer_norm), and of [`reshape`](Self::reshape) for channels
    /// that are no multiple of the groups.
    #[track_caller]
    pub fn group_norm(
        &self,
        groups: usize,
        [scale, offset]: [&Self; 2],
        epsilon: f64,
    ) -> Result<Self, Error> {
        let kept = self.rank().saturating_sub(1);
        let (before, channels) = self.shape().split_at(kept);
        // An empty batch does not tell how many channels a group has.
        let channels = channels.first().copied();
        let each = channels.and_then(|channels| channels.checked_div(groups));
        let each = each.filter(|each| channels == Some(each * groups));
        let parted = [all(before), vec![Some(groups), each]].concat();
        let by = Normalization::new((1..kept.cast_signed()).chain([-1]), epsilon);
        let normal = self.reshape(&parted)?.normalize(&by)?;
        let normal = normal.reshape(&all(self.shape()))?;
        normal.scaled(scale)?.bias_add(offset)
    }

    /// Each element times that of a vector along the last axis; this layout is kept.
    #[track_caller]
    fn scaled(&self, vector: &Self) -> Result<Self, Error> {
        self.mul(&self.beside(vector)?)
    }

    /// A vector cut as the last axis is, if it is a vector.
    #[track_caller]
    fn beside(&self, vector: &Self) -> Result<Self, Error> {
        let last = self.layout().specs().last().cloned();
        match (vector.rank(), last) {
            (1, Some(last)) => {
                let layout = meshwork_layout::Layout::new([last], self.layout().mesh())?;
                vector.relayout(&layout)
            }
            _ => Ok(vector.clone()),
        }
    }
}

/// The axes of a normalisation.
struct Axes {
    first: usize,
    count: usize,
    /// How to make them follow each other, if they do not.
    order: Option<Order>,
}

/// Other axes before those of a normalisation, and back.
struct Order {
    there: Vec<usize>,
    back: Vec<usize>,
    by: Normalization,
}

impl Axes {
    /// Of axes that are known to be there.
    fn of(by: &Normalization, rank: usize) -> Self {
        let mut axes: Vec<usize> = by.axes.iter().map(|&axis| place(axis, rank)).collect();
        axes.sort_unstable();
        let (first, count) = (axes.first().copied().unwrap_or(rank), axes.len());
        if axes.iter().copied().eq(first..first + count) {
            let order = None;
            return Self {
                first,
                count,
                order,
            };
        }
        let others = (0..rank).filter(|axis| !axes.contains(axis));
        let there: Vec<usize> = others.chain(axes.iter().copied()).collect();
        let mut back = vec![0; rank];
        for (to, &from) in there.iter().enumerate() {
            back[from] = to;
        }
        let by = Normalization {
            axes: (rank - count..rank).map(usize::cast_signed).collect(),
            ..by.clone()
        };
        let order = Some(Order { there, back, by });
        Self {
            first: rank - count,
            count,
            order,
        }
    }
}

/// A tensor with its moments along axes, over all clients.
struct Measured<'a, T: Float> {
    tensor: DTensor<T>,
    /// The elements without their mean.
    centered: Local<T>,
    has_mean: bool,
    /// 1 / √(variance + epsilon).
    scale: Local<T>,
    axes: Vec<usize>,
    first: usize,
    count: usize,
    /// The sizes of moments.
    one: Vec<Shape>,
    joins: Option<&'a PartialAllReduce>,
}

impl<'a, T: Float> Measured<'a, T> {
    fn of(
        tensor: DTensor<T>,
        by: &Normalization,
        run: &Axes,
        call: &'a Call,
    ) -> Result<Self, Error> {
        let axes: Vec<usize> = (run.first..run.first + run.count).collect();
        let blocks = Local::of(&tensor).carried()?;
        let mut one = blocks.sizes().to_vec();
        for sizes in &mut one {
            axes.iter().for_each(|&axis| sizes[axis] = 1);
        }
        let mut measured = Self {
            has_mean: by.moments == Moments::MeanAndVariance,
            count: axes.iter().map(|&axis| tensor.shape()[axis]).product(),
            scale: blocks.clone(),
            centered: blocks,
            // All of them are sums along the same dimensions.
            joins: call.within(0),
            first: run.first,
            tensor,
            axes,
            one,
        };
        if measured.has_mean {
            let mean = measured.mean(&measured.centered)?;
            measured.centered = measured.less(&measured.centered, &mean)?;
        }
        let spread = measured.mean_product(&measured.centered, &measured.centered)?;
        measured.scale = spread.root_inverted(by.epsilon.get())?;
        Ok(measured)
    }

    /// The elements over their root.
    fn normal(&self) -> Result<Local<T>, Error> {
        self.times(&self.centered, &self.scale)
    }

    fn gradient(&self, upstream: &Local<T>) -> Result<Local<T>, Error> {
        let upstream = upstream.carried()?;
        let normal = self.normal()?;
        let along = self.mean_product(&upstream, &normal)?;
        let mut rest = self.less(&upstream, &self.times(&normal, &along)?)?;
        if self.has_mean {
            rest = self.less(&rest, &self.mean(&upstream)?)?;
        }
        self.times(&rest, &self.scale)
    }

    /// The mean of each span of blocks, over all clients.
    fn mean(&self, of: &Local<T>) -> Result<Local<T>, Error> {
        if of.computing().is_some() {
            return self.shared(of.fold(ReduceOp::Sum, &self.axes, &self.one, &Monoid::sum())?);
        }
        self.shared(of.here(|place, block| {
            let elements = flat(&block);
            let spans = self.spans(block.shape());
            spans.sums(&self.one[place], |at| elements[at.element].to_f64())
        })?)
    }

    /// The mean of the products of each span of blocks, over all clients.
    fn mean_product(&self, left: &Local<T>, right: &Local<T>) -> Result<Local<T>, Error> {
        if left.computing().is_some() {
            return self.mean(&self.times(left, right)?);
        }
        let rights = right.views()?;
        self.shared(left.here(|place, block| {
            let (left, right) = (flat(&block), flat(&rights[place]));
            let spans = self.spans(block.shape());
            spans.sums(&self.one[place], |at| {
                left[at.element].to_f64() * right[at.element].to_f64()
            })
        })?)
    }

    /// The sums of all clients, by the count.
    fn shared(&self, sums: Local<T>) -> Result<Local<T>, Error> {
        let sums = self.tensor.joined(&self.axes, sums, self.joins)?;
        let count = sums.of_one(T::from_index(self.count))?;
        sums.pairwise(Pairwise::Divide, T::over, &count, &self.one)
    }

    fn times(&self, left: &Local<T>, right: &Local<T>) -> Result<Local<T>, Error> {
        self.with(Pairwise::Multiply, T::times, [left, right])
    }

    fn less(&self, left: &Local<T>, right: &Local<T>) -> Result<Local<T>, Error> {
        self.with(Pairwise::Subtract, T::minus, [left, right])
    }

    /// An op of elements and those at the same place, or the moment that they went into.
    fn with(
        &self,
        op: Pairwise,
        function: fn(T, T) -> T,
        [left, right]: [&Local<T>; 2],
    ) -> Result<Local<T>, Error> {
        if left.computing().is_some() {
            return left.pairwise(op, function, right, left.sizes());
        }
        let rights = right.views()?;
        left.here(|place, block| {
            let (left, right) = (flat(&block), flat(&rights[place]));
            let spans = self.spans(block.shape());
            let are_moments = right.len() < left.len();
            spans.map(block.shape(), |at| {
                let other = if are_moments { at.sum } else { at.element };
                function(left[at.element], right[other])
            })
        })
    }

    fn spans(&self, sizes: &[usize]) -> Spans {
        Spans::new(sizes, self.first, self.axes.len())
    }
}

impl<T: Float> Local<T> {
    /// 1 / √(x + epsilon).
    fn root_inverted(&self, epsilon: f64) -> Result<Self, Error> {
        if self.computing().is_none() {
            let root = |x: T| T::from_f64(1.0 / (x.to_f64() + epsilon).sqrt());
            return self.here(|_, block| block.mapv(root));
        }
        let with = |left: &Self, op, function: fn(T, T) -> T, number| {
            let number = left.of_one(T::from_f64(number))?;
            left.pairwise(op, function, &number, left.sizes())
        };
        let shifted = with(self, Pairwise::Add, T::plus, epsilon)?;
        let logarithm = shifted.pointwise(Pointwise::Ln, T::ln)?;
        let halved = with(&logarithm, Pairwise::Multiply, T::times, -0.5)?;
        halved.pointwise(Pointwise::Exp, T::exp)
    }

    /// A number for each place, of as many axes.
    pub(super) fn of_one(&self, number: T) -> Result<Self, Error> {
        let sizes = self.sizes().iter();
        let numbers = sizes.map(|sizes| kernel::filled(&vec![1; sizes.len()], [number]));
        self.beside(numbers.collect()).carried()
    }
}
