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
        let mut left = position;
        let mut at = vec![0; self.axes.len()];
        for (at, axis) in at.iter_mut().zip(&self.axes).rev() {
            *at = left % axis.count();
            left /= axis.count();
        }
        self.runs_from(&at, (0, 0), visit);
    }

    /// The same from the axis on that is the first of `at`, below a place and an index of those
    /// before.
    fn runs_from(&self, at: &[usize], before: (usize, usize), visit: &mut impl FnMut(Run)) {
        let number = self.axes.len() - at.len();
        let Some((&here, rest)) = at.split_first() else {
            let (tap, index) = before;
            return visit(Run { tap, index, len: 1 });
        };
        let axis = &self.axes[number];
        let (places, first) = &self.inside[number][here];
        let tap = before.0 * axis.window() + places.start;
        let index = before.1 * axis.size() + first;
        if rest.is_empty() && axis.dilation() == 1 {
            let len = places.len();
            if len > 0 {
                visit(Run { tap, index, len });
            }
            return;
        }
        for step in 0..places.len() {
            let below = (tap + step, index + step * axis.dilation());
            self.runs_from(rest, below, visit);
        }
    }
}
