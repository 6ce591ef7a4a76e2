//! Relayouts as nodes of a graph: each step of a plan as the collective that it is, among all
//! devices at once. Shards are of one size, or there is no such graph.
//!
//! What a collective does to the blocks of a group as rows of elements is made to be what the step
//! does to their axes: axes are put in other places before it and behind it.

use meshwork_accel::{Arrangement, Element, GraphOp, Groups, PerDevice, Region};
use meshwork_core::MeshRank;
use meshwork_layout::{MeshPlacement, Plan, PlanStep, Ranges, Shape, StepKind};

use super::rounds::operation;
use crate::backend::{Backend, DeviceBlocks, Recorder};
use crate::device_placement::DevicePlacement;
use crate::transfer_plan::{permutation, region};
use crate::{Error, Scalar};

/// Carries out a plan on values of a graph, and returns those of the target and their sizes; none
/// where there is no such graph: shards differ in size, or others than these devices are in it.
pub(crate) fn record<T: Scalar>(
    plan: &Plan,
    [from, to]: [&DevicePlacement; 2],
    backend: &Backend,
    blocks: &DeviceBlocks,
) -> Result<Option<(Vec<Shape>, DeviceBlocks)>, Error> {
    let Some(recorder) = backend.recorder() else {
        return Ok(None);
    };
    let ranks = plan.from().mesh().size();
    if from.local().len() != ranks || to.local().len() != ranks {
        return Ok(None);
    }
    let places = to.local().iter().enumerate();
    for (place, rank) in places {
        if from.of_rank(plan.source_rank(*rank)?).place != place {
            return Ok(None);
        }
    }
    let mut held = blocks.clone();
    for step in plan.steps() {
        let Some(drawn) = Drawn::of(plan, step, from)? else {
            return Ok(None);
        };
        let graph = Within {
            recorder,
            backend,
            drawn: &drawn,
        };
        let Some(made) = graph.step::<T>(step, &held)? else {
            return Ok(None);
        };
        held = made;
    }
    let mut sizes = Vec::new();
    for rank in to.local() {
        sizes.push(plan.to().local_shape(*rank, plan.shape())?);
    }
    Ok(Some((sizes, held)))
}

/// A step by the places of devices.
struct Drawn {
    /// The sizes of blocks before and after.
    sizes: [Shape; 2],
    /// What each device holds before and after.
    held: [Vec<Ranges>; 2],
    groups: Groups,
    /// The group of each device.
    group_of: Vec<usize>,
    /// Which device's block each has afterwards, for a permutation.
    donors: Vec<usize>,
}

impl Drawn {
    /// None where blocks differ in size.
    fn of(plan: &Plan, step: &PlanStep, places: &DevicePlacement) -> Result<Option<Self>, Error> {
        let place = |placement: &MeshPlacement, rank: MeshRank| {
            Ok::<_, Error>(places.of_rank(plan.device_rank(placement, rank)?).place)
        };
        let mut held = [Vec::new(), Vec::new()];
        for (placement, held) in [step.before(), step.after()].into_iter().zip(&mut held) {
            held.resize(placement.mesh().size(), Ranges::new());
            for rank in placement.mesh().ranks() {
                held[place(placement, rank)?] = placement.shard(rank, plan.shape())?;
            }
        }
        let is_even = |held: &Vec<Ranges>| {
            let mut sizes = held.iter().map(|own| region::sizes(own));
            let first = sizes.next();
            sizes.all(|own| Some(own) == first)
        };
        if !held.iter().all(is_even) {
            return Ok(None);
        }
        let count = held[0].len();
        let (mut groups, mut group_of) = (Groups::new(), vec![0; count]);
        for rank in step.before().mesh().ranks() {
            let group = step.group_of(rank)?;
            let group = group.map(|own| place(step.before(), own));
            let group: Vec<usize> = group.collect::<Result<_, _>>()?;
            if group.first() == Some(&place(step.before(), rank)?) {
                group.iter().for_each(|own| group_of[*own] = groups.len());
                groups.push(group);
            }
        }
        let mut donors = vec![0; count];
        if step.kind() == StepKind::Permute {
            let sources = step.after().mesh().ranks().zip(permutation(plan, step)?);
            for (target, source) in sources {
                donors[place(step.after(), target)?] = place(step.before(), source)?;
            }
        }
        let sizes = [region::sizes(&held[0][0]), region::sizes(&held[1][0])];
        Ok(Some(Self {
            sizes,
            held,
            groups,
            group_of,
            donors,
        }))
    }

    /// The devices of a device's group.
    fn group(&self, device: usize) -> &[usize] {
        &self.groups[self.group_of[device]]
    }

    fn members(&self) -> usize {
        self.groups.first().map_or(1, Vec::len)
    }

    /// Whether something holds of each device and each member of its group, by that one's number
    /// in the group.
    fn all(&self, holds: impl Fn(usize, usize, usize) -> bool) -> bool {
        (0..self.held[0].len()).all(|device| {
            let mut members = self.group(device).iter().enumerate();
            members.all(|(number, member)| holds(device, *member, number))
        })
    }

    /// The only axis along which blocks of the first kind are as many times longer than those of
    /// the second as a group has members.
    fn longer(&self, [long, short]: [usize; 2]) -> Option<usize> {
        let both = self.sizes[long].iter().zip(&self.sizes[short]);
        let mut longer = both.enumerate().filter(|(_, (long, short))| long > short);
        let (axis, (long, short)) = longer.next()?;
        (longer.next().is_none() && *long == short * self.members()).then_some(axis)
    }

    /// The axis along which members have what they had, one after the other.
    fn gathered(&self) -> Option<usize> {
        let axis = self.longer([AFTER, BEFORE])?;
        let size = self.sizes[BEFORE][axis];
        let fits = self.all(|device, member, number| {
            let [had, has] = [&self.held[BEFORE][member], &self.held[AFTER][device]];
            had[axis].start == has[axis].start + number * size
        });
        fits.then_some(axis)
    }

    /// The axis along which each member keeps the part of its number.
    fn scattered(&self) -> Option<usize> {
        let axis = self.longer([BEFORE, AFTER])?;
        let size = self.sizes[AFTER][axis];
        let fits = self.all(|device, member, number| {
            let [had, has] = [&self.held[BEFORE][device], &self.held[AFTER][member]];
            has[axis].start == had[axis].start + number * size
        });
        fits.then_some(axis)
    }

    /// The axis that is cut and the one that grows, where members deal out parts in their order.
    fn dealt(&self) -> Option<[usize; 2]> {
        let [before, after] = &self.sizes;
        let members = self.members();
        let is = |axis: &usize, [long, short]: [&Shape; 2]| long[*axis] == short[*axis] * members;
        let mut axes = (0..before.len()).filter(|axis| before[*axis] != after[*axis]);
        let mut both = [axes.next()?, axes.next()?];
        if is(&both[0], [after, before]) {
            both.reverse();
        }
        let [cut, joined] = both;
        let fits = is(&cut, [before, after]) && is(&joined, [after, before]);
        let fits = fits
            && axes.next().is_none()
            && self.all(|device, member, number| {
                let [had, has] = [&self.held[BEFORE][device], &self.held[AFTER][member]];
                let own = &self.held[AFTER][device];
                let theirs = &self.held[BEFORE][member];
                has[cut].start == had[cut].start + number * after[cut]
                    && theirs[joined].start == own[joined].start + number * before[joined]
            });
        fits.then_some(both)
    }

    /// Where a part of each device's block begins within another of its blocks.
    fn each(
        &self,
        part: impl Fn(usize) -> Option<[Ranges; 2]>,
    ) -> Result<Option<PerDevice<Region>>, Error> {
        let mut regions = Vec::new();
        for device in 0..self.held[0].len() {
            let Some([whole, part]) = part(device) else {
                return Ok(None);
            };
            let inside = region::within(&part, &whole);
            regions.push(Region::new(&region::sizes(&whole), &inside)?);
        }
        let lens = |region: &Region| -> Vec<usize> {
            region.part().iter().map(ExactSizeIterator::len).collect()
        };
        let is_even = regions.iter().all(|own| lens(own) == lens(&regions[0]));
        Ok(PerDevice::each(regions).filter(|_| is_even))
    }
}

const BEFORE: usize = 0;
const AFTER: usize = 1;

/// A step as nodes of a graph.
struct Within<'a> {
    recorder: &'a Recorder,
    backend: &'a Backend,
    drawn: &'a Drawn,
}

type Made = Result<Option<DeviceBlocks>, Error>;

impl Within<'_> {
    fn step<T: Scalar>(&self, step: &PlanStep, held: &DeviceBlocks) -> Made {
        let Drawn { groups, donors, .. } = self.drawn;
        let reduction = step.before().reduction().map(operation);
        match (step.kind(), reduction) {
            (StepKind::Slice, _) => self.own_part(held),
            (StepKind::AllGather, _) => self.gather::<T>(held),
            (StepKind::AllToAll, _) => self.deal::<T>(held),
            (StepKind::Permute, _) => {
                let pairs = donors.iter().copied().enumerate();
                let pairs = pairs.map(|(target, source)| (source, target));
                self.node(GraphOp::Permute(pairs.collect()), &[held])
            }
            (StepKind::AllReduce, Some(op)) => {
                self.node(GraphOp::AllReduce(op, groups.clone()), &[held])
            }
            (StepKind::ReduceScatter, Some(op)) => match self.drawn.scattered() {
                Some(axis) => {
                    let Some(parts) = self.parts_first(held, axis)? else {
                        return Ok(None);
                    };
                    self.node(GraphOp::ReduceScatter(op, groups.clone()), &[&parts])
                }
                None => match self.node(GraphOp::AllReduce(op, groups.clone()), &[held])? {
                    Some(all) => self.own_part(&all),
                    None => Ok(None),
                },
            },
            (StepKind::MakePartial, _) => self.terms::<T>(step, held),
            _ => Ok(None),
        }
    }

    fn node(&self, op: GraphOp, of: &[&DeviceBlocks]) -> Made {
        Ok(self.recorder.together(self.backend, &op, of))
    }

    /// The part of its block that each device keeps.
    fn own_part(&self, held: &DeviceBlocks) -> Made {
        let [before, after] = &self.drawn.held;
        let part = |device: usize| Some([before[device].clone(), after[device].clone()]);
        match self.drawn.each(part)? {
            Some(part) => self.node(GraphOp::Cut(part), &[held]),
            None => Ok(None),
        }
    }

    /// An axis cut into a part for each member, and these in front of all other axes.
    fn parts_first(&self, held: &DeviceBlocks, axis: usize) -> Made {
        let members = self.drawn.members();
        let mut cut = self.drawn.sizes[BEFORE].to_vec();
        cut[axis] /= members;
        cut.insert(axis, members);
        let places: Vec<usize> = (0..cut.len())
            .map(|own| match own.cmp(&axis) {
                std::cmp::Ordering::Less => own + 1,
                std::cmp::Ordering::Equal => 0,
                std::cmp::Ordering::Greater => own,
            })
            .collect();
        let mut to = cut.clone();
        to.remove(axis);
        to.insert(0, members);
        self.arranged(held, &Arrangement::new(&cut, &places, &to)?)
    }

    /// Blocks of these sizes, one of each member in a row, put beside each other along an axis.
    fn beside(&self, held: &DeviceBlocks, sizes: &[usize], axis: usize) -> Made {
        let members = self.drawn.members();
        let from = [&[members], sizes].concat();
        let behind = |own: usize| own + usize::from(own >= axis);
        let places = std::iter::once(axis).chain((0..sizes.len()).map(behind));
        let mut to = sizes.to_vec();
        to.insert(axis, members);
        let places: Vec<usize> = places.collect();
        self.arranged(held, &Arrangement::new(&from, &places, &to)?)
    }

    /// Nothing moves where the axes are in their order.
    fn arranged(&self, held: &DeviceBlocks, to: &Arrangement) -> Made {
        let is_as_it_was = to.places().is_sorted() && to.from_len() == to.len();
        match is_as_it_was {
            true => Ok(Some(held.clone())),
            false => self.node(GraphOp::Arrange(to.clone()), &[held]),
        }
    }

    fn gather<T: Scalar>(&self, held: &DeviceBlocks) -> Made {
        let gather = GraphOp::AllGather(self.drawn.groups.clone());
        let Some(all) = self.node(gather, &[held])? else {
            return Ok(None);
        };
        match self.drawn.gathered() {
            Some(axis) => self.beside(&all, &self.drawn.sizes[BEFORE], axis),
            None => self.pieces::<T>(&all),
        }
    }

    fn deal<T: Scalar>(&self, held: &DeviceBlocks) -> Made {
        let groups = self.drawn.groups.clone();
        let Some([cut, joined]) = self.drawn.dealt() else {
            return match self.node(GraphOp::AllGather(groups), &[held])? {
                Some(all) => self.pieces::<T>(&all),
                None => Ok(None),
            };
        };
        let Some(parts) = self.parts_first(held, cut)? else {
            return Ok(None);
        };
        let Some(dealt) = self.node(GraphOp::AllToAll(groups), &[&parts])? else {
            return Ok(None);
        };
        let mut sizes = self.drawn.sizes[BEFORE].to_vec();
        sizes[cut] = self.drawn.sizes[AFTER][cut];
        self.beside(&dealt, &sizes, joined)
    }

    /// Blocks of what each device needs of each member's, all of which it has in a row.
    fn pieces<T: Scalar>(&self, all: &DeviceBlocks) -> Made {
        let [before, after] = &self.drawn.held;
        let members = self.drawn.members();
        let Some(mut made) = self.filled(T::default())? else {
            return Ok(None);
        };
        for number in 0..members {
            let common = |device: usize| {
                let member = self.drawn.group(device)[number];
                region::intersection(&before[member], &after[device])
            };
            let from = self.drawn.each(|device| {
                let member = self.drawn.group(device)[number];
                // Its block, behind those of the members before.
                let row = |first: usize, len: usize, of: &[std::ops::Range<usize>]| {
                    let front = std::iter::once(first..first + len);
                    front.chain(of.iter().cloned()).collect::<Ranges>()
                };
                let whole = row(0, members, &before[member]);
                Some([whole, row(number, 1, &common(device)?)])
            })?;
            let to = |device: usize| Some([after[device].clone(), common(device)?]);
            let (Some(from), Some(to)) = (from, self.drawn.each(to)?) else {
                return Ok(None);
            };
            let Some(piece) = self.node(GraphOp::Cut(from), &[all])? else {
                return Ok(None);
            };
            let Some(pasted) = self.node(GraphOp::Paste(to), &[&made, &piece])? else {
                return Ok(None);
            };
            made = pasted;
        }
        Ok(Some(made))
    }

    /// Each block as a term of a sum, or whatever it is; one that others have too is a term once.
    fn terms<T: Scalar>(&self, step: &PlanStep, held: &DeviceBlocks) -> Made {
        let [before, after] = &self.drawn.held;
        let Some(reduction) = step.after().reduction() else {
            return Ok(None);
        };
        let place = |device: usize| Some([after[device].clone(), before[device].clone()]);
        let (Some(base), Some(place)) =
            (self.filled(T::neutral(reduction))?, self.drawn.each(place)?)
        else {
            return Ok(None);
        };
        let Some(all) = self.node(GraphOp::Paste(place), &[&base, held])? else {
            return Ok(None);
        };
        if !step.had_copies() {
            return Ok(Some(all));
        }
        let speaks = (0..before.len()).map(|device| self.drawn.group(device)[0] == device);
        let flags = PerDevice::each(speaks.map(|speaks| vec![u8::from(speaks)]).collect());
        let flags = flags.map(|flags| GraphOp::Constant(bool::TYPE, flags));
        let flag = flags.map(|flag| self.node(flag, &[])).transpose()?;
        let Some(flag) = flag.flatten() else {
            return Ok(None);
        };
        match self.repeated(&flag)? {
            Some(which) => self.node(GraphOp::Select, &[&which, &all, &base]),
            None => Ok(None),
        }
    }

    /// Blocks after the step with this element everywhere.
    fn filled<T: Scalar>(&self, element: T) -> Made {
        let bytes = PerDevice::all(bytemuck::bytes_of(&element).to_vec());
        match self.node(GraphOp::Constant(T::TYPE, bytes), &[])? {
            Some(one) => self.repeated(&one),
            None => Ok(None),
        }
    }

    /// One element everywhere in blocks after the step.
    fn repeated(&self, one: &DeviceBlocks) -> Made {
        let len = self.drawn.sizes[AFTER].iter().product();
        let wide = Arrangement::new(&[1], &[0], &[len])?;
        self.node(GraphOp::Arrange(wide), &[one])
    }
}
