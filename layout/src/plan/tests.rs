//! Relayout plans: each is executed on values by a simulator and must be right and no dearer than
//! any detour; also the memory bound, links of different speeds, and meshes of other shapes.

use meshwork_core::{DeviceIds, DeviceSpec, DimName, Mesh};
use proptest::prelude::*;

use super::*;
use crate::{PartialReduction, ShardingSpec, UNSHARDED};

mod brute;
mod worlds;

use worlds::{Arrangement, arrangements, layout, mesh};

/// A link by which a byte takes a nanosecond, and a step as long as this many bytes.
fn alpha(bytes: u64) -> Links {
    Links::uniform(Link::new(Duration::from_nanos(bytes), 1_000_000_000).unwrap())
}

/// A plan that is proved right.
#[track_caller]
fn planned(from: &Layout, to: &Layout, shape: &[usize], links: Links) -> Plan {
    let plan = Relayout::new(from, to, shape, 4).unwrap().links(links);
    let plan = plan.plan().unwrap();
    if let Err(broken) = plan.prove() {
        panic!("{from} to {to} of {shape:?}: {broken}\n{}", plan.explain());
    }
    plan
}

/// A mesh with one device for each number.
fn with_devices<'a>(
    dims: impl IntoIterator<Item = (&'a str, usize)>,
    devices: impl IntoIterator<Item = usize>,
) -> Mesh {
    let device = |index| DeviceSpec::parse(&format!("/job:a/task:0/device:GPU:{index}"));
    let devices = devices.into_iter().map(|index| device(index).unwrap());
    Mesh::new(dims).unwrap().with_devices(devices).unwrap()
}

/// A mesh of this many dimensions of 2, and their names.
fn hypercube(dims: usize) -> (Mesh, Vec<String>) {
    let names: Vec<String> = (0..dims).map(|dim| format!("d{dim}")).collect();
    let mesh = Mesh::new(names.iter().map(|name| (name, 2))).unwrap();
    (mesh, names)
}

fn kinds(plan: &Plan) -> Vec<StepKind> {
    plan.steps().iter().map(PlanStep::kind).collect()
}

#[test]
fn an_exchange_over_two_mesh_dimensions_at_once_keeps_a_quarter() {
    let mesh = mesh(&[2, 2]);
    let specs = |text: &str| Layout::from_specs(text, &mesh).unwrap();
    let plan = planned(
        &specs("x|y,unsharded"),
        &specs("unsharded,x|y"),
        &[4, 4],
        alpha(0),
    );
    assert_eq!(kinds(&plan), [StepKind::AllToAll]);
    assert_eq!((plan.bytes(), plan.peak_bytes()), (12, 32));
    let over: Vec<String> = plan.steps()[0]
        .over()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(over, ["x", "y"]);
}

#[test]
fn a_reduction_uses_ranks_that_would_do_the_same_twice() {
    let mesh = mesh(&[4, 2]);
    let whole = Layout::replicated(&mesh, 2);
    let terms = whole
        .clone()
        .with_partial(["x"], PartialReduction::Sum)
        .unwrap();
    let plan = planned(&terms, &whole, &[16, 8], alpha(0));
    // An all-reduce over x alone moves 768.
    assert_eq!(plan.bytes(), 3 * 64 + 7 * 64);
    assert_eq!(kinds(&plan)[0], StepKind::Slice);
    let quick = planned(&terms, &whole, &[16, 8], alpha(1000));
    assert_eq!(kinds(&quick), [StepKind::AllReduce]);
}

#[test]
fn a_mesh_dimension_may_be_used_in_part() {
    let mesh = mesh(&[2, 4]);
    let specs = |text: &str| Layout::from_specs(text, &mesh).unwrap();
    let plan = planned(
        &specs("y,unsharded"),
        &specs("x,unsharded"),
        &[16, 8],
        alpha(0),
    );
    assert_eq!(kinds(&plan), [StepKind::Permute, StepKind::AllGather]);
    assert_eq!(
        plan.steps()[1]
            .over()
            .iter()
            .map(DimPart::size)
            .sum::<usize>(),
        2
    );
    // Whole mesh dimensions would take 384: gather y, then slice.
    assert_eq!(plan.bytes(), 256);
}

#[test]
fn the_memory_bound_changes_the_plan_or_is_refused_with_the_one_that_would_do() {
    let mesh = Mesh::new([("x", 4)]).unwrap();
    let whole = Layout::replicated(&mesh, 2);
    let rows = Layout::from_names(["x", UNSHARDED], &mesh).unwrap();
    let relayout = Relayout::new(&whole, &rows, &[11, 4], 4)
        .unwrap()
        .links(alpha(0));
    let bounded = |bytes| relayout.clone().memory_bound(bytes).plan();
    assert_eq!(bounded(224).unwrap().bytes(), 0);
    // Fewer columns than rows are kept at first, and exchanged then.
    let frugal = bounded(223).unwrap();
    assert_eq!((frugal.bytes(), frugal.peak_bytes()), (36, 220));
    let refused = Error::MemoryBound {
        bound: 219,
        smallest: 220,
    };
    assert_eq!(bounded(219).unwrap_err(), refused);
}

#[test]
fn a_bound_for_which_no_plan_is_found_in_time_is_not_called_too_small() {
    let mesh = Mesh::new([("x", 4)]).unwrap();
    let whole = Layout::replicated(&mesh, 2);
    let rows = Layout::from_names(["x", UNSHARDED], &mesh).unwrap();
    let relayout = Relayout::new(&whole, &rows, &[11, 4], 4).unwrap();
    let relayout = relayout.links(alpha(0)).memory_bound(223);
    assert!(relayout.plan().is_ok());
    let hasty = Relayout {
        effort: 1,
        ..relayout
    };
    let given_up = Error::SearchGivenUp {
        bound: 223,
        known: 224,
    };
    assert_eq!(hasty.plan().unwrap_err(), given_up);
}

#[test]
fn what_one_step_does_is_found_on_a_mesh_of_many_dimensions() {
    let (mesh, names) = hypercube(11);
    let all = || ShardingSpec::nested(&names).unwrap();
    let from = Layout::new([all(), ShardingSpec::unsharded()], &mesh).unwrap();
    let to = Layout::new([ShardingSpec::unsharded(), all()], &mesh).unwrap();
    let block = 2 * 4096 * 4;
    let relayout = Relayout::new(&from, &to, &[4096, 4096], 4).unwrap();
    let plan = relayout.memory_bound(2 * block).plan().unwrap();
    assert_eq!(kinds(&plan), [StepKind::AllToAll]);
    assert_eq!(plan.peak_bytes(), 2 * block);

    let (mesh, names) = hypercube(13);
    let from = Layout::new([ShardingSpec::nested(&names).unwrap()], &mesh).unwrap();
    let reversed = ShardingSpec::nested(names.iter().rev()).unwrap();
    let to = Layout::new([reversed], &mesh).unwrap();
    let plan = planned(&from, &to, &[8192], alpha(0));
    assert_eq!(kinds(&plan), [StepKind::Permute]);
    assert!(plan.is_proven_cheapest());
}

#[test]
fn a_search_among_too_many_plans_is_given_up() {
    let check = |from: &Layout, to: &Layout, shape: &[usize]| {
        let hasty = Relayout {
            effort: 1000,
            ..Relayout::new(from, to, shape, 4).unwrap().links(alpha(0))
        };
        assert!(!hasty.plan().unwrap().is_proven_cheapest(), "{shape:?}");
    };
    // All orders in which a tensor dimension may be cut: they would not fit into memory.
    let (mesh, names) = hypercube(13);
    let cut_by = |names: Vec<&String>| {
        let spec = ShardingSpec::nested(names).unwrap();
        Layout::new([spec], &mesh).unwrap()
    };
    let reversed = names[1..].iter().rev().collect();
    check(&cut_by(names.iter().collect()), &cut_by(reversed), &[8192]);
    // All sets of terms, and of tensor dimensions: nobody would see the end.
    let (mesh, names) = hypercube(34);
    let scalar = Layout::replicated(&mesh, 0);
    let terms = scalar.clone();
    let terms = terms.with_partial(&names, PartialReduction::Sum).unwrap();
    check(&terms, &scalar, &[]);
    let cut = Layout::from_names(names.iter().map(String::as_str), &mesh).unwrap();
    check(&cut, &Layout::replicated(&mesh, 34), &[1; 34]);
}

#[test]
fn blocks_that_are_the_same_in_another_order_are_permuted_though_uneven() {
    let mesh = mesh(&[2, 3]);
    let specs = |text: &str| Layout::from_specs(text, &mesh).unwrap();
    let plan = planned(&specs("x|y"), &specs("y|x"), &[11], alpha(0));
    assert_eq!(kinds(&plan), [StepKind::Permute]);
    assert_eq!(plan.bytes(), 8);
    // Those of 10 are others: 0..4, 4..8 and 8..10 cut in two, or 0..5 and 5..10 in three.
    let plan = planned(&specs("x|y"), &specs("y|x"), &[10], alpha(0));
    assert_ne!(kinds(&plan), [StepKind::Permute]);
}

#[test]
fn a_plan_is_proven_cheapest_only_where_no_part_of_a_mesh_dimension_was_left_out() {
    let is_proven = |from: &Layout, to: &Layout| {
        let plan = Relayout::new(from, to, &[432], 4).unwrap().plan();
        plan.unwrap().is_proven_cheapest()
    };
    for (sizes, expected) in [
        ([2, 4, 8], true),
        ([6, 6, 1], true),
        // Seven prime factors.
        ([2, 8, 8], false),
        // Eight orders of them.
        ([6, 6, 6], false),
        // 2·3·2 is not looked at.
        ([12, 2, 1], false),
    ] {
        let mesh = mesh(&sizes);
        let from = Layout::from_names(["x"], &mesh).unwrap();
        let to = Layout::replicated(&mesh, 1);
        assert_eq!(is_proven(&from, &to), expected, "{sizes:?}");
    }
    // Nor is there anything to leave out where all dimensions are prime, however many.
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    let mesh = Mesh::new(names.map(|name| (name, 2))).unwrap();
    let to = Layout::from_names(["a"], &mesh).unwrap();
    assert!(is_proven(&Layout::replicated(&mesh, 1), &to));
}

#[test]
fn links_decide_where_bytes_go() {
    let mesh = mesh(&[2, 2]);
    let specs = |text: &str| Layout::from_specs(text, &mesh).unwrap();
    let slow = Link::new(Duration::from_micros(1), 1_000_000).unwrap();
    let over = |dim: &str| {
        let links = Links::default().with(DimName::new(dim).unwrap(), slow);
        let plan = planned(&specs("x|y"), &specs("unsharded"), &[1 << 20], links);
        let over = plan.steps()[0].over().to_vec();
        over.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    // The slow link carries the small blocks of the beginning, if they come in that order.
    assert_eq!(over("y"), ["y"]);
    assert_eq!(over("x"), ["y"]);
}

#[test]
fn a_mesh_of_another_shape_or_order_is_reached() {
    let shape = [24, 12];
    let six = with_devices([("x", 6)], [0, 1, 2, 3, 4, 5]);
    let from = Layout::from_names(["x", UNSHARDED], &six).unwrap();
    let bytes = |mesh: &Mesh, specs: &str| {
        let to = Layout::from_specs(specs, mesh).unwrap();
        planned(&from, &to, &shape, alpha(0)).bytes()
    };
    let straight = with_devices([("x", 2), ("y", 3)], [0, 1, 2, 3, 4, 5]);
    // Blocks of 4 rows become blocks of 12, of which 3 lie together.
    assert_eq!(bytes(&straight, "x,unsharded"), 2 * 192);
    let reversed = with_devices([("x", 2), ("y", 3)], [5, 4, 3, 2, 1, 0]);
    assert_eq!(bytes(&reversed, "x,unsharded"), 3 * 192);
    // The same digits of device numbers, in the other order.
    let turned = with_devices([("y", 3), ("x", 2)], [0, 3, 1, 4, 2, 5]);
    assert_eq!(bytes(&turned, "x|y,unsharded"), 0);
}

#[test]
fn meshes_without_common_digits_are_crossed_by_a_permutation_or_whole() {
    let (wide, high) = (mesh(&[2, 3]), mesh(&[3, 2]));
    for from in arrangements(2, 2, 0) {
        for to in arrangements(2, 2, 0) {
            let (from, to) = (layout(&wide, &from), layout(&high, &to));
            planned(&from, &to, &[12, 12], alpha(0));
            planned(&from, &to, &[7, 5], alpha(100));
        }
    }
}

#[test]
fn a_tensor_may_end_on_some_of_its_devices() {
    let mesh = with_devices([("x", 2), ("y", 4)], 0..8);
    let few = with_devices([("z", 2)], [6, 1]);
    let to = Layout::from_names(["z"], &few).unwrap();
    for from in arrangements(2, 1, 0) {
        let plan = planned(&layout(&mesh, &from), &to, &[8], alpha(0));
        assert_eq!(plan.source_rank(MeshRank::new(0)), Ok(MeshRank::new(6)));
    }
}

#[test]
fn dimensions_that_are_added_are_told_from_those_of_the_source() {
    let source = Mesh::new([("added", 2), ("x", 2)]).unwrap();
    let ids = DeviceIds::new([2, 3]).unwrap();
    let few = Mesh::builder([("x", 2)]).global_device_ids(ids);
    let few = few.build().unwrap();
    let [from, to] = [&source, &few].map(|mesh| Layout::from_names(["x"], mesh).unwrap());
    let plan = planned(&from, &to, &[4], alpha(0));
    let last = plan.steps().last().unwrap();
    for rank in few.ranks() {
        assert_eq!(plan.device_rank(last.after(), rank), plan.source_rank(rank));
    }
}

#[test]
fn one_term_becomes_terms_of_another_reduction() {
    let mesh = Mesh::new([("one", 1), ("x", 2)]).unwrap();
    let partial = |dim: &str, reduction| {
        let whole = Layout::replicated(&mesh, 1);
        whole.with_partial([dim], reduction).unwrap()
    };
    let from = partial("one", PartialReduction::Sum);
    let to = partial("x", PartialReduction::Max);
    let plan = planned(&from, &to, &[5], alpha(0));
    let last = plan.steps().last().unwrap();
    assert_eq!(last.after().reduction(), Some(PartialReduction::Max));
}

#[test]
fn copies_become_terms_in_one_step() {
    let mesh = mesh(&[2, 2, 2]);
    let from = Layout::from_names(["z"], &mesh).unwrap();
    let made = |to: Layout, dims: &[&str]| {
        let to = to.with_partial(dims, PartialReduction::Sum).unwrap();
        let plan = planned(&from, &to, &[4], alpha(0));
        assert_eq!(kinds(&plan), [StepKind::MakePartial]);
        plan.steps()[0].had_copies()
    };
    assert!(made(from.clone(), &["x", "y"]));
    assert!(!made(Layout::replicated(&mesh, 1), &["z"]));
}

#[test]
fn a_negative_zero_is_the_same_after_it_was_a_term() {
    let mesh = mesh(&[2]);
    let whole = Layout::replicated(&mesh, 1);
    let terms = whole.clone();
    let terms = terms.with_partial(["x"], PartialReduction::Sum).unwrap();
    let there = planned(&whole, &terms, &[1], alpha(0));
    let back = planned(&terms, &whole, &[1], alpha(0));
    let zeros = [vec![-0.0_f64], vec![-0.0]];
    let ended = back.apply(&there.apply(&zeros).unwrap()).unwrap();
    assert!(ended.iter().flatten().all(|zero| zero.is_sign_negative()));
}

#[test]
fn reductions_that_differ_are_done_one_after_the_other() {
    let mesh = mesh(&[2, 2]);
    let whole = Layout::replicated(&mesh, 1);
    let partial = |dims: &[&str], reduction| whole.clone().with_partial(dims, reduction).unwrap();
    let sums = partial(&["x"], PartialReduction::Sum);
    for dims in [["x"].as_slice(), &["y"], &["x", "y"]] {
        let plan = planned(&sums, &partial(dims, PartialReduction::Max), &[5], alpha(0));
        assert!(plan.bytes() > 0);
        let reductions = |placement: &MeshPlacement| placement.reduction();
        assert_eq!(
            reductions(plan.steps()[0].before()),
            Some(PartialReduction::Sum)
        );
        assert_eq!(
            plan.steps().last().map(|step| reductions(step.after())),
            Some(Some(PartialReduction::Max))
        );
    }
}

#[test]
fn scalars_and_empty_tensors_are_laid_out_too() {
    let mesh = mesh(&[2, 2]);
    let scalar = Layout::replicated(&mesh, 0);
    let terms = scalar
        .clone()
        .with_partial(["x"], PartialReduction::Sum)
        .unwrap();
    assert_eq!(planned(&terms, &scalar, &[], alpha(0)).bytes(), 4);
    for from in arrangements(2, 2, 1) {
        for to in arrangements(2, 2, 1) {
            let plan = planned(
                &layout(&mesh, &from),
                &layout(&mesh, &to),
                &[0, 3],
                alpha(0),
            );
            assert_eq!(plan.bytes(), 0);
        }
    }
}

#[test]
fn what_cannot_be_planned_is_refused() {
    let mesh = mesh(&[2, 2]);
    let (line, plane) = (Layout::replicated(&mesh, 1), Layout::replicated(&mesh, 2));
    let refused =
        |to: &Layout, shape: &[usize]| Relayout::new(&line, to, shape, 4).map(|_| ()).unwrap_err();
    assert_eq!(
        refused(&plane, &[8]),
        Error::RankMismatch {
            found: vec![8],
            expected: 2
        }
    );
    assert_eq!(
        refused(&line, &[8, 8]),
        Error::RankMismatch {
            found: vec![8, 8],
            expected: 1
        }
    );
    let huge = Error::TensorTooLarge {
        shape: vec![1 << 59],
        element_size: 4,
        ranks: 4,
    };
    assert_eq!(refused(&line, &[1 << 59]), huge);
    assert_eq!(Link::new(Duration::ZERO, 0), Err(Error::NoBandwidth));
}

#[test]
fn all_pairs_of_one_mesh_dimension_for_each_of_three_axes_move_the_right_values() {
    let mesh = mesh(&[2, 2, 2]);
    let single = |arrangement: &Arrangement| arrangement.dims.iter().all(|dims| dims.len() < 2);
    let layouts: Vec<Layout> = arrangements(3, 3, 0)
        .into_iter()
        .filter(single)
        .map(|arrangement| layout(&mesh, &arrangement))
        .collect();
    let shape = [4, 2, 6];
    let mut pairs = 0;
    for from in &layouts {
        for to in &layouts {
            let plan = planned(from, to, &shape, alpha(0));
            let shards = plan.apply(&worlds::shards(from, &shape)).unwrap();
            assert_eq!(shards, worlds::shards(to, &shape), "{from} to {to}");
            pairs += 1;
        }
    }
    assert_eq!(pairs, 1156);
}

#[test]
fn shards_that_do_not_fit_are_refused() {
    let mesh = mesh(&[2]);
    let layout = Layout::from_names(["x"], &mesh).unwrap();
    let plan = planned(&layout, &Layout::replicated(&mesh, 1), &[3], alpha(0));
    let count = Broken::ShardCount {
        found: 1,
        expected: 2,
    };
    assert_eq!(plan.apply(&[vec![1_i64, 2]]), Err(count));
    let length = Broken::ShardLength {
        rank: MeshRank::new(1),
        found: 2,
        expected: 1,
    };
    assert_eq!(plan.apply(&[vec![1_i64, 2], vec![3, 4]]), Err(length));
    assert_eq!(
        plan.apply(&[vec![1.5, 2.5], vec![3.5]]),
        Ok(vec![vec![1.5, 2.5, 3.5]; 2])
    );
}

fn any_arrangement(axes: usize) -> impl Strategy<Value = Arrangement> {
    let all = arrangements(3, axes, 3);
    (0..all.len()).prop_map(move |number| all[number].clone())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_detour_never_pays(
        stops in [any_arrangement(2), any_arrangement(2), any_arrangement(2)],
        shape in [1_usize..9, 1_usize..9],
        latency in prop_oneof![Just(0_u64), 1_u64..200],
    ) {
        // Plans between final values do not make terms of them; see `may_make_partial`.
        let terms = |stop: &Arrangement| !stop.partial.is_empty();
        prop_assume!(terms(&stops[0]) || terms(&stops[2]) || !terms(&stops[1]));
        let mesh = mesh(&[2, 3, 2]);
        let [from, over, to] = stops.map(|stop| layout(&mesh, &stop));
        let time = |from, to| planned(from, to, &shape, alpha(latency)).time();
        prop_assert!(time(&from, &to) <= time(&from, &over) + time(&over, &to));
    }

    #[test]
    fn a_search_that_is_given_up_is_right_and_says_so(
        ends in [any_arrangement(2), any_arrangement(2)],
        shape in [1_usize..9, 1_usize..9],
        effort in 1_u64..500,
    ) {
        let mesh = mesh(&[2, 3, 2]);
        let [from, to] = ends.map(|end| layout(&mesh, &end));
        let best = planned(&from, &to, &shape, alpha(0));
        let relayout = Relayout::new(&from, &to, &shape, 4).unwrap().links(alpha(0));
        let hasty = Relayout { effort, ..relayout }.plan().unwrap();
        prop_assert_eq!(hasty.prove(), Ok(()));
        prop_assert!(hasty.time() >= best.time());
        prop_assert!(!hasty.is_proven_cheapest() || hasty.time() == best.time());
    }

    #[test]
    fn the_memory_bound_is_kept_down_to_the_smallest(
        ends in [any_arrangement(2), any_arrangement(2)],
        shape in [1_usize..20, 1_usize..20],
    ) {
        let mesh = mesh(&[2, 2, 2]);
        let [from, to] = ends.map(|end| layout(&mesh, &end));
        let relayout = Relayout::new(&from, &to, &shape, 4).unwrap().links(alpha(0));
        let bounded = |bytes| relayout.clone().memory_bound(bytes).plan();
        let mut best = relayout.plan().unwrap();
        while let Some(bound) = best.peak_bytes().checked_sub(1) {
            match bounded(bound) {
                Ok(plan) => {
                    prop_assert!(plan.peak_bytes() <= bound && plan.time() >= best.time());
                    prop_assert_eq!(plan.prove(), Ok(()));
                    best = plan;
                }
                Err(error) => {
                    let smallest = best.peak_bytes();
                    prop_assert_eq!(error, Error::MemoryBound { bound, smallest });
                    break;
                }
            }
        }
    }
}
