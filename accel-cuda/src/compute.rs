//! Arithmetic on the values of tensors.

use meshwork_accel::{
    DeviceBuffer, ElementType, Elementwise, Error, Matmul, Pairwise, Pointwise, ProductShape,
};

use crate::accelerator::CudaAccelerator;
use crate::buffer::CudaBuffer;
use crate::error::Failure;
use crate::gemm::Gemm;
use crate::sys::memory::Operands;

/// All floats; 16-bit ones in `f32`, and rounded once.
///
/// Sums, differences, products and quotients are rounded as IEEE 754 has it; every NaN that comes
/// out is the same. Exponentials and logarithms are those of CUDA's library: right but for one or
/// two of the last places.
impl Elementwise for CudaAccelerator {
    fn pointwise(&self, op: Pointwise, values: &mut CudaBuffer) -> Result<(), Error> {
        let element = values.check_float()?;
        let Some(part) = values.whole() else {
            return Ok(());
        };
        let computed = values.logical().module.pointwise(op, element, part);
        computed.map_err(|failure| failure.on(values.device()))
    }

    fn pairwise(&self, op: Pairwise, into: &mut CudaBuffer, by: &CudaBuffer) -> Result<(), Error> {
        into.check_alike(by)?;
        into.check_len(by.len())?;
        let element = into.check_float()?;
        let (Some(to), Some(at)) = (into.whole(), by.whole()) else {
            return Ok(());
        };
        let computed = into.logical().module.pairwise(op, element, to, at);
        computed.map_err(|failure| failure.on(into.device()))
    }

    fn scale(&self, values: &mut CudaBuffer, by: f32) -> Result<(), Error> {
        let element = values.check_float()?;
        let Some(part) = values.whole() else {
            return Ok(());
        };
        let scaled = values.logical().module.scale(element, part, by);
        scaled.map_err(|failure| failure.on(values.device()))
    }

    fn convert(&self, from: &CudaBuffer, to: ElementType) -> Result<CudaBuffer, Error> {
        from.converted(to)
    }

    fn select(
        &self,
        condition: &CudaBuffer,
        yes: &CudaBuffer,
        no: &CudaBuffer,
    ) -> Result<CudaBuffer, Error> {
        yes.check_alike(no)?;
        yes.check_beside(condition)?;
        yes.check_len(no.len())?;
        yes.check_len(condition.len())?;
        condition.selected(yes, no)
    }
}

/// All floats, by cuBLAS where it can be loaded, see [`CudaAccelerator::matmul_library`]. Terms of
/// 16-bit floats are added in `f32`, and their sum is rounded once.
impl Matmul for CudaAccelerator {
    fn matmul(
        &self,
        shape: ProductShape,
        left: &CudaBuffer,
        right: &CudaBuffer,
        into: &mut CudaBuffer,
    ) -> Result<(), Error> {
        into.check_alike(left)?;
        into.check_alike(right)?;
        left.check_len(shape.left())?;
        right.check_len(shape.right())?;
        into.check_len(shape.product())?;
        let element = into.check_float()?;
        let Some(target) = into.whole() else {
            return Ok(());
        };
        let (Some(left), Some(right)) = (left.whole(), right.whole()) else {
            // Sums of no terms.
            return target.zero().map_err(|failure| failure.on(into.device()));
        };
        let operands = Operands {
            left,
            right,
            into: target,
        };
        self.multiply(element, shape, into, operands)
    }
}

impl CudaAccelerator {
    /// Products of matrices that are all there, into all of the buffer `of`.
    fn multiply(
        &self,
        element: ElementType,
        shape: ProductShape,
        of: &CudaBuffer,
        operands: Operands<'_>,
    ) -> Result<(), Error> {
        let (logical, failed) = (of.logical(), |failure: Failure| failure.on(of.device()));
        if let (Some(blas), Some(gemm)) = (self.multiplies_by()?, Gemm::of(shape)) {
            let by_library = logical.multiply(blas, gemm, element, operands);
            if by_library.map_err(failed)? {
                return Ok(());
            }
        }
        let multiplied = logical.module.product(element, shape, operands);
        multiplied.map_err(failed)
    }
}
