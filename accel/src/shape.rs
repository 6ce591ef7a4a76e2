//! Argument checks of collectives: the buffers of one side have one element type and length, are on
//! distinct devices, and fit the other side. Also `count`, the checked product of sizes. Tensor
//! shapes are in the layout crate.

use crate::device_buffer::equal;
use crate::{DeviceBuffer, DeviceId, ElementType, Error};

/// The element type and length that all buffers on one side of a collective share: the checks that
/// every backend with [`NativeCollectives`](crate::NativeCollectives) makes first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BufferShape {
    element: ElementType,
    len: usize,
}

impl BufferShape {
    /// The shape of buffers on devices of their own; of no buffers, that of an empty one.
    ///
    /// # Errors
    /// [`Error::DeviceRepeated`], [`Error::ElementMismatch`], [`Error::LengthMismatch`].
    pub fn of<'a, B: DeviceBuffer + 'a>(
        mut buffers: impl Iterator<Item = &'a B>,
    ) -> Result<Self, Error> {
        let Some(first) = buffers.next() else {
            let element = ElementType::U8;
            return Ok(Self { element, len: 0 });
        };
        let mut devices: Vec<DeviceId> = vec![first.device()];
        for buffer in buffers {
            let device = buffer.device();
            if devices.contains(&device) {
                return Err(Error::DeviceRepeated { device });
            }
            devices.push(device);
            first.check_element(buffer.element_type())?;
            first.check_len(buffer.len())?;
        }
        Ok(Self {
            element: first.element_type(),
            len: first.len(),
        })
    }

    /// The shapes of the inputs and of the outputs; those at one place are on one device.
    ///
    /// # Errors
    /// [`Error::CountMismatch`], [`Error::DeviceMismatch`], and those of [`of`](Self::of).
    pub fn of_pairs<B: DeviceBuffer>(
        inputs: &[&B],
        outputs: &[&mut B],
    ) -> Result<(Self, Self), Error> {
        if inputs.len() != outputs.len() {
            return Err(Error::CountMismatch {
                inputs: inputs.len(),
                outputs: outputs.len(),
            });
        }
        for (input, output) in inputs.iter().zip(outputs) {
            output.check_device(input.device())?;
        }
        let input = Self::of(inputs.iter().copied())?;
        Ok((input, Self::of(outputs.iter().map(|output| &**output))?))
    }

    /// The type of the elements.
    #[must_use]
    pub const fn element(self) -> ElementType {
        self.element
    }

    /// How many elements each buffer has.
    #[must_use]
    pub const fn len(self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Refuses a `whole` that is not `places` times as long as this.
    ///
    /// # Errors
    /// [`Error::ElementMismatch`], [`Error::LengthMismatch`].
    pub fn times(self, places: usize, whole: Self) -> Result<(), Error> {
        if whole.element != self.element {
            return Err(Error::ElementMismatch {
                buffer: whole.element,
                other: self.element,
            });
        }
        equal(whole.len, self.len.saturating_mul(places))
    }
}

/// How many elements the sizes of axes make.
///
/// ```
/// use meshwork_accel::{Error, count};
///
/// assert_eq!(count(&[2, 3, 4]), Ok(24));
/// let (rows, columns) = (usize::MAX, 2);
/// assert_eq!(count(&[rows, columns]), Err(Error::ShapeTooLarge { rows, columns }));
/// ```
///
/// # Errors
/// [`Error::ShapeTooLarge`].
pub fn count(sizes: &[usize]) -> Result<usize, Error> {
    let mut count = 1_usize;
    for &size in sizes {
        let (rows, columns) = (count, size);
        let more = rows.checked_mul(columns);
        count = more.ok_or(Error::ShapeTooLarge { rows, columns })?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use ElementType::{F32, I8};

    use super::*;
    use crate::device_buffer::tests::Buffer;

    #[test]
    fn buffers_alike_have_a_shape_and_others_are_told_apart() {
        let alike = [Buffer(0, F32, 3), Buffer(1, F32, 3)];
        let shape = BufferShape::of(alike.iter()).unwrap();
        assert_eq!((shape.element(), shape.len()), (F32, 3));
        assert!(
            BufferShape::of([].iter().map(|_: &()| &alike[0]))
                .unwrap()
                .is_empty()
        );
        for (other, error) in [
            (Buffer(0, F32, 3), "repeated"),
            (Buffer(1, I8, 3), "element"),
            (Buffer(1, F32, 4), "length"),
        ] {
            let found = match BufferShape::of([&alike[0], &other].into_iter()).unwrap_err() {
                Error::DeviceRepeated { .. } => "repeated",
                Error::ElementMismatch { .. } => "element",
                Error::LengthMismatch { .. } => "length",
                other => panic!("{other}"),
            };
            assert_eq!(found, error);
        }
    }

    #[test]
    fn inputs_and_outputs_are_paired_by_their_devices_and_fit_by_their_lengths() {
        let (input, mut near, mut far) = (Buffer(0, F32, 3), Buffer(0, F32, 6), Buffer(1, F32, 6));
        let (one, whole) = BufferShape::of_pairs(&[&input], &[&mut near]).unwrap();
        one.times(2, whole).unwrap();
        assert_eq!(
            one.times(3, whole),
            Err(Error::LengthMismatch { left: 6, right: 9 })
        );
        let parted = BufferShape::of_pairs(&[&input], &[&mut far]);
        assert!(matches!(parted, Err(Error::DeviceMismatch { .. })));
        let unpaired = BufferShape::of_pairs(&[&input], &[]);
        assert!(matches!(
            unpaired,
            Err(Error::CountMismatch {
                inputs: 1,
                outputs: 0
            })
        ));
    }
}
