//! Every pair of layouts that TensorFlow can write of a tensor of three axes on a mesh of 2×2×2:
//! carried out, with the elements, the bytes between clients and the memory that the plan says.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set the scene has failed"
)]

use meshwork_collectives::Group;
use meshwork_core::{Client, CreateMesh, Mesh};
use meshwork_dtensor::{Context, DTensor};
use meshwork_layout::{Layout, Plan, Relayout, StepKind};
use meshwork_testing::in_threads;
use ndarray::{ArrayD, IxDyn};

/// The 34 layouts: each axis whole, or cut by a mesh dimension that no other axis is cut by.
fn layouts(mesh: &Mesh) -> Vec<Layout> {
    const NAMES: [&str; 4] = ["unsharded", "x", "y", "z"];
    let names = (0..64).map(|number: usize| [number / 16, number / 4 % 4, number % 4]);
    let is_layout = |axes: &[usize; 3]| {
        let pairs = [(0, 1), (0, 2), (1, 2)];
        pairs
            .iter()
            .all(|&(a, b)| axes[a] == 0 || axes[a] != axes[b])
    };
    let layout = |axes: [usize; 3]| Layout::from_names(axes.map(|axis| NAMES[axis]), mesh).unwrap();
    names.filter(is_layout).map(layout).collect()
}

fn numbered(shape: [usize; 3]) -> ArrayD<i32> {
    let count: usize = shape.iter().product();
    let elements = (0..i32::try_from(count).unwrap()).collect();
    ArrayD::from_shape_vec(IxDyn(&shape), elements).unwrap()
}

fn plan(from: &Layout, to: &Layout, shape: [usize; 3]) -> Plan {
    Relayout::new(from, to, &shape, 4).unwrap().plan().unwrap()
}

/// Runs so many clients, which are threads and share the eight devices.
fn clients<R: Send>(count: u32, run: impl Fn(&Context, &Mesh) -> R + Sync) -> Vec<R> {
    in_threads(Group::local(count).unwrap(), |group| {
        let client = Client::new("worker", group.rank().number(), count).unwrap();
        let client = client.with_devices("CPU", 8 / count).unwrap();
        let context = match count {
            1 => Context::alone(client),
            _ => Context::from_group(client, group).unwrap(),
        };
        let mesh = CreateMesh::new().dims([("x", 2), ("y", 2), ("z", 2)]);
        let mesh = context.create_distributed_mesh(mesh).unwrap();
        let result = run(&context, &mesh);
        context.leave().unwrap();
        result
    })
}

/// The tensor by each layout, and what comes of moving it to each other one.
fn for_each_pair(
    context: &Context,
    mesh: &Mesh,
    shape: [usize; 3],
    mut check: impl FnMut(&DTensor<i32>, &DTensor<i32>),
) {
    let whole = numbered(shape);
    let on = |layout: &Layout| context.copy_to_mesh(whole.clone(), layout).unwrap();
    let tensors: Vec<DTensor<i32>> = layouts(mesh).iter().map(on).collect();
    assert_eq!(tensors.len(), 34);
    for from in &tensors {
        for to in &tensors {
            check(from, to);
        }
    }
}

fn named(from: &DTensor<i32>, to: &DTensor<i32>) -> String {
    format!("{:?} from {} to {}", to.shape(), from.layout(), to.layout())
}

/// Relayouts one like the other, which has the same values.
#[track_caller]
fn moves(from: &DTensor<i32>, to: &DTensor<i32>) {
    let moved = from.relayout(to.layout()).unwrap();
    assert_eq!(
        moved.unpack().unwrap(),
        to.unpack().unwrap(),
        "{}",
        named(from, to)
    );
}

/// Every pair of tensors of this shape, whose values so many clients compare with those they had.
fn moves_right(count: u32, shape: [usize; 3]) {
    clients(count, |context, mesh| {
        for_each_pair(context, mesh, shape, |from, to| {
            moves(from, to);
        });
    });
}

#[test]
fn every_pair_moves_right_between_eight_devices_of_one_process() {
    for shape in [[4, 4, 4], [3, 5, 7], [1, 2, 9], [2, 0, 3]] {
        moves_right(1, shape);
    }
}

#[test]
fn every_pair_sends_the_bytes_of_its_plan_between_eight_clients() {
    let sent = clients(8, |context, mesh| {
        let mut sent = Vec::new();
        for_each_pair(context, mesh, [4, 4, 4], |from, to| {
            let before = context.bytes_sent();
            moves(from, to);
            sent.push(context.bytes_sent() - before);
        });
        sent
    });
    let mesh = Mesh::new([("x", 2), ("y", 2), ("z", 2)]).unwrap();
    let layouts = layouts(&mesh);
    let pairs = layouts
        .iter()
        .flat_map(|from| layouts.iter().map(move |to| (from, to)));
    for (pair, (from, to)) in pairs.enumerate() {
        let plan = plan(from, to, [4, 4, 4]);
        let total: u64 = sent.iter().map(|sent| sent[pair]).sum();
        let permutes = plan
            .steps()
            .iter()
            .any(|step| step.kind() == StepKind::Permute);
        // Of a permutation some devices may have their new blocks already.
        assert!(
            total == 8 * plan.bytes() || permutes && total < 8 * plan.bytes(),
            "{total} bytes from {from} to {to}: {}",
            plan.explain()
        );
    }
}

#[test]
fn uneven_and_empty_shards_move_right_between_clients_of_two_devices() {
    for shape in [[3, 5, 1], [1, 2, 3]] {
        moves_right(4, shape);
    }
}

#[test]
fn no_pair_takes_more_memory_than_its_plan_says() {
    const SHAPE: [usize; 3] = [32, 64, 64];
    clients(1, |context, mesh| {
        for_each_pair(context, mesh, SHAPE, |from, to| {
            // The way is found once, and kept.
            from.relayout(to.layout()).unwrap();
            let plan = plan(from.layout(), to.layout(), SHAPE);
            let owned = from.map(|element| element).unwrap();
            let before: usize = owned
                .unpack()
                .unwrap()
                .iter()
                .map(|block| 4 * block.len())
                .sum();
            let measured = allocation_counter::measure(|| {
                owned.into_layout(to.layout()).unwrap();
            });
            let peak = before as u64 + measured.bytes_max;
            let bound = 8 * plan.peak_bytes() + ASIDE;
            assert!(
                peak <= bound,
                "{peak} bytes above {bound}, {}",
                named(from, to)
            );
        });
    });
}

/// Bytes that lists, shapes and tiles may take.
const ASIDE: u64 = 128 << 10;
