//! Exchanges among the devices of one client, by their backend: nothing passes the host.

use std::sync::Arc;

use meshwork_accel::{DeviceId, Region};
use meshwork_layout::Shape;

use super::rounds::operation;
use crate::backend::{BackendResult, DeviceBlock, DeviceBlocks, LocalDevices, Whole};
use crate::transfer_plan::{
    BlockSource, Exchange, LocalAllReduce, LocalPart, Runs, TermSource, TransferPlan,
};
use crate::{Error, Scalar};

/// Carries a transfer plan out on blocks on the devices of a site, and returns those of the target
/// and their sizes; none where blocks have to go to other clients, or the backend does not have
/// what it takes.
pub(crate) fn run_there<T: Scalar>(
    transfer_plan: &TransferPlan,
    [from, to]: [&LocalDevices; 2],
    sizes: &[Shape],
    blocks: &DeviceBlocks,
) -> Result<Option<(Vec<Shape>, DeviceBlocks)>, Error> {
    let stays = |(place, device): (&usize, &DeviceId)| from.devices.get(*place) == Some(device);
    let all_stay = transfer_plan.places.iter().zip(&to.devices).all(stays);
    if transfer_plan.crosses || !from.backend.arranges() || !all_stay {
        return Ok(None);
    }
    let mut held = Blocks {
        site: from,
        sizes: sizes.to_vec(),
        blocks: blocks.clone(),
    };
    let mut number = 0;
    while let Some(exchange) = transfer_plan.exchanges.get(number) {
        let local_all_reduce = transfer_plan.local_all_reduce.get(&number);
        let (next, done) = match local_all_reduce
            .map(|local_all_reduce| held.all_reduced(local_all_reduce))
            .transpose()?
        {
            Some(Some(next)) => (
                Some(next),
                local_all_reduce.map_or(1, |local_all_reduce| local_all_reduce.exchanges),
            ),
            _ => (held.exchanged::<T>(exchange)?, 1),
        };
        let Some(next) = next else { return Ok(None) };
        held = next;
        number += done;
    }
    let of_target = |place: &usize| (held.sizes[*place].clone(), held.blocks[*place].clone());
    Ok(Some(transfer_plan.places.iter().map(of_target).unzip()))
}

/// The blocks between two exchanges.
struct Blocks<'a> {
    site: &'a LocalDevices,
    sizes: Vec<Shape>,
    blocks: DeviceBlocks,
}

impl<'a> Blocks<'a> {
    /// The sum, or whatever it is, of each group's blocks, by the links that their devices have.
    fn all_reduced(&self, local_all_reduce: &LocalAllReduce) -> Result<Option<Self>, Error> {
        let mut blocks = self.blocks.clone();
        for group in &local_all_reduce.groups {
            let terms: DeviceBlocks = group
                .iter()
                .map(|place| self.blocks[*place].clone())
                .collect();
            let op = operation(local_all_reduce.reduction);
            let Some(made) = self.site.backend.all_reduced(op, &terms)? else {
                return Ok(None);
            };
            for (place, block) in group.iter().zip(made) {
                blocks[*place] = block;
            }
        }
        let sizes = self.sizes.clone();
        Ok(Some(Self {
            sizes,
            blocks,
            ..*self
        }))
    }

    /// The blocks after an exchange.
    fn exchanged<T: Scalar>(&self, exchange: &Exchange) -> Result<Option<Self>, Error> {
        let mut made: Vec<Option<Arc<DeviceBlock>>> = vec![None; exchange.targets.len()];
        for (place, target) in exchange.targets.iter().enumerate() {
            let len = target.shape.iter().product();
            let block = match &target.source {
                BlockSource::Kept(from) => self.on(place, &self.blocks[*from], len),
                BlockSource::Joined(parts, fill) => {
                    let neutral = fill.map(T::neutral);
                    let fill = neutral.as_ref().map(bytemuck::bytes_of);
                    self.joined(self.whole::<T>(place, len, fill), parts)
                }
                BlockSource::Reduced(terms, reduction) => {
                    let mut pieces = Vec::new();
                    for term in terms {
                        let TermSource::Here(taken) = term else {
                            return Ok(None);
                        };
                        let Some(piece) = self.part(place, taken)? else {
                            return Ok(None);
                        };
                        pieces.push(piece);
                    }
                    match pieces.is_empty() {
                        true => self.joined(self.whole::<T>(place, len, None), &[]),
                        false => self.site.backend.reduced(operation(*reduction), &pieces),
                    }
                }
                BlockSource::Shared(_) => continue,
            };
            let Some(block) = block? else { return Ok(None) };
            made[place] = Some(block);
        }
        for (place, target) in exchange.targets.iter().enumerate() {
            if let (BlockSource::Shared(from), None) = (&target.source, &made[place]) {
                let Some(block) = made[*from].clone() else {
                    return Ok(None);
                };
                made[place] = self.on(place, &block, target.shape.iter().product())?;
            }
        }
        let sizes = exchange.targets.iter().map(|target| target.shape.clone());
        let blocks: Option<DeviceBlocks> = made.into_iter().collect();
        Ok(blocks.map(|blocks| Self {
            sizes: sizes.collect(),
            blocks,
            ..*self
        }))
    }

    fn whole<'b, T: Scalar>(&self, place: usize, len: usize, fill: Option<&'b [u8]>) -> Whole<'b> {
        Whole {
            device: self.site.devices[place],
            element: T::TYPE,
            len,
            fill,
        }
    }

    /// A new block of parts of others.
    fn joined(&self, whole: Whole<'_>, parts: &[(LocalPart, Runs)]) -> BackendResult {
        let place = self
            .site
            .devices
            .iter()
            .position(|device| *device == whole.device)
            .expect("a new block is on a device of its place");
        let mut pieces = Vec::new();
        for (taken, target) in parts {
            let Some(piece) = self.part(place, taken)? else {
                return Ok(None);
            };
            if target.as_span() == Some(0..whole.len) {
                return Ok(Some(piece));
            }
            pieces.push((piece, region(target, whole.len)?));
        }
        self.site.backend.assemble(whole, &pieces)
    }

    /// A part of a block, on the device of a place.
    fn part(&self, place: usize, taken: &LocalPart) -> BackendResult {
        let block = &self.blocks[taken.place];
        let held: usize = self.sizes[taken.place].iter().product();
        if taken.runs.as_span() == Some(0..held) {
            return self.on(place, block, held);
        }
        let part = region(&taken.runs, held)?;
        match self.site.backend.cut(block, &part)? {
            Some(cut) => self.on(place, &cut, part.len()),
            None => Ok(None),
        }
    }

    /// This many elements on the device of a place; those that are there already, as they are.
    fn on(&self, place: usize, block: &Arc<DeviceBlock>, len: usize) -> BackendResult {
        let device = self.site.devices[place];
        match block.device() == device {
            true => Ok(Some(Arc::clone(block))),
            false => self.site.backend.on(device, block, len),
        }
    }
}

/// Runs in a block of this many elements as a box.
fn region(runs: &Runs, held: usize) -> Result<Region, Error> {
    let (whole, part) = runs.as_box(held);
    Ok(Region::new(&whole, &part)?)
}
