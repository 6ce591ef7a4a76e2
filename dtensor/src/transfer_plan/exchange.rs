//! Who gives which part of its block to whom, in one go, as one client sees it.

use std::collections::{BTreeMap, HashMap};

use meshwork_core::MeshRank;
use meshwork_layout::{PartialReduction, Shape};

use super::runs::Runs;
use crate::device_placement::DevicePlacement;

/// A part of the block of one rank, and its place in the new block of another.
#[derive(Clone, Debug)]
pub(super) struct Move {
    /// The rank of the source's mesh that has it.
    pub(super) from: MeshRank,
    /// How many elements it has in all.
    pub(super) held: usize,
    pub(super) source: Runs,
    pub(super) target: Runs,
}

/// The regions of which a rank's new block is made, by the ranks that have them.
#[derive(Clone, Debug)]
pub(super) struct BlockSpec {
    pub(super) rank: MeshRank,
    pub(super) shape: Shape,
    /// Which block it is: those of one client that are the same are made once. None where nobody
    /// knows.
    pub(super) is: Option<Key>,
    pub(super) made: BlockParts,
}

/// A block by its bounds, and which term of its elements it is.
pub(super) type Key = (Vec<usize>, usize);

/// How a block is made of parts of others.
#[derive(Clone, Debug)]
pub(super) enum BlockParts {
    /// Of parts beside one another; what none of them covers is what changes nothing in a
    /// reduction.
    Joined(Vec<Move>, Option<PartialReduction>),
    /// As the reduction of parts that are as large as the block; of none where it is empty.
    Reduced(Vec<Move>, PartialReduction),
}

/// One go.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    /// For each place of this client its new block.
    pub(crate) targets: Vec<Target>,
    /// For each client the messages that it gets from here, in order. What goes to all alike is
    /// listed once, for this client itself.
    pub(crate) sent: Vec<Vec<LocalPart>>,
    /// For each client the messages that come from there, in order; those for all from here as
    /// well.
    pub(crate) received: Vec<Vec<Message>>,
    pub(crate) traffic: Traffic,
}

/// The messages between all clients, as each of them knows them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic {
    /// Whether any client sends anything to another.
    pub(crate) crosses: bool,
    /// Whether each client sends the same to all others, of which there are several.
    pub(crate) is_gather: bool,
    /// The elements of the longest message, or of the longest block that is reduced.
    pub(crate) longest: usize,
    /// The most messages that any client has, those that it sends and those that it receives.
    pub(crate) messages: usize,
}

/// The new block of a rank.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) shape: Shape,
    pub(crate) source: BlockSource,
}

impl Target {
    /// The elements for which it needs memory.
    pub(crate) fn fresh(&self) -> usize {
        match self.source {
            BlockSource::Kept(_) | BlockSource::Shared(_) => 0,
            BlockSource::Joined(..) | BlockSource::Reduced(..) => self.shape.iter().product(),
        }
    }
}

/// The source of a new block on this client.
#[derive(Clone, Debug)]
pub(crate) enum BlockSource {
    /// The block at this place as it is.
    Kept(usize),
    /// The new block at this place, which is the same, and made of others.
    Shared(usize),
    /// These parts of blocks here, and those of messages that are for it; elsewhere what changes
    /// nothing in this reduction.
    Joined(Vec<(LocalPart, Runs)>, Option<PartialReduction>),
    /// The reduction of these.
    Reduced(Vec<TermSource>, PartialReduction),
}

/// A part of the block at a place of this client.
#[derive(Clone, Debug)]
pub(crate) struct LocalPart {
    pub(crate) place: usize,
    pub(crate) runs: Runs,
}

/// Where a term comes from.
#[derive(Clone, Debug)]
pub(crate) enum TermSource {
    Here(LocalPart),
    /// The message of this number from this client.
    There(usize, usize),
}

/// A message from another client.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// How many elements.
    pub(crate) len: usize,
    /// The places whose new blocks it is a part of, and its place in them.
    pub(crate) uses: Vec<(usize, Runs)>,
}

impl Exchange {
    /// The part of client `own` of `clients` in meeting all block specs. Every client has to be
    /// given the same block specs, in the same order.
    pub(super) fn of(
        block_specs: &[BlockSpec],
        device_placement: &DevicePlacement,
        own: usize,
        clients: usize,
    ) -> Self {
        let mut sorting = Sorting {
            device_placement,
            own,
            messages: Messages::default(),
            received: vec![Vec::new(); clients],
        };
        let mut targets: Vec<Option<Target>> = vec![None; device_placement.local().len()];
        let mut longest = 0;
        let mut first: HashMap<(usize, &Key), BlockSource> = HashMap::new();
        for block_spec in block_specs {
            let home = device_placement.of_rank(block_spec.rank);
            let is = block_spec.is.as_ref().map(|is| (home.client, is));
            let known = is.and_then(|is| first.get(&is).cloned());
            let source = match (sorting.kept(block_spec), known) {
                (Some(place), _) => BlockSource::Kept(place),
                (None, Some(known)) => known,
                (None, None) => sorting.source_of(block_spec),
            };
            let again = match source {
                BlockSource::Kept(place) => BlockSource::Kept(place),
                BlockSource::Shared(_) | BlockSource::Joined(..) | BlockSource::Reduced(..) => {
                    BlockSource::Shared(home.place)
                }
            };
            if let Some(is) = is {
                first.entry(is).or_insert(again);
            }
            if let BlockParts::Reduced(..) = block_spec.made {
                longest = longest.max(block_spec.shape.iter().product());
            }
            if let (true, Some(target)) = (home.client == own, targets.get_mut(home.place)) {
                let shape = block_spec.shape.clone();
                *target = Some(Target { shape, source });
            }
        }
        let traffic = sorting.messages.traffic(clients, longest);
        let mut exchange = Self {
            targets: targets.into_iter().flatten().collect(),
            sent: sorting.sent(clients),
            received: sorting.received,
            traffic,
        };
        if exchange.traffic.is_gather {
            exchange.send_once(own);
        }
        exchange
    }

    /// Lists what goes to all alike once.
    fn send_once(&mut self, own: usize) {
        let any_other = usize::from(own == 0);
        let list = std::mem::take(&mut self.sent[any_other]);
        self.sent.iter_mut().for_each(Vec::clear);
        let unused = |taken: &LocalPart| Message {
            len: taken.runs.count(),
            uses: Vec::new(),
        };
        self.received[own] = list.iter().map(unused).collect();
        self.sent[own] = list;
    }
}

struct Sorting<'a> {
    device_placement: &'a DevicePlacement,
    own: usize,
    messages: Messages<'a>,
    received: Vec<Vec<Message>>,
}

impl<'a> Sorting<'a> {
    /// The source of a block on the client that gets it; the others look at the messages only.
    fn source_of(&mut self, block_spec: &'a BlockSpec) -> BlockSource {
        let home = self.device_placement.of_rank(block_spec.rank);
        match &block_spec.made {
            BlockParts::Joined(moves, fill) => {
                let mut parts = Vec::new();
                for part in moves {
                    match self.source(home.client, part) {
                        TermSource::Here(taken) => parts.push((taken, part.target.clone())),
                        TermSource::There(from, number) if home.client == self.own => {
                            let uses = &mut self.received[from][number].uses;
                            uses.push((home.place, part.target.clone()));
                        }
                        TermSource::There(..) => {}
                    }
                }
                BlockSource::Joined(parts, *fill)
            }
            BlockParts::Reduced(moves, reduction) => {
                let terms = moves.iter().map(|part| self.source(home.client, part));
                BlockSource::Reduced(terms.collect(), *reduction)
            }
        }
    }

    /// Where a part is for this client. What it needs several times it gets once.
    fn source(&mut self, to: usize, part: &'a Move) -> TermSource {
        let home = self.device_placement.of_rank(part.from);
        if home.client == to {
            let (place, runs) = (home.place, part.source.clone());
            return TermSource::Here(LocalPart { place, runs });
        }
        let number = self.messages.number(home.client, to, part);
        if to == self.own && number == self.received[home.client].len() {
            let (len, uses) = (part.source.count(), Vec::new());
            self.received[home.client].push(Message { len, uses });
        }
        TermSource::There(home.client, number)
    }

    /// The place of the same client whose block a new one is as a whole.
    fn kept(&self, block_spec: &BlockSpec) -> Option<usize> {
        let BlockParts::Joined(moves, _) = &block_spec.made else {
            return None;
        };
        let [part] = moves.as_slice() else {
            return None;
        };
        let (from, to) = (
            self.device_placement.of_rank(part.from),
            self.device_placement.of_rank(block_spec.rank),
        );
        let all = Runs::span(0..part.held);
        let is_whole = part.source == all && part.target == all;
        let is_all = is_whole && part.held == block_spec.shape.iter().product::<usize>();
        (is_all && from.client == to.client).then_some(from.place)
    }

    fn sent(&self, clients: usize) -> Vec<Vec<LocalPart>> {
        let taken = |(from, runs): &(MeshRank, &Runs)| LocalPart {
            place: self.device_placement.of_rank(*from).place,
            runs: (*runs).clone(),
        };
        (0..clients)
            .map(|to| {
                self.messages
                    .between(self.own, to)
                    .iter()
                    .map(taken)
                    .collect()
            })
            .collect()
    }
}

/// All messages, of all clients.
#[derive(Default)]
struct Messages<'a> {
    /// Those from one client to another, in order: the rank they are from, and its part.
    lists: BTreeMap<(usize, usize), Vec<(MeshRank, &'a Runs)>>,
    numbers: HashMap<(usize, MeshRank, &'a Runs), usize>,
}

impl<'a> Messages<'a> {
    /// The number of the message with this part, a new one if there is none.
    fn number(&mut self, from: usize, to: usize, part: &'a Move) -> usize {
        let list = self.lists.entry((from, to)).or_default();
        let key = (to, part.from, &part.source);
        *self.numbers.entry(key).or_insert_with(|| {
            list.push((part.from, &part.source));
            list.len() - 1
        })
    }

    fn between(&self, from: usize, to: usize) -> &[(MeshRank, &'a Runs)] {
        self.lists.get(&(from, to)).map_or(&[], Vec::as_slice)
    }

    fn traffic(&self, clients: usize, longest_reduced: usize) -> Traffic {
        let all = self.lists.values().flatten();
        let longest = all
            .map(|(_, runs)| runs.count())
            .fold(longest_reduced, usize::max);
        let others = |own: usize| (0..clients).filter(move |other| *other != own);
        let is_alike = |own: usize| {
            let mut lists = others(own).map(|to| self.between(own, to));
            let first = lists.next();
            lists.all(|list| Some(list) == first)
        };
        let is_gather = clients > 2 && (0..clients).all(is_alike);
        let count = |own: usize| -> usize {
            let received: usize = others(own).map(|from| self.between(from, own).len()).sum();
            let mut sent = others(own).map(|to| self.between(own, to).len());
            received
                + match is_gather {
                    true => 2 * sent.next().unwrap_or_default(),
                    false => sent.sum(),
                }
        };
        Traffic {
            crosses: !self.lists.is_empty(),
            is_gather,
            longest,
            messages: (0..clients).map(count).max().unwrap_or_default(),
        }
    }
}
