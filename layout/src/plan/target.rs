//! The target of a relayout, as the source's devices see it.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use meshwork_core::{DeviceSpec, Mesh, MeshRank};

use super::rank_digits::Numbering;
use crate::{Error, Layout};

/// A target on as many devices as the source.
#[derive(Clone, Debug)]
pub(super) struct Target<'a> {
    pub(super) layout: Cow<'a, Layout>,
    pub(super) numbering: Numbering,
}

impl<'a> Target<'a> {
    /// This layout for what lies on the devices of `source`. Where its own mesh has only some of
    /// them, ranks are added after its own, and hold what those do.
    ///
    /// # Errors
    /// [`Error::OtherDevices`].
    pub(super) fn new(layout: &'a Layout, source: &Mesh) -> Result<Self, Error> {
        let own = layout.mesh();
        if same_places(own, source) {
            let numbering = Numbering::same(own);
            return Ok(Self {
                layout: Cow::Borrowed(layout),
                numbering,
            });
        }
        let other_devices = || Error::OtherDevices {
            from: source.size(),
            to: own.size(),
        };
        let mut table = table(own, source).ok_or_else(other_devices)?;
        if table.len() == source.size() {
            let numbering = Numbering::of_table(own, table);
            return Ok(Self {
                layout: Cow::Borrowed(layout),
                numbering,
            });
        }
        if !source.size().is_multiple_of(own.size()) {
            return Err(other_devices());
        }
        let known: HashSet<usize> = table.iter().copied().collect();
        table.extend((0..source.size()).filter(|place| !known.contains(place)));
        let wider = widened(layout, source)?;
        let numbering = Numbering::of_table(wider.mesh(), table);
        Ok(Self {
            layout: Cow::Owned(wider),
            numbering,
        })
    }
}

/// Whether ranks of the same number have the same device.
fn same_places(mesh: &Mesh, other: &Mesh) -> bool {
    mesh.global_device_ids() == other.global_device_ids()
        && mesh.global_devices() == other.global_devices()
        && mesh.local_device_ids() == other.local_device_ids()
        && mesh.local_devices() == other.local_devices()
}

/// The place of each device of a mesh in another; none, if one is not there. Devices are told apart
/// by their names where both meshes know all, and by their ids otherwise.
fn table(of: &Mesh, within: &Mesh) -> Option<Vec<usize>> {
    if let (Some(of), Some(within)) = (devices(of), devices(within)) {
        let places: HashMap<_, _> = within.iter().zip(0..).collect();
        return of
            .iter()
            .map(|device| places.get(device).copied())
            .collect();
    }
    let place = |id| within.rank_of_device_id(id).map(MeshRank::index);
    of.global_device_ids().iter().map(place).collect()
}

/// The device of each rank, if all are known and no two are the same.
fn devices(mesh: &Mesh) -> Option<Vec<DeviceSpec>> {
    let devices: Option<Vec<_>> = mesh.ranks().map(|rank| mesh.device(rank).ok()?).collect();
    devices.filter(|devices| devices.iter().collect::<HashSet<_>>().len() == devices.len())
}

/// The same layout on as many ranks as the source's mesh has: with one dimension more, the most
/// major, along which all ranks hold the same. No dimension of the source is called like it, so
/// that the two meshes are never taken for one.
fn widened(layout: &Layout, source: &Mesh) -> Result<Layout, Error> {
    let own = layout.mesh();
    let times = source.size() / own.size();
    let mut added = "added".to_owned();
    while own.contains_dim(&added) || source.contains_dim(&added) {
        added.push('_');
    }
    let dims = own
        .dims()
        .iter()
        .map(|dim| (dim.name().as_str(), dim.size()));
    let mesh = Mesh::new([(added.as_str(), times)].into_iter().chain(dims))?;
    let wider = Layout::new(layout.specs().cloned(), &mesh)?;
    match layout.reduction() {
        Some(reduction) => wider.with_partial(layout.partial(), reduction),
        None => Ok(wider),
    }
}

#[cfg(test)]
mod tests {
    use meshwork_core::DeviceIds;

    use super::*;

    /// A mesh with one device for each number.
    fn mesh(dims: &[(&str, usize)], devices: &[usize]) -> Mesh {
        let device = |index| DeviceSpec::parse(&format!("/job:a/task:0/device:GPU:{index}"));
        let devices = devices.iter().map(|index| device(index).unwrap());
        let mesh = Mesh::new(dims.iter().copied()).unwrap();
        mesh.with_devices(devices).unwrap()
    }

    #[track_caller]
    fn check_places(mesh: &Mesh, source: &Mesh, expected: &[usize]) {
        let layout = Layout::replicated(mesh, 1);
        let target = Target::new(&layout, source).unwrap();
        let places = target.layout.mesh().ranks();
        let places = places.map(|rank| target.numbering.of(target.layout.mesh(), rank).index());
        assert_eq!(places.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn ranks_are_found_by_their_devices() {
        let source = mesh(&[("x", 2), ("y", 2)], &[0, 1, 2, 3]);
        check_places(&mesh(&[("z", 4)], &[0, 1, 2, 3]), &source, &[0, 1, 2, 3]);
        check_places(
            &mesh(&[("y", 2), ("x", 2)], &[0, 2, 1, 3]),
            &source,
            &[0, 2, 1, 3],
        );
        check_places(&mesh(&[("z", 4)], &[3, 1, 0, 2]), &source, &[3, 1, 0, 2]);
    }

    #[test]
    fn a_mesh_of_some_devices_is_filled_up() {
        let source = mesh(&[("x", 4)], &[0, 1, 2, 3]);
        check_places(&mesh(&[("x", 2)], &[2, 0]), &source, &[2, 0, 1, 3]);
        check_places(&mesh(&[("added", 1)], &[3]), &source, &[3, 0, 1, 2]);
    }

    #[test]
    fn ranks_without_devices_are_found_by_their_ids() {
        let source = Mesh::new([("x", 2), ("y", 2)]).unwrap();
        check_places(&Mesh::new([("z", 4)]).unwrap(), &source, &[0, 1, 2, 3]);
        let last = Mesh::builder([("z", 2)]).global_device_ids(DeviceIds::new([2, 3]).unwrap());
        check_places(&last.build().unwrap(), &source, &[2, 3, 0, 1]);
        // One of them knows its devices, but not where those of the other are.
        check_places(&mesh(&[("z", 4)], &[3, 2, 1, 0]), &source, &[0, 1, 2, 3]);
    }

    #[test]
    fn other_devices_are_refused() {
        let source = mesh(&[("x", 4)], &[0, 1, 2, 3]);
        for other in [
            mesh(&[("x", 4)], &[1, 2, 3, 4]),
            mesh(&[("x", 2)], &[0, 4]),
            mesh(&[("x", 3)], &[0, 1, 2]),
            mesh(&[("x", 8)], &[0, 1, 2, 3, 4, 5, 6, 7]),
        ] {
            let layout = Layout::replicated(&other, 1);
            let expected = Error::OtherDevices {
                from: 4,
                to: other.size(),
            };
            assert_eq!(Target::new(&layout, &source).unwrap_err(), expected);
        }
    }
}
