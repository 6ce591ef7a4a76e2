//! The codes of a contract, as frames, shared memory and the flight recorder have them.

use meshwork_accel::{ElementType, ReduceOp};

use super::WireError;
use crate::Rank;
use crate::contract::{Contract, Kind};
use crate::schedule::Algorithm;

/// "No root": the world is always smaller.
pub(super) const NO_ROOT: u32 = u32::MAX;

impl Contract {
    /// Kind, algorithm, element type and op, from the lowest byte; above them the root.
    #[inline]
    pub(crate) fn codes(&self) -> u64 {
        let codes = u32::from_le_bytes([
            self.kind as u8,
            self.algorithm.map_or(0, Algorithm::code),
            self.element.code(),
            self.op.map_or(0, ReduceOp::code),
        ]);
        let root = self.root.map_or(NO_ROOT, Rank::number);
        u64::from(root) << 32 | u64::from(codes)
    }

    /// Inverse of [`codes`](Self::codes), with what is kept beside them.
    ///
    /// # Errors
    /// [`WireError::Code`] for a code that stands for nothing.
    pub(crate) fn of_codes(
        codes: u64,
        epoch: u64,
        group: u64,
        sequence: u64,
        count: u64,
    ) -> Result<Self, WireError> {
        let [kind, algorithm, element, op, root @ ..] = codes.to_le_bytes();
        let root = u32::from_le_bytes(root);
        let unknown = |field, code: u8| WireError::Code {
            field,
            found: code.into(),
        };
        let op = match op {
            0 => None,
            code => Some(ReduceOp::from_code(code).ok_or_else(|| unknown("reduce op", code))?),
        };
        let algorithm = match algorithm {
            0 => None,
            code => Some(Algorithm::from_code(code).ok_or_else(|| unknown("algorithm", code))?),
        };
        Ok(Self {
            epoch,
            group,
            sequence,
            kind: Kind::from_code(kind).ok_or_else(|| unknown("operation", kind))?,
            algorithm,
            element: ElementType::from_code(element)
                .ok_or_else(|| unknown("element type", element))?,
            count,
            op,
            root: (root != NO_ROOT).then_some(Rank::new(root)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_that_stands_for_nothing_is_named() {
        let barrier = Contract {
            epoch: 1,
            group: 0,
            sequence: 1,
            kind: Kind::Barrier,
            algorithm: None,
            element: ElementType::U8,
            count: 0,
            op: None,
            root: None,
        };
        let of_codes = |codes| Contract::of_codes(codes, 1, 0, 1, 0);
        assert_eq!(of_codes(barrier.codes()), Ok(barrier));
        for (at, field) in ["operation", "algorithm", "element type", "reduce op"]
            .into_iter()
            .enumerate()
        {
            let mut codes = barrier.codes().to_le_bytes();
            codes[at] = 0xee;
            let refused = of_codes(u64::from_le_bytes(codes));
            assert_eq!(refused, Err(WireError::Code { field, found: 0xee }));
        }
    }
}
