//! cuBLAS: its functions, and the handle of a stream.
#![expect(unsafe_code, reason = "functions of other languages are called here")]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use cudarc::cublas::sys::{self, cublasComputeType_t, cublasStatus_t, cudaDataType};
use meshwork_accel::ElementType;

use super::foreign::{Handle, Returned, call, code_of, table, text_at};
use super::memory::{Operands, Part, in_order};
use super::stream::Stream;
use crate::error::Failure;
use crate::gemm::Gemm;
use crate::{Error, Libraries, Library};

use sys::libraryPropertyType as Property;

table! {
    /// The functions of cuBLAS that this crate calls.
    Functions of Library::Cublas {
        cublasGetProperty(_, _);
        cublasCreate_v2(_);
        cublasDestroy_v2(_);
        cublasSetStream_v2(_, _);
        cublasSetMathMode(_, _);
        cublasGemmStridedBatchedEx(
            _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _
        );
    } lacking {
        /// Asked about codes that no enum has.
        cublasGetStatusString(c_uint) -> *const c_char;
    }
}

/// cuBLAS, loaded.
#[derive(Debug)]
pub(crate) struct Blas {
    functions: Functions,
    version: String,
}

impl Blas {
    /// Loads cuBLAS, which needs no GPU for that.
    ///
    /// # Errors
    /// [`Error::NotLoadable`], [`Error::NoFunction`], and [`Error::Call`] where it does not work.
    pub(crate) fn open(libraries: &Libraries) -> Result<Arc<Self>, Error> {
        let functions = Functions::lookup(libraries)?;
        let [major, minor, patch] = [
            Property::MAJOR_VERSION,
            Property::MINOR_VERSION,
            Property::PATCH_LEVEL,
        ]
        .map(|which| functions.property(which));
        let version = format!("{}.{}.{}", major?, minor?, patch?);
        Ok(Arc::new(Self { functions, version }))
    }

    /// Its version, such as `13.0.2`.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }
}

impl Functions {
    fn property(&self, which: Property) -> Result<c_int, Failure> {
        let mut value = 0;
        // SAFETY: `value` is writable.
        unsafe { call!(self, cublasGetProperty(which, &raw mut value)) }?;
        Ok(value)
    }

    fn check(&self, returned: Returned) -> Result<(), Failure> {
        if returned.is(cublasStatus_t::CUBLAS_STATUS_SUCCESS) {
            return Ok(());
        }
        // SAFETY: any number may be asked about.
        let text = unsafe { (self.cublasGetStatusString)(returned.code) };
        // SAFETY: it is a constant of the library, which stays loaded.
        Err(returned.failure(unsafe { text_at(text) }))
    }
}

/// A cuBLAS handle that multiplies matrices on one stream.
#[derive(Debug)]
pub(crate) struct Multiplier {
    blas: Arc<Blas>,
    handle: Handle<sys::cublasContext>,
    stream: Arc<Stream>,
}

impl Multiplier {
    /// For this stream.
    pub(crate) fn new(blas: Arc<Blas>, stream: Arc<Stream>) -> Result<Self, Failure> {
        let here = stream.gpu().enter()?;
        let (functions, mut handle) = (&blas.functions, Handle::NULL);
        // SAFETY: `handle` is writable, and the GPU is current.
        let created = unsafe { call!(functions, cublasCreate_v2(&raw mut handle.0)) };
        created.map_err(|mut failure| {
            // A driver that is too old is reported as "not initialized".
            let driver = stream.gpu().driver.version_text();
            let version = &blas.version;
            failure.status += &format!(": cuBLAS {version} on a driver for CUDA {driver}");
            failure
        })?;
        drop(here);
        let multiplier = Self {
            blas,
            handle,
            stream,
        };
        multiplier.prepare()?;
        Ok(multiplier)
    }

    fn prepare(&self) -> Result<(), Failure> {
        let functions = &self.blas.functions;
        let _here = self.stream.gpu().enter()?;
        // SAFETY: the handle lives, and so does the stream, as long as this does.
        unsafe {
            call!(
                functions,
                cublasSetStream_v2(self.handle.0, self.stream.handle.0.cast())
            )
        }?;
        // SAFETY: the handle lives.
        unsafe { call!(functions, cublasSetMathMode(self.handle.0, WHOLE_SUMS)) }
    }

    /// Replaces `into` by products; `false` if cuBLAS does not have them on this GPU. The stream
    /// that it was made for does the work, after and before that of the parts' own streams.
    pub(crate) fn product(
        &mut self,
        gemm: Gemm,
        element: ElementType,
        operands: Operands<'_>,
    ) -> Result<bool, Failure> {
        let Operands { left, right, into } = operands;
        let Some(kind) = Kind::of(element) else {
            return Ok(false);
        };
        let [a, b, c] = gemm.strides;
        for (stride, part) in [(a, right), (b, left), (c, into)] {
            let elements = i128::from(stride) * i128::from(gemm.batch);
            if elements * element.size() as i128 > part.bytes() as i128 {
                return Err(too_short(elements, part));
            }
        }
        let matrices = [right, left, into].map(|part| part.pointer());
        let returned = in_order(into, &[left, right], || {
            let _here = self.stream.gpu().enter()?;
            Ok(self.call(gemm, kind, matrices))
        })?;
        let absent = [
            cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED,
            cublasStatus_t::CUBLAS_STATUS_ARCH_MISMATCH,
        ];
        if absent.into_iter().any(|status| returned.is(status)) {
            return Ok(false);
        }
        self.blas.functions.check(returned)?;
        Ok(true)
    }

    fn call(&self, gemm: Gemm, kind: Kind, [a, b, c]: [*mut c_void; 3]) -> Returned {
        let [a_stride, b_stride, c_stride] = gemm.strides;
        let (one, zero) = kind.scalars();
        let as_it_is = sys::cublasOperation_t::CUBLAS_OP_N;
        // SAFETY: the handle lives, its stream is that of `c`, and the GPU is current. Of each
        // matrix so many elements are there, and are freed only after the stream's work; the
        // scalars are of the computing type and are read before this returns, as the handle expects
        // them of the host.
        unsafe {
            code_of!(
                self.blas.functions,
                cublasGemmStridedBatchedEx(
                    self.handle.0,
                    as_it_is,
                    as_it_is,
                    gemm.m,
                    gemm.n,
                    gemm.k,
                    one,
                    a,
                    kind.data,
                    gemm.m,
                    a_stride,
                    b,
                    kind.data,
                    gemm.k,
                    b_stride,
                    zero,
                    c,
                    kind.data,
                    gemm.m,
                    c_stride,
                    gemm.batch,
                    kind.compute,
                    sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
                )
            )
        }
    }
}

impl Drop for Multiplier {
    fn drop(&mut self) {
        let Ok(_here) = self.stream.gpu().enter() else {
            return;
        };
        // SAFETY: the handle was made by `new`, and ends here; cuBLAS waits for its work.
        let _ = unsafe { call!(self.blas.functions, cublasDestroy_v2(self.handle.0)) };
    }
}

/// The element type in cuBLAS's terms, and the type in which it accumulates.
#[derive(Clone, Copy, Debug)]
struct Kind {
    data: cudaDataType,
    compute: cublasComputeType_t,
}

impl Kind {
    /// That of a float, `None` for others.
    fn of(element: ElementType) -> Option<Self> {
        let short = cublasComputeType_t::CUBLAS_COMPUTE_32F;
        let (data, compute) = match element {
            ElementType::F32 => (cudaDataType::CUDA_R_32F, short),
            ElementType::F64 => (
                cudaDataType::CUDA_R_64F,
                cublasComputeType_t::CUBLAS_COMPUTE_64F,
            ),
            ElementType::F16 => (cudaDataType::CUDA_R_16F, short),
            ElementType::Bf16 => (cudaDataType::CUDA_R_16BF, short),
            _ => return None,
        };
        Some(Self { data, compute })
    }

    /// One and zero, in the computing type.
    fn scalars(self) -> (*const c_void, *const c_void) {
        const SHORT: &[f32; 2] = &[1.0, 0.0];
        const LONG: &[f64; 2] = &[1.0, 0.0];
        let short = (&raw const SHORT[0], &raw const SHORT[1]);
        let long = (&raw const LONG[0], &raw const LONG[1]);
        match self.compute {
            cublasComputeType_t::CUBLAS_COMPUTE_64F => (long.0.cast(), long.1.cast()),
            _ => (short.0.cast(), short.1.cast()),
        }
    }
}

fn too_short(elements: i128, part: Part<'_>) -> Failure {
    Failure {
        function: "cublasGemmStridedBatchedEx",
        code: 0,
        status: format!("{elements} elements do not fit in {} bytes", part.bytes()),
    }
}

#[cfg(test)]
pub(super) fn declared() -> Vec<super::foreign::Symbol> {
    Functions::declared()
}

/// Parts of sums are not rounded to 16 bits either. Products of `f32` are not rounded to fewer bits
/// by default.
const WHOLE_SUMS: sys::cublasMath_t =
    sys::cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
