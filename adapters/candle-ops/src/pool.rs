//! The mean or the maximum of windows that lie side by side.

use candle_core::{CpuStorage, CustomOp1, Device, Layout, Result, Shape, Tensor, ToUsize2};

use crate::Error;
use crate::storage::{is_ours, read, values};

/// The mean of each window of `size`, as [`Tensor::avg_pool2d`]. Rows and columns that fill no
/// window are left out; their gradient is 0.
///
/// # Shapes
/// `[images, channels, rows, columns]`
///
/// # Errors
/// [`Error::Pool`], and those of candle.
pub fn avg_pool2d(images: &Tensor, size: impl ToUsize2) -> Result<Tensor> {
    let windows = Windows::new(images, size)?;
    match is_ours(images) {
        true => images.contiguous()?.apply_op1(Mean(windows)),
        false => windows.means(images),
    }
}

/// The maximum of each window of `size`, as [`Tensor::max_pool2d`]. Rows and columns that fill no
/// window are left out. The first maximum of a window gets its gradient, on other devices and for
/// other types all that are equal to it; candle 0.11 divides it by the size of the window.
///
/// # Shapes
/// `[images, channels, rows, columns]`
///
/// # Errors
/// [`Error::Pool`], and those of candle.
pub fn max_pool2d(images: &Tensor, size: impl ToUsize2) -> Result<Tensor> {
    let windows = Windows::new(images, size)?;
    match is_ours(images) {
        true => images.contiguous()?.apply_op1(Maximum(windows)),
        false => windows.maxima(images),
    }
}

/// How images are divided; no size is 0.
#[derive(Clone, Copy)]
struct Windows {
    /// Elements of a row of an image.
    width: usize,
    /// Elements of an image of one channel.
    area: usize,
    rows: usize,
    columns: usize,
    out_rows: usize,
    out_columns: usize,
}

impl Windows {
    fn new(images: &Tensor, size: impl ToUsize2) -> Result<Self> {
        let (_, _, height, width) = images.dims4()?;
        let (rows, columns) = size.to_usize2();
        if !(1..=height).contains(&rows) || !(1..=width).contains(&columns) {
            let images = images.dims().to_vec();
            return Err(Error::Pool {
                images,
                rows,
                columns,
            }
            .into());
        }
        Ok(Self {
            width,
            area: height * width,
            rows,
            columns,
            out_rows: height / rows,
            out_columns: width / columns,
        })
    }

    /// By candle's operation, on any device and for any type. Its gradient is spread over the whole
    /// image, so windows have to fill that.
    fn means(self, images: &Tensor) -> Result<Tensor> {
        let filled = self.filled(images)?.contiguous()?;
        filled.avg_pool2d((self.rows, self.columns))
    }

    /// By operations of candle that have the right gradient, on any device and for any type.
    fn maxima(self, images: &Tensor) -> Result<Tensor> {
        let (count, channels, _, _) = images.dims4()?;
        let [rows, columns] = [self.out_rows, self.out_columns];
        let windows = [count, channels, rows, self.rows, columns, self.columns];
        let windows = self.filled(images)?.reshape(&windows[..])?;
        let maxima = windows.max(5)?.max(3)?;
        // candle's maximum leaves a NaN out that is not the first of its window.
        let values = windows.detach();
        let has_nan = values.ne(&values)?.max(5)?.max(3)?;
        let nan = (maxima.zeros_like()? * f64::NAN)?;
        has_nan.where_cond(&nan, &maxima)
    }

    /// The images without the rows and columns that fill no window.
    fn filled(&self, images: &Tensor) -> Result<Tensor> {
        let rows = images.narrow(2, 0, self.out_rows * self.rows)?;
        rows.narrow(3, 0, self.out_columns * self.columns)
    }

    fn shape(&self, images: &Layout) -> Result<Shape> {
        let (count, channels, ..) = images.shape().dims4()?;
        Ok(Shape::from((
            count,
            channels,
            self.out_rows,
            self.out_columns,
        )))
    }

    /// Calls `visit` with the rows of images that each row of windows covers, `rows` at a time.
    fn each_band(&self, images: &[f32], mut visit: impl FnMut(&[f32])) {
        for image in images.chunks_exact(self.area) {
            let bands = image.chunks_exact(self.rows * self.width);
            bands.for_each(&mut visit);
        }
    }

    /// As [`each_band`](Self::each_band), to be written.
    fn each_band_mut(&self, images: &mut [f32], mut visit: impl FnMut(&mut [f32])) {
        for image in images.chunks_exact_mut(self.area) {
            let bands = image.chunks_exact_mut(self.rows * self.width);
            bands.for_each(&mut visit);
        }
    }

    /// The first place of the maximum of each window of a band.
    fn places_of_maxima<'a>(&self, band: &'a [f32]) -> impl Iterator<Item = usize> + use<'a> {
        let Self {
            width,
            rows,
            columns,
            out_columns,
            ..
        } = *self;
        (0..out_columns).map(move |window| {
            let first = window * columns;
            let mut highest = first;
            for row in 0..rows {
                for place in row * width + first..row * width + first + columns {
                    // A NaN that is lost is a run that diverges unseen.
                    let is_first_nan = band[place].is_nan() && !band[highest].is_nan();
                    if band[place] > band[highest] || is_first_nan {
                        highest = place;
                    }
                }
            }
            highest
        })
    }
}

struct Mean(Windows);

impl CustomOp1 for Mean {
    fn name(&self) -> &'static str {
        "avg_pool2d"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let Self(windows) = self;
        let shape = windows.shape(layout)?;
        let mut into = vec![0.0; shape.elem_count()];
        let scale = 1.0 / (windows.rows * windows.columns) as f32;
        let mut results = into.chunks_exact_mut(windows.out_columns);
        windows.each_band(values(storage, layout)?, |band| {
            // Each band has a row of results.
            let Some(result) = results.next() else { return };
            for row in band.chunks_exact(windows.width) {
                add_sums(result, row, windows.columns);
            }
            result.iter_mut().for_each(|sum| *sum *= scale);
        });
        Ok((CpuStorage::F32(into), shape))
    }

    fn bwd(&self, images: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let Self(windows) = self;
        let gradient = gradient.contiguous()?;
        let slopes = read(&gradient);
        let mut slopes = slopes.values()?.chunks_exact(windows.out_columns);
        let mut into = vec![0.0; images.elem_count()];
        let scale = 1.0 / (windows.rows * windows.columns) as f32;
        windows.each_band_mut(&mut into, |band| {
            let Some(slopes) = slopes.next() else { return };
            for row in band.chunks_exact_mut(windows.width) {
                spread(row, slopes, windows.columns, scale);
            }
        });
        Ok(Some(Tensor::from_vec(into, images.shape(), &Device::Cpu)?))
    }
}

struct Maximum(Windows);

impl CustomOp1 for Maximum {
    fn name(&self) -> &'static str {
        "max_pool2d"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let Self(windows) = self;
        let shape = windows.shape(layout)?;
        let mut into = Vec::with_capacity(shape.elem_count());
        windows.each_band(values(storage, layout)?, |band| {
            into.extend(windows.places_of_maxima(band).map(|place| band[place]));
        });
        Ok((CpuStorage::F32(into), shape))
    }

    fn bwd(&self, images: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let Self(windows) = self;
        let gradient = gradient.contiguous()?;
        let (from, slopes) = (read(images), read(&gradient));
        let mut slopes = slopes.values()?.iter();
        let mut into = from.values()?.to_vec();
        // Each image's last rows may fill no window.
        for image in into.chunks_exact_mut(windows.area) {
            let mut bands = image.chunks_exact_mut(windows.rows * windows.width);
            for band in &mut bands {
                let places: Vec<_> = windows.places_of_maxima(band).collect();
                band.fill(0.0);
                for (place, slope) in places.into_iter().zip(&mut slopes) {
                    band[place] = *slope;
                }
            }
            bands.into_remainder().fill(0.0);
        }
        Ok(Some(Tensor::from_vec(into, images.shape(), &Device::Cpu)?))
    }
}

/// Adds the sum of each window of `row`. Windows of two columns are most of all, and twice as fast
/// where the compiler knows it.
fn add_sums(sums: &mut [f32], row: &[f32], columns: usize) {
    match columns {
        2 => add_sums_of(sums, row, 2),
        columns => add_sums_of(sums, row, columns),
    }
}

#[inline(always)]
fn add_sums_of(sums: &mut [f32], row: &[f32], columns: usize) {
    for (sum, window) in sums.iter_mut().zip(row.chunks_exact(columns)) {
        *sum += window.iter().sum::<f32>();
    }
}

/// Writes each slope times `scale` to its window of `row`.
fn spread(row: &mut [f32], slopes: &[f32], columns: usize, scale: f32) {
    match columns {
        2 => spread_over(row, slopes, 2, scale),
        columns => spread_over(row, slopes, columns, scale),
    }
}

#[inline(always)]
fn spread_over(row: &mut [f32], slopes: &[f32], columns: usize, scale: f32) {
    for (window, slope) in row.chunks_exact_mut(columns).zip(slopes) {
        window.fill(slope * scale);
    }
}
