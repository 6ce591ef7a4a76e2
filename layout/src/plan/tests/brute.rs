//! The planner held against all shortest paths through all layouts of small meshes.
//!
//! Nothing is shared with the planner but the rule that cuts a dimension. Steps are recognised by
//! what each rank holds before and after, whatever the layouts are called, and costs are counted
//! from the sizes of what is held and exchanged.

use std::ops::Range;

use super::worlds::{Arrangement, arrangements, layout, mesh};
use super::{alpha, planned};

/// All arrangements on a mesh, and what the cheapest step between any two moves.
struct World {
    sizes: Vec<usize>,
    states: Vec<State>,
    steps: Vec<Vec<Option<Step>>>,
}

struct State {
    arrangement: Arrangement,
    /// What each rank holds.
    blocks: Vec<Block>,
}

/// The indices that a rank holds, for each tensor dimension.
type Block = Vec<Range<usize>>;

/// Bytes, and 1 for a step that communicates.
type Step = (u64, u64);

impl World {
    fn new(sizes: &[usize], shape: &[usize], partial: usize) -> Self {
        let states: Vec<State> = arrangements(sizes.len(), shape.len(), partial)
            .into_iter()
            .map(|arrangement| State {
                blocks: ranks(sizes)
                    .map(|rank| held(sizes, shape, &arrangement, rank))
                    .collect(),
                arrangement,
            })
            .collect();
        let mut world = Self {
            sizes: sizes.to_vec(),
            states,
            steps: Vec::new(),
        };
        let row = |from| world.states.iter().map(|to| world.step(from, to)).collect();
        world.steps = world.states.iter().map(row).collect();
        world
    }

    /// The least cost from one state to all others, where a step counts `alpha` bytes.
    fn costs(&self, from: usize, alpha: u64) -> Vec<u64> {
        let mut costs = vec![u64::MAX; self.states.len()];
        costs[from] = 0;
        // Bellman and Ford: as long as anything improves, try everything.
        let mut improved = true;
        while std::mem::take(&mut improved) {
            for (before, row) in self.steps.iter().enumerate() {
                for (after, step) in row.iter().enumerate() {
                    let Some((bytes, steps)) = step else { continue };
                    let cost = costs[before].saturating_add(bytes + alpha * steps);
                    if cost < costs[after] {
                        costs[after] = cost;
                        improved = true;
                    }
                }
            }
        }
        costs
    }

    fn step(&self, from: &State, to: &State) -> Option<Step> {
        let sets = (0_usize..1 << self.sizes.len()).map(|set| {
            (0..self.sizes.len())
                .filter(|dim| set >> dim & 1 == 1)
                .collect::<Vec<_>>()
        });
        let over = sets.flat_map(|over| self.step_over(from, to, &over));
        over.chain(self.permutation(from, to))
            .min_by_key(|(bytes, steps)| (*steps, *bytes))
    }

    /// The steps between two states in which ranks exchange along these mesh dimensions only.
    fn step_over(&self, from: &State, to: &State, over: &[usize]) -> Vec<Step> {
        let groups = self.groups(over);
        let all = |holds: &dyn Fn(&[usize]) -> bool| groups.iter().all(|group| holds(group));
        let others = groups[0].len() as u64 - 1;
        let (before, after) = (&from.blocks, &to.blocks);
        let with = |terms: &[usize]| {
            let mut all = [terms, over].concat();
            all.sort_unstable();
            all
        };
        let (terms, later) = (&from.arrangement.partial, &to.arrangement.partial);
        let largest = |blocks: &[Block]| blocks.iter().map(|block| bytes(block)).max().unwrap();
        let gathered = all(&|group| {
            group.iter().all(|&rank| {
                let parts = group.iter().map(|&peer| &before[peer]);
                tiles(parts.collect(), &after[rank])
            })
        });
        let mut steps = Vec::new();
        if over.is_empty()
            && terms == later
            && ranks(&self.sizes).all(|r| inside(&after[r], &before[r]))
        {
            steps.push((0, 0));
        }
        if over.is_empty() {
            return steps;
        }
        if terms == later && gathered {
            steps.push((others * largest(before), 1));
        }
        if terms == later {
            steps.extend(exchange(&groups, before, after).map(|chunk| (others * chunk, 1)));
        }
        let same = before == after;
        if *terms == with(later) {
            let g = others + 1;
            steps.extend(same.then(|| ((2 * others * largest(before)).div_ceil(g), 1)));
            let scattered = all(&|group| {
                tiles(
                    group.iter().map(|&r| &after[r]).collect(),
                    &before[group[0]],
                )
            });
            steps.extend(scattered.then(|| (others * largest(after), 1)));
        }
        if *later == with(terms) && (same || gathered) {
            steps.push((0, 0));
        }
        steps
    }

    /// Whether the same blocks, with the same terms, are on other ranks.
    fn permutation(&self, from: &State, to: &State) -> Option<Step> {
        let listed = |state: &State| {
            let term = |rank: usize| {
                let coords = coords(&self.sizes, rank);
                state
                    .arrangement
                    .partial
                    .iter()
                    .fold(0, |term, &dim| term * self.sizes[dim] + coords[dim])
            };
            let all = state.blocks.iter().enumerate();
            let mut all: Vec<_> = all
                .map(|(rank, block)| (bounds(block), term(rank)))
                .collect();
            all.sort_unstable();
            all
        };
        let largest = from.blocks.iter().map(|block| bytes(block)).max()?;
        (listed(from) == listed(to)).then_some((largest, 1))
    }

    /// The ranks in groups that differ along these mesh dimensions only.
    fn groups(&self, over: &[usize]) -> Vec<Vec<usize>> {
        let fixed = |rank: usize| {
            let mut coords = coords(&self.sizes, rank);
            over.iter().for_each(|&dim| coords[dim] = 0);
            coords
        };
        let firsts = ranks(&self.sizes).filter(|&rank| fixed(rank) == coords(&self.sizes, rank));
        firsts
            .map(|first| {
                ranks(&self.sizes)
                    .filter(|&rank| fixed(rank) == fixed(first))
                    .collect()
            })
            .collect()
    }
}

/// The largest part that a rank sends another of its group, if each has a part for each, and what
/// they hold, before as after, is the same and is held once.
fn exchange(groups: &[Vec<usize>], before: &[Block], after: &[Block]) -> Option<u64> {
    let mut largest = 0;
    for group in groups {
        for &rank in group {
            let received = group
                .iter()
                .map(|&peer| bytes(&meet(&before[peer], &after[rank])));
            let sent = group
                .iter()
                .map(|&peer| bytes(&meet(&before[rank], &after[peer])));
            let (received, sent): (Vec<u64>, Vec<u64>) = (received.collect(), sent.collect());
            let apart = |blocks: &[Block]| {
                let mut others = group.iter().filter(|&&peer| peer != rank);
                others.all(|&peer| bytes(&meet(&blocks[peer], &blocks[rank])) == 0)
            };
            if received.contains(&0) || !apart(before) || !apart(after) {
                return None;
            }
            let whole = received.iter().sum::<u64>() == bytes(&after[rank]);
            if !whole || sent.iter().sum::<u64>() != bytes(&before[rank]) {
                return None;
            }
            largest = received.into_iter().fold(largest, u64::max);
        }
    }
    Some(largest)
}

/// Whether these blocks make up a whole without any overlap.
fn tiles(parts: Vec<&Block>, whole: &[Range<usize>]) -> bool {
    let apart = |(number, part): (usize, &&Block)| {
        parts[..number]
            .iter()
            .all(|other| bytes(&meet(other, part)) == 0)
    };
    parts.iter().all(|part| inside(part, whole))
        && parts.iter().enumerate().all(apart)
        && parts.iter().map(|part| bytes(part)).sum::<u64>() == bytes(whole)
}

fn inside(part: &[Range<usize>], whole: &[Range<usize>]) -> bool {
    bytes(part) == 0
        || part
            .iter()
            .zip(whole)
            .all(|(part, whole)| whole.start <= part.start && part.end <= whole.end)
}

fn meet(one: &[Range<usize>], other: &[Range<usize>]) -> Block {
    let both = one.iter().zip(other);
    both.map(|(one, other)| one.start.max(other.start)..one.end.min(other.end))
        .collect()
}

fn bytes(block: &[Range<usize>]) -> u64 {
    block
        .iter()
        .map(|range| range.len() as u64)
        .product::<u64>()
        * 4
}

fn bounds(block: &[Range<usize>]) -> Option<Vec<(usize, usize)>> {
    (bytes(block) > 0).then(|| block.iter().map(|range| (range.start, range.end)).collect())
}

fn ranks(sizes: &[usize]) -> Range<usize> {
    0..sizes.iter().product()
}

fn coords(sizes: &[usize], rank: usize) -> Vec<usize> {
    let mut rest = rank;
    let mut coords: Vec<usize> = sizes
        .iter()
        .rev()
        .map(|size| (rest % size, rest /= size).0)
        .collect();
    coords.reverse();
    coords
}

fn held(sizes: &[usize], shape: &[usize], arrangement: &Arrangement, rank: usize) -> Block {
    let coords = coords(sizes, rank);
    let cut = |(dims, &size): (&Vec<usize>, &usize)| {
        dims.iter().fold(0..size, |piece, &dim| {
            crate::geometry::part(&piece, sizes[dim], coords[dim])
        })
    };
    arrangement.dims.iter().zip(shape).map(cut).collect()
}

/// The arrangement on a mesh whose dimensions are these parts of the other's.
fn refined(arrangement: &Arrangement, parts: &[Vec<usize>]) -> Arrangement {
    let list = |dims: &Vec<usize>| {
        dims.iter()
            .flat_map(|&dim| parts[dim].iter().copied())
            .collect()
    };
    Arrangement {
        dims: arrangement.dims.iter().map(list).collect(),
        partial: list(&arrangement.partial),
    }
}

/// Holds every plan on a mesh of these sizes, whose dimensions may be seen as `parts` of sizes
/// `finer`, against the shortest path.
fn check(sizes: &[usize], finer: &[usize], parts: &[Vec<usize>], shape: &[usize], partial: usize) {
    let mesh = mesh(sizes);
    let fine = World::new(finer, shape, partial * finer.len());
    let coarse = World::new(sizes, shape, partial * sizes.len());
    for step in [0, 40] {
        for (from_number, from) in coarse.states.iter().enumerate() {
            let place = |state: &State| {
                let refined = refined(&state.arrangement, parts);
                let place = fine
                    .states
                    .iter()
                    .position(|fine| fine.arrangement == refined)
                    .unwrap();
                (fine.states[place].blocks == state.blocks).then_some(place)
            };
            let whole = coarse.costs(from_number, step);
            let split = place(from).map(|from| fine.costs(from, step));
            for (to, whole) in coarse.states.iter().zip(whole) {
                let split = split.as_ref().and_then(|costs| Some(costs[place(to)?]));
                let expected = split.unwrap_or(whole);
                let (source, target) = (
                    layout(&mesh, &from.arrangement),
                    layout(&mesh, &to.arrangement),
                );
                let plan = planned(&source, &target, shape, alpha(step));
                let cost = plan.bytes() + step * plan.collectives() as u64;
                assert_eq!(
                    cost,
                    expected,
                    "{source} to {target} of {shape:?}, {step} a step:\n{}",
                    plan.explain()
                );
            }
        }
    }
}

/// Sizes so that every part holds something, and no two ways of cutting unevenly give the same
/// parts: what is recognised by blocks is then recognised by layouts as well.
fn check_shapes(
    sizes: &[usize],
    finer: &[usize],
    parts: &[Vec<usize>],
    uneven: [usize; 3],
    partial: usize,
) {
    for shape in [[8, 16, 24], uneven] {
        for axes in 1..=3 {
            check(sizes, finer, parts, &shape[..axes], partial.min(3 - axes));
        }
    }
}

#[test]
fn plans_on_a_line_of_four_cost_as_little_as_any() {
    check_shapes(&[4], &[2, 2], &[vec![0, 1]], [10, 11, 7], 1);
}

#[test]
fn plans_on_two_by_two_cost_as_little_as_any() {
    check_shapes(&[2, 2], &[2, 2], &[vec![0], vec![1]], [11, 13, 7], 1);
}

#[test]
fn plans_on_two_by_four_cost_as_little_as_any() {
    let parts = [vec![0], vec![1, 2]];
    check_shapes(&[2, 4], &[2, 2, 2], &parts, [27, 29, 43], 0);
}

#[test]
fn plans_on_two_by_two_by_two_cost_as_little_as_any() {
    let parts = [vec![0], vec![1], vec![2]];
    check_shapes(&[2, 2, 2], &[2, 2, 2], &parts, [11, 13, 21], 0);
}
