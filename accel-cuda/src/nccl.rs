//! NCCL: loading it, the unique id by which ranks find each other, and the mapping of reduce ops
//! and element types to NCCL's. Operations are in `communicator`; `capability` offers them to
//! programs that are generic over the backend.

use std::fmt::{self, Debug};
use std::sync::Arc;

use meshwork_accel::{self as accel, ElementType, ReduceOp};

use cudarc::nccl::sys::{ncclDataType_t, ncclRedOp_t};

use crate::sys::collectives::{Collectives, DataType, ID_BYTES};
use crate::{Error, Libraries, Library};

/// NCCL, loaded.
///
/// ```
/// use meshwork_accel_cuda::{Error, Libraries, Nccl};
///
/// match Nccl::open(&Libraries::from_env()) {
///     Ok(nccl) => println!("NCCL {}", nccl.version()),
///     Err(absent @ Error::NotLoadable { .. }) => println!("{absent}"),
///     Err(broken) => return Err(broken),
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Nccl {
    pub(crate) table: Arc<Collectives>,
    version: u32,
}

impl Nccl {
    /// Loads NCCL, 2.27 or newer.
    ///
    /// # Errors
    /// [`Error::NotLoadable`], [`Error::NoFunction`], [`Error::TooOld`], and [`Error::Call`] where
    /// it does not work.
    pub fn open(libraries: &Libraries) -> Result<Self, Error> {
        let table = Collectives::open(libraries)?;
        let version = table.version()?;
        if version < OLDEST {
            return Err(Error::TooOld {
                library: Library::Nccl,
                found: version_text(version),
                needed: version_text(OLDEST),
            });
        }
        Ok(Self { table, version })
    }

    /// Its version, such as `2.30.7`.
    #[must_use]
    pub fn version(&self) -> String {
        version_text(self.version)
    }

    /// A new name for a communicator: one process asks for it and gives it to all, and must live
    /// until they have joined.
    ///
    /// # Errors
    /// [`Error::Call`] where no network interface can be used.
    pub fn unique_id(&self) -> Result<UniqueId, Error> {
        Ok(UniqueId(self.table.unique_id()?))
    }
}

/// The id that the ranks of a communicator share to find each other.
///
/// It holds the address of a process and lets whoever has it join, so it travels over a connection
/// that is encrypted, and `Debug` does not show it.
///
/// ```
/// use meshwork_accel_cuda::UniqueId;
///
/// let id = UniqueId::from_bytes([7; UniqueId::BYTES]);
/// assert_eq!(UniqueId::from_bytes(*id.as_bytes()), id);
/// assert_eq!(format!("{id:?}"), "UniqueId(..)");
/// ```
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct UniqueId([u8; ID_BYTES]);

impl UniqueId {
    /// How many bytes it has.
    pub const BYTES: usize = ID_BYTES;

    /// The one that another process has sent; inverse of [`as_bytes`](Self::as_bytes).
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes to send to the other processes; inverse of [`from_bytes`](Self::from_bytes).
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UniqueId(..)")
    }
}

/// One rank's place in a communicator that is not there yet.
///
/// ```
/// use meshwork_accel_cuda::{Error, NcclRank, UniqueId};
///
/// let id = UniqueId::from_bytes([0; UniqueId::BYTES]);
/// assert!(NcclRank::new(id, 1, 2).is_ok());
/// assert_eq!(NcclRank::new(id, 2, 2).err(), Some(Error::RankOutside { rank: 2, world: 2 }));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NcclRank {
    pub(crate) id: UniqueId,
    pub(crate) rank: i32,
    pub(crate) world: i32,
}

impl NcclRank {
    /// Rank `rank` of `world` ranks that all have this `id`.
    ///
    /// # Errors
    /// [`Error::RankOutside`], also for more ranks than NCCL can count.
    pub fn new(id: UniqueId, rank: usize, world: usize) -> Result<Self, Error> {
        match (i32::try_from(rank), i32::try_from(world)) {
            (Ok(number), Ok(count)) if number < count => Ok(Self {
                id,
                rank: number,
                world: count,
            }),
            _ => Err(Error::RankOutside { rank, world }),
        }
    }
}

fn version_text(version: u32) -> String {
    let (major, minor, patch) = (version / 10_000, version / 100 % 100, version % 100);
    format!("{major}.{minor}.{patch}")
}

/// How NCCL calls a reduction. A mean is a sum until it is divided, of elements that hold the sum
/// of any that are not near the largest: `f16` does not, and is widened first. Of truth values, 0
/// and 1, the smallest is the and, and the largest the or.
pub(crate) fn translate(
    op: ReduceOp,
    element: ElementType,
) -> Result<(DataType, ncclRedOp_t), accel::Error> {
    let code = match element {
        ElementType::I8 => ncclDataType_t::ncclInt8,
        ElementType::U8 | ElementType::Bool => ncclDataType_t::ncclUint8,
        ElementType::I32 => ncclDataType_t::ncclInt32,
        ElementType::U32 => ncclDataType_t::ncclUint32,
        ElementType::I64 => ncclDataType_t::ncclInt64,
        ElementType::U64 => ncclDataType_t::ncclUint64,
        ElementType::F16 => ncclDataType_t::ncclFloat16,
        ElementType::F32 => ncclDataType_t::ncclFloat32,
        ElementType::F64 => ncclDataType_t::ncclFloat64,
        ElementType::Bf16 => ncclDataType_t::ncclBfloat16,
        _ => return Err(accel::Error::UnsupportedElement { element }),
    };
    let red_op = match (op, element) {
        _ if !op.supports(element) => None,
        (ReduceOp::Mean, ElementType::F16) => None,
        // Those of NCCL drop a NaN.
        (ReduceOp::Min | ReduceOp::Max, _) if element.is_float() => None,
        (ReduceOp::Sum | ReduceOp::Mean, _) => Some(ncclRedOp_t::ncclSum),
        (ReduceOp::Product, _) => Some(ncclRedOp_t::ncclProd),
        (ReduceOp::Max, _) | (ReduceOp::Or, ElementType::Bool) => Some(ncclRedOp_t::ncclMax),
        (ReduceOp::Min, _) | (ReduceOp::And, ElementType::Bool) => Some(ncclRedOp_t::ncclMin),
        _ => None,
    };
    let bytes = element.size();
    let red_op = red_op.ok_or(accel::Error::UnsupportedOp { op, element })?;
    Ok((DataType { code, bytes }, red_op))
}

/// 2.27.0, as NCCL writes it.
const OLDEST: u32 = 22_700;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nccl_has_is_translated_and_the_rest_refused_by_type_or_op() {
        for op in ReduceOp::ALL {
            for element in ElementType::ALL {
                let short = matches!(element, ElementType::I16 | ElementType::U16);
                let bits = matches!(op, ReduceOp::And | ReduceOp::Or | ReduceOp::Xor);
                let truth = element == ElementType::Bool && op != ReduceOp::Xor;
                let beyond = (op, element) == (ReduceOp::Mean, ElementType::F16);
                let extreme = matches!(op, ReduceOp::Min | ReduceOp::Max) && element.is_float();
                let beyond = beyond || extreme;
                let expected = op.supports(element) && !short && !beyond && (!bits || truth);
                let translated = translate(op, element);
                assert_eq!(translated.is_ok(), expected, "{op} of {element}");
                if let Ok((kind, _)) = translated {
                    assert_eq!(kind.bytes, element.size());
                }
            }
        }
    }
}
