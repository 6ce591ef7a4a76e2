//! Who gives which part of its block to whom, in one go, as one client sees it.

use std::collections::{BTreeMap, HashMap};

use meshwork_core::Rank;
use meshwork_layout::{Reduction, Shape};

use super::runs::Runs;
use crate::context::Homes;

/// A part of the block of one rank, and where it lies in the new block of another.
#[derive(Clone, Debug)]
pub(super) struct Move {
    /// The rank of the source's mesh that has it.
    pub(super) from: Rank,
    /// How many elements it has in all.
    pub(super) held: usize,
    pub(super) source: Runs,
    pub(super) target: Runs,
}

/// What a rank's new block is to be made of, by the ranks that have it.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) rank: Rank,
    pub(super) shape: Shape,
    /// Which block it is: those of one client that are the same are made once. None where nobody knows.
    pub(super) is: Option<Key>,
    pub(super) made: Made,
}

/// A block by its bounds, and which term of its elements it is.
pub(super) type Key = (Vec<usize>, usize);

/// How a block is made of parts of others.
#[derive(Clone, Debug)]
pub(super) enum Made {
    /// Of parts beside one another; what none of them covers is what changes nothing in a reduction.
    Joined(Vec<Move>, Option<Reduction>),
    /// As the reduction of parts that are as large as the block; of none where it is empty.
    Reduced(Vec<Move>, Reduction),
}

/// One go.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    /// For each place of this client its new block.
    pub(crate) targets: Vec<Target>,
    /// For each client the parcels that it gets from here, in order. What goes to all alike is listed
    /// once, for this client itself.
    pub(crate) sent: Vec<Vec<Taken>>,
    /// For each client the parcels that come from there, in order; those for all from here as well.
    pub(crate) received: Vec<Vec<Parcel>>,
    pub(crate) traffic: Traffic,
}

/// What goes on between all clients, and is known to each of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic {
    /// Whether any client sends anything to another.
    pub(crate) crosses: bool,
    /// Whether each client sends the same to all others, of which there are several.
    pub(crate) is_gather: bool,
    /// The elements of the longest parcel, or of the longest block that is reduced.
    pub(crate) longest: usize,
    /// The most parcels that any client has, those that it sends and those that it receives.
    pub(crate) parcels: usize,
}

/// The new block of a rank.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) shape: Shape,
    pub(crate) make: Make,
}

impl Target {
    /// The elements for which it needs memory.
    pub(crate) fn fresh(&self) -> usize {
        match self.make {
            Make::Kept(_) | Make::Shared(_) => 0,
            Make::Joined(..) | Make::Reduced(..) => self.shape.iter().product(),
        }
    }
}

/// What a new block is made of, here.
#[derive(Clone, Debug)]
pub(crate) enum Make {
    /// The block at this place as it is.
    Kept(usize),
    /// The new block at this place, which is the same, and made of others.
    Shared(usize),
    /// These parts of blocks here, and those of parcels that are for it; elsewhere what changes
    /// nothing in this reduction.
    Joined(Vec<(Taken, Runs)>, Option<Reduction>),
    /// The reduction of these.
    Reduced(Vec<Source>, Reduction),
}

/// A part of the block at a place of this client.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) place: usize,
    pub(crate) runs: Runs,
}

/// Where a term comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Here(Taken),
    /// The parcel of this number from this client.
    There(usize, usize),
}

/// What comes from another client.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    /// How many elements.
    pub(crate) len: usize,
    /// The places whose new blocks it is a part of, and where it lies in them.
    pub(crate) uses: Vec<(usize, Runs)>,
}

impl Exchange {
    /// What client `own` of `clients` does so that all wishes come true. Every client has to be told
    /// the same wishes, in the same order.
    pub(super) fn of(wishes: &[Wish], homes: &Homes, (own, clients): (usize, usize)) -> Self {
        let mut sorting = Sorting {
            homes,
            own,
            parcels: Parcels::default(),
            received: vec![Vec::new(); clients],
        };
        let mut targets: Vec<Option<Target>> = vec![None; homes.local().len()];
        let mut longest = 0;
        let mut first: HashMap<(usize, &Key), Make> = HashMap::new();
        for wish in wishes {
            let home = homes.of_rank(wish.rank);
            let is = wish.is.as_ref().map(|is| (home.client, is));
            let known = is.and_then(|is| first.get(&is).cloned());
            let make = match (sorting.kept(wish), known) {
                (Some(place), _) => Make::Kept(place),
                (None, Some(known)) => known,
                (None, None) => sorting.make(wish),
            };
            let again = match make {
                Make::Kept(place) => Make::Kept(place),
                Make::Shared(_) | Make::Joined(..) | Make::Reduced(..) => Make::Shared(home.place),
            };
            if let Some(is) = is {
                first.entry(is).or_insert(again);
            }
            if let Made::Reduced(..) = wish.made {
                longest = longest.max(wish.shape.iter().product());
            }
            if let (true, Some(target)) = (home.client == own, targets.get_mut(home.place)) {
                let shape = wish.shape.clone();
                *target = Some(Target { shape, make });
            }
        }
        let traffic = sorting.parcels.traffic(clients, longest);
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
        let unused = |taken: &Taken| Parcel {
            len: taken.runs.count(),
            uses: Vec::new(),
        };
        self.received[own] = list.iter().map(unused).collect();
        self.sent[own] = list;
    }
}

struct Sorting<'a> {
    homes: &'a Homes,
    own: usize,
    parcels: Parcels<'a>,
    received: Vec<Vec<Parcel>>,
}

impl<'a> Sorting<'a> {
    /// What a block is made of, as the client sees it that has it; others look at the parcels only.
    fn make(&mut self, wish: &'a Wish) -> Make {
        let home = self.homes.of_rank(wish.rank);
        match &wish.made {
            Made::Joined(moves, fill) => {
                let mut parts = Vec::new();
                for part in moves {
                    match self.source(home.client, part) {
                        Source::Here(taken) => parts.push((taken, part.target.clone())),
                        Source::There(from, number) if home.client == self.own => {
                            let uses = &mut self.received[from][number].uses;
                            uses.push((home.place, part.target.clone()));
                        }
                        Source::There(..) => {}
                    }
                }
                Make::Joined(parts, *fill)
            }
            Made::Reduced(moves, reduction) => {
                let terms = moves.iter().map(|part| self.source(home.client, part));
                Make::Reduced(terms.collect(), *reduction)
            }
        }
    }

    /// Where a part is for this client. What it needs several times it gets once.
    fn source(&mut self, to: usize, part: &'a Move) -> Source {
        let home = self.homes.of_rank(part.from);
        if home.client == to {
            let (place, runs) = (home.place, part.source.clone());
            return Source::Here(Taken { place, runs });
        }
        let number = self.parcels.number((home.client, to), part);
        if to == self.own && number == self.received[home.client].len() {
            let (len, uses) = (part.source.count(), Vec::new());
            self.received[home.client].push(Parcel { len, uses });
        }
        Source::There(home.client, number)
    }

    /// The place of the same client whose block a new one is as a whole.
    fn kept(&self, wish: &Wish) -> Option<usize> {
        let Made::Joined(moves, _) = &wish.made else {
            return None;
        };
        let [part] = moves.as_slice() else {
            return None;
        };
        let (from, to) = (self.homes.of_rank(part.from), self.homes.of_rank(wish.rank));
        let all = Runs::span(0..part.held);
        let is_whole = part.source == all && part.target == all;
        let is_all = is_whole && part.held == wish.shape.iter().product::<usize>();
        (is_all && from.client == to.client).then_some(from.place)
    }

    fn sent(&self, clients: usize) -> Vec<Vec<Taken>> {
        let taken = |(from, runs): &(Rank, &Runs)| Taken {
            place: self.homes.of_rank(*from).place,
            runs: (*runs).clone(),
        };
        (0..clients)
            .map(|to| {
                self.parcels
                    .between(self.own, to)
                    .iter()
                    .map(taken)
                    .collect()
            })
            .collect()
    }
}

/// All parcels, of all clients.
#[derive(Default)]
struct Parcels<'a> {
    /// Those from one client to another, in order: the rank they are from, and its part.
    lists: BTreeMap<(usize, usize), Vec<(Rank, &'a Runs)>>,
    numbers: HashMap<(usize, Rank, &'a Runs), usize>,
}

impl<'a> Parcels<'a> {
    /// The number of the parcel with this part, a new one if there is none.
    fn number(&mut self, (from, to): (usize, usize), part: &'a Move) -> usize {
        let list = self.lists.entry((from, to)).or_default();
        let key = (to, part.from, &part.source);
        *self.numbers.entry(key).or_insert_with(|| {
            list.push((part.from, &part.source));
            list.len() - 1
        })
    }

    fn between(&self, from: usize, to: usize) -> &[(Rank, &'a Runs)] {
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
            parcels: (0..clients).map(count).max().unwrap_or_default(),
        }
    }
}
