//! Which elements of an image a kernel meets, as a matrix with a column for each of its places
//! (`im2col`), and back.

use std::ops::Range;

use candle_nn::Conv2dConfig;

use crate::Error;

/// The sizes of a convolution, none of them 0 but for the number of images; all of its buffers have
/// a size that fits into a `usize`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    pub(super) images: usize,
    pub(super) groups: usize,
    /// Channels of one group.
    in_channels: usize,
    /// Channels of one group.
    pub(super) out_channels: usize,
    rows: Axis,
    columns: Axis,
}

/// The sizes along rows or columns.
#[derive(Clone, Copy, Debug)]
struct Axis {
    input: usize,
    kernel: usize,
    output: usize,
    padding: usize,
    stride: usize,
    dilation: usize,
}

impl Geometry {
    /// # Errors
    /// [`Error::Convolution`]
    pub(super) fn new(
        images: &[usize],
        weight: &[usize],
        config: &Conv2dConfig,
    ) -> Result<Self, Error> {
        let refused = |problem| Error::Convolution {
            images: images.to_vec(),
            weight: weight.to_vec(),
            padding: config.padding,
            stride: config.stride,
            dilation: config.dilation,
            groups: config.groups,
            problem,
        };
        let (&[count, channels, height, width], &[outputs, inputs, kernel_rows, kernel_columns]) =
            (images, weight)
        else {
            return Err(refused("both must have four sizes"));
        };
        let sizes = [
            channels,
            height,
            width,
            outputs,
            inputs,
            kernel_rows,
            kernel_columns,
        ];
        let settings = [config.stride, config.dilation, config.groups];
        if sizes.iter().chain(&settings).any(|&size| size == 0) {
            return Err(refused("no size may be 0"));
        }
        if inputs.checked_mul(config.groups) != Some(channels) {
            return Err(refused(
                "the weight's channels times groups must be the images'",
            ));
        }
        if !outputs.is_multiple_of(config.groups) {
            return Err(refused("the groups must be of equal size"));
        }
        let axis = |input, kernel| {
            Axis::new(input, kernel, config)
                .ok_or_else(|| refused("the kernel is larger than the image with its padding"))
        };
        let geometry = Self {
            images: count,
            groups: config.groups,
            in_channels: inputs,
            out_channels: outputs / config.groups,
            rows: axis(height, kernel_rows)?,
            columns: axis(width, kernel_columns)?,
        };
        geometry
            .fits()
            .ok_or_else(|| refused("the result is larger than memory"))?;
        Ok(geometry)
    }

    /// `None` if a buffer had more bytes than can be addressed.
    fn fits(&self) -> Option<()> {
        let places = self.rows.output.checked_mul(self.columns.output)?;
        // The images and the weight exist already.
        let result = (self.out_channels * self.groups).checked_mul(self.images.max(1))?;
        let matrix = self.kernel_len().checked_mul(places)?;
        for elements in [result.checked_mul(places)?, matrix] {
            isize::try_from(elements.checked_mul(size_of::<f32>())?).ok()?;
        }
        Some(())
    }

    /// The shape of the result.
    pub(super) fn shape(&self) -> (usize, usize, usize, usize) {
        let channels = self.out_channels * self.groups;
        (self.images, channels, self.rows.output, self.columns.output)
    }

    /// Elements of the kernel of one output channel: rows of the matrix.
    pub(super) fn kernel_len(&self) -> usize {
        self.in_channels * self.rows.kernel * self.columns.kernel
    }

    /// Places of the kernel: columns of the matrix.
    pub(super) fn places(&self) -> usize {
        self.rows.output * self.columns.output
    }

    /// Elements of one group of channels of one image.
    pub(super) fn input_len(&self) -> usize {
        self.in_channels * self.rows.input * self.columns.input
    }

    /// Elements of one group of channels of one result.
    pub(super) fn output_len(&self) -> usize {
        self.out_channels * self.places()
    }

    /// Elements of the weight of one group.
    pub(super) fn weight_len(&self) -> usize {
        self.out_channels * self.kernel_len()
    }

    /// Writes what each element of the kernel meets at each place. Where that is padding, `matrix`
    /// stays as it is: 0 if it was 0 before the first call.
    pub(super) fn image_to_matrix(&self, image: &[f32], matrix: &mut [f32]) {
        let stride = self.columns.stride;
        self.each_run(|places, start| {
            let matrix = &mut matrix[places];
            if stride == 1 {
                matrix.copy_from_slice(&image[start..start + matrix.len()]);
                return;
            }
            for (into, from) in matrix.iter_mut().zip(image[start..].iter().step_by(stride)) {
                *into = *from;
            }
        });
    }

    /// Adds each number of `matrix` to the element of `image` that it was written for.
    pub(super) fn add_matrix_to_image(&self, matrix: &[f32], image: &mut [f32]) {
        let stride = self.columns.stride;
        self.each_run(|places, start| {
            let matrix = &matrix[places];
            if stride == 1 {
                let image = &mut image[start..start + matrix.len()];
                for (into, from) in image.iter_mut().zip(matrix) {
                    *into += *from;
                }
                return;
            }
            for (into, from) in image[start..].iter_mut().step_by(stride).zip(matrix) {
                *into += *from;
            }
        });
    }

    /// Calls `visit` with each range of the matrix that lies side by side in one row of the image,
    /// a stride apart, and with the first of these elements.
    #[inline(always)]
    fn each_run(&self, mut visit: impl FnMut(Range<usize>, usize)) {
        let (rows, columns) = (self.rows, self.columns);
        let mut tap = 0;
        for channel in 0..self.in_channels {
            for kernel_row in 0..rows.kernel {
                for kernel_column in 0..columns.kernel {
                    let across = columns.inside(kernel_column);
                    for row in rows.inside(kernel_row) {
                        if across.is_empty() {
                            continue;
                        }
                        let image_row = channel * rows.input + rows.met(row, kernel_row);
                        let first = columns.met(across.start, kernel_column);
                        let places = (tap * rows.output + row) * columns.output;
                        visit(
                            places + across.start..places + across.end,
                            image_row * columns.input + first,
                        );
                    }
                    tap += 1;
                }
            }
        }
    }
}

impl Axis {
    /// `None` if the kernel does not fit.
    fn new(input: usize, kernel: usize, config: &Conv2dConfig) -> Option<Self> {
        let Conv2dConfig {
            padding,
            stride,
            dilation,
            ..
        } = *config;
        let padded = padding.checked_mul(2)?.checked_add(input)?;
        let reach = dilation.checked_mul(kernel - 1)?.checked_add(1)?;
        let output = padded.checked_sub(reach)? / stride + 1;
        Some(Self {
            input,
            kernel,
            output,
            padding,
            stride,
            dilation,
        })
    }

    /// The places at which element `tap` of the kernel meets the image and not its padding.
    fn inside(&self, tap: usize) -> Range<usize> {
        let offset = tap * self.dilation;
        let start = self.padding.saturating_sub(offset).div_ceil(self.stride);
        let end = (self.input + self.padding).saturating_sub(offset);
        start..end.div_ceil(self.stride).min(self.output)
    }

    /// What element `tap` meets at `place`, which is [inside](Self::inside).
    fn met(&self, place: usize, tap: usize) -> usize {
        place * self.stride + tap * self.dilation - self.padding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(padding: usize, stride: usize, dilation: usize) -> Conv2dConfig {
        Conv2dConfig {
            padding,
            stride,
            dilation,
            ..Conv2dConfig::default()
        }
    }

    #[test]
    fn every_place_inside_meets_the_element_that_the_definition_says() {
        for input in 1..6 {
            for kernel in 1..5 {
                for (padding, stride, dilation) in (0..4)
                    .flat_map(|padding| (1..4).map(move |stride| (padding, stride)))
                    .flat_map(|(padding, stride)| (1..4).map(move |d| (padding, stride, d)))
                {
                    let reach = dilation * (kernel - 1) + 1;
                    let axis = Axis::new(input, kernel, &config(padding, stride, dilation));
                    assert_eq!(axis.is_some(), input + 2 * padding >= reach);
                    let Some(axis) = axis else { continue };
                    for tap in 0..kernel {
                        let met: Vec<(usize, usize)> = (0..axis.output)
                            .map(|place| (place, place * stride + tap * dilation))
                            .filter(|&(_, at)| at >= padding && at - padding < input)
                            .map(|(place, at)| (place, at - padding))
                            .collect();
                        let ours: Vec<_> = axis
                            .inside(tap)
                            .map(|place| (place, axis.met(place, tap)))
                            .collect();
                        assert_eq!(ours, met, "{axis:?} {tap}");
                    }
                }
            }
        }
    }

    #[test]
    fn sizes_that_do_not_go_together_are_refused_with_the_reason() {
        let refused = |images: &[usize], weight: &[usize], config: Conv2dConfig| {
            Geometry::new(images, weight, &config)
                .unwrap_err()
                .to_string()
        };
        for (images, weight, config, reason) in [
            (&[1, 2, 3][..], [1, 2, 1, 1], config(0, 1, 1), "four sizes"),
            (&[1, 0, 3, 3], [1, 2, 1, 1], config(0, 1, 1), "may be 0"),
            (&[1, 2, 3, 3], [1, 2, 1, 1], config(0, 0, 1), "may be 0"),
            (&[1, 2, 3, 3], [1, 3, 1, 1], config(0, 1, 1), "channels"),
            (
                &[1, 1, 3, 3],
                [1, 1, 4, 1],
                config(0, 1, 1),
                "larger than the image",
            ),
            (
                &[1, 1, 3, 3],
                [1, 1, 2, 2],
                config(0, 1, 3),
                "larger than the image",
            ),
            (
                &[1, 1, 3, 3],
                [1, 1, 2, 2],
                config(usize::MAX, 1, 1),
                "larger than the image",
            ),
            (
                &[1, 1, 3, 3],
                [1, 1, 2, 2],
                config(1 << 40, 1, 1),
                "larger than memory",
            ),
        ] {
            let text = refused(images, &weight, config);
            assert!(text.contains(reason), "{text}");
        }
        let groups = Conv2dConfig {
            groups: 2,
            ..Conv2dConfig::default()
        };
        assert!(refused(&[1, 2, 3, 3], &[3, 1, 1, 1], groups).contains("equal size"));
    }
}
