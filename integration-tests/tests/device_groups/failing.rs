//! The CPU as a device that breaks down, or that somebody watches.

#[path = "../accelerated/counting.rs"]
mod counting;

use std::sync::atomic::{AtomicUsize, Ordering};

use meshwork_accel::{DeviceId, Error};
use meshwork_accel_cpu::CpuAccelerator;

use counting::{Counting, Crossing};

/// Works for some uploads and downloads, and for none after that.
pub(crate) fn breaks_down_after(calls: usize) -> Counting {
    let left = AtomicUsize::new(calls);
    Counting::new(CpuAccelerator::new()).asking(move |crossing| {
        let less = |left: usize| left.checked_sub(1);
        let left = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        left.map(drop).map_err(|_| Error::DeviceFailed {
            device: DeviceId::new(0),
            operation: match crossing {
                Crossing::Upload => "upload",
                Crossing::Download(_) => "download",
            },
            code: 700,
            status: "broken".to_owned(),
        })
    })
}

/// Never breaks down, and says where each download begins before it does.
pub(crate) fn watched(watch: impl Fn(usize) + Send + Sync + 'static) -> Counting {
    Counting::new(CpuAccelerator::new()).asking(move |crossing| {
        if let Crossing::Download(at) = crossing {
            watch(at);
        }
        Ok(())
    })
}
