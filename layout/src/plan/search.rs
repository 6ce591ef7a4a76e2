//! The cheapest way from a layout to another, and the one that takes the least memory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::hash_map::{Entry, HashMap};
use std::hash::{BuildHasherDefault, DefaultHasher};

use super::class::Class;
use super::moves::{Move, Moves};
use super::problem::{Cost, Place, Problem};
use super::state::{AtomSet, bit};
use super::step::Collective;

/// What a path is chosen by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Aim {
    /// The least cost.
    Cost,
    /// The least cost, among paths that never take more than this many bytes on a device.
    CostWithin(u64),
    /// The least memory.
    Memory,
}

/// One step of a path that was found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) kind: Collective,
    pub(super) over: AtomSet,
    pub(super) bytes: u64,
    pub(super) from: Place,
    pub(super) to: Place,
}

/// The best path from start to goal, and its measure: a cost, or bytes of memory in place of time.
/// None, if memory does not suffice.
pub(super) fn search(problem: &Problem, aim: Aim) -> Option<(Cost, Vec<Found>)> {
    let mut search = Search::new(problem, aim);
    let start = Place {
        frame: 0,
        state: problem.start.clone(),
    };
    let block = problem.block(0, &start.state);
    let initial = match aim {
        Aim::CostWithin(bound) if block > bound => return None,
        Aim::Memory => Cost {
            fs: u128::from(block),
            ..Cost::default()
        },
        _ => Cost::default(),
    };
    search.reach(Key::At(start, None), initial, None);
    let goal = search.run()?;
    Some((search.nodes[goal].cost, search.path(goal)))
}

/// A node of the graph that is searched.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Key {
    /// A state. Where memory counts, inside a run of slices, which are made in one go: with the bytes
    /// of the block that the run began with.
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
    kind: Collective,
    over: AtomSet,
    bytes: u64,
}

struct Search<'a> {
    problem: &'a Problem,
    aim: Aim,
    nodes: Vec<Node>,
    /// Only looked up and never iterated, so its order does not matter.
    known: HashMap<Key, usize, BuildHasherDefault<DefaultHasher>>,
    /// By the least that a whole path through the node can cost.
    queue: BinaryHeap<Reverse<(Cost, usize)>>,
    /// The least cost of a path to the goal so far.
    best: Option<Cost>,
    moves: Vec<Move>,
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem, aim: Aim) -> Self {
        Self {
            problem,
            aim,
            nodes: Vec::new(),
            known: HashMap::default(),
            queue: BinaryHeap::new(),
            best: None,
            moves: Vec::new(),
        }
    }

    fn run(&mut self) -> Option<usize> {
        while let Some(Reverse((_, node))) = self.queue.pop() {
            if std::mem::replace(&mut self.nodes[node].done, true) {
                continue;
            }
            match self.nodes[node].key.clone() {
                Key::At(place, None) if self.problem.is_goal(&place) => return Some(node),
                Key::At(place, None) => self.leave(node, &place),
                Key::At(place, Some(began)) => self.slice_on(node, &place, began),
                Key::Permuting(class) => self.arrive(node, &class),
            }
        }
        None
    }

    /// All that can be done in a state.
    fn leave(&mut self, node: usize, place: &Place) {
        let block = self.problem.block(place.frame, &place.state);
        let began = (self.aim != Aim::Cost).then_some(block);
        self.slice(node, place, began);
        self.collect(node, place, block);
        let class = Class::of(self.problem, place.frame, &place.state);
        let cost = self.problem.permute_cost(block);
        self.step(
            node,
            (Key::Permuting(Box::new(class)), None),
            cost,
            2 * block,
        );
        let goal_frame = self.problem.goal_frame();
        if place.frame != goal_frame && place.state.is_replicated() {
            let same = Place {
                frame: goal_frame,
                ..place.clone()
            };
            self.step(node, (Key::At(same, None), None), Cost::default(), block);
        }
    }

    /// One more slice of a run, or its end, which is when memory is counted.
    fn slice_on(&mut self, node: usize, place: &Place, began: u64) {
        self.slice(node, place, Some(began));
        let memory = began + self.problem.block(place.frame, &place.state);
        self.step(
            node,
            (Key::At(place.clone(), None), None),
            Cost::default(),
            memory,
        );
    }

    fn slice(&mut self, node: usize, place: &Place, began: Option<u64>) {
        let mut moves = std::mem::take(&mut self.moves);
        Moves::slices(self.problem, place, &mut moves);
        for found in moves.drain(..) {
            self.go(node, (place.frame, found), began, (Cost::free(), 0));
        }
        self.moves = moves;
    }

    /// Everything but slices and permutations.
    fn collect(&mut self, node: usize, place: &Place, block: u64) {
        let mut moves = std::mem::take(&mut self.moves);
        Moves::others(self.problem, place, &mut moves);
        for found in moves.drain(..) {
            let cost = match found.kind {
                Collective::MakePartial => Cost::free(),
                _ => self.problem.cost(place.frame, found.over, found.bytes),
            };
            let memory = block + self.problem.block(place.frame, &found.to);
            self.go(node, (place.frame, found), None, (cost, memory));
        }
        self.moves = moves;
    }

    /// Every state that a permutation leads to. The first node to come here came with the least cost,
    /// so this happens once a class.
    fn arrive(&mut self, node: usize, class: &Class) {
        for (number, frame) in (0..).zip(&self.problem.frames) {
            for state in class.states(self.problem, frame) {
                let place = Place {
                    frame: number,
                    state,
                };
                self.step(node, (Key::At(place, None), None), Cost::default(), 0);
            }
        }
    }

    fn go(
        &mut self,
        node: usize,
        (frame, found): (u8, Move),
        began: Option<u64>,
        (cost, memory): (Cost, u64),
    ) {
        let Move {
            kind,
            over,
            bytes,
            to,
        } = found;
        let place = Place { frame, state: to };
        let taken = Taken { kind, over, bytes };
        self.step(node, (Key::At(place, began), Some(taken)), cost, memory);
    }

    /// Takes note of a step from a node, which costs this and takes this many bytes of memory.
    fn step(&mut self, from: usize, (to, taken): (Key, Option<Taken>), cost: Cost, memory: u64) {
        let before = self.nodes[from].cost;
        let total = match self.aim {
            Aim::CostWithin(bound) if memory > bound => return,
            Aim::Cost | Aim::CostWithin(_) => before.and(cost),
            Aim::Memory => Cost {
                fs: before.fs.max(u128::from(memory)),
                ..before.and(cost)
            },
        };
        self.reach(to, total, Some((from, taken)));
    }

    fn reach(&mut self, key: Key, cost: Cost, before: Option<(usize, Option<Taken>)>) {
        let least = match (&key, self.aim) {
            (_, Aim::Memory) => cost,
            (Key::At(place, _), _) => cost.and(self.problem.bound(place)),
            (Key::Permuting(class), _) => cost.and(class.bound(self.problem)),
        };
        if self.best.is_some_and(|best| best <= least) {
            return;
        }
        if matches!(&key, Key::At(place, None) if self.problem.is_goal(place)) {
            self.best = Some(cost);
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
        self.queue.push(Reverse((least, number)));
    }

    /// The steps to a node, first to last.
    fn path(&self, goal: usize) -> Vec<Found> {
        let mut path = Vec::new();
        let mut node = goal;
        while let Some((before, taken)) = &self.nodes[node].before {
            if let Some(step) = self.found(*before, node, taken.as_ref()) {
                path.push(step);
            }
            node = *before;
        }
        path.reverse();
        path
    }

    /// The step between two nodes, if it is one: to arrive from a permutation is one, to begin it or
    /// to end a run of slices is none.
    fn found(&self, before: usize, node: usize, taken: Option<&Taken>) -> Option<Found> {
        let (Key::At(to, _), before) = (&self.nodes[node].key, &self.nodes[before]) else {
            return None;
        };
        match (&before.key, taken) {
            (Key::At(from, _), Some(taken)) => Some(Found {
                kind: taken.kind,
                over: taken.over,
                bytes: taken.bytes,
                from: from.clone(),
                to: to.clone(),
            }),
            (Key::Permuting(_), _) => {
                let (begin, _) = before.before.as_ref()?;
                let Key::At(from, _) = &self.nodes[*begin].key else {
                    return None;
                };
                Some(Found {
                    kind: Collective::Permute,
                    over: moved(self.problem, from, to),
                    bytes: self.problem.block(from.frame, &from.state),
                    from: from.clone(),
                    to: to.clone(),
                })
            }
            _ => None,
        }
    }
}

/// The atoms of the source along which a permutation moves blocks: those that do not cut as before.
fn moved(problem: &Problem, from: &Place, to: &Place) -> AtomSet {
    if from.frame != to.frame {
        return problem.frame(from.frame).all();
    }
    let differing = |(from, to): (&[u8], &[u8])| {
        let same = from
            .iter()
            .zip(to)
            .take_while(|(from, to)| from == to)
            .count();
        let rest = from[same..].iter().chain(&to[same..]);
        rest.fold(0, |set, &atom| set | bit(atom))
    };
    let cut = from.state.dims().zip(to.state.dims()).map(differing);
    cut.fold(from.state.partial() ^ to.state.partial(), |set, atoms| {
        set | atoms
    })
}
