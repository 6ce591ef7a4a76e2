//! Convolutions and their gradients, each of which is a convolution itself.
//!
//! ```text
//!                    lhs                rhs                         strides    dilations
//!     sums           images  b 0 1 f    filter  0 1 i o             stride     1, dilation
//!     by the images  slopes  b 0 1 f    filter  0 1 o i, reversed   1          stride, dilation
//!     by the filter  images  f 0 1 b    slopes  i 0 1 o             dilation   1, stride
//! ```
//!
//! Axes stay where they are in memory, images with their channels last and filters with their
//! outputs last: as compilers for processors lay them out themselves.

use meshwork_accel::{ConvolutionShape, ElementType, WindowRange};

use super::arrange::{Sizes, flat, list};
use super::elements::{computed_in, convert};
use super::windows::paddings;
use super::{Function, Type};

/// What is made of which.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Pass {
    /// The sums, of images and filter.
    Sums,
    /// The gradient by the images, of that by the sums and the filter.
    ByImages,
    /// The gradient by the filter, of the images and the gradient by the sums.
    ByFilter,
}

/// The program of a pass; `None` for what is no float. 16-bit floats are computed in `f32`, and
/// rounded once.
pub(super) fn pass(pass: Pass, shape: &ConvolutionShape, element: ElementType) -> Option<String> {
    if !element.is_float() {
        return None;
    }
    let wide = computed_in(element);
    let (images, filter, sums) = (shape.over().images(), shape.filter(), shape.outputs());
    let [left, right, made] = match pass {
        Pass::Sums => [images, filter, sums],
        Pass::ByImages => [sums, filter, images],
        Pass::ByFilter => [images, sums, filter],
    };
    let rows = [&left, &right].map(|sizes| flat(element, sizes.iter().product()));
    let mut main = Function::new(&rows);
    let mut operand = |name, row: Type, sizes: &[usize]| {
        let kind = Type::Array(element, Sizes::of(sizes));
        let value = main.value("reshape", &[(name, row)], "", kind);
        (
            convert(&mut main, &value, kind, kind.of(wide)),
            kind.of(wide),
        )
    };
    let (lhs, lhs_kind) = operand("%arg0", rows[0], &left);
    let (mut rhs, mut rhs_kind) = operand("%arg1", rows[1], &right);
    if pass == Pass::ByImages {
        (rhs, rhs_kind) = reversed(&mut main, shape, &rhs, rhs_kind);
    }
    let kind = Type::Array(wide, Sizes::of(&made));
    let operands = [(lhs.as_str(), lhs_kind), (rhs.as_str(), rhs_kind)];
    let value = main.value("convolution", &operands, &attributes(pass, shape), kind);
    let row = flat(wide, made.iter().product());
    let value = main.value("reshape", &[(value.as_str(), kind)], "", row);
    let narrow = convert(&mut main, &value, row, row.of(element));
    Some(main.finish(&narrow, row.of(element)))
}

/// The filter with its windows from behind, and of several groups with the outputs of a group where
/// its channels were.
fn reversed(
    main: &mut Function,
    shape: &ConvolutionShape,
    filter: &str,
    kind: Type,
) -> (String, Type) {
    let spatial = shape.over().along().len();
    let attributes = format!(" {{dimensions = {}}}", list(0..spatial));
    let turned = main.value("reverse", &[(filter, kind)], &attributes, kind);
    let groups = shape.groups();
    if groups == 1 {
        return (turned, kind);
    }
    let sizes = shape.filter();
    let (window, [channels, outputs]) = (&sizes[..spatial], [sizes[spatial], sizes[spatial + 1]]);
    let each = outputs / groups;
    let array = |last: &[usize]| Type::Array(kind.element(), Sizes::of(&[window, last].concat()));
    let parted = array(&[channels, groups, each]);
    let value = main.value("reshape", &[(turned.as_str(), kind)], "", parted);
    let order = (0..spatial).chain([spatial + 2, spatial + 1, spatial]);
    let attributes = format!(" {{permutation = {}}}", list(order));
    let swapped = array(&[each, groups, channels]);
    let value = main.value(
        "transpose",
        &[(value.as_str(), parted)],
        &attributes,
        swapped,
    );
    let joined = array(&[each, groups * channels]);
    let value = main.value("reshape", &[(value.as_str(), swapped)], "", joined);
    (value, joined)
}

fn attributes(pass: Pass, shape: &ConvolutionShape) -> String {
    let over = shape.over();
    let along = over.along().iter().zip(over.counts());
    let along: Vec<Spatial> = along
        .map(|(range, count)| pass.along(range, *count))
        .collect();
    let [feature_groups, batch_groups] = match pass {
        Pass::Sums | Pass::ByImages => [shape.groups(), 1],
        Pass::ByFilter => [1, shape.groups()],
    };
    let reversal = match along.len() {
        0 => "array<i1>".to_owned(),
        axes => format!("array<i1: {}>", vec!["false"; axes].join(", ")),
    };
    format!(
        " {{dimension_numbers = {}, window_strides = {}, padding = {}, lhs_dilation = {}, \
         rhs_dilation = {}, window_reversal = {reversal}, \
         feature_group_count = {feature_groups} : i64, batch_group_count = {batch_groups} : i64, \
         precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}}",
        roles(pass, shape),
        list(along.iter().map(|own| own.stride)),
        paddings(along.iter().map(|own| own.padding)),
        list(along.iter().map(|own| own.lhs_dilation)),
        list(along.iter().map(|own| own.rhs_dilation)),
    )
}

/// Which axis is what.
fn roles(pass: Pass, shape: &ConvolutionShape) -> String {
    let axes = shape.over().along().len();
    let spatial: Vec<String> = (0..axes).map(|axis| axis.to_string()).collect();
    let spatial = spatial.iter().map(String::as_str);
    let images = |first, last| [first].into_iter().chain(spatial.clone()).chain([last]);
    let filter = |last: [&'static str; 2]| spatial.clone().chain(last);
    let [lhs, rhs, made]: [Vec<&str>; 3] = match pass {
        Pass::Sums => [
            images("b", "f").collect(),
            filter(["i", "o"]).collect(),
            images("b", "f").collect(),
        ],
        Pass::ByImages => {
            let is_one = shape.groups() == 1;
            [
                images("b", "f").collect(),
                filter(if is_one { ["o", "i"] } else { ["i", "o"] }).collect(),
                images("b", "f").collect(),
            ]
        }
        Pass::ByFilter => [
            images("f", "b").collect(),
            images("i", "o").collect(),
            filter(["b", "f"]).collect(),
        ],
    };
    let [lhs, rhs, made] = [lhs, rhs, made].map(|roles| roles.join(", "));
    format!("#stablehlo.conv<[{lhs}]x[{rhs}]->[{made}]>")
}

/// What happens along one spatial axis.
struct Spatial {
    stride: usize,
    padding: [isize; 2],
    lhs_dilation: usize,
    rhs_dilation: usize,
}

impl Pass {
    fn along(self, range: &WindowRange, count: usize) -> Spatial {
        let [stride, dilation] = [range.stride.get(), range.dilation.get()];
        let [before, after] = range.padding.map(usize::cast_signed);
        let [size, reach] = [range.size, range.reach()].map(usize::cast_signed);
        // From the first window's first index to behind the last one's.
        let all = ((count - 1) * stride + 1).cast_signed();
        match self {
            Self::Sums => Spatial {
                stride,
                padding: [before, after],
                lhs_dilation: 1,
                rhs_dilation: dilation,
            },
            Self::ByImages => Spatial {
                stride: 1,
                padding: [reach - 1 - before, size - all + before],
                lhs_dilation: stride,
                rhs_dilation: dilation,
            },
            Self::ByFilter => Spatial {
                stride: dilation,
                padding: [before, all - size + reach - 1 - before],
                lhs_dilation: 1,
                rhs_dilation: stride,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use meshwork_accel::ImageWindows;

    use super::*;

    fn shape(groups: usize) -> ConvolutionShape {
        let some = |number| NonZeroUsize::new(number).unwrap();
        let range = |size, dilation| WindowRange {
            size,
            window: some(3),
            stride: some(2),
            dilation: some(dilation),
            padding: [1, 0],
        };
        let over = ImageWindows::new(2, &[range(8, 1), range(9, 2)], 4).unwrap();
        ConvolutionShape::new(over, 6, groups).unwrap()
    }

    #[test]
    fn there_is_a_program_of_floats_and_nothing_else() {
        for element in ElementType::ALL {
            for own in [Pass::Sums, Pass::ByImages, Pass::ByFilter] {
                let program = pass(own, &shape(1), element);
                assert_eq!(
                    program.is_some(),
                    element.is_float(),
                    "{own:?} of {element}"
                );
            }
        }
    }

    #[test]
    fn gradients_are_convolutions_whose_windows_reach_all_that_a_window_reached() {
        let by_images = pass(Pass::ByImages, &shape(1), ElementType::F32).unwrap();
        for part in [
            "#stablehlo.conv<[b, 0, 1, f]x[0, 1, o, i]->[b, 0, 1, f]>",
            "window_strides = array<i64: 1, 1>",
            // Of 8 indices after 1 of padding the last window begins at 6; of 9, at 4.
            "padding = dense<[[1, 2], [3, 5]]> : tensor<2x2xi64>",
            "lhs_dilation = array<i64: 2, 2>, rhs_dilation = array<i64: 1, 2>",
            "(tensor<2x4x3x6xf32>, tensor<3x3x4x6xf32>) -> tensor<2x8x9x4xf32>",
        ] {
            assert!(by_images.contains(part), "{part}\n{by_images}");
        }
        let by_filter = pass(Pass::ByFilter, &shape(1), ElementType::F32).unwrap();
        for part in [
            "#stablehlo.conv<[f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f]>",
            "window_strides = array<i64: 1, 2>",
            "padding = dense<[[1, 0], [1, -1]]> : tensor<2x2xi64>",
            "(tensor<2x8x9x4xf32>, tensor<2x4x3x6xf32>) -> tensor<3x3x4x6xf32>",
        ] {
            assert!(by_filter.contains(part), "{part}\n{by_filter}");
        }
    }

    #[test]
    fn groups_are_of_features_or_of_the_batch() {
        let by_images = pass(Pass::ByImages, &shape(2), ElementType::F32).unwrap();
        assert!(
            by_images.contains("feature_group_count = 2 : i64"),
            "{by_images}"
        );
        assert!(by_images.contains("tensor<3x3x3x4xf32>"), "{by_images}");
        let by_filter = pass(Pass::ByFilter, &shape(2), ElementType::Bf16).unwrap();
        assert!(
            by_filter.contains("batch_group_count = 2 : i64"),
            "{by_filter}"
        );
        assert!(by_filter.contains("-> tensor<3x3x2x6xf32>"), "{by_filter}");
    }
}
