//! Windows over the spatial axes of images, whose channels lie next to each other in memory.

use std::ops::Range;

use meshwork_layout::ops::WindowAxis;

/// The windows along all spatial axes, and what each takes together.
pub(in crate::ops) struct Sliding {
    axes: Vec<WindowAxis>,
    /// For each axis and each window along it the places that are no padding, and the first index.
    inside: Vec<Vec<(Range<usize>, usize)>>,
}

/// Places of a window, counted row-major, that fall on as many spatial indices, which follow each
/// other too.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Run {
    pub(in crate::ops) tap: usize,
    pub(in crate::ops) index: usize,
    pub(in crate::ops) len: usize,
}

impl Sliding {
    pub(in crate::ops) fn new(axes: Vec<WindowAxis>) -> Self {
        let inside = axes.iter();
        let inside = inside.map(|axis| (0..axis.count()).map(|at| axis.inside(at)).collect());
        Self {
            inside: inside.collect(),
            axes,
        }
    }

    /// How many windows an image has.
    pub(in crate::ops) fn positions(&self) -> usize {
        self.axes.iter().map(WindowAxis::count).product()
    }

    /// How many places a window has.
    pub(in crate::ops) fn taps(&self) -> usize {
        self.axes.iter().map(WindowAxis::window).product()
    }

    /// How many spatial indices an image has.
    pub(in crate::ops) fn size(&self) -> usize {
        self.axes.iter().map(WindowAxis::size).product()
    }

    /// Whether windows are the indices themselves.
    pub(in crate::ops) fn is_pointwise(&self) -> bool {
        self.axes.iter().all(WindowAxis::is_pointwise)
    }

    /// Each run of the window with this number that is no padding, in order.
    pub(in crate::ops) fn runs(&self, position: usize, visit: &mut impl FnMut(Run)) {
        let below = self.positions();
        self.runs_along(0, Part { position, below }, (0, 0), visit);
    }

    /// The same along the axes from one on, below a place and an index of those before.
    fn runs_along(
        &self,
        number: usize,
        part: Part,
        before: (usize, usize),
        visit: &mut impl FnMut(Run),
    ) {
        let Some(axis) = self.axes.get(number) else {
            let (tap, index) = before;
            return visit(Run { tap, index, len: 1 });
        };
        let below = part.below / axis.count();
        let (places, first) = &self.inside[number][part.position / below];
        let tap = before.0 * axis.window() + places.start;
        let index = before.1 * axis.size() + first;
        if number + 1 == self.axes.len() && axis.dilation() == 1 {
            let len = places.len();
            if len > 0 {
                visit(Run { tap, index, len });
            }
            return;
        }
        let position = part.position % below;
        for step in 0..places.len() {
            let before = (tap + step, index + step * axis.dilation());
            self.runs_along(number + 1, Part { position, below }, before, visit);
        }
    }
}

/// The number of a window along the axes that are left, and how many there are along them.
#[derive(Clone, Copy)]
struct Part {
    position: usize,
    below: usize,
}
