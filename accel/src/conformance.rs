//! The suite that every backend runs in its own tests, a stranger's as well as ours.
//!
//! One line for what all backends have, one for each capability. Each panics with the claim that
//! does not hold and the case, so it belongs in a test; `verify…` returns it instead:
//!
//! ```text
//! #[test]
//! fn conforms() {
//!     meshwork_accel::conformance::check(&MyAccelerator::new());
//! }
//! ```
//!
//! Results are held against [`Reduction`](crate::Reduction) bit for bit, NaN and the sign of zero
//! included; numbers below the smallest normal one are not tried. The first device is tried with
//! every element type, op and length, the others with a part of them, pairs of devices with copies.
//! A device of at most 64 MiB, where the backend knows, is filled to the brim.

mod arrange;
mod bench;
mod choose;
mod collectives;
mod communicators;
mod compute;
mod convert;
mod extremes;
mod full;
mod live;
mod moves;
mod order;
mod pinned_buffers;
mod reduces;
mod refusals;
mod values;
mod violation;

use crate::{
    Accelerator, Arrange, DeviceCommunicators, DeviceId, Elementwise, Fold, LiveBuffers, Matmul,
    NativeCollectives,
};
use bench::Bench;
use half::{bf16, f16};
use values::Sample;

pub use violation::Violation;

/// A result for each element type, until the first claim that does not hold.
macro_rules! each_type {
    ($T:ident, $verdict:expr) => {
        each_type!($T, $verdict, bool, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64)
    };
    ($T:ident, $verdict:expr, $($element:ident),+) => {{
        $({ type $T = $element; $verdict?; })+
        Ok(())
    }};
}

/// Holds every claim of [`Accelerator`] against `accelerator`.
///
/// # Panics
/// At the first claim that does not hold.
pub fn check<A: Accelerator>(accelerator: &A) {
    if let Err(violation) = verify(accelerator) {
        panic!("{violation}");
    }
}

/// Holds the claims of [`LiveBuffers`] against `accelerator`, which no other code may use
/// meanwhile.
///
/// # Panics
/// At the first claim that does not hold.
pub fn check_live_buffers<A: LiveBuffers>(accelerator: &A) {
    if let Err(violation) = verify_live_buffers(accelerator) {
        panic!("{violation}");
    }
}

/// Holds the claims of [`NativeCollectives`] against `accelerator`.
///
/// # Panics
/// At the first claim that does not hold.
pub fn check_collectives<A: NativeCollectives>(accelerator: &A) {
    if let Err(violation) = verify_collectives(accelerator) {
        panic!("{violation}");
    }
}

/// Holds the claims of [`DeviceCommunicators`] against a rank on each of `devices`, each a thread
/// that stands for a process; floats by values whose sums are exact.
///
/// # Panics
/// At the first claim that does not hold.
pub fn check_communicators<A: DeviceCommunicators>(devices: &[(&A, DeviceId)]) {
    if let Err(violation) = verify_communicators(devices) {
        panic!("{violation}");
    }
}

/// Holds the claims of [`Elementwise`] and [`Matmul`] against `accelerator`, within a few of the
/// last places.
///
/// # Panics
/// At the first claim that does not hold.
pub fn check_compute<A: Elementwise + Matmul>(accelerator: &A) {
    if let Err(violation) = verify_compute(accelerator) {
        panic!("{violation}");
    }
}

/// Holds the claims of [`Arrange`] and [`Fold`] against the first device of `accelerator`.
///
/// # Panics
/// At the first claim that does not hold.
pub fn check_arrangement<A: Arrange + Fold>(accelerator: &A) {
    if let Err(violation) = verify_arrangement(accelerator) {
        panic!("{violation}");
    }
}

/// Holds the claims of the methods of [`Arrange`] and [`Fold`] that a backend need not have, which
/// choose elements by steps and indices, scan them and find extremes, against the first device of
/// `accelerator`.
///
/// # Panics
/// At the first claim that does not hold.
pub fn check_choices<A: Arrange + Fold>(accelerator: &A) {
    if let Err(violation) = verify_choices(accelerator) {
        panic!("{violation}");
    }
}

/// Holds the claims of the methods of [`Elementwise`] that a backend need not have, which convert
/// elements and choose them by conditions, against the first device of `accelerator`.
///
/// # Panics
/// At the first claim that does not hold.
pub fn check_conversions<A: Elementwise>(accelerator: &A) {
    if let Err(violation) = verify_conversions(accelerator) {
        panic!("{violation}");
    }
}

/// Like [`check`], for callers that want to know what does not hold.
///
/// # Errors
/// The first claim that does not hold.
pub fn verify<A: Accelerator>(accelerator: &A) -> Result<(), Violation> {
    refusals::devices(accelerator)?;
    pinned_buffers::devices(accelerator)?;
    for device in accelerator.devices() {
        let bench = Bench::new(accelerator, device.id());
        let first = device.id() == DeviceId::new(0);
        let lengths = if first { ALL_LENGTHS } else { SOME_LENGTHS };
        pinned_buffers::all(bench)?;
        every_type(bench, lengths)?;
        full::device(bench)?;
    }
    Ok(())
}

/// Like [`check_live_buffers`], for callers that want to know what does not hold.
///
/// # Errors
/// The first claim that does not hold.
pub fn verify_live_buffers<A: LiveBuffers>(accelerator: &A) -> Result<(), Violation> {
    let before = accelerator.live_buffers();
    let counts = live::counts(accelerator, before);
    counts
        .map_err(|found| found.of("buffers are counted from allocation to drop", String::new()))?;
    verify(accelerator)?;
    let left = live::expect(accelerator, before);
    left.map_err(|found| found.of("no call leaks a buffer", String::new()))
}

/// Like [`check_collectives`], for callers that want to know what does not hold.
///
/// # Errors
/// The first claim that does not hold.
pub fn verify_collectives<A: NativeCollectives>(accelerator: &A) -> Result<(), Violation> {
    collectives::all(accelerator)
}

/// Like [`check_communicators`], for callers that want to know what does not hold.
///
/// # Errors
/// The first claim that does not hold.
pub fn verify_communicators<A: DeviceCommunicators>(
    devices: &[(&A, DeviceId)],
) -> Result<(), Violation> {
    communicators::all(devices)
}

/// Like [`check_compute`], for callers that want to know what does not hold.
///
/// # Errors
/// The first claim that does not hold.
pub fn verify_compute<A: Elementwise + Matmul>(accelerator: &A) -> Result<(), Violation> {
    for device in accelerator.devices() {
        let bench = Bench::new(accelerator, device.id());
        compute::elementwise(bench)?;
        compute::matmul(bench)?;
    }
    Ok(())
}

/// Like [`check_arrangement`], for callers that want to know what does not hold.
///
/// # Errors
/// The first claim that does not hold.
pub fn verify_arrangement<A: Arrange + Fold>(accelerator: &A) -> Result<(), Violation> {
    let bench = Bench::new(accelerator, DeviceId::new(0));
    each_type!(T, arrangement::<A, T>(bench))
}

/// Like [`check_choices`], for callers that want to know what does not hold.
///
/// # Errors
/// The first claim that does not hold.
pub fn verify_choices<A: Arrange + Fold>(accelerator: &A) -> Result<(), Violation> {
    let bench = Bench::new(accelerator, DeviceId::new(0));
    choose::index_refusals(bench)?;
    each_type!(T, choices::<A, T>(bench))
}

/// Like [`check_conversions`], for callers that want to know what does not hold.
///
/// # Errors
/// The first claim that does not hold.
pub fn verify_conversions<A: Elementwise>(accelerator: &A) -> Result<(), Violation> {
    let bench = Bench::new(accelerator, DeviceId::new(0));
    each_type!(T, conversions::<A, T>(bench))
}

/// Nothing, one, odd and even, and an odd number above what a 16-bit index reaches. No more, as
/// some backends compile a program for each.
const ALL_LENGTHS: &[usize] = &[0, 1, 7, 1000, 65_537];
const SOME_LENGTHS: &[usize] = &[0, 7, 1000];

fn every_type<A: Accelerator>(bench: Bench<'_, A>, lengths: &[usize]) -> Result<(), Violation> {
    each_type!(T, one_type::<A, T>(bench, lengths))
}

fn one_type<A: Accelerator, T: Sample>(
    bench: Bench<'_, A>,
    lengths: &[usize],
) -> Result<(), Violation> {
    for len in lengths {
        moves::all::<A, T>(bench, *len)?;
        reduces::all::<A, T>(bench, *len)?;
    }
    order::all::<A, T>(bench)?;
    refusals::all::<A, T>(bench)
}

fn arrangement<A: Arrange + Fold, T: Sample>(bench: Bench<'_, A>) -> Result<(), Violation> {
    arrange::arrange::<A, T>(bench)?;
    arrange::fold::<A, T>(bench)
}

fn choices<A: Arrange + Fold, T: Sample>(bench: Bench<'_, A>) -> Result<(), Violation> {
    choose::by_places::<A, T>(bench)?;
    choose::scan::<A, T>(bench)?;
    extremes::indices::<A, T>(bench)
}

fn conversions<A: Elementwise, T: Sample>(bench: Bench<'_, A>) -> Result<(), Violation> {
    convert::all::<A, T>(bench)?;
    choose::by_conditions::<A, T>(bench)
}
