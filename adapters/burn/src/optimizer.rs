use burn_core::store::RecordError;
use burn_core::tensor::Bytes;
use burn_optim::{ModuleOptimizer, OptimizerRecord};
use meshwork_strategy::Snapshot;

use crate::Error;

/// Adds the state of `optimizer` to `snapshot`, in the form that burn has for it: equal states have
/// equal bytes. It goes by the ids of parameters, which
/// [`MirroredParams::save`](crate::MirroredParams::save) adds.
///
/// # Errors
/// [`Error::OptimizerState`]; [`Error::Strategy`] when the snapshot has one already.
pub fn save_optimizer(optimizer: &ModuleOptimizer, snapshot: Snapshot) -> Result<Snapshot, Error> {
    let bytes = in_order(optimizer.to_record().into_bytes()?)?;
    Ok(snapshot.with_bytes(STATE, bytes.to_vec())?)
}

/// An optimizer lists its parameters in another order in each process, and reads them back in one.
pub(crate) fn in_order(record: Bytes) -> Result<Bytes, RecordError> {
    OptimizerRecord::from_bytes(record)?.into_bytes()
}

/// The optimizer with its state from `snapshot`, for the module that
/// [`MirroredParams::restore`](crate::MirroredParams::restore) gives.
///
/// # Errors
/// [`Error::NoOptimizerState`], [`Error::OptimizerState`].
pub fn restore_optimizer(
    optimizer: ModuleOptimizer,
    snapshot: &Snapshot,
) -> Result<ModuleOptimizer, Error> {
    let step = snapshot.step();
    let state = snapshot.bytes(STATE);
    let state = state.ok_or(Error::NoOptimizerState { step })?;
    Ok(optimizer.from_bytes(Bytes::from_bytes_vec(state.to_vec()))?)
}

const STATE: &str = "burn.optimizer";
