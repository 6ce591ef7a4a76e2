//! Which kernels there are, what they are called, and how many threads they are given: pure.

mod along;
mod axes;
mod scan;

use meshwork_accel::{ElementType, Pairwise, Pointwise, ReduceOp};

pub(crate) use along::{Along, Pass};
pub(crate) use axes::{Axes, MOST_AXES};
pub(crate) use scan::Scan;

/// The source of all kernels, which NVRTC compiles, and of which a C compiler makes host code.
pub(crate) const SOURCE: &str = concat!(
    include_str!("kernels.cu"),
    include_str!("kernels/tensors.cu"),
    include_str!("kernels/choices.cu")
);

/// The most buffers that one fold reads, and the most that it writes.
pub(crate) const MOST_PLACES: usize = 32;

/// One kernel: what it does, and to what.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Kernel {
    /// The op of two buffers, in place.
    Reduce(ReduceOp, ElementType),
    /// The op of many buffers, as a balanced tree; a mean is divided by their number.
    Fold(ReduceOp, ElementType),
    /// Division by a number of contributions.
    Divide(ElementType),
    /// Multiplication by one number.
    Scale(ElementType),
    /// One value everywhere, by its bytes.
    Fill(Width),
    /// Arithmetic on each element.
    Pointwise(Pointwise, ElementType),
    /// Arithmetic on two buffers, in place of the first.
    Pairwise(Pairwise, ElementType),
    /// Elements put in other places, by their bytes.
    Place(Width),
    /// The same by squares of two axes, where neighbours change places.
    Transpose(Width),
    /// The op of the elements along an axis.
    Along(ReduceOp, ElementType),
    /// Products of matrices.
    Product(ElementType),
    /// Elements as those of any other type.
    Convert,
    /// Elements at the indices that a buffer holds, by their bytes.
    Take(Width),
    /// A row for each index, with one element that is not zero.
    OneHot(Width),
    /// Elements of one of two buffers, by their bytes.
    Select(Width),
    /// The op of each element along an axis and all before it.
    Scan(ReduceOp, ElementType),
    /// The index of the smallest or largest element along an axis.
    Arg(ReduceOp, ElementType),
}

/// How many bytes an element has, or several that move at once.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Width {
    One,
    Two,
    Four,
    Eight,
    Sixteen,
}

impl Width {
    const OF_ELEMENTS: [Self; 4] = [Self::One, Self::Two, Self::Four, Self::Eight];

    /// That of an element type.
    pub(crate) fn of(element: ElementType) -> Self {
        match element.size() {
            1 => Self::One,
            2 => Self::Two,
            4 => Self::Four,
            _ => Self::Eight,
        }
    }

    /// As a number.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Four => 4,
            Self::Eight => 8,
            Self::Sixteen => 16,
        }
    }

    /// Twice as many, `None` for the most.
    fn doubled(self) -> Option<Self> {
        match self {
            Self::One => Some(Self::Two),
            Self::Two => Some(Self::Four),
            Self::Four => Some(Self::Eight),
            Self::Eight => Some(Self::Sixteen),
            Self::Sixteen => None,
        }
    }
}

impl Kernel {
    /// Every kernel that there is.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let pairs = || {
            let ops = ReduceOp::ALL.into_iter().filter(|op| *op != ReduceOp::Mean);
            let pairs = ops.flat_map(|op| ElementType::ALL.map(|element| (op, element)));
            pairs.filter(|(op, element)| op.supports(*element))
        };
        let numbers = || {
            let all = ElementType::ALL.into_iter();
            all.filter(|element| ReduceOp::Mean.supports(*element))
        };
        pairs()
            .map(|(op, element)| Self::Reduce(op, element))
            .chain(pairs().map(|(op, element)| Self::Fold(op, element)))
            .chain(numbers().map(|element| Self::Fold(ReduceOp::Mean, element)))
            .chain(numbers().map(Self::Divide))
            .chain(Width::OF_ELEMENTS.map(Self::Fill))
            .chain(pairs().map(|(op, element)| Self::Along(op, element)))
            .chain(pairs().map(|(op, element)| Self::Scan(op, element)))
            .chain(pairs().filter_map(|(op, element)| Self::arg(op, element)))
            .chain(Self::of_tensors())
    }

    /// Those that compute with floats, and those that put elements in other places.
    fn of_tensors() -> impl Iterator<Item = Self> {
        let floats = || ElementType::ALL.into_iter().filter(|one| one.is_float());
        let pointwise = Pointwise::ALL.into_iter();
        let pairwise = Pairwise::ALL.into_iter();
        pointwise
            .flat_map(move |op| floats().map(move |element| Self::Pointwise(op, element)))
            .chain(
                pairwise
                    .flat_map(move |op| floats().map(move |element| Self::Pairwise(op, element))),
            )
            .chain(floats().map(Self::Scale))
            .chain(floats().map(Self::Product))
            .chain(Width::OF_ELEMENTS.map(Self::Place))
            .chain(Width::OF_ELEMENTS.map(Self::Transpose))
            .chain([Self::Place(Width::Sixteen), Self::Transpose(Width::Sixteen)])
            .chain([Self::Convert])
            .chain(Width::OF_ELEMENTS.map(Self::Take))
            .chain(Width::OF_ELEMENTS.map(Self::OneHot))
            .chain(Width::OF_ELEMENTS.map(Self::Select))
    }

    /// The kernel that combines two buffers, `None` if the elements do not have the op. A mean is a
    /// sum until it is divided.
    pub(crate) fn reduce(op: ReduceOp, element: ElementType) -> Option<Self> {
        let summed = if op == ReduceOp::Mean {
            ReduceOp::Sum
        } else {
            op
        };
        op.supports(element)
            .then_some(Self::Reduce(summed, element))
    }

    /// The kernel that combines many buffers, `None` if the elements do not have the op.
    pub(crate) fn fold(op: ReduceOp, element: ElementType) -> Option<Self> {
        op.supports(element).then_some(Self::Fold(op, element))
    }

    /// The kernel that finds extremes, `None` for other ops and for what has no order.
    pub(crate) fn arg(op: ReduceOp, element: ElementType) -> Option<Self> {
        op.has_index(element).then_some(Self::Arg(op, element))
    }

    /// Its name in the source.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Reduce(op, element) => format!("mw_reduce_{op}_{element}"),
            Self::Fold(op, element) => format!("mw_fold_{op}_{element}"),
            Self::Divide(element) => format!("mw_divide_{element}"),
            Self::Scale(element) => format!("mw_scale_{element}"),
            Self::Fill(width) => format!("mw_fill_{}", width.bytes()),
            Self::Pointwise(op, element) => format!("mw_pointwise_{op}_{element}"),
            Self::Pairwise(op, element) => format!("mw_pairwise_{op}_{element}"),
            Self::Place(width) => format!("mw_place_{}", width.bytes()),
            Self::Transpose(width) => format!("mw_transpose_{}", width.bytes()),
            Self::Along(op, element) => format!("mw_along_{op}_{element}"),
            Self::Product(element) => format!("mw_product_{element}"),
            Self::Convert => "mw_convert".to_owned(),
            Self::Take(width) => format!("mw_take_{}", width.bytes()),
            Self::OneHot(width) => format!("mw_one_hot_{}", width.bytes()),
            Self::Select(width) => format!("mw_select_{}", width.bytes()),
            Self::Scan(op, element) => format!("mw_scan_{op}_{element}"),
            Self::Arg(op, element) => format!("mw_arg_{op}_{element}"),
        }
    }

    /// The bytes of its elements, if it combines two buffers.
    pub(crate) fn reduces(self) -> Option<usize> {
        match self {
            Self::Reduce(_, element) => Some(element.size()),
            _ => None,
        }
    }

    /// The bytes of its elements, if it combines many buffers.
    pub(crate) fn folds(self) -> Option<usize> {
        match self {
            Self::Fold(_, element) => Some(element.size()),
            _ => None,
        }
    }

    /// The bytes of its elements, if it divides.
    pub(crate) fn divides(self) -> Option<usize> {
        match self {
            Self::Divide(element) => Some(element.size()),
            _ => None,
        }
    }

    /// The bytes of its elements, if it fills.
    pub(crate) fn fills(self) -> Option<usize> {
        match self {
            Self::Fill(width) => Some(width.bytes()),
            _ => None,
        }
    }
}

/// The type in which elements are combined, until the result is rounded.
pub(crate) fn computed_in(element: ElementType) -> ElementType {
    match element {
        ElementType::F16 | ElementType::Bf16 => ElementType::F32,
        other => other,
    }
}

/// The launch size of a kernel: blocks of equal size, in a grid-stride loop.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Grid {
    blocks: u32,
}

impl Grid {
    /// For a kernel whose threads each take 16 bytes at a time.
    pub(crate) fn of_packs(count: u64, size: usize, multiprocessors: u32) -> Self {
        let lanes = (16 / size.max(1)).max(1) as u64;
        Self::of_elements(count.div_ceil(lanes), multiprocessors)
    }

    /// For a kernel whose threads each take one element at a time.
    pub(crate) fn of_elements(count: u64, multiprocessors: u32) -> Self {
        Self::of_blocks(count.div_ceil(u64::from(THREADS)), multiprocessors)
    }

    /// For a kernel whose blocks each take one thing at a time.
    pub(crate) fn of_blocks(count: u64, multiprocessors: u32) -> Self {
        let wanted = count.max(1);
        // Enough to fill the GPU several times over; more would only start and end.
        let most = multiprocessors.max(1).saturating_mul(BLOCKS_EACH);
        Self {
            blocks: u32::try_from(wanted).map_or(most, |wanted| wanted.min(most)),
        }
    }

    /// How many blocks, at least one.
    pub(crate) fn blocks(self) -> u32 {
        self.blocks
    }

    /// How many threads in each block.
    pub(crate) fn threads(self) -> u32 {
        THREADS
    }
}

/// `THREADS` of the source, whose blocks share as much memory.
pub(crate) const THREADS: u32 = 256;

/// `TILE` of the source: rows and columns that a block of threads makes of a product at a time.
pub(crate) const TILE: u64 = 64;

/// `SQUARE` of the source: rows and columns that a block of threads transposes at a time.
pub(crate) const SQUARE: usize = 32;

/// Blocks for each multiprocessor, which holds eight of this size at a time.
const BLOCKS_EACH: u32 = 32;

#[cfg(test)]
mod tests;
