//! Rotary position embeddings, by ops that devices have too.

use meshwork_layout::ops::{Op, Real, Turn};
use meshwork_layout::{Layout, ShardingSpec};

use super::convolution::is_short;
use super::{Call, place};
use crate::{DTensor, Error, Float};

impl<T: Float> DTensor<T> {
    /// The halves of the last axis, a and b, turned by the position, the index along the axis
    /// before: a · cos - b · sin and b · cos + a · sin of position · base^(-2i / depth), where i is
    /// the index in the half. The axis of positions may be cut.
    ///
    /// # Shapes
    /// `[.., positions, depth]` with an even depth, and the result alike.
    ///
    /// # Errors
    /// [`Error::Op`] for an odd depth, fewer than two axes or a base that is not positive, and
    /// those of [`relayout`](Self::relayout).
    #[track_caller]
    #[doc(alias = "rope")]
    pub fn rotary(&self, base: f64, turn: Turn) -> Result<Self, Error> {
        if is_short::<T>() {
            return self.cast::<f32>()?.rotary(base, turn)?.cast();
        }
        let op = Op::Rotary {
            base: Real::from(base),
            turn,
        };
        let call = Call::of(&op, self.context(), &[self.placement()])?;
        let pairs = call.operand(0, self)?;
        let [first, second] = [pairs.half(0)?, pairs.half(1)?];
        let angle = |at: &[usize]| {
            let depth = pairs.shape()[pairs.rank() - 1] as f64;
            let angle = at[0] as f64 * base.powf(-2.0 * at[1] as f64 / depth);
            match turn {
                Turn::Forward => angle,
                Turn::Back => -angle,
            }
        };
        let positions = pairs.layout().specs().nth(place(-2, pairs.rank())).cloned();
        let specs = positions.into_iter().chain([ShardingSpec::unsharded()]);
        let layout = Layout::new(specs, pairs.layout().mesh())?;
        let sizes = &first.shape()[first.rank() - 2..];
        let of = |function: fn(f64) -> f64| {
            let element = |at: &[usize]| T::from_f64(function(angle(at)));
            self.context().from_fn(sizes, &layout, element)
        };
        let (cos, sin) = (of(f64::cos)?, of(f64::sin)?);
        let left = first.mul(&cos)?.sub(&second.mul(&sin)?)?;
        let right = second.mul(&cos)?.add(&first.mul(&sin)?)?;
        let turned = Self::concat(-1, &[&left, &right])?;
        call.composed(0, &turned)
    }

    /// Half of the last axis, the first or the second.
    fn half(&self, number: usize) -> Result<Self, Error> {
        let last = self.rank() - 1;
        let half = self.shape()[last] / 2;
        let mut begin = vec![0; self.rank()];
        begin[last] = number * half;
        let mut size = vec![None; self.rank()];
        size[last] = Some(half);
        self.slice(&begin, &size)
    }
}
