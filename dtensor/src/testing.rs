//! Clients as threads, for tests.

use meshwork_collectives::Group;
use meshwork_core::Client;
use meshwork_testing::in_threads;

use crate::Context;

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
