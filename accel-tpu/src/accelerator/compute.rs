//! Arithmetic on the values of tensors, as compiled programs.

use meshwork_accel::{
    Accelerator, DeviceBuffer, ElementType, Elementwise, Error, Matmul, Pairwise, Pointwise,
    ProductShape,
};

use super::{PjrtAccelerator, PjrtBuffer, zero};
use crate::stablehlo::{Kernel, Vector};

/// Every float is computed with that the plugin compiles a program for; 16-bit ones in `f32`, and
/// rounded once.
///
/// Sums, differences, products and quotients are rounded as IEEE 754 has it wherever the device
/// does so, as a CPU does, and then have the bits of the host; a number too small to be normal may
/// be taken for zero. Exponentials and logarithms are right but for a few of the last places.
impl Elementwise for PjrtAccelerator {
    fn pointwise(&self, op: Pointwise, values: &mut PjrtBuffer) -> Result<(), Error> {
        float(values.element_type())?;
        let Some(memory) = values.memory() else {
            return Ok(());
        };
        let kernel = Kernel::Pointwise(op, values.vector());
        let computed = self.run(values.device(), kernel, &[memory], values.kept())?;
        values.set(computed);
        Ok(())
    }

    fn pairwise(&self, op: Pairwise, into: &mut PjrtBuffer, by: &PjrtBuffer) -> Result<(), Error> {
        alike(into, by)?;
        equally_long(into.len(), by.len())?;
        float(into.element_type())?;
        let (Some(left), Some(right)) = (into.memory(), by.memory()) else {
            return Ok(());
        };
        let kernel = Kernel::Pairwise(op, into.vector());
        let computed = self.run(into.device(), kernel, &[left, right], into.kept())?;
        into.set(computed);
        Ok(())
    }

    fn convert(&self, from: &PjrtBuffer, to: ElementType) -> Result<PjrtBuffer, Error> {
        if from.element_type() == to {
            return self.duplicate(from);
        }
        let vector = Vector {
            element: to,
            len: from.len(),
        };
        let kernel = Kernel::Convert(from.vector(), to);
        self.computed(from.device(), vector, kernel, &[from])
    }

    fn select(
        &self,
        condition: &PjrtBuffer,
        yes: &PjrtBuffer,
        no: &PjrtBuffer,
    ) -> Result<PjrtBuffer, Error> {
        alike(yes, no)?;
        let (left, right) = (yes.device(), condition.device());
        if left != right {
            return Err(Error::DeviceMismatch { left, right });
        }
        equally_long(yes.len(), no.len())?;
        equally_long(yes.len(), condition.len())?;
        let kernel = Kernel::Select(yes.vector(), condition.element_type());
        self.computed(left, yes.vector(), kernel, &[condition, yes, no])
    }
}

/// Terms are multiplied with the precision of their type, and added in `f32` where they are
/// shorter.
impl Matmul for PjrtAccelerator {
    fn matmul(
        &self,
        shape: ProductShape,
        left: &PjrtBuffer,
        right: &PjrtBuffer,
        into: &mut PjrtBuffer,
    ) -> Result<(), Error> {
        alike(into, left)?;
        alike(into, right)?;
        equally_long(left.len(), shape.left())?;
        equally_long(right.len(), shape.right())?;
        equally_long(into.len(), shape.product())?;
        let (device, element) = (into.device(), into.element_type());
        float(element)?;
        if into.is_empty() {
            return Ok(());
        }
        let product = match (left.memory(), right.memory()) {
            (Some(left), Some(right)) => {
                self.run(device, Kernel::Product(shape, element), &[left, right], &[])?
            }
            // Sums of no terms.
            _ => {
                let zero = zero(&self.client, device, element)?;
                self.run(device, Kernel::Fill(into.vector()), &[&zero], &[])?
            }
        };
        into.set(product);
        Ok(())
    }
}

pub(super) fn alike(into: &PjrtBuffer, other: &PjrtBuffer) -> Result<(), Error> {
    let (left, right) = (into.device(), other.device());
    if left != right {
        return Err(Error::DeviceMismatch { left, right });
    }
    into.check_element(other.element_type())
}

pub(super) fn equally_long(left: usize, right: usize) -> Result<(), Error> {
    match left == right {
        true => Ok(()),
        false => Err(Error::LengthMismatch { left, right }),
    }
}

fn float(element: ElementType) -> Result<(), Error> {
    match element.is_float() {
        true => Ok(()),
        false => Err(Error::UnsupportedElement { element }),
    }
}
