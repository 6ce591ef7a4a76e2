//! The parameters of a module in a snapshot, with the ids by which burn's optimizers know them.

use std::collections::BTreeMap;

use burn_core::module::{Module, ParamId};
use meshwork_strategy::{Snapshot, VariableSpec};

use crate::Error;
use crate::visits::{Found, places_of, survey};
use crate::walk::{Path, Place, with_values};

/// Adds all parameters of `module` to `snapshot`.
pub(crate) fn save<M: Module>(module: &M, snapshot: Snapshot) -> Result<Snapshot, Error> {
    add_all(survey(module, &mut Path::default())?, snapshot)
}

/// Adds those that are trained.
#[cfg(feature = "train")]
pub(crate) fn save_trained<M: Module>(module: &M, snapshot: Snapshot) -> Result<Snapshot, Error> {
    let mut found = survey(module, &mut Path::default())?;
    found.retain(|found| found.is_trained);
    add_all(found, snapshot)
}

fn add_all(found: Vec<Found>, mut snapshot: Snapshot) -> Result<Snapshot, Error> {
    for found in found {
        let id = found.id.val().to_string();
        snapshot = snapshot
            .with_array(&found.spec, &found.values)?
            .with_text(id_key(&found.spec), id);
    }
    Ok(snapshot)
}

/// The module with values and ids from `snapshot`.
pub(crate) fn restore<M: Module>(module: M, snapshot: &Snapshot) -> Result<M, Error> {
    let found = survey(&module, &mut Path::default())?;
    let specs: Vec<VariableSpec> = found.iter().map(|found| found.spec.clone()).collect();
    Ok(restore_known(module, &specs, &places_of(&found), snapshot)?.0)
}

/// The same of parameters that are known, and where each is by its new id. Others stay as they are.
pub(crate) fn restore_known<M: Module>(
    module: M,
    specs: &[VariableSpec],
    places: &BTreeMap<ParamId, Place>,
    snapshot: &Snapshot,
) -> Result<(M, BTreeMap<ParamId, Place>), Error> {
    let mut values = vec![&[][..]; specs.len()];
    let mut ids = vec![ParamId::from(0); specs.len()];
    for (id, place) in places {
        let spec = &specs[place.index];
        values[place.index] = snapshot.array(spec)?;
        let saved = snapshot.text(&id_key(spec));
        let saved = saved.and_then(|text| text.parse::<u64>().ok());
        ids[place.index] = saved.map_or(*id, ParamId::from);
    }
    let module = with_values(module, places, &values, &ids);
    let places = places.values().map(|place| (ids[place.index], *place));
    Ok((module, places.collect()))
}

fn id_key(spec: &VariableSpec) -> String {
    format!("burn.id.{}", spec.name())
}
