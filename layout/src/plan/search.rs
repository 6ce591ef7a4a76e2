//! The cheapest way from a layout to another, and the one that takes the least memory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::hash_map::{Entry, HashMap};
use std::hash::{BuildHasherDefault, DefaultHasher};

use super::class::Class;
use super::moves::{Limit, Move, Moves};
use super::path::{Found, Path, permuted};
use super::problem::{Cost, Place, Problem};
use super::state::SubAxisSet;
use super::step::StepKind;

/// The criterion by which a path is chosen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Aim {
    /// The least cost.
    Cost,
    /// The least cost, among paths that never take more than this many bytes on a device.
    CostWithin(u64),
    /// The least memory.
    Memory,
}

impl Aim {
    /// What paths are compared by.
    pub(super) fn measure(self, problem: &Problem, path: &Path) -> Cost {
        match self {
            Self::Memory => Cost {
                fs: u128::from(path.peak(problem)),
                ..path.cost
            },
            Self::Cost | Self::CostWithin(_) => path.cost,
        }
    }

    fn admits(self, problem: &Problem, path: &Path) -> bool {
        match self {
            Self::CostWithin(bound) => path.peak(problem) <= bound,
            Self::Cost | Self::Memory => true,
        }
    }
}

/// The best path from start to goal that is found by looking at this many moves, and whether the
/// search came to its end: then there is none that is better.
pub(super) fn search(problem: &Problem, aim: Aim, effort: u64) -> (Option<Path>, bool) {
    let known = [Some(Path::through_whole(problem)), Path::exchange(problem)];
    let known = known.into_iter().flatten();
    let known = known
        .filter(|path| aim.admits(problem, path))
        .min_by_key(|path| aim.measure(problem, path));
    // A first search takes the bound for much too low and so runs straight to some goal. What it
    // finds is often the best already, and spares the second most of what it would look at.
    let known = if aim != Aim::Memory && problem.has_bounds() {
        let search = Search::new(problem, aim, known.as_ref(), effort);
        let (rough, _) = search.hurried().run();
        rough.or(known)
    } else {
        known
    };
    let (better, finished) = Search::new(problem, aim, known.as_ref(), effort).run();
    (better.or(known), finished)
}

/// A node of the graph that is searched.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Key {
    /// A state. Where memory counts, inside a run of slices, which are made in one go: with the
    /// bytes of the block that the run began with.
    At(Place, Option<u64>),
    /// On the way from a state to any other of its class, so that no two states have to be linked.
    Permuting(Box<Class>),
}

#[derive(Debug)]
struct Node {
    key: Key,
    cost: Cost,
    before: Option<(usize, Option<Taken>)>,
    done: bool,
}

/// A move that led to a node.
#[derive(Clone, Copy, Debug)]
struct Taken {
    kind: StepKind,
    over: SubAxisSet,
    bytes: u64,
}

/// A way from a node to another.
struct Edge {
    to: Key,
    taken: Option<Taken>,
    cost: Cost,
    /// The memory of a device during the step.
    memory: u64,
    /// A cost that no path from there can beat.
    bound: Cost,
}

impl Edge {
    /// A move in a frame; `began` is what a device held before the run of slices that it goes on
    /// with.
    fn taking(found: Move, frame: u8, began: Option<u64>, memory: u64) -> Self {
        let Move {
            kind,
            over,
            bytes,
            cost,
            to: state,
            bound,
            ..
        } = found;
        Self {
            to: Key::At(Place { frame, state }, began),
            taken: Some(Taken { kind, over, bytes }),
            cost,
            memory,
            bound,
        }
    }
}

struct Search<'a> {
    problem: &'a Problem,
    aim: Aim,
    nodes: Vec<Node>,
    /// Only looked up and never iterated, so its order does not matter.
    known: HashMap<Key, usize, BuildHasherDefault<DefaultHasher>>,
    /// By the least that a whole path through the node can cost.
    queue: BinaryHeap<Reverse<(Cost, usize)>>,
    limit: Limit,
    /// The factor of the lower bound.
    hurry: u32,
}

impl<'a> Search<'a> {
    /// A search for what is better than a known path.
    fn new(problem: &'a Problem, aim: Aim, known: Option<&Path>, effort: u64) -> Self {
        Self {
            problem,
            aim,
            nodes: Vec::new(),
            known: HashMap::default(),
            queue: BinaryHeap::new(),
            limit: Limit {
                spent: Cost::default(),
                best: known.map(|path| aim.measure(problem, path)),
                effort,
            },
            hurry: 1,
        }
    }

    fn hurried(mut self) -> Self {
        self.limit.effort /= 20;
        self.hurry = 4;
        self
    }

    /// The best path that is found, if it is better than what is known, and whether the search came
    /// to its end.
    fn run(mut self) -> (Option<Path>, bool) {
        self.begin();
        while self.limit.effort > 0
            && let Some(Reverse((_, node))) = self.queue.pop()
        {
            if std::mem::replace(&mut self.nodes[node].done, true) {
                continue;
            }
            self.limit.spent = self.nodes[node].cost;
            match self.nodes[node].key.clone() {
                Key::At(place, None) if self.problem.is_goal(&place) => break,
                Key::At(place, None) => self.leave(node, &place),
                Key::At(place, Some(began)) => self.slice_on(node, &place, began),
                Key::Permuting(class) => self.arrive(node, &class),
            }
        }
        let goal = self.known.get(&Key::At(self.problem.goal_place(), None));
        (goal.map(|&goal| self.path(goal)), self.limit.effort > 0)
    }

    fn begin(&mut self) {
        let state = self.problem.start.clone();
        let block = self.problem.block(0, &state);
        let (cost, fits) = match self.aim {
            Aim::Cost => (Cost::default(), true),
            Aim::CostWithin(bound) => (Cost::default(), block <= bound),
            Aim::Memory => (
                Cost {
                    fs: u128::from(block),
                    ..Cost::default()
                },
                true,
            ),
        };
        if fits {
            let start = Place { frame: 0, state };
            let bound = self.problem.bound(&start);
            self.reach(Key::At(start, None), cost, None, bound);
        }
    }

    /// All that can be done in a state.
    fn leave(&mut self, node: usize, place: &Place) {
        let block = self.problem.block(place.frame, &place.state);
        let began = (self.aim != Aim::Cost).then_some(block);
        self.slice(node, place, began);
        let mut limit = self.limit();
        for found in Moves::others(self.problem, place, &mut limit) {
            let memory = block + found.block;
            self.step(node, Edge::taking(found, place.frame, None, memory));
        }
        self.limit.effort = limit.effort;
        let class = Class::of(self.problem, place.frame, &place.state);
        let bound = class.bound(self.problem);
        self.step(
            node,
            Edge {
                to: Key::Permuting(Box::new(class)),
                taken: None,
                cost: self.problem.permute_cost(block),
                memory: 2 * block,
                bound,
            },
        );
        let goal_frame = self.problem.goal_frame();
        if place.frame != goal_frame && place.state.is_replicated() {
            let same = Place {
                frame: goal_frame,
                ..place.clone()
            };
            self.enter(node, same, block);
        }
    }

    /// One more slice of a run, or its end, which is when memory is counted.
    fn slice_on(&mut self, node: usize, place: &Place, began: u64) {
        self.slice(node, place, Some(began));
        let memory = began + self.problem.block(place.frame, &place.state);
        self.enter(node, place.clone(), memory);
    }

    fn slice(&mut self, node: usize, place: &Place, began: Option<u64>) {
        let mut limit = self.limit();
        for found in Moves::slices(self.problem, place, &mut limit) {
            self.step(node, Edge::taking(found, place.frame, began, 0));
        }
        self.limit.effort = limit.effort;
    }

    /// Every state that a permutation leads to. The first node to come here came with the least
    /// cost, so this happens once a class.
    fn arrive(&mut self, node: usize, class: &Class) {
        let (problem, goal) = (self.problem, self.problem.goal_place());
        if Class::of(problem, goal.frame, &goal.state) == *class {
            // To the goal from any other of its states is further than at once.
            return self.enter(node, goal, 0);
        }
        for (number, frame) in (0..).zip(&problem.frames) {
            for state in class.states(problem, frame, &mut self.limit.effort) {
                self.enter(
                    node,
                    Place {
                        frame: number,
                        state,
                    },
                    0,
                );
            }
        }
    }

    /// To a state, for nothing.
    fn enter(&mut self, node: usize, place: Place, memory: u64) {
        let bound = self.problem.bound(&place);
        let cost = Cost::default();
        self.step(
            node,
            Edge {
                to: Key::At(place, None),
                taken: None,
                cost,
                memory,
                bound,
            },
        );
    }

    fn step(&mut self, from: usize, edge: Edge) {
        let before = self.nodes[from].cost;
        let total = match self.aim {
            Aim::CostWithin(bound) if edge.memory > bound => return,
            Aim::Cost | Aim::CostWithin(_) => before.and(edge.cost),
            Aim::Memory => Cost {
                fs: before.fs.max(u128::from(edge.memory)),
                ..before.and(edge.cost)
            },
        };
        self.reach(edge.to, total, Some((from, edge.taken)), edge.bound);
    }

    /// Takes note of a way to a node.
    fn reach(&mut self, key: Key, cost: Cost, before: Option<(usize, Option<Taken>)>, bound: Cost) {
        let bound = if self.aim == Aim::Memory {
            Cost::default()
        } else {
            bound
        };
        if self.limit.best.is_some_and(|best| best <= cost.and(bound)) {
            return;
        }
        if matches!(&key, Key::At(place, None) if self.problem.is_goal(place)) {
            self.limit.best = Some(cost);
        }
        let number = match self.known.entry(key) {
            Entry::Occupied(known) => {
                let number = *known.get();
                let node = &mut self.nodes[number];
                if node.cost <= cost || node.done {
                    return;
                }
                (node.cost, node.before) = (cost, before);
                number
            }
            Entry::Vacant(free) => {
                let key = free.key().clone();
                free.insert(self.nodes.len());
                self.nodes.push(Node {
                    key,
                    cost,
                    before,
                    done: false,
                });
                self.nodes.len() - 1
            }
        };
        self.queue
            .push(Reverse((cost.and(bound.times(self.hurry)), number)));
    }

    /// The limit for moves from a state; memory is not what their costs are compared in.
    fn limit(&self) -> Limit {
        let best = self.limit.best.filter(|_| self.aim != Aim::Memory);
        Limit {
            best,
            ..self.limit.clone()
        }
    }

    /// The path to a node.
    fn path(&self, goal: usize) -> Path {
        let mut steps = Vec::new();
        let mut node = goal;
        while let Some((before, taken)) = self.nodes[node].before {
            steps.extend(self.found(before, node, taken));
            node = before;
        }
        steps.reverse();
        Path::of(self.problem, steps)
    }

    /// The step between two nodes, if it is one: to arrive from a permutation is one, to begin it
    /// or to end a run of slices is none.
    fn found(&self, before: usize, node: usize, taken: Option<Taken>) -> Option<Found> {
        let Key::At(to, _) = &self.nodes[node].key else {
            return None;
        };
        match (&self.nodes[before].key, taken) {
            (Key::At(from, _), Some(Taken { kind, over, bytes })) => {
                let (from, to) = (from.clone(), to.clone());
                Some(Found {
                    kind,
                    over,
                    bytes,
                    from,
                    to,
                })
            }
            (Key::Permuting(_), _) => {
                let (begin, _) = self.nodes[before].before?;
                match &self.nodes[begin].key {
                    Key::At(from, _) => Some(permuted(self.problem, from, to)),
                    Key::Permuting(_) => None,
                }
            }
            (Key::At(..), None) => None,
        }
    }
}

/// How many moves a search looks at before it gives up: less than a second's work.
pub(super) const EFFORT: u64 = 4_000_000;
