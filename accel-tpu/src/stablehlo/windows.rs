//! The largest or the mean of windows of images, and their gradients.

use meshwork_accel::{ElementType, ImageWindows, ReduceOp, WindowRange};

use super::arrange::{Folded, Sizes, combiner, flat, folded, list, neutral};
use super::choose::along;
use super::elements::{computed_in, convert, plain};
use super::{Function, Type};

/// The program that makes each window one element; `None` for what is no float, and for another op
/// than the largest and the mean. 16-bit floats are computed in `f32`, and rounded once.
pub(super) fn pool(by: ReduceOp, over: &ImageWindows, element: ElementType) -> Option<String> {
    let mut pooled = Pooled::new(by, over, element)?.with(&[over.images()]);
    let images = pooled.operand("%arg0", &over.images());
    let made = match is_parted(over) {
        true => pooled.parts(&images)?,
        false => {
            let sizes = [over.images(), over.windows()];
            pooled.reduced(&images, [&sizes[0], &sizes[1]], &forward(over))?
        }
    };
    let made = match pooled.by {
        ReduceOp::Max => made,
        _ => pooled.means(&made),
    };
    Some(pooled.finish(&made, &over.windows()))
}

/// The program of the gradient by the images; `None` also for the largest of windows whose indices
/// are apart, which StableHLO does not have.
pub(super) fn pool_gradient(
    by: ReduceOp,
    over: &ImageWindows,
    element: ElementType,
) -> Option<String> {
    let mut pooled = Pooled::new(by, over, element)?.with(&[over.images(), over.windows()]);
    let slopes = pooled.operand("%arg1", &over.windows());
    let made = match pooled.by {
        ReduceOp::Max => {
            let images = pooled.operand("%arg0", &over.images());
            pooled.scattered(&images, &slopes)?
        }
        _ => {
            let shares = pooled.means(&slopes);
            match is_parted(over) {
                true => pooled.repeated(&shares),
                false => pooled.spread(&shares)?,
            }
        }
    };
    Some(pooled.finish(&made, &over.images()))
}

/// Whether windows are the images in parts.
fn is_parted(over: &ImageWindows) -> bool {
    // Each spatial axis becomes two.
    let axes = 2 * over.along().len() + 2;
    axes <= super::MOST_AXES && over.along().iter().all(WindowRange::is_parted)
}

/// How windows move along an axis, in the words of StableHLO.
struct Moved {
    window: usize,
    stride: usize,
    dilation: usize,
    padding: [isize; 2],
}

const STILL: Moved = Moved {
    window: 1,
    stride: 1,
    dilation: 1,
    padding: [0, 0],
};

/// Along all axes, of which the first and the last are not spatial.
fn along_all(spatial: impl Iterator<Item = Moved>) -> Vec<Moved> {
    std::iter::once(STILL)
        .chain(spatial)
        .chain([STILL])
        .collect()
}

fn forward(over: &ImageWindows) -> Vec<Moved> {
    along_all(over.along().iter().map(|range| Moved {
        window: range.window.get(),
        stride: range.stride.get(),
        dilation: range.dilation.get(),
        padding: range.padding.map(usize::cast_signed),
    }))
}

/// Pairs of numbers as an attribute has them.
pub(super) fn paddings(pairs: impl Iterator<Item = [isize; 2]>) -> String {
    let pairs: Vec<String> = pairs
        .map(|[low, high]| format!("[{low}, {high}]"))
        .collect();
    let listed = match pairs.is_empty() {
        true => String::new(),
        false => format!("[{}]", pairs.join(", ")),
    };
    format!("dense<{listed}> : tensor<{}x2xi64>", pairs.len())
}

/// A program of windows, as far as it is written.
struct Pooled<'a> {
    main: Function,
    over: &'a ImageWindows,
    /// A mean is a sum until it is divided.
    by: ReduceOp,
    element: ElementType,
    wide: ElementType,
}

impl<'a> Pooled<'a> {
    fn new(by: ReduceOp, over: &'a ImageWindows, element: ElementType) -> Option<Self> {
        let by = match by {
            ReduceOp::Max => by,
            ReduceOp::Mean => ReduceOp::Sum,
            _ => return None,
        };
        element.is_float().then(|| Self {
            main: Function::new(&[]),
            over,
            by,
            element,
            wide: computed_in(element),
        })
    }

    /// The same with operands of these sizes.
    fn with(mut self, operands: &[Vec<usize>]) -> Self {
        let rows = operands.iter().map(|sizes| sizes.iter().product());
        let rows: Vec<Type> = rows.map(|len| flat(self.element, len)).collect();
        self.main = Function::new(&rows);
        self
    }

    fn kind(&self, sizes: &[usize]) -> Type {
        Type::Array(self.wide, Sizes::of(sizes))
    }

    fn operand(&mut self, name: &str, sizes: &[usize]) -> String {
        let row = flat(self.element, sizes.iter().product());
        let kind = Type::Array(self.element, Sizes::of(sizes));
        let value = self.main.value("reshape", &[(name, row)], "", kind);
        convert(&mut self.main, &value, kind, kind.of(self.wide))
    }

    /// What windows make of elements, by the op of the program.
    fn reduced(
        &mut self,
        value: &str,
        [from, to]: [&[usize]; 2],
        moved: &[Moved],
    ) -> Option<String> {
        let scalar = Type::Scalar(self.wide);
        let first = self.main.constant(neutral(self.by, self.wide)?, scalar);
        let rest = format!(
            " ({}) {{window_dimensions = {}, window_strides = {}, base_dilations = {}, \
             window_dilations = {}, padding = {}}}",
            combiner(plain(self.by, self.wide), scalar),
            list(moved.iter().map(|own| own.window)),
            list(moved.iter().map(|own| own.stride)),
            list(moved.iter().map(|_| 1)),
            list(moved.iter().map(|own| own.dilation)),
            paddings(moved.iter().map(|own| own.padding)),
        );
        let (from, to) = (self.kind(from), self.kind(to));
        let operands = [(value, from), (first.as_str(), scalar)];
        Some(self.main.value("reduce_window", &operands, &rest, to))
    }

    /// The sums of windows that are the images in parts.
    fn parts(&mut self, images: &str) -> Option<String> {
        let (whole, parted) = (self.kind(&self.over.images()), self.parted());
        let kind = self.kind(&parted);
        let value = self.main.value("reshape", &[(images, whole)], "", kind);
        let axes: Vec<usize> = (0..self.over.along().len())
            .map(|axis| 2 * axis + 2)
            .collect();
        let by = Folded {
            op: self.by,
            element: self.wide,
            sizes: &parted,
            axes: &axes,
        };
        folded(&mut self.main, &by, &value).map(|(sums, _)| sums)
    }

    /// The sizes of images in parts: behind the windows along each axis the places in one.
    fn parted(&self) -> Vec<usize> {
        let windows = self.over.windows();
        let (spatial, last) = windows.split_at(windows.len() - 1);
        let along = self.over.along().iter().zip(&spatial[1..]);
        let along = along.flat_map(|(range, count)| [*count, range.window.get()]);
        let batch = spatial.iter().copied().take(1);
        batch.chain(along).chain(last.iter().copied()).collect()
    }

    /// Something of each window at all its places, where windows are the images in parts.
    fn repeated(&mut self, shares: &str) -> String {
        let (from, to) = (self.kind(&self.over.windows()), self.kind(&self.parted()));
        let spatial = (0..self.over.along().len()).map(|axis| 2 * axis + 1);
        let last = 2 * self.over.along().len() + 1;
        let places = list([0].into_iter().chain(spatial).chain([last]));
        let attributes = format!(" {{broadcast_dimensions = {places}}}");
        let wide = self
            .main
            .value("broadcast_in_dim", &[(shares, from)], &attributes, to);
        let images = self.kind(&self.over.images());
        self.main
            .value("reshape", &[(wide.as_str(), to)], "", images)
    }

    /// The sum of something of all windows that each index is in: of what is as far apart as
    /// windows are, by windows from behind.
    fn spread(&mut self, shares: &str) -> Option<String> {
        let (mut edges, mut interior, mut sizes) = (vec![[0, 0]], vec![0], self.over.images());
        let along = self.over.along().iter().zip(self.over.counts());
        for (axis, (range, count)) in along.enumerate() {
            let reach = range.reach().cast_signed();
            let all = ((count - 1) * range.stride.get() + 1).cast_signed();
            let before = range.padding[0].cast_signed();
            edges.push([reach - 1 - before, range.size.cast_signed() - all + before]);
            interior.push(range.stride.get() - 1);
            sizes[axis + 1] += range.reach() - 1;
        }
        edges.push([0, 0]);
        interior.push(0);
        let attributes = format!(
            " {{edge_padding_low = {}, edge_padding_high = {}, interior_padding = {}}}",
            list(edges.iter().map(|edge| edge[0])),
            list(edges.iter().map(|edge| edge[1])),
            list(interior.iter()),
        );
        let scalar = Type::Scalar(self.wide);
        let zero = self.main.constant("0.0", scalar);
        let (from, apart) = (self.kind(&self.over.windows()), self.kind(&sizes));
        let operands = [(shares, from), (zero.as_str(), scalar)];
        let value = self.main.value("pad", &operands, &attributes, apart);
        let moved = along_all(self.over.along().iter().map(|range| Moved {
            window: range.window.get(),
            dilation: range.dilation.get(),
            ..STILL
        }));
        self.reduced(&value, [&sizes, &self.over.images()], &moved)
    }

    /// Something of each window at the first of its largest elements.
    fn scattered(&mut self, images: &str, slopes: &str) -> Option<String> {
        if self.over.along().iter().any(WindowRange::has_gaps) {
            return None;
        }
        let scalar = Type::Scalar(self.wide);
        let zero = self.main.constant("0.0", scalar);
        let moved = forward(self.over);
        let rest = format!(
            " ({}, {}) {{window_dimensions = {}, window_strides = {}, padding = {}}}",
            stays(scalar),
            combiner("add", scalar),
            list(moved.iter().map(|own| own.window)),
            list(moved.iter().map(|own| own.stride)),
            paddings(moved.iter().map(|own| own.padding)),
        );
        let (whole, each) = (
            self.kind(&self.over.images()),
            self.kind(&self.over.windows()),
        );
        let operands = [(images, whole), (slopes, each), (zero.as_str(), scalar)];
        Some(
            self.main
                .value("select_and_scatter", &operands, &rest, whole),
        )
    }

    /// Sums of windows divided by how many of their indices are no padding.
    fn means(&mut self, sums: &str) -> String {
        let kind = self.kind(&self.over.windows());
        let counts = self.counts(kind);
        let operands = [(sums, kind), (counts.as_str(), kind)];
        self.main.value("divide", &operands, "", kind)
    }

    fn counts(&mut self, kind: Type) -> String {
        let ranges = self.over.along();
        if ranges.iter().all(|range| range.padding == [0, 0]) {
            let places: usize = ranges.iter().map(|range| range.window.get()).product();
            return self.main.constant(&format!("{places}.0"), kind);
        }
        let mut counts = self.main.constant("1.0", kind);
        for (axis, (range, count)) in ranges.iter().zip(self.over.counts()).enumerate() {
            let own = (0..*count).map(|window| format!("{}.0", range.inside(window)));
            let row = flat(self.wide, *count);
            let listed = format!("[{}]", own.collect::<Vec<_>>().join(", "));
            let own = self.main.constant(&listed, row);
            let own = along(&mut self.main, &own, row, axis + 1, kind);
            let operands = [(counts.as_str(), kind), (own.as_str(), kind)];
            counts = self.main.value("multiply", &operands, "", kind);
        }
        counts
    }

    fn finish(mut self, made: &str, sizes: &[usize]) -> String {
        let row = flat(self.wide, sizes.iter().product());
        let value = self
            .main
            .value("reshape", &[(made, self.kind(sizes))], "", row);
        let narrow = convert(&mut self.main, &value, row, row.of(self.element));
        self.main.finish(&narrow, row.of(self.element))
    }
}

/// The function by which the first of two elements stays the largest.
fn stays(scalar: Type) -> String {
    let truth = Type::Scalar(ElementType::Bool);
    format!(
        "{{\n  ^bb0(%a: {scalar}, %b: {scalar}):\n    \
         %r = \"stablehlo.compare\"(%a, %b) {{comparison_direction = \
         #stablehlo<comparison_direction GE>, compare_type = #stablehlo<comparison_type FLOAT>}} : \
         ({scalar}, {scalar}) -> {truth}\n    \
         \"stablehlo.return\"(%r) : ({truth}) -> ()\n  }}"
    )
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    fn over([stride, dilation]: [usize; 2], padding: [usize; 2]) -> ImageWindows {
        let some = |number| NonZeroUsize::new(number).unwrap();
        let range = WindowRange {
            size: 6,
            window: some(2),
            stride: some(stride),
            dilation: some(dilation),
            padding,
        };
        ImageWindows::new(3, &[range], 5).unwrap()
    }

    #[test]
    fn there_is_a_program_of_floats_for_the_largest_and_the_mean() {
        for element in ElementType::ALL {
            for by in ReduceOp::ALL {
                let over = over([2, 1], [0, 1]);
                let is_known = matches!(by, ReduceOp::Max | ReduceOp::Mean) && element.is_float();
                let programs = [pool(by, &over, element), pool_gradient(by, &over, element)];
                for program in programs {
                    assert_eq!(program.is_some(), is_known, "{by} of {element}");
                }
            }
        }
    }

    #[test]
    fn windows_side_by_side_are_sums_along_axes_and_others_move() {
        let mean = |over| {
            let forward = pool(ReduceOp::Mean, &over, ElementType::F32).unwrap();
            forward + &pool_gradient(ReduceOp::Mean, &over, ElementType::F32).unwrap()
        };
        let parted = mean(over([2, 1], [0, 0]));
        assert!(parted.contains("tensor<3x3x2x5xf32>"), "{parted}");
        assert!(!parted.contains("reduce_window"), "{parted}");
        let moved = mean(over([1, 2], [1, 0]));
        assert_eq!(
            moved.matches("\"stablehlo.reduce_window\"").count(),
            2,
            "{moved}"
        );
        // Of five windows the first has one index only.
        assert!(
            moved.contains("dense<[1.0, 2.0, 2.0, 2.0, 2.0]>"),
            "{moved}"
        );
        assert!(moved.contains("-> tensor<3x8x5xf32>"), "{moved}");
    }

    #[test]
    fn largest_elements_of_windows_with_gaps_have_no_gradient_here() {
        let gradient = |over| pool_gradient(ReduceOp::Max, &over, ElementType::F32);
        assert!(gradient(over([1, 2], [0, 0])).is_none());
        let text = gradient(over([1, 1], [0, 0])).unwrap();
        assert!(text.contains("select_and_scatter"), "{text}");
    }
}
