//! The suite finds what is wrong: the CPU with one mistake each, and the claim that names it.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set the scene has failed"
)]

#[path = "mistakes/flawed.rs"]
mod flawed;

use std::num::NonZeroUsize;

use flawed::{Flaw, Flawed};
use meshwork_accel::conformance::{self, Violation};

fn with(flaw: Flaw) -> Flawed {
    Flawed::new(NonZeroUsize::new(3).unwrap(), flaw)
}

#[track_caller]
fn breaks(verdict: Result<(), Violation>, claim: &str, case: &str) {
    let violation = verdict.expect_err(claim);
    assert_eq!(violation.claim(), claim, "{violation}");
    assert!(violation.case().contains(case), "{violation}");
}

#[test]
fn a_wrapper_without_a_mistake_passes() {
    let right = with(Flaw::None);
    assert_eq!(conformance::verify_live_buffers(&right), Ok(()));
    assert_eq!(conformance::verify_collectives(&right), Ok(()));
}

#[test]
fn each_mistake_of_a_device_is_named() {
    for (flaw, claim, case) in [
        (Flaw::NumberedFromOne, "devices are numbered from 0", ""),
        (Flaw::UnknownIsFirst, "unknown devices are refused", ""),
        (
            Flaw::ForgetsWhatWasAsked,
            "sizes beyond any memory are refused",
            "",
        ),
        (Flaw::NewIsOne, "new buffers are zero", "1 elements of bool"),
        (
            Flaw::LosesTypeU64,
            "sizes beyond any memory are refused",
            "",
        ),
        (
            Flaw::UploadsToStart,
            "parts are moved from and to where they should be",
            "bool",
        ),
        (
            Flaw::DownloadsFromStart,
            "parts are moved from and to where they should be",
            "bool",
        ),
        (
            Flaw::FillsOneMore,
            "a range is filled, and nothing else",
            "bool",
        ),
        (
            Flaw::CopiesFromStart,
            "a range is copied, and nothing else",
            "bool",
        ),
        (
            Flaw::CopiesToStart,
            "a range is copied, and nothing else",
            "bool",
        ),
        (
            Flaw::CopiesNowhereElse,
            "ranges are copied between devices",
            "device 0",
        ),
        (
            Flaw::ForgetsWhatWasGiven,
            "what is uploaded is downloaded",
            "bool",
        ),
        (
            Flaw::SkipsLastOfMany,
            "what is uploaded is downloaded",
            "65537 elements",
        ),
    ] {
        breaks(conformance::verify(&with(flaw)), claim, case);
    }
}

#[test]
fn each_mistake_of_a_reduction_is_named() {
    let claim = "reductions have the bits of those of host memory";
    for (flaw, case) in [
        (Flaw::MinIsMax, "min, device 0, 1 elements of bool"),
        (Flaw::DividesMeans, "mean, device 0, 1 elements of i8"),
        (Flaw::MaxLosesNan, "max, device 0"),
        (Flaw::AcceptsAnyOp, "sum, device 0, 0 elements of bool"),
    ] {
        breaks(conformance::verify(&with(flaw)), claim, case);
    }
}

#[test]
fn each_mistake_of_order_is_named() {
    let late = conformance::verify(&with(Flaw::LosesSecondReduction));
    breaks(late, "calls on one device take effect in order", "bool");
}

#[test]
fn each_refusal_that_is_missing_is_named() {
    for (flaw, claim) in [
        (
            Flaw::WritesBeforeRefusing,
            "ranges beyond a buffer are refused",
        ),
        (
            Flaw::AcceptsReversed,
            "ranges that end before they start are refused",
        ),
        (
            Flaw::AcceptsOtherTypes,
            "elements of another type are refused",
        ),
        (
            Flaw::ReducesTheShorter,
            "reductions of unequal lengths are refused",
        ),
        (Flaw::ReducesAcross, "reductions across devices are refused"),
    ] {
        breaks(conformance::verify(&with(flaw)), claim, "3 elements");
    }
}

#[test]
fn each_mistake_of_pinned_memory_is_named() {
    assert_eq!(conformance::verify(&with(Flaw::PinsRight)), Ok(()));
    let comes_back = "memory that is not pinned comes back";
    let fetched = "elements are fetched to the bytes that were asked for, and to no others";
    let sent = "bytes are sent to the elements that were asked for, and to no others";
    for (flaw, claim, case) in [
        (Flaw::PinsForNobody, comes_back, ""),
        (Flaw::LosesMemory, comes_back, ""),
        (Flaw::FetchesFromStart, fetched, "u8"),
        (Flaw::FetchesOneMore, fetched, "u8"),
        (Flaw::GivesMemoryEarly, fetched, "u8"),
        (Flaw::SendsToStart, sent, "u8"),
        (Flaw::SendsLate, sent, "u8"),
        (
            Flaw::FetchesLate,
            "transfers of pinned memory take effect in order",
            "u8",
        ),
        (
            Flaw::AcceptsPastMemory,
            "transfers refuse what is not there",
            "u8",
        ),
        (
            Flaw::FetchesFromAnyDevice,
            "transfers refuse what is not there",
            "u8",
        ),
    ] {
        breaks(conformance::verify(&with(flaw)), claim, case);
    }
}

#[test]
fn a_full_device_that_does_not_name_itself_is_found() {
    let small = with(Flaw::HidesWhatIsFree).with_memory_limit(3 << 20);
    breaks(
        conformance::verify(&small),
        "a full device says so, and recovers",
        "device 0",
    );
}

#[test]
fn wrong_counts_are_found() {
    let claim = "buffers are counted from allocation to drop";
    breaks(
        conformance::verify_live_buffers(&with(Flaw::CountsForEver)),
        claim,
        "",
    );
    let claim = "no call leaks a buffer";
    breaks(
        conformance::verify_live_buffers(&with(Flaw::KeepsWhatIsCopied)),
        claim,
        "",
    );
}

#[test]
fn each_mistake_of_a_collective_is_named() {
    for (flaw, claim, case) in [
        (
            Flaw::LeavesOneOut,
            "an all-reduce leaves the reduction on every device",
            "2 devices",
        ),
        (
            Flaw::MeanIsSum,
            "an all-reduce leaves the reduction on every device",
            "mean, 2 devices",
        ),
        (
            Flaw::RoundsBeforeDividing,
            "a mean of 16-bit floats is divided before it is rounded",
            "2 devices, 1000 elements of f16",
        ),
        (
            Flaw::SwapsBlocks,
            "a reduce-scatter leaves each device its block",
            "2 devices",
        ),
        (
            Flaw::SendsTheFirst,
            "a broadcast leaves the root's values on every device",
            "2 devices",
        ),
        (
            Flaw::GathersBackwards,
            "an all-gather leaves all inputs on every device, in order",
            "2 devices",
        ),
        (
            Flaw::AcceptsTwins,
            "collectives refuse what does not fit",
            "",
        ),
    ] {
        breaks(conformance::verify_collectives(&with(flaw)), claim, case);
    }
}

#[test]
fn each_mistake_of_arithmetic_is_named() {
    let elements = "each element is replaced by the op of it";
    for (flaw, claim, case) in [
        (Flaw::ExpOfMinus, elements, "exp, device 0"),
        (
            Flaw::DividesBackwards,
            "elements at one place are combined",
            "divide",
        ),
        (
            Flaw::ComputesWithIntegers,
            "arithmetic refuses what does not fit",
            "",
        ),
        (
            Flaw::SwapsFactors,
            "matrices are multiplied",
            "17 by 17 by 17",
        ),
    ] {
        breaks(conformance::verify_compute(&with(flaw)), claim, case);
    }
    assert_eq!(conformance::verify_compute(&with(Flaw::None)), Ok(()));
}

#[test]
fn each_mistake_of_a_choice_is_named() {
    for (flaw, claim, case) in [
        (
            Flaw::StepsForwardsOnly,
            "axes are stepped along",
            "24 elements of bool",
        ),
        (
            Flaw::TakesTheNearest,
            "elements are taken at the indices that are given",
            "device 0",
        ),
        (
            Flaw::CountsClassesFromZero,
            "each index has its one-hot row",
            "bool",
        ),
        (
            Flaw::LeavesTheFirstOut,
            "each element meets all before it",
            "min, device 0",
        ),
        (
            Flaw::FindsTheLast,
            "the first of the extremes along an axis is found",
            "min, device 0",
        ),
    ] {
        breaks(conformance::verify_choices(&with(flaw)), claim, case);
    }
    for (flaw, claim, case) in [
        (
            Flaw::ConvertsByWrapping,
            "elements are converted as on the host",
            "to u8, device 0, 506 elements of i16",
        ),
        (
            Flaw::SelectsBackwards,
            "elements are chosen by conditions",
            "bool",
        ),
    ] {
        breaks(conformance::verify_conversions(&with(flaw)), claim, case);
    }
    assert_eq!(conformance::verify_choices(&with(Flaw::None)), Ok(()));
    assert_eq!(conformance::verify_conversions(&with(Flaw::None)), Ok(()));
}
