//! Host memory that portions pass through.

use std::any::Any;
use std::collections::BTreeMap;

use meshwork_accel::{Element, ElementType};

use crate::{Error, Group, Registered};

/// Room for one portion: what this rank gives, and behind it what it gets, where that is another
/// buffer.
pub(super) struct Slot<T> {
    memory: Registered<T>,
    given: usize,
}

impl<T: Element> Slot<T> {
    /// The first so many elements of what is given.
    pub(super) fn given(&mut self, len: usize) -> &mut [T] {
        &mut self.memory[..len]
    }

    /// The first so many elements of what is gotten.
    pub(super) fn got(&mut self, len: usize) -> &mut [T] {
        &mut self.memory[self.given..][..len]
    }

    /// Both.
    pub(super) fn both(&mut self, given: usize, got: usize) -> (&mut [T], &mut [T]) {
        let (front, back) = self.memory.split_at_mut(self.given);
        (&mut front[..given], &mut back[..got])
    }
}

/// The slots of each element type that was used so far. They are registered once: other ranks map
/// them when they first see them.
#[derive(Default)]
pub(super) struct Slots {
    of_type: BTreeMap<ElementType, Box<dyn Any + Send>>,
}

impl Slots {
    /// All slots for elements `T`, with room for so many that are given and so many that are gotten.
    pub(super) fn take<T: Element>(
        &mut self,
        group: &mut Group,
        (given, got): (usize, usize),
    ) -> Result<Vec<Slot<T>>, Error> {
        let kept = self.of_type.remove(&T::TYPE);
        let kept = kept.and_then(|slots| slots.downcast::<Vec<Slot<T>>>().ok());
        let mut slots = kept.map_or_else(Vec::new, |slots| *slots);
        let room = given.saturating_add(got);
        slots.retain(|slot| slot.memory.len() >= room);
        for slot in &mut slots {
            slot.given = given;
        }
        while slots.len() < COUNT {
            let memory = group.alloc(room)?;
            slots.push(Slot { memory, given });
        }
        Ok(slots)
    }

    /// Keeps them for the next operation.
    pub(super) fn put<T: Element>(&mut self, slots: Vec<Slot<T>>) {
        self.of_type.insert(T::TYPE, Box::new(slots));
    }
}

/// One that is filled, one between ranks, one that is emptied.
const COUNT: usize = 3;
