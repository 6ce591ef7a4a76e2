//! Elements put in other places, and made one along an axis, as compiled programs.

use std::sync::Arc;

use meshwork_accel::{
    Arrange, Arrangement, DeviceBuffer, DeviceId, ElementType, Error, Fold, ReduceOp, Region,
};

use super::compute::{alike, equally_long};
use super::{PjrtAccelerator, PjrtBuffer};
use crate::Buffer;
use crate::stablehlo::{Kernel, MOST_AXES, Vector};

impl Arrange for PjrtAccelerator {
    fn cut(&self, from: &PjrtBuffer, part: &Region) -> Result<PjrtBuffer, Error> {
        equally_long(from.len(), part.whole_len())?;
        few(part.whole().len())?;
        self.made(from, part.len(), |element| {
            Kernel::Cut(part.clone(), element)
        })
    }

    fn paste(&self, from: &PjrtBuffer, into: &mut PjrtBuffer, part: &Region) -> Result<(), Error> {
        alike(into, from)?;
        equally_long(from.len(), part.len())?;
        equally_long(into.len(), part.whole_len())?;
        few(part.whole().len())?;
        let (Some(by), Some(whole)) = (from.memory(), into.memory()) else {
            return Ok(());
        };
        let kernel = Kernel::Paste(part.clone(), into.element_type());
        let pasted = self.run(into.device(), kernel, &[whole, by], into.kept())?;
        into.set(pasted);
        Ok(())
    }

    fn arrange(&self, from: &PjrtBuffer, to: &Arrangement) -> Result<PjrtBuffer, Error> {
        equally_long(from.len(), to.from_len())?;
        few(to.to().len())?;
        self.made(from, to.len(), |element| {
            Kernel::Arrange(to.clone(), element)
        })
    }
}

/// 16-bit floats are folded in `f32`, and rounded once.
impl Fold for PjrtAccelerator {
    fn fold(
        &self,
        op: ReduceOp,
        sizes: [usize; 3],
        from: &PjrtBuffer,
    ) -> Result<PjrtBuffer, Error> {
        let [outer, len, inner] = sizes;
        let element = from.element_type();
        let is_folded_by = matches!(
            op,
            ReduceOp::Sum | ReduceOp::Product | ReduceOp::Min | ReduceOp::Max
        );
        if !is_folded_by || !op.supports(element) {
            return Err(Error::UnsupportedOp { op, element });
        }
        equally_long(from.len(), sizes.iter().product())?;
        if len == 0 {
            return Err(Error::NoSources { op });
        }
        self.made(from, outer * inner, |element| {
            Kernel::Fold(op, sizes, element)
        })
    }
}

impl PjrtAccelerator {
    /// A new buffer of so many elements, by a program of another one.
    fn made(
        &self,
        from: &PjrtBuffer,
        len: usize,
        kernel: impl FnOnce(ElementType) -> Kernel,
    ) -> Result<PjrtBuffer, Error> {
        let (device, element): (DeviceId, _) = (from.device(), from.element_type());
        let mut made = self.empty(device, Vector { element, len });
        if let Some(memory) = from.memory().filter(|_| len > 0) {
            let made_of: Arc<Buffer> = self.run(device, kernel(element), &[memory], &[])?;
            made.set(made_of);
        }
        Ok(made)
    }
}

fn few(axes: usize) -> Result<(), Error> {
    let most = MOST_AXES;
    match axes <= most {
        true => Ok(()),
        false => Err(Error::TooManyAxes { axes, most }),
    }
}
