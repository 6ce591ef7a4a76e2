//! Layouts of every kind, for property tests.

use meshwork_core::{DimName, Mesh};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use crate::{LayoutPattern, LayoutType, PartialReduction, ShardingSpec, SpecPattern};

/// Patterns with nested, open and partial dimensions, parted and not, on meshes without devices;
/// the names of dimensions may have anything in them but the words that text sets between them.
pub(crate) fn any_pattern() -> impl Strategy<Value = LayoutPattern> {
    let name = "[a-z: .é<]{1,3}|scalar|[a-z]mesh:|parted:"
        .prop_filter("a legal name", |name| DimName::new(name).is_ok());
    let names = btree_set(name, 0..4)
        .prop_map(Vec::from_iter)
        .prop_shuffle();
    let mesh = ("[ -{}~]{0,9}", names, vec(1_usize..4, 4)).prop_map(|(name, names, sizes)| {
        let mesh = Mesh::new(names.into_iter().zip(sizes)).unwrap();
        mesh.with_name(name).unwrap()
    });
    (
        mesh,
        0_usize..4,
        vec(0_usize..6, 4),
        vec(0_usize..3, 4),
        0_usize..4,
        prop_oneof![Just(LayoutType::Static), Just(LayoutType::Parted)],
    )
        .prop_map(|(mesh, rank, places, open, reduction, layout_type)| {
            pattern(&mesh, rank, [&places, &open], reduction, layout_type)
        })
}

fn pattern(
    mesh: &Mesh,
    rank: usize,
    [places, open]: [&[usize]; 2],
    reduction: usize,
    layout_type: LayoutType,
) -> LayoutPattern {
    let mut cuts = vec![vec![]; rank];
    let mut partial = vec![];
    // Past the axes, a mesh dimension is partial once and idle else.
    for (dim, &place) in mesh.dim_names().zip(places) {
        match cuts.get_mut(place) {
            Some(cuts) => cuts.insert(cuts.len() / 2, dim),
            None if place == rank => partial.push(dim),
            None => {}
        }
    }
    let mut matched = false;
    let specs = cuts
        .into_iter()
        .zip(open)
        .map(|(cuts, open)| match (cuts.is_empty(), open) {
            (true, 1) if !matched => {
                matched = true;
                SpecPattern::Match
            }
            (true, 2) => SpecPattern::Any,
            _ => ShardingSpec::nested(cuts).unwrap().into(),
        });
    let specs: Vec<SpecPattern> = specs.collect();
    let pattern = LayoutPattern::new(specs, mesh).unwrap();
    let pattern = pattern
        .with_partial(partial, PartialReduction::ALL[reduction])
        .unwrap();
    match layout_type {
        LayoutType::Static => pattern,
        LayoutType::Parted => pattern.to_parted(),
    }
}
