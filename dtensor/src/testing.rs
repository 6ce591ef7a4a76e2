//! What tests of several modules compute with, and clients as threads.

use meshwork_collectives::Group;
use meshwork_core::{Client, Mesh};
use meshwork_layout::Layout;
use meshwork_testing::in_threads;

use crate::Context;

/// A process alone.
pub(crate) fn context() -> Context {
    Context::alone(Client::new("localhost", 0, 1).unwrap())
}

pub(crate) fn mesh() -> Mesh {
    Mesh::new([("x", 2), ("y", 2)]).unwrap()
}

/// Every layout on that mesh that names a mesh dimension at most once.
pub(crate) fn layouts(rank: usize) -> Vec<Layout> {
    let names = ["unsharded", "x", "y"];
    let all = (0..3_usize.pow(u32::try_from(rank).unwrap())).filter_map(|number| {
        let words =
            (0..rank).map(|axis| names[number / 3_usize.pow(u32::try_from(axis).unwrap()) % 3]);
        Layout::from_names(words, &mesh()).ok()
    });
    all.collect()
}

/// Runs each of several clients with `devices` devices, and what it ends with. All part in the end.
pub(crate) fn clients<R: Send>(
    count: u32,
    devices: u32,
    run: impl Fn(&Context) -> R + Sync,
) -> Vec<R> {
    failing_clients(count, devices, |context| {
        let result = run(context);
        context.leave().unwrap();
        result
    })
}

/// The same for clients whose process group ends before they part.
pub(crate) fn failing_clients<R: Send>(
    count: u32,
    devices: u32,
    run: impl Fn(&Context) -> R + Sync,
) -> Vec<R> {
    in_threads(Group::local(count).unwrap(), |group| {
        let client = Client::new("worker", group.rank().number(), count).unwrap();
        let client = client.with_devices("CPU", devices).unwrap();
        run(&match count {
            1 => Context::alone(client),
            _ => Context::from_group(client, group).unwrap(),
        })
    })
}
