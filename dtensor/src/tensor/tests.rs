//! All relayouts between layouts of two axes, by one client and by several, element by element;
//! bytes sent against the plan, and the memory bound of `into_layout`.

use meshwork_core::{CreateMesh, Mesh};
use meshwork_layout::{PartialReduction, Relayout, StepKind};
use ndarray::{Array, IxDyn};

use super::*;
use crate::testing::{clients, failing_clients};

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
        layout.with_partial(partial, PartialReduction::Sum).unwrap()
    };
    states.into_iter().map(layout).collect()
}

fn numbered(shape: &[usize]) -> ArrayD<i32> {
    let count: usize = shape.iter().product();
    Array::from_iter(0..i32::try_from(count).unwrap())
        .into_shape_with_order(IxDyn(shape))
        .unwrap()
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
                    assert_eq!(
                        moved.unpack().unwrap(),
                        expected.unpack().unwrap(),
                        "{from} to {to}"
                    );
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

#[test]
fn large_blocks_are_the_same_by_several_threads() {
    clients(1, 4, |context| {
        let mesh = CreateMesh::new().dims([("x", 2), ("y", 2)]);
        let mesh = context.create_distributed_mesh(mesh).unwrap();
        let whole = numbered(&[1024, 1024]);
        let on = |names: [&str; 2]| {
            let layout = Layout::from_names(names, &mesh).unwrap();
            context.copy_to_mesh(whole.clone(), &layout).unwrap()
        };
        let (from, to) = (on(["x", "y"]), on(["unsharded", "x"]));
        assert_eq!(
            from.relayout(to.layout()).unwrap().unpack().unwrap(),
            to.unpack().unwrap()
        );
        assert_eq!(from.to_host().unwrap(), whole);
    });
}

#[test]
fn clients_send_what_the_plan_says_and_no_more() {
    let sent = clients(4, 1, |context| {
        let mesh = context.create_distributed_mesh(CreateMesh::new().dims([("x", 2), ("y", 2)]));
        let layouts = layouts(&mesh.unwrap());
        let mut sent = Vec::new();
        for from in &layouts {
            let tensor = context.copy_to_mesh(numbered(&[4, 8]), from).unwrap();
            for to in &layouts {
                let before = context.bytes_sent();
                tensor.relayout(to).unwrap();
                let plan = Relayout::new(from, to, &[4, 8], size_of::<i32>());
                let plan = plan.unwrap().plan().unwrap();
                let mut steps = plan.steps().iter();
                let permutes = steps.any(|step| step.kind() == StepKind::Permute);
                sent.push((context.bytes_sent() - before, plan.bytes(), permutes));
            }
        }
        sent
    });
    for pair in 0..sent[0].len() {
        let total: u64 = sent.iter().map(|client| client[pair].0).sum();
        let (_, planned, permutes) = sent[0][pair];
        // Of a permutation some ranks may have their new blocks already.
        assert!(
            total == 4 * planned || permutes && total < 4 * planned,
            "pair {pair}"
        );
    }
}

#[test]
fn clients_that_run_different_programs_are_all_told() {
    let told = failing_clients(2, 1, |context| {
        let mesh = context.create_distributed_mesh(CreateMesh::new()).unwrap();
        let rows = Layout::batch_sharded(&mesh, "x", 2).unwrap();
        let columns = Layout::inner_sharded(&mesh, "x", 2).unwrap();
        let (from, to) = match context.index() {
            0 => (&rows, &columns),
            _ => (&columns, &rows),
        };
        let tensor = context.copy_to_mesh(numbered(&[4, 4]), from).unwrap();
        tensor.relayout(to).unwrap_err()
    });
    assert_eq!(told[0], told[1]);
    let text = told[0].to_string();
    for (client, way) in [
        "[x, unsharded] to [unsharded, x]",
        "[unsharded, x] to [x, unsharded]",
    ]
    .iter()
    .enumerate()
    {
        let named = format!("client {client} has \"a relayout of [4, 4] from {way} of i32\" at ");
        assert!(text.contains(&named), "{text}");
    }
    assert_eq!(text.matches(file!()).count(), 2, "{text}");
}

#[test]
fn a_tensor_moves_to_another_mesh_of_its_devices_and_to_some_of_them() {
    let context = Context::alone(meshwork_core::Client::new("localhost", 0, 1).unwrap());
    let mesh = Mesh::new([("x", 2), ("y", 2)]).unwrap();
    let tensor = Layout::from_names(["x", "y"], &mesh).unwrap();
    let tensor = context.copy_to_mesh(numbered(&[4, 6]), &tensor).unwrap();
    for other in [
        Mesh::new([("z", 4)]),
        Mesh::new([("z", 2)]),
        mesh.with_name("other"),
    ] {
        let other = other.unwrap();
        let first = other.dims()[0].name().to_string();
        let rows = Layout::batch_sharded(&other, &first, 2).unwrap();
        let moved = tensor.relayout(&rows).unwrap();
        assert_eq!(
            moved.unpack().unwrap(),
            context
                .copy_to_mesh(numbered(&[4, 6]), &rows)
                .unwrap()
                .unpack()
                .unwrap()
        );
    }
}

/// A tensor of this layout moved to another, as the only one that has its blocks; what that took at
/// most beside them, in bytes.
fn moved_away(context: &Context, whole: &ArrayD<i32>, [from, to]: [&Layout; 2]) -> u64 {
    let owned = context.copy_to_mesh(whole.clone(), from).unwrap();
    let mut moved = None;
    let measured = allocation_counter::measure(|| moved = owned.into_layout(to).ok());
    assert_eq!(&moved.unwrap().to_host().unwrap(), whole, "{from} to {to}");
    measured.bytes_max
}

#[test]
fn memory_of_blocks_that_are_gone_is_used_again() {
    clients(1, 4, |context| {
        let mesh = context.create_distributed_mesh(CreateMesh::new().dims([("x", 2), ("y", 2)]));
        let mesh = mesh.unwrap();
        let whole = numbered(&SHAPE);
        let rows = Layout::batch_sharded(&mesh, "x", 2).unwrap();
        let columns = Layout::inner_sharded(&mesh, "x", 2).unwrap();
        let large = 4 * SHAPE.iter().product::<usize>() as u64;
        assert!(moved_away(context, &whole, [&rows, &columns]) >= large);
        assert!(context.buffer_pool().bytes() > 0);
        // The new blocks of the first time are gone, and so those of the next time need no memory.
        context
            .copy_to_mesh(whole.clone(), &rows)
            .unwrap()
            .relayout(&columns)
            .unwrap();
        assert!(moved_away(context, &whole, [&rows, &columns]) < ASIDE);
        context.leave().unwrap();
        assert_eq!(context.buffer_pool().bytes(), 0);
    });
}

#[test]
fn spare_memory_has_no_part_in_elements_and_counts_within_the_bound() {
    clients(1, 4, |context| {
        let mesh = context.create_distributed_mesh(CreateMesh::new().dims([("x", 2), ("y", 2)]));
        let layouts = layouts(&mesh.unwrap());
        let whole = numbered(&SHAPE);
        for from in &layouts {
            for to in layouts.iter().filter(|to| *to != from) {
                *context.buffer_pool() = Default::default();
                moved_away(context, &whole, [from, to]);
                let spare = context.buffer_pool().bytes() as u64;
                let before = context.copy_to_mesh(whole.clone(), from).unwrap();
                let before: usize = before
                    .unpack()
                    .unwrap()
                    .iter()
                    .map(|block| 4 * block.len())
                    .sum();
                let peak = before as u64 + spare + moved_away(context, &whole, [from, to]);
                let plan = Relayout::new(from, to, &SHAPE, 4).unwrap().plan().unwrap();
                let is_complete = from.reduction().is_none() && to.reduction().is_none();
                let bound = 4 * plan.peak_bytes() + ASIDE;
                assert!(
                    !is_complete || peak <= bound,
                    "{peak} above {bound}: {from} to {to}"
                );
            }
        }
    });
}

#[test]
fn devices_of_one_client_share_what_is_the_same() {
    clients(1, 4, |context| {
        let mesh = context.create_distributed_mesh(CreateMesh::new().dims([("x", 2), ("y", 2)]));
        let mesh = mesh.unwrap();
        let cut = Layout::from_names(["x", "y"], &mesh).unwrap();
        let tensor = context.copy_to_mesh(numbered(&[4, 4]), &cut).unwrap();
        let whole = tensor.replicate().unwrap();
        let places = whole.unpack().unwrap().iter().map(|block| block.as_ptr());
        assert!(
            places
                .clone()
                .all(|place| Some(place) == places.clone().next())
        );
        assert_eq!(
            whole.relayout(&cut).unwrap().unpack().unwrap(),
            tensor.unpack().unwrap()
        );
    });
}

/// 512 KiB, so that quarters of it are large blocks.
const SHAPE: [usize; 2] = [512, 256];

/// Bytes that lists, shapes and tiles may take.
const ASIDE: u64 = 128 << 10;
