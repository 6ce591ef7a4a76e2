//! Elements as those of another type, against the definition on host slices.

use super::bench::Bench;
use super::values::{Sample, samples};
use super::violation::{Found, Violation, equal};
use crate::{DeviceBuffer, Element, ElementTask, ElementType, Elementwise, convert_slice};

pub(super) fn all<A: Elementwise, T: Sample>(bench: Bench<'_, A>) -> Result<(), Violation> {
    let mut values = samples::<T>(1, 200);
    // Numbers near each other and near the ends of short types, which random ones are not.
    let small = (0..300).map(|at: i32| f64::from(at) * 1.25 - 150.0);
    let mut near = vec![T::default(); 300];
    let small: Vec<f64> = small.collect();
    let exact = convert_slice(&small, &mut near);
    values.extend(near);
    for element in ElementType::ALL {
        let made = exact.clone().map_err(Found::from);
        let made = made.and_then(|()| {
            element.run(To {
                bench,
                values: &values,
            })
        });
        made.map_err(|found| {
            let case = format!("to {element}, {}", bench.case::<T>(values.len()));
            found.of("elements are converted as on the host", case)
        })?;
    }
    Ok(())
}

struct To<'a, A, T> {
    bench: Bench<'a, A>,
    values: &'a [T],
}

impl<A: Elementwise, T: Sample> ElementTask for To<'_, A, T> {
    type Output = Result<(), Found>;

    fn run<U: Element>(self) -> Result<(), Found> {
        let Self { bench, values } = self;
        for len in [0, values.len()] {
            let values = &values[..len];
            let buffer = bench.with(values)?;
            let made = bench.accelerator.convert(&buffer, U::TYPE)?;
            equal("its element type", made.element_type(), U::TYPE)?;
            let mut expected = vec![U::default(); len];
            convert_slice(values, &mut expected)?;
            let found = bench.read::<U>(&made)?;
            let pairs = found.iter().zip(&expected).zip(values);
            for ((found, expected), value) in pairs {
                if !alike(found, expected) {
                    let what = format!("{value:?} becomes {found:?}, not {expected:?}");
                    return Err(Found::new(what));
                }
            }
            bench.holds(&buffer, values)?;
        }
        Ok(())
    }
}

/// Of one value, zeros of either sign included; which NaN it is does not count.
fn alike<T: Element>(found: &T, expected: &T) -> bool {
    let bits = bytemuck::bytes_of(found) == bytemuck::bytes_of(expected);
    // Nothing else is unlike itself.
    let are_nan = [found, expected].iter().all(|value| value.ne(value));
    bits || are_nan
}
