//! Which kernels there are, what they are called, and how many threads they are given: pure.

use meshwork_accel::{ElementType, ReduceOp};

/// The source of all kernels, which NVRTC compiles, and of which a C compiler makes host code.
pub(crate) const SOURCE: &str = include_str!("kernels.cu");

/// The most buffers that one fold reads, and the most that it writes.
pub(crate) const MOST_PLACES: usize = 32;

/// One kernel: what it does, and to what.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Kernel {
    /// The op of two buffers, in place.
    Reduce(ReduceOp, ElementType),
    /// The op of many buffers, as a balanced tree.
    Fold(ReduceOp, ElementType),
    /// Division by a number of contributions.
    Divide(ElementType),
    /// One value everywhere, by its bytes.
    Fill(Width),
}

/// How many bytes an element has.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Width {
    One,
    Two,
    Four,
    Eight,
}

impl Width {
    const ALL: [Self; 4] = [Self::One, Self::Two, Self::Four, Self::Eight];

    /// That of an element type.
    pub(crate) fn of(element: ElementType) -> Self {
        match element.size() {
            1 => Self::One,
            2 => Self::Two,
            4 => Self::Four,
            _ => Self::Eight,
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Four => 4,
            Self::Eight => 8,
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
        let numbers = ElementType::ALL.into_iter();
        let numbers = numbers.filter(|element| ReduceOp::Mean.supports(*element));
        pairs()
            .map(|(op, element)| Self::Reduce(op, element))
            .chain(pairs().map(|(op, element)| Self::Fold(op, element)))
            .chain(numbers.map(Self::Divide))
            .chain(Width::ALL.map(Self::Fill))
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
        let summed = if op == ReduceOp::Mean {
            ReduceOp::Sum
        } else {
            op
        };
        op.supports(element).then_some(Self::Fold(summed, element))
    }

    /// Its name in the source.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Reduce(op, element) => format!("mw_reduce_{op}_{element}"),
            Self::Fold(op, element) => format!("mw_fold_{op}_{element}"),
            Self::Divide(element) => format!("mw_divide_{element}"),
            Self::Fill(width) => format!("mw_fill_{}", width.bytes()),
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

/// How many threads a kernel is given: blocks of equal size, each thread of which goes on with the
/// element as many places further as there are threads.
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
        let wanted = count.div_ceil(u64::from(THREADS)).max(1);
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

const THREADS: u32 = 256;

/// Blocks for each multiprocessor, which holds eight of this size at a time.
const BLOCKS_EACH: u32 = 32;

#[cfg(test)]
mod tests;
