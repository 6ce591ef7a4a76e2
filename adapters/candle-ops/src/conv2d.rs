//! Convolutions as products of matrices, one image after the other, so that the matrices stay in
//! the cache.

mod geometry;

use candle_core::{CpuStorage, CustomOp2, CustomOp3, Device, Layout, Result, Shape, Tensor};
use candle_nn::{Conv2d, Module};
use rayon::prelude::*;

use crate::Error;
use crate::product::{Matrix, Threads, add_product, sum};
use crate::spread;
use crate::storage::{is_ours, read, values};
use geometry::Geometry;

/// `images` convolved by `layer`, as its own `forward`.
///
/// # Shapes
/// `[images, channels, rows, columns]`
///
/// # Errors
/// [`Error::Convolution`], [`Error::Bias`], and those of candle.
pub fn conv2d(layer: &Conv2d, images: &Tensor) -> Result<Tensor> {
    let (weight, bias) = (layer.weight(), layer.bias());
    if ![Some(images), Some(weight), bias]
        .into_iter()
        .flatten()
        .all(is_ours)
    {
        return layer.forward(images);
    }
    let geometry = Geometry::new(images.dims(), weight.dims(), layer.config())?;
    let (images, weight) = (images.contiguous()?, weight.contiguous()?);
    let op = Convolution(geometry);
    let Some(bias) = bias else {
        return images.apply_op2(&weight, op);
    };
    let outputs = geometry.out_channels * geometry.groups;
    if bias.dims() != [outputs] {
        let bias = bias.dims().to_vec();
        return Err(Error::Bias { bias, outputs }.into());
    }
    images.apply_op3(&weight, &bias.contiguous()?, op)
}

#[derive(Clone, Copy)]
struct Convolution(Geometry);

impl Convolution {
    /// Adds the result to `into`.
    fn forward(&self, into: &mut [f32], images: &[f32], weight: &[f32]) {
        let Self(sizes) = self;
        let (kernel_len, places) = (sizes.kernel_len(), sizes.places());
        self.each_part(into, images, |into, images| {
            let mut matrix = vec![0.0; kernel_len * places];
            let images = images.chunks_exact(sizes.input_len());
            let weights = weight.chunks_exact(sizes.weight_len()).cycle();
            let results = into.chunks_exact_mut(sizes.output_len());
            for ((result, image), weight) in results.zip(images).zip(weights) {
                sizes.image_to_matrix(image, &mut matrix);
                let weight = Matrix::new(weight, sizes.out_channels, kernel_len);
                let matrix = Matrix::new(&matrix, kernel_len, places);
                add_product(result, weight, matrix, Threads::One);
            }
        });
    }

    fn gradient_of_images(&self, weight: &[f32], slopes: &[f32]) -> Vec<f32> {
        let Self(sizes) = self;
        let (kernel_len, places) = (sizes.kernel_len(), sizes.places());
        let mut into = vec![0.0; sizes.images * sizes.groups * sizes.input_len()];
        self.each_part(&mut into, slopes, |into, slopes| {
            let mut matrix = vec![0.0; kernel_len * places];
            let slopes = slopes.chunks_exact(sizes.output_len());
            let weights = weight.chunks_exact(sizes.weight_len()).cycle();
            let images = into.chunks_exact_mut(sizes.input_len());
            for ((image, slopes), weight) in images.zip(slopes).zip(weights) {
                matrix.fill(0.0);
                let weight = Matrix::new(weight, sizes.out_channels, kernel_len);
                let slopes = Matrix::new(slopes, sizes.out_channels, places);
                add_product(&mut matrix, weight.transposed(), slopes, Threads::One);
                sizes.add_matrix_to_image(&matrix, image);
            }
        });
        into
    }

    /// Each part of the images is summed by itself, and the parts in their order, so that the
    /// result does not depend on the number of threads.
    fn gradient_of_weight(&self, images: &[f32], slopes: &[f32]) -> Vec<f32> {
        let Self(sizes) = self;
        let (kernel_len, places, groups) = (sizes.kernel_len(), sizes.places(), sizes.groups);
        let whole = groups * sizes.weight_len();
        let parts = sizes.images.div_ceil(PART).max(1);
        let mut sums = vec![0.0; parts * whole];
        let images = images.par_chunks(self.part_len(images));
        let slopes = slopes.par_chunks(self.part_len(slopes));
        let parts = sums.par_chunks_mut(whole).zip(images).zip(slopes);
        spread::each(parts, |((sum, images), slopes)| {
            let mut matrix = vec![0.0; kernel_len * places];
            let images = images.chunks_exact(sizes.input_len());
            let slopes = slopes.chunks_exact(sizes.output_len());
            for (at, (image, slopes)) in images.zip(slopes).enumerate() {
                sizes.image_to_matrix(image, &mut matrix);
                let start = at % groups * sizes.weight_len();
                let sum = &mut sum[start..start + sizes.weight_len()];
                let slopes = Matrix::new(slopes, sizes.out_channels, places);
                let matrix = Matrix::new(&matrix, kernel_len, places).transposed();
                add_product(sum, slopes, matrix, Threads::One);
            }
        });
        let (total, rest) = sums.split_at_mut(whole);
        for part in rest.chunks_exact(whole) {
            total
                .iter_mut()
                .zip(part)
                .for_each(|(sum, term)| *sum += term);
        }
        sums.truncate(whole);
        sums
    }

    fn gradient_of_bias(&self, slopes: &[f32]) -> Vec<f32> {
        let mut sums = vec![0.0; self.0.out_channels * self.0.groups];
        let mut planes = slopes.chunks_exact(self.0.places());
        for _ in 0..self.0.images {
            for (sum_of_all, plane) in sums.iter_mut().zip(&mut planes) {
                *sum_of_all += sum(plane);
            }
        }
        sums
    }

    /// Calls `work` with the same images of `into` and `from`, spread over the threads.
    fn each_part(&self, into: &mut [f32], from: &[f32], work: impl Fn(&mut [f32], &[f32]) + Sync) {
        let parts = into.par_chunks_mut(self.part_len(into));
        let parts = parts.zip(from.par_chunks(self.part_len(from)));
        spread::each(parts, |(into, from)| work(into, from));
    }

    /// Elements of the images that one thread takes at a time, of `all` that there are.
    fn part_len(&self, all: &[f32]) -> usize {
        (all.len() / self.0.images.max(1) * PART).max(1)
    }

    /// The gradients of images and weight, of those that need one.
    fn gradients(
        &self,
        images: &Tensor,
        weight: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (x, w, slopes) = (read(images), read(weight), read(gradient));
        let (x, w, slopes) = (x.values()?, w.values()?, slopes.values()?);
        let tensor = |values, like: &Tensor| Tensor::from_vec(values, like.shape(), &Device::Cpu);
        let of_images = images
            .track_op()
            .then(|| tensor(self.gradient_of_images(w, slopes), images));
        let of_weight = weight
            .track_op()
            .then(|| tensor(self.gradient_of_weight(x, slopes), weight));
        Ok((of_images.transpose()?, of_weight.transpose()?))
    }
}

impl CustomOp2 for Convolution {
    fn name(&self) -> &'static str {
        "conv2d"
    }

    fn cpu_fwd(
        &self,
        images: &CpuStorage,
        images_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (x, w) = (
            values(images, images_layout)?,
            values(weight, weight_layout)?,
        );
        let shape = Shape::from(self.0.shape());
        let mut into = vec![0.0; shape.elem_count()];
        self.forward(&mut into, x, w);
        Ok((CpuStorage::F32(into), shape))
    }

    fn bwd(
        &self,
        images: &Tensor,
        weight: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        self.gradients(images, weight, &gradient.contiguous()?)
    }
}

impl CustomOp3 for Convolution {
    fn name(&self) -> &'static str {
        "conv2d"
    }

    fn cpu_fwd(
        &self,
        images: &CpuStorage,
        images_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
        bias: &CpuStorage,
        bias_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (x, w) = (
            values(images, images_layout)?,
            values(weight, weight_layout)?,
        );
        let shape = Shape::from(self.0.shape());
        let mut into = vec![0.0; shape.elem_count()];
        let planes = into.chunks_exact_mut(self.0.places());
        for (plane, bias) in planes.zip(values(bias, bias_layout)?.iter().cycle()) {
            plane.fill(*bias);
        }
        self.forward(&mut into, x, w);
        Ok((CpuStorage::F32(into), shape))
    }

    fn bwd(
        &self,
        images: &Tensor,
        weight: &Tensor,
        bias: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        let (of_images, of_weight) = self.gradients(images, weight, &gradient)?;
        let of_bias = self.gradient_of_bias(read(&gradient).values()?);
        let of_bias = Tensor::from_vec(of_bias, bias.shape(), &Device::Cpu)?;
        Ok((of_images, of_weight, Some(of_bias)))
    }
}

/// Images that one thread takes at a time.
const PART: usize = 8;
