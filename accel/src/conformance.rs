//! The suite that every backend runs in its own tests.
//!
//! A backend calls [`check`] with an accelerator of at least one device. It panics with the claim
//! that does not hold, so it belongs in a test:
//!
//! ```text
//! #[test]
//! fn conforms() {
//!     meshwork_accel::conformance::check(&MyAccelerator::new());
//! }
//! ```
use half::{bf16, f16};

use crate::{
    Accelerator, DeviceBuffer, DeviceId, Element, ElementType, Error, ReduceOp, reduce_slice,
};

/// Runs every claim against `accelerator`.
///
/// # Panics
/// At the first claim that does not hold.
pub fn check<A: Accelerator>(accelerator: &A) {
    assert!(
        !accelerator.devices().is_empty(),
        "a backend under test has a device"
    );
    devices_are_numbered_from_zero(accelerator);
    an_unknown_device_is_refused(accelerator);
    an_impossible_size_is_refused(accelerator);
    for device in accelerator.devices() {
        let at = Bench {
            accelerator,
            device: device.id(),
        };
        at.elements(|i| i % 3 == 1);
        at.elements(|i| i8::try_from(i % 251).unwrap_or(-7));
        at.elements(|i| i.wrapping_mul(2_531).cast_signed());
        at.elements(|i| i32::from(i).wrapping_mul(7919) - 50_000);
        at.elements(|i| i64::from(i) * 104_729 - 9_999_999);
        at.elements(|i| u8::try_from(i % 251).expect("below 251"));
        at.elements(|i| i.wrapping_mul(2_531));
        at.elements(|i| u32::from(i).wrapping_mul(2_654_435_761));
        at.elements(|i| u64::from(i).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        at.elements(|i| f16::from_f32((f32::from(i) - 300.0) * 0.37));
        at.elements(|i| bf16::from_f32((f32::from(i) - 300.0) * 0.37));
        at.elements(|i| (f32::from(i) - 300.0) * 0.37);
        at.elements(|i| (f64::from(i) - 300.0) * 0.37);
    }
}

fn devices_are_numbered_from_zero<A: Accelerator>(accelerator: &A) {
    for (index, device) in accelerator.devices().iter().enumerate() {
        assert_eq!(
            device.id(),
            DeviceId::new(index),
            "devices are numbered in order"
        );
        accelerator
            .synchronize(device.id())
            .expect("a device that exists can be waited for");
    }
}

fn an_unknown_device_is_refused<A: Accelerator>(accelerator: &A) {
    let available = accelerator.devices().len();
    let device = DeviceId::new(available);
    let expected = Error::UnknownDevice { device, available };
    assert_eq!(
        accelerator.allocate(device, ElementType::F32, 1).err(),
        Some(expected.clone())
    );
    assert_eq!(accelerator.synchronize(device).err(), Some(expected));
}

fn an_impossible_size_is_refused<A: Accelerator>(accelerator: &A) {
    for len in [usize::MAX, usize::MAX / 8, isize::MAX as usize] {
        let refused = accelerator
            .allocate(DeviceId::new(0), ElementType::F64, len)
            .err();
        let expected = Error::OutOfMemory {
            device: DeviceId::new(0),
            element: ElementType::F64,
            len,
        };
        assert_eq!(refused, Some(expected));
    }
}

struct Bench<'a, A> {
    accelerator: &'a A,
    device: DeviceId,
}

impl<A: Accelerator> Bench<'_, A> {
    fn elements<T: Element>(&self, value: impl Fn(u16) -> T) {
        for len in [0, 1, 3, 64, 1000] {
            let a: Vec<T> = (0..len).map(&value).collect();
            let b: Vec<T> = (0..len).map(|i| value(i * 31 + 7)).collect();
            self.round_trip(&a);
            self.part(&a);
            self.fill(&a, value(7));
            self.reduces(&a, &b);
            self.copies(&a);
        }
        self.refusals([value(1), value(2), value(3)]);
    }

    fn with<T: Element>(&self, values: &[T]) -> A::Buffer {
        let mut buffer = self
            .accelerator
            .allocate(self.device, T::TYPE, values.len())
            .expect("small buffers fit");
        assert_eq!(
            (buffer.device(), buffer.element_type(), buffer.len()),
            (self.device, T::TYPE, values.len())
        );
        assert_eq!(buffer.is_empty(), values.is_empty());
        assert_eq!(
            self.read::<T>(&buffer),
            vec![T::default(); values.len()],
            "a new buffer is zero"
        );
        self.accelerator
            .upload(values, &mut buffer, 0)
            .expect("lengths are equal");
        buffer
    }

    fn read<T: Element>(&self, buffer: &A::Buffer) -> Vec<T> {
        let mut values = vec![T::default(); buffer.len()];
        self.accelerator
            .download(buffer, 0, &mut values)
            .expect("lengths are equal");
        values
    }

    fn round_trip<T: Element>(&self, values: &[T]) {
        assert_eq!(
            self.read::<T>(&self.with(values)),
            values,
            "what was uploaded comes back"
        );
    }

    fn part<T: Element>(&self, values: &[T]) {
        let half = values.len() / 2;
        let mut buffer = self.with(&vec![T::default(); values.len()]);
        self.accelerator
            .upload(&values[half..], &mut buffer, half)
            .expect("the tail fits");
        let mut tail = values[half..].to_vec();
        self.accelerator
            .download(&buffer, half, &mut tail)
            .expect("the tail is there");
        assert_eq!(tail, values[half..]);
        assert_eq!(
            self.read::<T>(&buffer)[..half],
            vec![T::default(); half],
            "the head is untouched"
        );
    }

    fn fill<T: Element>(&self, values: &[T], seven: T) {
        let (start, end) = (values.len() / 3, values.len() / 2);
        let mut buffer = self.with(values);
        self.accelerator
            .fill(&mut buffer, start..end, seven)
            .expect("the range is inside");
        let mut expected = values.to_vec();
        expected[start..end].fill(seven);
        assert_eq!(self.read::<T>(&buffer), expected);
    }

    fn reduces<T: Element>(&self, a: &[T], b: &[T]) {
        for op in ReduceOp::ALL {
            let mut into = self.with(a);
            let verdict = self.accelerator.reduce(op, &mut into, &self.with(b));
            // A refusal is part of the definition too.
            let mut expected = a.to_vec();
            assert_eq!(verdict, reduce_slice(op, &mut expected, b));
            assert_eq!(self.read::<T>(&into), expected, "{op} of {}", T::TYPE);
        }
    }

    fn copies<T: Element>(&self, values: &[T]) {
        let half = values.len() / 2;
        for device in self.accelerator.devices() {
            let from = self.with(values);
            let mut to = self
                .accelerator
                .allocate(device.id(), T::TYPE, values.len())
                .expect("small buffers fit");
            self.accelerator
                .copy(&from, half..values.len(), &mut to, 0)
                .expect("the range is inside");
            let expected: Vec<T> = values[half..]
                .iter()
                .copied()
                .chain(std::iter::repeat_n(T::default(), half))
                .collect();
            assert_eq!(
                self.read::<T>(&to),
                expected,
                "copied to device {}",
                device.id()
            );
        }
    }

    fn refusals<T: Element>(&self, values: [T; 3]) {
        let mut three = self.with(&values);
        let past = |start, len| Error::OutOfRange {
            start,
            len,
            available: 3,
        };
        let two = [T::default(); 2];
        assert_eq!(
            self.accelerator.upload(&two, &mut three, 2),
            Err(past(2, 2))
        );
        assert_eq!(
            self.accelerator.upload(&two, &mut three, usize::MAX),
            Err(past(usize::MAX, 2))
        );
        assert_eq!(
            self.accelerator.download(&three, 2, &mut [T::default(); 2]),
            Err(past(2, 2))
        );
        assert_eq!(
            self.accelerator.fill(&mut three, 1..4, values[0]),
            Err(past(1, 3))
        );
        let source = self.with(&[values[1]; 3]);
        assert_eq!(
            self.accelerator.copy(&source, 2..4, &mut three, 0),
            Err(past(2, 2))
        );
        assert_eq!(
            self.accelerator.copy(&source, 0..2, &mut three, 2),
            Err(past(2, 2))
        );
        let shorter = self.with(&two);
        let unequal = Error::LengthMismatch { left: 3, right: 2 };
        assert_eq!(
            self.accelerator.reduce(ReduceOp::Max, &mut three, &shorter),
            Err(unequal)
        );
        self.other_type::<T>(&mut three);
        assert_eq!(self.read::<T>(&three), values, "a refusal changes nothing");
    }

    fn other_type<T: Element>(&self, three: &mut A::Buffer) {
        let other = ElementType::ALL
            .into_iter()
            .find(|kind| *kind != T::TYPE)
            .expect("there are several");
        let mismatch = Error::ElementMismatch {
            buffer: T::TYPE,
            other,
        };
        let foreign = self
            .accelerator
            .allocate(self.device, other, 3)
            .expect("small buffers fit");
        assert_eq!(
            self.accelerator.reduce(ReduceOp::Max, three, &foreign),
            Err(mismatch.clone())
        );
        assert_eq!(
            self.accelerator.copy(&foreign, 0..3, three, 0),
            Err(mismatch)
        );
    }
}
