//! What all ranks of an operation must agree on, and the call as errors show it.

use std::fmt::{self, Display};
use std::panic::Location;

use meshwork_accel::{ElementType, ReduceOp};

use crate::Rank;
use crate::schedule::Algorithm;

/// Which collective was called.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Kind {
    AllReduce = 1,
    Broadcast = 2,
    Barrier = 3,
    Leave = 4,
    Reduce = 5,
    ReduceScatter = 6,
    AllGather = 7,
    Gather = 8,
    Scatter = 9,
    AllToAll = 10,
    Permute = 11,
    Send = 12,
}

impl Kind {
    /// Every kind, in the order of its wire code.
    pub(crate) const ALL: [Self; 12] = [
        Self::AllReduce,
        Self::Broadcast,
        Self::Barrier,
        Self::Leave,
        Self::Reduce,
        Self::ReduceScatter,
        Self::AllGather,
        Self::Gather,
        Self::Scatter,
        Self::AllToAll,
        Self::Permute,
        Self::Send,
    ];

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == code)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::Broadcast => "broadcast",
            Self::Barrier => "barrier",
            Self::Leave => "leave",
            Self::Reduce => "reduce",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllGather => "all_gather",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::AllToAll => "all_to_all",
            Self::Permute => "permute",
            Self::Send => "send",
        }
    }
}

/// What all ranks must agree on before one byte of an operation counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Contract {
    /// That of the group that was joined, from 1; 0 among threads, whose members never change.
    pub(crate) epoch: u64,
    /// Tells groups of the same ranks apart; 0 for the one that was joined.
    pub(crate) group: u64,
    pub(crate) sequence: u64,
    pub(crate) kind: Kind,
    /// `None` between the ranks of one host, which need no schedule.
    pub(crate) algorithm: Option<Algorithm>,
    pub(crate) element: ElementType,
    /// Elements in the whole buffer.
    pub(crate) count: u64,
    pub(crate) op: Option<ReduceOp>,
    pub(crate) root: Option<Rank>,
}

/// One rank's call of a collective: what it asked for, and from which line of its program.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Call {
    contract: Contract,
    site: String,
}

impl Call {
    pub(crate) fn new(contract: Contract, site: impl Into<String>) -> Self {
        Self {
            contract,
            site: site.into(),
        }
    }

    /// The `file:line` of the caller; empty where it is not known.
    #[must_use]
    pub fn site(&self) -> &str {
        &self.site
    }

    /// The operation's number in its group, from 1.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.contract.sequence
    }

    pub(crate) fn contract(&self) -> &Contract {
        &self.contract
    }
}

impl Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Contract {
            epoch,
            group,
            sequence,
            kind,
            element,
            count,
            op,
            root,
            algorithm,
        } = self.contract;
        write!(f, "{} #{sequence}", kind.name())?;
        let moves_data = !matches!(kind, Kind::Barrier | Kind::Leave);
        if moves_data {
            write!(f, " of {count} {element}")?;
        }
        if let Some(op) = op {
            write!(f, ", {op}")?;
        }
        if let Some(root) = root {
            let preposition = match kind {
                Kind::Reduce | Kind::Gather | Kind::Send => "to",
                _ => "from",
            };
            write!(f, ", {preposition} {root}")?;
        }
        if let (true, Some(algorithm)) = (moves_data, algorithm) {
            write!(f, ", by {algorithm}")?;
        }
        if group != 0 {
            write!(f, ", in split group {group:016x}")?;
        }
        if epoch > 1 {
            write!(f, ", in epoch {epoch}")?;
        }
        if !self.site.is_empty() {
            write!(f, " at {}", self.site)?;
        }
        Ok(())
    }
}

/// `file:line` of a caller, cut at its front to fit a contract frame.
pub(crate) fn site(location: &Location<'_>) -> String {
    let whole = format!("{}:{}", location.file(), location.line());
    let mut start = whole.len().saturating_sub(SITE_LIMIT);
    while !whole.is_char_boundary(start) {
        start += 1;
    }
    whole[start..].to_owned()
}

/// The `file:line` that another rank tells of a call, whatever its bytes are: text that keeps to a
/// line.
pub(crate) fn told_site(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace(char::is_control, " ")
}

/// Bytes of a call site that fit in a contract frame.
pub(crate) const SITE_LIMIT: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_reads_like_a_sentence() {
        let contract = Contract {
            epoch: 0,
            group: 0,
            sequence: 17,
            kind: Kind::AllReduce,
            algorithm: Some(Algorithm::Ring),
            element: ElementType::F32,
            count: 100,
            op: Some(ReduceOp::Sum),
            root: None,
        };
        let call = Call::new(contract, "src/train.rs:88");
        assert_eq!(
            call.to_string(),
            "all_reduce #17 of 100 f32, sum, by ring at src/train.rs:88"
        );
        let broadcast = Contract {
            kind: Kind::Broadcast,
            op: None,
            root: Some(Rank::new(2)),
            ..contract
        };
        assert_eq!(
            Call::new(broadcast, "").to_string(),
            "broadcast #17 of 100 f32, from rank 2, by ring"
        );
        let elsewhere = Contract {
            epoch: 3,
            group: 0xfee1_900d,
            ..broadcast
        };
        assert_eq!(
            Call::new(elsewhere, "a.rs:1").to_string(),
            "broadcast #17 of 100 f32, from rank 2, by ring, in split group 00000000fee1900d, in epoch 3 at a.rs:1"
        );
        let barrier = Contract {
            kind: Kind::Barrier,
            op: None,
            ..contract
        };
        assert_eq!(
            Call::new(barrier, "a.rs:1").to_string(),
            "barrier #17 at a.rs:1"
        );
    }

    #[test]
    fn a_long_call_site_keeps_its_end() {
        let (line, here) = (line!(), site(Location::caller()));
        assert!(here.ends_with(&format!("contract.rs:{line}")), "{here}");
        assert!(here.len() <= SITE_LIMIT);
    }
}
