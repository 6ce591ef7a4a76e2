//! Elements of blocks that are chosen, by their places or by the values of others, and laid out
//! anew.

use std::ops::Range;

use meshwork_accel::{
    Arrangement, ElementType, ReduceOp, Region, StridedRange, StridedSlice, convert_slice,
};
use meshwork_layout::Shape;
use ndarray::{Axis, Slice};

use super::super::{is_short, kernel};
use super::Local;
use crate::backend::{DeviceBlocks, LocalDevices, Whole};
use crate::{Error, Number, Scalar};

impl<T: Scalar> Local<T> {
    /// Some indices along each axis of each block.
    pub(in crate::ops) fn stepped(
        &self,
        along: impl Fn(usize) -> Vec<StridedRange>,
    ) -> Result<Self, Error> {
        let places = self.sizes().iter().enumerate();
        let steps = places.map(|(place, whole)| StridedSlice::new(whole, &along(place)));
        let steps: Vec<StridedSlice> = steps.collect::<Result<_, _>>()?;
        if let Some((site, blocks)) = self.shaped() {
            let sizes = steps.iter().map(|steps| {
                let counts = steps.along().iter().map(|stride| stride.count);
                counts.collect()
            });
            let made = self.there(sizes.collect(), |place| {
                site.backend.step(&blocks[place], &steps[place])
            })?;
            if let Some(made) = made {
                return Ok(made);
            }
        }
        self.here(|place, block| {
            let (along, bounds) = (steps[place].along(), steps[place].bounds());
            let chosen = block.slice_each_axis(|axis| {
                let axis = axis.axis.index();
                match &bounds {
                    Some(bounds) => {
                        let (low, high) = bounds[axis];
                        let end = Some(high.cast_signed() + 1);
                        Slice::new(low.cast_signed(), end, along[axis].step.get())
                    }
                    // Along one of the axes nothing is chosen.
                    None => Slice::from(0..along[axis].count.min(block.len_of(Axis(axis)))),
                }
            });
            chosen.to_owned()
        })
    }

    /// The slices along an axis at indices that are known to be there, which leaves these sizes.
    pub(in crate::ops) fn taken<I: Scalar>(
        &self,
        axis: usize,
        indices: &Local<I>,
        sizes: &[Shape],
    ) -> Result<Self, Error> {
        if let Some((site, blocks)) = self.shaped() {
            let numbers = indices.numbers(site)?;
            let made = self.there(sizes.to_vec(), |place| {
                let whole = split(&self.sizes()[place], axis);
                let len = sizes[place].iter().product();
                site.backend
                    .take(&blocks[place], whole, len, &numbers[place])
            })?;
            if let Some(made) = made {
                return Ok(made);
            }
        }
        let indices = indices.views()?;
        self.here(|place, block| {
            let chosen = indices[place].iter().filter_map(|index| index.to_index());
            let taken = block.select(Axis(axis), &chosen.collect::<Vec<_>>());
            kernel::reshaped(&taken.view(), &sizes[place])
        })
    }

    /// A row for each element, with 1 for the class that it states and 0 for all others of a range,
    /// which makes these sizes.
    pub(in crate::ops) fn one_hot<R: Scalar>(
        &self,
        classes: impl Fn(usize) -> Range<usize>,
        sizes: &[Shape],
    ) -> Result<Local<R>, Error> {
        let site = self.site.as_deref();
        let computes =
            |site: &&LocalDevices| site.backend.computes(R::TYPE) && site.backend.arranges();
        let there = site
            .filter(computes)
            .or_else(|| self.shaped().map(|(site, _)| site));
        if let Some(site) = there {
            let numbers = self.numbers(site)?;
            let made = self.there(sizes.to_vec(), |place| {
                let len = sizes[place].iter().product();
                site.backend
                    .one_hot(&numbers[place], classes(place), R::TYPE, len)
            })?;
            if let Some(made) = made {
                return Ok(made);
            }
        }
        self.here(|place, block| {
            let classes = classes(place);
            let rows = block.iter().flat_map(|element| {
                let right = element.to_index();
                classes.clone().map(move |class| right == Some(class))
            });
            let one_or_none = |is_right| R::from_index(usize::from(is_right));
            kernel::filled(&sizes[place], rows.map(one_or_none))
        })
    }

    /// Zeros around each block, which makes these sizes; `before` are those before it along each
    /// axis.
    pub(in crate::ops) fn padded(&self, before: &[usize], sizes: &[Shape]) -> Result<Self, Error> {
        if let Some((site, blocks)) = self.shaped() {
            let made = self.there(sizes.to_vec(), |place| {
                let along = before.iter().zip(&*self.sizes()[place]);
                let inner: Vec<Range<usize>> =
                    along.map(|(start, size)| *start..start + size).collect();
                let region = Region::new(&sizes[place], &inner)?;
                let whole = Whole {
                    device: site.devices[place],
                    element: T::TYPE,
                    len: sizes[place].iter().product(),
                    fill: None,
                };
                site.backend
                    .assemble(whole, &[(blocks[place].clone(), region)])
            })?;
            if let Some(made) = made {
                return Ok(made);
            }
        }
        self.here(|place, block| kernel::padded(&block, |axis| before[axis], &sizes[place]))
    }

    /// Each block repeated along each axis as a whole.
    pub(in crate::ops) fn tiled(
        &self,
        multiples: &[usize],
        sizes: &[Shape],
    ) -> Result<Self, Error> {
        if self.shaped().is_none() {
            return self.here(|_, block| kernel::tiled(&block, multiples));
        }
        // Each axis behind a new one, along which it is repeated.
        let arrangement = |place: usize| {
            let from = &self.sizes()[place];
            let places: Vec<usize> = (0..from.len()).map(|axis| 2 * axis + 1).collect();
            let pairs = multiples.iter().zip(&**from);
            let to: Vec<usize> = pairs.flat_map(|(times, size)| [*times, *size]).collect();
            Arrangement::new(from, &places, &to)
        };
        let wide = self.arranged(arrangement, |_, block| kernel::tiled(&block, multiples))?;
        wide.reshaped(sizes)
    }

    /// The elements as those of another type.
    pub(crate) fn converted<U: Scalar>(&self) -> Result<Local<U>, Error> {
        if let Some((site, blocks)) = self.stored() {
            let made = self.there(self.sizes().to_vec(), |place| {
                let len = self.sizes()[place].iter().product();
                site.backend.convert(&blocks[place], U::TYPE, len)
            })?;
            if let Some(made) = made {
                return Ok(made);
            }
        }
        self.here(|_, block| {
            let elements: Vec<T> = block.iter().copied().collect();
            let mut converted = vec![U::default(); elements.len()];
            convert_slice(&elements, &mut converted).expect("as many as there were");
            kernel::filled(block.shape(), converted)
        })
    }

    /// Elements of `yes` where these are not 0 and of `no` elsewhere, after repetition to these
    /// sizes.
    pub(in crate::ops) fn select<U: Scalar>(
        &self,
        [yes, no]: [&Local<U>; 2],
        sizes: &[Shape],
    ) -> Result<Local<U>, Error> {
        if let Some(site) = yes.computing() {
            let conditions = self.spread(sizes)?.at(site)?;
            let (yes, no) = (yes.spread(sizes)?.at(site)?, no.spread(sizes)?.at(site)?);
            let made = self.there(sizes.to_vec(), |place| {
                let ends = [&*yes[place], &*no[place]];
                site.backend.select(&conditions[place], ends)
            })?;
            if let Some(made) = made {
                return Ok(made);
            }
        }
        let (yes, no) = (yes.views()?, no.views()?);
        self.here(|place, block| {
            let sizes = &sizes[place];
            let (yes, no) = (yes[place].view(), no[place].view());
            let ends = kernel::zip(yes, no, sizes, &|yes, no| (yes, no));
            let holds = kernel::spread(&block, sizes);
            let chosen = holds.iter().zip(&ends);
            let chosen = chosen.map(|(holds, (yes, no))| match *holds == T::default() {
                true => *no,
                false => *yes,
            });
            kernel::filled(sizes, chosen)
        })
    }

    /// Whether it has been taken note of that all elements have to be indices below the size of an
    /// axis.
    pub(in crate::ops) fn are_bounded(&self, axis: usize, size: usize) -> bool {
        let Some((site, blocks)) = self.stored() else {
            return false;
        };
        let recorder = site.backend.recorder();
        recorder.is_some_and(|recorder| recorder.bound(blocks, axis, size))
    }

    /// The elements as whole numbers on the devices of a site; what is no index becomes −1.
    fn numbers(&self, site: &LocalDevices) -> Result<DeviceBlocks, Error> {
        if !T::TYPE.is_float() && T::TYPE != ElementType::Bool {
            return self.at(site);
        }
        let index = |element: &T| {
            let index = element.to_index();
            index.map_or(-1, |index| i64::try_from(index).unwrap_or(-1))
        };
        let numbers: Local<i64> = self.here(|_, block| block.map(index))?;
        numbers.at(site)
    }
}

impl<T: Number> Local<T> {
    /// The sum of each element with those before it along an axis; of 16-bit floats in 32 bits,
    /// rounded once.
    pub(in crate::ops) fn scanned(&self, axis: usize) -> Result<Self, Error> {
        let own = self.carried()?;
        if let Some((site, blocks)) = own.shaped() {
            let made = self.there(self.sizes().to_vec(), |place| {
                let sizes = split(&self.sizes()[place], axis);
                site.backend.scan(ReduceOp::Sum, sizes, &blocks[place])
            })?;
            if let Some(made) = made {
                return Ok(made);
            }
        }
        if is_short::<T>() {
            return self.converted::<f32>()?.scanned(axis)?.converted();
        }
        self.here(|_, block| {
            let mut sums = block.to_owned();
            sums.accumulate_axis_inplace(Axis(axis), |before, sum| *sum = before.plus(*sum));
            sums
        })
    }
}

impl<T: Number> Local<T> {
    /// Where along an axis the first of the smallest or largest elements is, by the backend's op or
    /// the host's function, which leaves these sizes.
    pub(in crate::ops) fn arg(
        &self,
        op: ReduceOp,
        axis: usize,
        sizes: &[Shape],
        is_better: impl Fn(T, T) -> bool,
    ) -> Result<Local<i64>, Error> {
        let own = self.carried()?;
        if let Some((site, blocks)) = own.shaped() {
            let made = self.there(sizes.to_vec(), |place| {
                let whole = split(&self.sizes()[place], axis);
                site.backend.arg_reduce(op, whole, &blocks[place])
            })?;
            if let Some(made) = made {
                return Ok(made);
            }
        }
        self.here(|_, block| kernel::arg(&block, axis, &is_better))
    }
}

/// Three axes: those before one, itself, and those after it.
fn split(sizes: &[usize], axis: usize) -> [usize; 3] {
    let (outer, rest) = sizes.split_at(axis);
    [outer.iter().product(), rest[0], rest[1..].iter().product()]
}

#[cfg(test)]
mod tests {
    use meshwork_accel::{bf16, f16};

    use crate::Float;
    use crate::testing::{context, layouts};

    #[test]
    fn sums_along_an_axis_of_short_floats_are_rounded_once_each() {
        // More of them than such floats count to one by one.
        fn check<T: Float>(count: usize) {
            for layout in layouts(1) {
                let ones = context().full(&[count], &layout, T::from_f64(1.0)).unwrap();
                let sums = ones.cumsum(0).unwrap().to_host().unwrap();
                let expected = (1..=count).map(T::from_index);
                assert!(sums.iter().copied().eq(expected), "{sums:?}");
            }
        }
        check::<bf16>(1000);
        check::<f16>(4000);
    }
}
