//! Elements as those of another type, against the definition on host slices.

use super::bench::Bench;
use super::values::{Sample, samples};
use super::violation::{Found, Violation, equal};
use crate::{DeviceBuffer, Element, ElementType, Elementwise, Error, by_type, convert_slice};

pub(super) fn all<A: Elementwise, T: Sample>(bench: Bench<'_, A>) -> Result<(), Violation> {
    let mut values = samples::<T>(1, 200);
    let exact = near::<T>().map(|near| values.extend(near));
    for element in ElementType::ALL {
        let made = exact.clone().map_err(Found::from);
        let made = made.and_then(|()| by_type!(element, U, to::<A, T, U>(bench, &values)));
        made.map_err(|found| {
            let case = format!("to {element}, {}", bench.case::<T>(values.len()));
            found.of("elements are converted as on the host", case)
        })?;
    }
    Ok(())
}

/// Numbers near each other and near the ends of short types, which random ones are not, and some a
/// little further from 0 than the middle between two floats of 16 bits, which they no longer are
/// when they have been rounded to 32 bits.
fn near<T: Sample>() -> Result<Vec<T>, Error> {
    let small = (0..300).map(|at: i32| f64::from(at) * 1.25 - 150.0);
    let little = f64::EPSILON * 4096.0;
    let beyond = [256.0, 2048.0].map(|part| 1.0 + 1.0 / part + little);
    let real: Vec<f64> = small.chain(beyond).collect();
    let whole = [(1_i64 << 30) + (1 << 22) + 1, (1 << 62) + (1 << 54) + 1];
    let whole = [whole, whole.map(|number| -number)].concat();
    let mut all = vec![T::default(); real.len() + whole.len()];
    let (of_real, of_whole) = all.split_at_mut(real.len());
    convert_slice(&real, of_real)?;
    convert_slice(&whole, of_whole)?;
    Ok(all)
}

fn to<A: Elementwise, T: Sample, U: Element>(
    bench: Bench<'_, A>,
    values: &[T],
) -> Result<(), Found> {
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

/// Of one value, zeros of either sign included; which NaN it is does not count.
fn alike<T: Element>(found: &T, expected: &T) -> bool {
    let bits = bytemuck::bytes_of(found) == bytemuck::bytes_of(expected);
    // Nothing else is unlike itself.
    let are_nan = [found, expected].iter().all(|value| value.ne(value));
    bits || are_nan
}
