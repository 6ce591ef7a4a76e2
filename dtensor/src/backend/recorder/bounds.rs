//! Values that have to be indices, and the inputs by which that can be told before a graph begins.

use std::collections::HashSet;

use meshwork_accel::{ElementType, GraphOp, PerDevice, Region};

use super::{Notes, Recorder};
use crate::backend::DeviceBlocks;

/// A value whose elements have to be indices below a size, of an axis.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Bound {
    /// The number of the value.
    pub(crate) value: usize,
    /// The box of each block that has these elements; none where all are some.
    pub(crate) part: Option<Region>,
    pub(crate) axis: usize,
    pub(crate) size: usize,
}

impl Recorder {
    /// Takes note that elements have to be indices below a size; whether it could.
    pub(crate) fn bound(&self, blocks: &DeviceBlocks, axis: usize, size: usize) -> bool {
        let Some(value) = self.number(blocks) else {
            return false;
        };
        let bound = |(value, part)| Bound {
            value,
            part,
            axis,
            size,
        };
        let mut notes = self.notes();
        let found = bound(notes.source(value));
        // Floats that have to be indices are the same ones as whole numbers.
        let converted = notes.made_of(found.value);
        let converted = converted.filter(|(op, _)| *op == GraphOp::Convert(ElementType::I64));
        let is_known = converted
            .is_some_and(|(_, floats)| notes.bounds.contains(&bound(notes.source(floats))));
        if !is_known {
            notes.bounds.push(found);
        }
        true
    }

    /// What indices were to be below, since this was asked last.
    pub(crate) fn bounds(&self) -> Vec<Bound> {
        std::mem::take(&mut self.notes().bounds)
    }
}

impl Notes {
    /// The value of which another has all elements, or those of a box of each block, elsewhere or
    /// in a type in which they are the same indices.
    fn source(&self, value: usize) -> (usize, Option<Region>) {
        let value = self.unconverted(value);
        let Some((op, operand)) = self.made_of(value) else {
            return (value, None);
        };
        match &op {
            GraphOp::Cut(parts) if !are_whole(parts) => match parts.same() {
                Some(part) => (self.unconverted(operand), Some(part.clone())),
                None => (value, None),
            },
            GraphOp::Cut(_)
            | GraphOp::Arrange(_)
            | GraphOp::AllGather(_)
            | GraphOp::AllToAll(_)
            | GraphOp::Permute(_) => self.source(operand),
            _ => (value, None),
        }
    }

    /// The value before it was converted to types in which the same elements are indices.
    fn unconverted(&self, value: usize) -> usize {
        match self.made_of(value) {
            Some((GraphOp::Convert(to), from))
                if keeps_indices(self.asked[0][from].vector.element, to) =>
            {
                self.unconverted(from)
            }
            _ => value,
        }
    }

    /// What all devices do for a value, and with which only operand.
    fn made_of(&self, value: usize) -> Option<(GraphOp, usize)> {
        let op = self.merged(value)??;
        match self.asked[0][value].operands[..] {
            [operand] => Some((op, operand)),
            _ => None,
        }
    }
}

/// Whether the parts of all devices are the whole. Shards are the same, or have nothing in common.
fn are_whole(parts: &PerDevice<Region>) -> bool {
    let shards: HashSet<&Region> = parts.values().iter().collect();
    let len: usize = shards.iter().map(|shard| shard.len()).sum();
    len == parts.first().whole_len()
}

/// Whether whole numbers are the same indices in another type.
fn keeps_indices(from: ElementType, to: ElementType) -> bool {
    let is_signed = |of| {
        use ElementType::{I8, I16, I32, I64};
        matches!(of, I8 | I16 | I32 | I64)
    };
    let has_all = match (is_signed(from), is_signed(to)) {
        (false, true) => from.size() < to.size(),
        (true, false) => false,
        (true, true) | (false, false) => from.size() <= to.size(),
    };
    // Of 64 bits, what is too large for a sign becomes negative, and is no index either.
    let has_all = has_all || to == ElementType::I64;
    has_all && to != ElementType::Bool && !from.is_float() && !to.is_float()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_the_same_in_types_that_have_them_all() {
        use ElementType::{Bool, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
        let kept = [(Bool, U8), (I8, I16), (U16, I32), (U32, U32), (U64, I64)];
        let lost = [
            (U8, Bool),
            (U32, I32),
            (I32, U64),
            (I64, I32),
            (F32, I64),
            (I32, F64),
        ];
        for (pairs, expected) in [(&kept[..], true), (&lost[..], false)] {
            for (from, to) in pairs {
                assert_eq!(keeps_indices(*from, *to), expected, "{from} as {to}");
            }
        }
    }
}
