//! The blocks of a tensor: in host memory, on the devices of a backend, or in both.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use meshwork_layout::Shape;
use ndarray::ArrayD;

use crate::backend::{DeviceBlock, DeviceBlocks, LocalDevices};
use crate::exchange::PooledBlocks;
use crate::{Block, Context, Error, Scalar};

/// The blocks that the clones of a tensor share, on the host, on devices, or both. Blocks are
/// copied to where they are asked for and are not, and never twice.
pub(crate) struct Blocks<T: Scalar> {
    context: Context,
    shapes: Vec<Shape>,
    host: OnceLock<PooledBlocks<T>>,
    there: OnceLock<DeviceBlocks>,
    /// Taken by who carries blocks over.
    carrying: Mutex<()>,
}

impl<T: Scalar> Blocks<T> {
    /// Blocks in host memory.
    pub(crate) fn here(context: &Context, blocks: Vec<Block<T>>) -> Arc<Self> {
        let shapes = blocks.iter().map(|block| Shape::from(block.shape()));
        Arc::new(Self {
            context: context.clone(),
            shapes: shapes.collect(),
            host: OnceLock::from(PooledBlocks::new(context.clone(), blocks)),
            there: OnceLock::new(),
            carrying: Mutex::default(),
        })
    }

    /// Blocks of these sizes on their devices.
    pub(crate) fn there(context: &Context, shapes: Vec<Shape>, blocks: DeviceBlocks) -> Arc<Self> {
        Arc::new(Self {
            context: context.clone(),
            shapes,
            host: OnceLock::new(),
            there: OnceLock::from(blocks),
            carrying: Mutex::default(),
        })
    }

    /// The sizes of blocks that are not kept.
    pub(crate) fn nowhere(context: &Context, shapes: Vec<Shape>) -> Arc<Self> {
        Arc::new(Self {
            context: context.clone(),
            shapes,
            host: OnceLock::new(),
            there: OnceLock::new(),
            carrying: Mutex::default(),
        })
    }

    /// The sizes of each.
    pub(crate) fn shapes(&self) -> &[Shape] {
        &self.shapes
    }

    /// Those in host memory; none before they were fetched.
    pub(crate) fn on_host(&self) -> Option<&[Block<T>]> {
        self.host.get().map(PooledBlocks::blocks)
    }

    /// A copy of the first, in host memory: of blocks on devices the others are left there.
    pub(crate) fn first(&self) -> Result<ArrayD<T>, Error> {
        let first = self.there.get().and_then(|there| there.first());
        let first = first.zip(self.shapes.first());
        if let Some((stored, shape)) = first.filter(|_| self.on_host().is_none()) {
            return downloaded(stored, shape);
        }
        let first = self.fetched()?.blocks().first();
        Ok(first.ok_or(Error::NotHere)?.to_owned())
    }

    /// Those in host memory, where they are fetched to if they are not there.
    pub(crate) fn fetched(&self) -> Result<&PooledBlocks<T>, Error> {
        let _one = self.carrying.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = self.host.get() {
            return Ok(held);
        }
        let there = self.there.get().ok_or(Error::NotKept)?;
        let mut blocks = Vec::new();
        for (stored, shape) in there.iter().zip(&self.shapes) {
            blocks.push(downloaded(stored, shape)?.into_shared());
        }
        Ok(self
            .host
            .get_or_init(|| PooledBlocks::new(self.context.clone(), blocks)))
    }

    /// Those on the devices of a site, where they are carried to if they are not there.
    pub(crate) fn at(&self, site: &LocalDevices) -> Result<DeviceBlocks, Error> {
        if let Some(there) = self.stored().filter(|there| site.has(there)) {
            return Ok(there.clone());
        }
        let held = self.fetched()?.blocks();
        let _one = self.carrying.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = self.stored().filter(|there| site.has(there)) {
            return Ok(there.clone());
        }
        let places = held.iter().zip(&site.devices);
        let carried = places.map(|(block, device)| site.backend.upload(*device, &block.view()));
        let carried: DeviceBlocks = carried.collect::<Result<_, _>>()?;
        // Where another backend has them already, these are for one op only.
        let _ = self.there.set(carried.clone());
        Ok(carried)
    }

    /// Whether no other blocks share those on devices.
    pub(crate) fn are_spare(&self) -> bool {
        let mut there = self.there.get().into_iter().flatten();
        there.all(|block| Arc::strong_count(block) == 1)
    }

    /// Those on devices; none before they were carried there.
    pub(crate) fn stored(&self) -> Option<&DeviceBlocks> {
        self.there.get()
    }
}

fn downloaded<T: Scalar>(stored: &DeviceBlock, shape: &Shape) -> Result<ArrayD<T>, Error> {
    let elements = ArrayD::from_shape_vec(&**shape, stored.download::<T>()?);
    Ok(elements.expect("a block has as many elements as its shape says"))
}
