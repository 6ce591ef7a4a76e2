//! Memory of another library as buffers: in the order of its stream, without a copy, refused where
//! it is not what it is said to be.

#[path = "support/cc.rs"]
mod cc;
#[path = "support/fake.rs"]
mod fake;
#[path = "support/other.rs"]
mod other;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fake::{Count, Fake};
use meshwork_accel::{
    Accelerator, Arrange, DeviceBuffer, DeviceId, ElementType, LiveBuffers, NativeCollectives,
    ReduceOp, Region,
};
use meshwork_accel_cuda::{Communicator, CudaAccelerator, CudaBuffer, Error, Nccl, NcclRank};
use other::Other;

const LEN: usize = 1000;
const BYTES: usize = 4 * LEN;

/// Memory by the default stream and by another one, which are two ways to be asked about it.
fn both(fake: &Fake) -> [Other<'_>; 2] {
    [
        Other::by_default(fake, 0, BYTES),
        Other::by_stream(fake, 0, BYTES),
    ]
}

fn borrow(accelerator: &CudaAccelerator, other: &Other<'_>) -> CudaBuffer {
    let borrowed = accelerator.borrow(DeviceId::new(0), other.lend(ElementType::U32, LEN));
    borrowed.expect("it is memory of that GPU")
}

fn ours(accelerator: &CudaAccelerator, value: u32) -> CudaBuffer {
    let made = accelerator.allocate(DeviceId::new(0), ElementType::U32, LEN);
    let mut made = made.expect("there is room");
    accelerator
        .fill(&mut made, 0..LEN, value)
        .expect("all of it");
    made
}

fn transfers(fake: &Fake) -> i64 {
    fake.count(Count::ToDevice) + fake.count(Count::ToHost)
}

#[test]
fn it_is_worked_on_where_it_lies_between_what_its_owner_has_queued_before_and_after() {
    let fake = Fake::new();
    let accelerator = fake.open();
    for other in both(&fake) {
        // Not freed before the end: that would wait for work, which only streams are to order.
        let more = ours(&accelerator, 0x0101_0101);
        let before = (transfers(&fake), fake.count(Count::Memories));
        other.set(2);
        let mut borrowed = borrow(&accelerator, &other);
        accelerator
            .reduce(ReduceOp::Sum, &mut borrowed, &more)
            .expect("alike");
        accelerator
            .all_reduce(ReduceOp::Max, &mut [&mut borrowed])
            .expect("one buffer");
        drop(borrowed);
        assert_eq!(
            before,
            (transfers(&fake), fake.count(Count::Memories)),
            "nothing is copied, and nothing allocated"
        );
        assert_eq!(other.read(), [3; BYTES]);
        other.set(7);
        assert_eq!(other.read(), [7; BYTES]);
        drop(more);
    }
    drop(accelerator);
    fake.is_clean();
}

#[test]
fn an_owner_that_works_by_the_stream_of_its_thread_has_it_back_from_any_thread() {
    let fake = Fake::new();
    let accelerator = fake.open();
    let other = Other::by_thread(&fake, 0, BYTES);
    let more = ours(&accelerator, 0x0101_0101);
    other.set(2);
    let mut borrowed = borrow(&accelerator, &other);
    accelerator
        .reduce(ReduceOp::Sum, &mut borrowed, &more)
        .expect("alike");
    let dropped = thread::scope(|scope| scope.spawn(move || drop(borrowed)).join());
    dropped.expect("it does not panic");
    assert_eq!(other.read(), [3; BYTES]);
    drop((more, other, accelerator));
    fake.is_clean();
}

#[test]
fn it_is_uploaded_to_downloaded_and_copied_like_any_other() {
    let fake = Fake::new();
    let accelerator = fake.open();
    for other in both(&fake) {
        other.set(1);
        let mut borrowed = borrow(&accelerator, &other);
        accelerator
            .upload(&[0x0505_0505_u32; 10], &mut borrowed, 0)
            .expect("inside");
        let copied = accelerator.duplicate(&borrowed).expect("there is room");
        let mut values = [0_u32; LEN];
        accelerator
            .download(&copied, 0, &mut values)
            .expect("equal lengths");
        assert_eq!(values[..10], [0x0505_0505; 10]);
        assert_eq!(values[10..], [0x0101_0101; LEN - 10]);
    }
}

#[test]
fn what_begins_at_any_element_is_cut_and_pasted_to_by_moves_that_its_address_allows() {
    const ROWS: usize = 31;
    const COLUMNS: usize = 32;
    let fake = Fake::new();
    let accelerator = fake.open();
    let other = Other::by_stream(&fake, 0, BYTES);
    let before: Vec<u8> = (0_u32..).take(LEN).flat_map(u32::to_le_bytes).collect();
    other.write(&before);
    // Rows of 16 bytes, none of which begins at a multiple of that.
    let part = Region::new(&[ROWS, COLUMNS], &[0..ROWS, 4..8]).expect("inside");
    let memory = other.lend_from(4, ElementType::U32, ROWS * COLUMNS);
    let mut borrowed = accelerator
        .borrow(DeviceId::new(0), memory)
        .expect("it begins at an element");
    let mut cut = accelerator.cut(&borrowed, &part).expect("inside");
    let mut values = vec![0_u32; part.len()];
    accelerator
        .download(&cut, 0, &mut values)
        .expect("equal lengths");
    let place = |at: usize| at / 4 * COLUMNS + 4 + at % 4;
    let numbers = (0..part.len()).map(|at| u32::try_from(place(at)).expect("few"));
    let expected: Vec<u32> = numbers.map(|number| number + 1).collect();
    assert_eq!(values, expected);
    accelerator
        .fill(&mut cut, 0..expected.len(), u32::MAX)
        .expect("all of it");
    accelerator
        .paste(&cut, &mut borrowed, &part)
        .expect("inside");
    drop(borrowed);
    let mut after = before;
    for at in 0..expected.len() {
        after[4 + 4 * place(at)..][..4].fill(0xFF);
    }
    assert_eq!(other.read(), after);
    let between = other.lend_from(2, ElementType::U32, 1);
    let refused = accelerator.borrow(DeviceId::new(0), between).err();
    let element = ElementType::U32;
    assert!(
        matches!(refused, Some(Error::Misaligned { element: found, .. }) if found == element),
        "{refused:?}"
    );
    drop((cut, other, accelerator));
    fake.is_clean();
}

/// The sum over two ranks, by this one of them.
fn reduced(
    accelerator: &CudaAccelerator,
    nccl: &Nccl,
    rank: Result<NcclRank, Error>,
    buffer: &mut CudaBuffer,
) -> Communicator {
    let rank = rank.expect("it is one of two");
    let joined = Communicator::join(nccl, accelerator, buffer.device(), rank, PATIENCE);
    let mut joined = joined.expect("both join");
    joined.all_reduce(ReduceOp::Sum, buffer).expect("alike");
    joined.wait().expect("both reduce");
    joined
}

#[test]
fn nccl_reduces_it_without_a_copy() {
    let fake = Fake::with_collectives();
    let accelerator = fake.open();
    let nccl = Nccl::open(&fake.libraries()).expect("the fake is there");
    let id = nccl.unique_id().expect("the fake counts");
    let others: Vec<_> = (0..2)
        .map(|gpu| Other::by_default(&fake, gpu, BYTES))
        .collect();
    others[0].set(1);
    others[1].set(2);
    let mut lent: Vec<_> = (0..2)
        .map(|gpu| {
            let memory = others[gpu].lend(ElementType::U32, LEN);
            let borrowed = accelerator.borrow(DeviceId::new(gpu), memory);
            borrowed.expect("it is memory of that GPU")
        })
        .collect();
    let before = transfers(&fake);
    // Ranks leave when both are done, as who leaves earlier is lost to the other.
    let ranks: Vec<_> = thread::scope(|scope| {
        let begin = |(rank, buffer): (usize, _)| {
            let (accelerator, nccl) = (&accelerator, &nccl);
            scope.spawn(move || reduced(accelerator, nccl, NcclRank::new(id, rank, 2), buffer))
        };
        let threads: Vec<_> = lent.iter_mut().enumerate().map(begin).collect();
        let ended = threads.into_iter().map(|rank| rank.join());
        ended.map(|rank| rank.expect("no rank panics")).collect()
    });
    drop(ranks);
    drop(lent);
    assert_eq!(transfers(&fake), before);
    for other in &others {
        assert_eq!(other.read(), [3; BYTES]);
    }
    assert_eq!(fake.count(Count::Mistakes), 0);
}

#[test]
fn it_passes_through_pinned_memory_of_the_program() {
    let fake = Fake::new();
    let accelerator = fake.open();
    for other in both(&fake) {
        other.set(4);
        let mut borrowed = borrow(&accelerator, &other);
        let memory = Box::new(vec![9_u8; BYTES]);
        let mut pinned = accelerator
            .pin(DeviceId::new(0), memory)
            .expect("so much is pinned");
        pinned.catch_up().expect("streams are ordered");
        pinned.download(&borrowed, 0, 0..BYTES / 2).expect("inside");
        let host = pinned.memory().expect("it waits");
        assert_eq!(host[..BYTES / 2], [4; BYTES / 2]);
        pinned
            .upload(BYTES / 2..BYTES, &mut borrowed, 0)
            .expect("inside");
        drop(borrowed);
        assert_eq!(other.read(), [[9; BYTES / 2], [4; BYTES / 2]].concat());
    }
    drop(accelerator);
    fake.is_clean();
}

#[test]
fn its_owner_is_kept_until_it_is_given_back_and_it_is_counted_by_nobody() {
    let fake = Fake::new();
    let accelerator = fake.open();
    let other = Other::by_stream(&fake, 0, BYTES);
    let owner = Arc::new(());
    let memory = other.lend(ElementType::U32, LEN).owned_by(owner.clone());
    let borrowed = accelerator.borrow(DeviceId::new(0), memory);
    let borrowed = borrowed.expect("it is memory of that GPU");
    assert_eq!((Arc::strong_count(&owner), borrowed.len()), (2, LEN));
    assert_eq!(accelerator.live_buffers(), 0);
    drop(accelerator);
    assert_eq!(Arc::strong_count(&owner), 2);
    drop(borrowed);
    assert_eq!(Arc::strong_count(&owner), 1);
}

#[test]
fn what_is_not_what_it_is_said_to_be_is_refused() {
    let fake = Fake::new();
    let accelerator = fake.open();
    let (here, there) = (
        Other::by_stream(&fake, 0, BYTES),
        Other::by_stream(&fake, 1, BYTES),
    );
    let refused = |gpu, memory| accelerator.borrow(DeviceId::new(gpu), memory).err();
    let longer = refused(0, here.lend(ElementType::F64, LEN));
    assert!(
        matches!(
            longer,
            Some(Error::BeyondAllocation {
                bytes: 8000,
                left: 4000,
                ..
            })
        ),
        "{longer:?}"
    );
    let elsewhere = refused(1, here.lend(ElementType::U32, LEN));
    assert!(
        matches!(
            elsewhere,
            Some(Error::OnOtherGpu {
                found: 0,
                ordinal: 1,
                ..
            })
        ),
        "{elsewhere:?}"
    );
    let by_another = refused(0, here.lend_as(&there, ElementType::U32, LEN));
    assert!(
        matches!(by_another, Some(Error::OnOtherGpu { .. })),
        "{by_another:?}"
    );
    let endless = refused(0, here.lend(ElementType::F64, usize::MAX));
    assert!(matches!(endless, Some(Error::Device(_))), "{endless:?}");
    let unknown = refused(7, here.lend(ElementType::U32, LEN));
    assert!(matches!(unknown, Some(Error::Device(_))), "{unknown:?}");
    let freed = there.lend(ElementType::U32, LEN);
    drop(there);
    let freed = refused(1, freed);
    assert!(
        matches!(freed, Some(Error::NotOnGpu { ordinal: 1, .. })),
        "{freed:?}"
    );
    assert!(freed.is_some_and(|error| {
        error
            .to_string()
            .contains("lend what was allocated on GPU 1")
    }));
    let nothing = accelerator.borrow(DeviceId::new(0), here.lend(ElementType::U32, 0));
    assert!(nothing.expect("nothing is anywhere").is_empty());
    drop((here, accelerator));
    fake.is_clean();
}

#[test]
fn every_call_of_the_driver_may_fail_and_its_owner_has_it_back() {
    let functions = [
        "cuPointerGetAttribute",
        "cuStreamGetCtx",
        "cuEventCreate",
        "cuEventRecord",
        "cuStreamWaitEvent",
    ];
    for function in functions {
        let fake = Fake::new();
        let accelerator = fake.open();
        let (mut failures, more) = (0, ours(&accelerator, 0x0101_0101));
        for after in 0..20 {
            let other = Other::by_stream(&fake, 0, BYTES);
            other.set(2);
            fake.fail(function, after, 700);
            match accelerator.borrow(DeviceId::new(0), other.lend(ElementType::U32, LEN)) {
                Ok(mut borrowed) => {
                    accelerator
                        .reduce(ReduceOp::Sum, &mut borrowed, &more)
                        .expect("alike");
                    // A failure here is made good by waiting.
                    drop(borrowed);
                    assert_eq!(other.read(), [3; BYTES], "{function} after {after}");
                }
                Err(error) => {
                    failures += 1;
                    assert!(error.to_string().contains("700"), "{function}: {error}");
                    assert_eq!(other.read(), [2; BYTES], "{function} after {after}");
                }
            }
            fake.fail("", 0, 0);
        }
        assert!(failures > 0, "{function} is called");
        drop((more, accelerator));
        fake.is_clean();
    }
}

/// Long enough for threads of one process.
const PATIENCE: Duration = Duration::from_secs(60);
