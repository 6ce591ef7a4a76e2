//! What devices have in graphs only: taken note of where a step becomes a graph, and else left to
//! the host.

use meshwork_accel::{ElementType, GraphOp, PerDevice, TableRows};
use meshwork_layout::Shape;

use super::Local;
use crate::backend::{DeviceBlocks, LocalDevices};
use crate::{Error, Scalar};

impl<T: Scalar> Local<T> {
    /// An op of each block, which makes these sizes; none where the host has to do it.
    pub(in crate::ops) fn in_graph<R: Scalar>(
        &self,
        sizes: &[Shape],
        op: impl Fn(usize) -> Result<GraphOp, Error>,
    ) -> Result<Option<Local<R>>, Error> {
        let Some(site) = self.noting() else {
            return Ok(None);
        };
        self.noted(site, &[self.at(site)?], sizes, op)
    }

    /// An op of each block and of the same one of another tensor, which makes these sizes; none
    /// where the host has to do it.
    pub(in crate::ops) fn in_graph_with<U: Scalar, R: Scalar>(
        &self,
        other: &Local<U>,
        sizes: &[Shape],
        op: impl Fn(usize) -> Result<GraphOp, Error>,
    ) -> Result<Option<Local<R>>, Error> {
        let Some(site) = self.noting() else {
            return Ok(None);
        };
        self.noted(site, &[self.at(site)?, other.at(site)?], sizes, op)
    }

    /// The rows of this table, of which each place has those from a start on, at indices; zeros for
    /// those of others. They are 0.0, so that -0.0 loses its sign in the sum over places, which it
    /// keeps on the host. This makes these sizes; none where the host has to do it.
    pub(in crate::ops) fn rows_taken<I: Scalar>(
        &self,
        indices: &Local<I>,
        starts: &[usize],
        sizes: &[Shape],
    ) -> Result<Option<Self>, Error> {
        let Some(site) = self.noting() else {
            return Ok(None);
        };
        let rows = |place: usize| rows(starts[place], &self.sizes()[place]);
        let given = [self.at(site)?, indices.counted(site)?];
        self.noted(site, &given, sizes, |place| {
            Ok(GraphOp::TakeRows(rows(place)))
        })
    }

    /// For each row of a range of its own on each place the sum of those rows of another that have
    /// its index, which makes these sizes; none where the host has to do it.
    pub(in crate::ops) fn rows_added<U: Scalar>(
        &self,
        by: &Local<U>,
        starts: &[usize],
        sizes: &[Shape],
    ) -> Result<Option<Local<U>>, Error> {
        let Some(site) = self.noting() else {
            return Ok(None);
        };
        let rows = |place: usize| rows(starts[place], &sizes[place]);
        let given = [self.counted(site)?, by.at(site)?];
        self.noted(site, &given, sizes, |place| {
            Ok(GraphOp::AddRows(rows(place)))
        })
    }

    /// Indices as whole numbers; what is none counts for nothing, and was refused before.
    fn counted(&self, site: &LocalDevices) -> Result<DeviceBlocks, Error> {
        match T::TYPE.is_float() || T::TYPE == ElementType::Bool {
            true => self.converted::<i64>()?.at(site),
            false => self.at(site),
        }
    }

    fn noted<R: Scalar>(
        &self,
        site: &LocalDevices,
        given: &[DeviceBlocks],
        sizes: &[Shape],
        op: impl Fn(usize) -> Result<GraphOp, Error>,
    ) -> Result<Option<Local<R>>, Error> {
        self.there(sizes.to_vec(), |place| {
            let own: Vec<_> = given.iter().map(|blocks| &*blocks[place]).collect();
            site.backend.in_graph(op(place)?, &own)
        })
    }

    /// The devices, where it is only taken note of what is asked of them.
    fn noting(&self) -> Option<&LocalDevices> {
        let site = self.site.as_deref();
        site.filter(|site| site.backend.recorder().is_some())
    }
}

/// The rows of a block of a table.
fn rows(first: usize, sizes: &[usize]) -> TableRows {
    TableRows {
        first: PerDevice::all(first),
        count: sizes[0],
        width: sizes[1],
    }
}
