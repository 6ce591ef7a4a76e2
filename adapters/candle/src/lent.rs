//! Candle's tensors in place, for the strategy and for units that are freed and filled again.

use std::cell::RefCell;

use candle_core::{CpuStorage, DType, Device, InplaceOp1, Layout, Tensor};
use meshwork_strategy::sharded::Lent;

use crate::Error;

/// Tensors whose memory a strategy reads and writes.
#[derive(Debug)]
pub(crate) struct LentTensors(Vec<Tensor>);

impl LentTensors {
    /// These, each with its name.
    ///
    /// # Errors
    /// [`Error::ElementType`], [`Error::NotInHostMemory`], and [`Error::Candle`].
    pub(crate) fn new<'a>(
        named: impl IntoIterator<Item = (&'a str, Tensor)>,
    ) -> Result<Self, Error> {
        let checked = named.into_iter().map(|(name, tensor)| {
            if tensor.dtype() != DType::F32 {
                return Err(Error::ElementType {
                    name: name.to_owned(),
                    found: tensor.dtype(),
                });
            }
            match tensor.device() {
                Device::Cpu => Ok(tensor.contiguous()?),
                Device::Cuda(_) | Device::Metal(_) => Err(Error::NotInHostMemory {
                    name: name.to_owned(),
                }),
            }
        });
        Ok(Self(checked.collect::<Result<_, Error>>()?))
    }
}

impl Lent for LentTensors {
    fn with(&mut self, tensor: usize, act: &mut dyn FnMut(&mut [f32])) {
        let act = InPlace(RefCell::new(act));
        let acted = self.0[tensor].inplace_op1(&act);
        acted.expect("contiguous tensors of f32 in host memory are written in place");
    }
}

/// Lets something have all elements of a tensor.
struct InPlace<'a>(RefCell<Act<'a>>);

type Act<'a> = &'a mut dyn FnMut(&mut [f32]);

impl InplaceOp1 for InPlace<'_> {
    fn name(&self) -> &'static str {
        "meshwork-in-place"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        let op = self.name();
        let elements = layout.contiguous_offsets();
        let (start, end) = elements.ok_or(candle_core::Error::RequiresContiguous { op })?;
        let CpuStorage::F32(values) = storage else {
            candle_core::bail!("{op} is for tensors of f32");
        };
        (self.0.borrow_mut())(&mut values[start..end]);
        Ok(())
    }
}

/// Exchanges the memory of a tensor and of all that share it.
pub(crate) struct Refill<'a>(pub(crate) &'a [f32]);

impl Refill<'_> {
    /// Frees the memory of a tensor, which nobody may read until it is filled again.
    pub(crate) const FREE: Self = Self(&[]);
}

impl InplaceOp1 for Refill<'_> {
    fn name(&self) -> &'static str {
        "meshwork-refill"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, _: &Layout) -> candle_core::Result<()> {
        *storage = CpuStorage::F32(self.0.to_vec());
        Ok(())
    }
}
