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
        values.check_float()?;
        let Some(memory) = values.memory() else {
            return Ok(());
        };
        let kernel = Kernel::Pointwise(op, values.vector());
        let computed = self.run(values.device(), kernel, &[memory], values.kept())?;
        values.set(computed);
        Ok(())
    }

    fn pairwise(&self, op: Pairwise, into: &mut PjrtBuffer, by: &PjrtBuffer) -> Result<(), Error> {
        into.check_device(by.device())?;
        into.check_element(by.element_type())?;
        into.check_len(by.len())?;
        into.check_float()?;
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
        yes.check_device(no.device())?;
        yes.check_element(no.element_type())?;
        yes.check_device(condition.device())?;
        yes.check_len(no.len())?;
        yes.check_len(condition.len())?;
        let kernel = Kernel::Select(yes.vector(), condition.element_type());
        self.computed(yes.device(), yes.vector(), kernel, &[condition, yes, no])
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
        into.check_device(left.device())?;
        into.check_element(left.element_type())?;
        into.check_device(right.device())?;
        into.check_element(right.element_type())?;
        left.check_len(shape.left())?;
        right.check_len(shape.right())?;
        into.check_len(shape.product())?;
        let (device, element) = (into.device(), into.check_float()?);
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
