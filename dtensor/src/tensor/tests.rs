use std::thread;

use meshwork_collectives::Group;
use meshwork_core::{Client, CreateMesh, Mesh};
use meshwork_layout::Reduction;
use ndarray::{Array, IxDyn};

use super::*;

/// Every layout for tensors of two axes on a mesh, partial ones among them.
fn layouts(mesh: &Mesh) -> Vec<Layout> {
    let mut states: Vec<[Vec<&'static str>; 3]> = vec![Default::default()];
    for dim in mesh.dim_names() {
        let uses = |place: Option<usize>, state: &[Vec<&'static str>; 3]| {
            let mut state = state.clone();
            if let Some(place) = place {
                state[place].push(if dim.as_str() == "x" { "x" } else { "y" });
            }
            state
        };
        let places = [None, Some(0), Some(1), Some(2)];
        let further = |state: &[Vec<&'static str>; 3]| places.map(|place| uses(place, state));
        states = states.iter().flat_map(further).collect();
    }
    let layout = |[rows, columns, partial]: [Vec<&'static str>; 3]| {
        let spec = |names: Vec<&'static str>| meshwork_layout::ShardingSpec::nested(names).unwrap();
        let layout = Layout::new([spec(rows), spec(columns)], mesh).unwrap();
        layout.with_partial(partial, Reduction::Sum).unwrap()
    };
    states.into_iter().map(layout).collect()
}

fn numbered(shape: &[usize]) -> ArrayD<i32> {
    let count: usize = shape.iter().product();
    Array::from_iter(0..i32::try_from(count).unwrap())
        .into_shape_with_order(IxDyn(shape))
        .unwrap()
}

/// Runs each of several clients with `devices` devices, and what it ends with.
fn clients<R: Send>(count: u32, devices: u32, run: impl Fn(&Context) -> R + Sync) -> Vec<R> {
    let groups = Group::local(count).unwrap();
    let client = |group: Group| {
        let client = Client::new("worker", group.rank().number(), count).unwrap();
        let client = client.with_devices("CPU", devices).unwrap();
        match count {
            1 => Context::alone(client),
            _ => Context::over(client, group).unwrap(),
        }
    };
    thread::scope(|threads| {
        let start = |group| {
            let run = &run;
            threads.spawn(move || {
                let context = client(group);
                let result = run(&context);
                context.leave().unwrap();
                result
            })
        };
        let started: Vec<_> = groups.into_iter().map(start).collect();
        started
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

/// Every relayout on a mesh of 2×2 devices, of uneven and empty shards too.
fn check_relayouts(count: u32, shape: [usize; 2]) {
    clients(count, 4 / count, |context| {
        let mesh = context.create_distributed_mesh(CreateMesh::new().dims([("x", 2), ("y", 2)]));
        let layouts = layouts(&mesh.unwrap());
        let whole = numbered(&shape);
        for from in &layouts {
            let tensor = context.copy_to_mesh(whole.clone(), from).unwrap();
            for to in &layouts {
                let moved = tensor.relayout(to).unwrap();
                moved.check_layout(to).unwrap();
                assert_eq!(moved.to_host().unwrap(), whole, "{from} to {to}");
                if to.reduction().is_none() {
                    let expected = context.copy_to_mesh(whole.clone(), to).unwrap();
                    assert_eq!(moved.unpack(), expected.unpack(), "{from} to {to}");
                }
            }
        }
    });
}

#[test]
fn every_relayout_of_one_client_has_the_right_elements_everywhere() {
    check_relayouts(1, [4, 6]);
    check_relayouts(1, [3, 5]);
    check_relayouts(1, [1, 0]);
}

#[test]
fn every_relayout_between_clients_has_the_right_elements_everywhere() {
    check_relayouts(2, [3, 5]);
    check_relayouts(4, [5, 2]);
}
