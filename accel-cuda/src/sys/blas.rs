//! cuBLAS: its functions, as `cublas_api.h` of CUDA 13.0 has them, and the handle of a stream.
#![expect(unsafe_code, reason = "functions of other languages are called here")]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use meshwork_accel::ElementType;

use super::driver::{Address, StreamHandle, text_at};
use super::memory::{Operands, Part, in_order};
use super::shared_library::table;
use super::stream::Stream;
use crate::error::Failure;
use crate::gemm::Gemm;
use crate::{Error, Libraries, Library};

/// `cublasStatus_t`.
type Code = c_uint;
/// `libraryPropertyType`.
type Property = c_uint;
/// The address of a number, of a type that another argument names.
type Scalar = *const c_void;

/// `cublasHandle_t`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(transparent)]
pub(super) struct BlasHandle(usize);

table! {
    /// The functions of cuBLAS that this crate calls.
    Functions of Library::Cublas;
    get_property: cublasGetProperty(Property, *mut c_int) -> Code;
    status_string: cublasGetStatusString(Code) -> *const c_char;
    create: cublasCreate_v2(*mut BlasHandle) -> Code;
    destroy: cublasDestroy_v2(BlasHandle) -> Code;
    set_stream: cublasSetStream_v2(BlasHandle, StreamHandle) -> Code;
    set_math_mode: cublasSetMathMode(BlasHandle, c_uint) -> Code;
    gemm: cublasGemmStridedBatchedEx(
        BlasHandle,
        c_uint,
        c_uint,
        c_int,
        c_int,
        c_int,
        Scalar,
        Address,
        c_uint,
        c_int,
        i64,
        Address,
        c_uint,
        c_int,
        i64,
        Scalar,
        Address,
        c_uint,
        c_int,
        i64,
        c_int,
        c_uint,
        c_int
    ) -> Code;
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
        let [major, minor, patch] = [MAJOR, MINOR, PATCH].map(|which| functions.property(which));
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
        let code = unsafe { (self.get_property)(which, &raw mut value) };
        self.check("cublasGetProperty", code)?;
        Ok(value)
    }

    fn check(&self, function: &'static str, code: Code) -> Result<(), Failure> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: any number may be asked about.
        let text = unsafe { (self.status_string)(code) };
        // SAFETY: it is a constant of the library, which stays loaded.
        let status = unsafe { text_at(text) };
        Err(Failure {
            function,
            code: code.into(),
            status,
        })
    }
}

/// A cuBLAS handle that multiplies matrices on one stream.
#[derive(Debug)]
pub(crate) struct Multiplier {
    blas: Arc<Blas>,
    handle: BlasHandle,
    stream: Arc<Stream>,
}

impl Multiplier {
    /// For this stream.
    pub(crate) fn new(blas: Arc<Blas>, stream: Arc<Stream>) -> Result<Self, Failure> {
        let here = stream.gpu().enter()?;
        let (functions, mut handle) = (&blas.functions, BlasHandle(0));
        // SAFETY: `handle` is writable, and the GPU is current.
        let code = unsafe { (functions.create)(&raw mut handle) };
        functions
            .check("cublasCreate", code)
            .map_err(|mut failure| {
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
        let code = unsafe { (functions.set_stream)(self.handle, self.stream.handle) };
        functions.check("cublasSetStream", code)?;
        // SAFETY: the handle lives.
        let code = unsafe { (functions.set_math_mode)(self.handle, WHOLE_SUMS) };
        functions.check("cublasSetMathMode", code)
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
        let mut code = SUCCESS;
        in_order(into, &[left, right], || {
            let _here = self.stream.gpu().enter()?;
            code = self.call(
                gemm,
                kind,
                [right.address(), left.address(), into.address()],
            );
            Ok(())
        })?;
        if [NOT_SUPPORTED, ARCH_MISMATCH].contains(&code) {
            return Ok(false);
        }
        let functions = &self.blas.functions;
        functions.check("cublasGemmStridedBatchedEx", code)?;
        Ok(true)
    }

    fn call(&self, gemm: Gemm, kind: Kind, [a, b, c]: [Address; 3]) -> Code {
        let [a_stride, b_stride, c_stride] = gemm.strides;
        let (one, zero) = kind.scalars();
        // SAFETY: the handle lives, its stream is that of `c`, and the GPU is current. Of each
        // matrix so many elements are there, and are freed only after the stream's work; the
        // scalars are of the computing type and are read before this returns, as the handle expects
        // them of the host.
        unsafe {
            (self.blas.functions.gemm)(
                self.handle,
                AS_IT_IS,
                AS_IT_IS,
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
                DEFAULT_ALGORITHM,
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
        unsafe { (self.blas.functions.destroy)(self.handle) };
    }
}

/// The element type in cuBLAS's terms, and the type in which it accumulates.
#[derive(Clone, Copy, Debug)]
struct Kind {
    /// `cudaDataType`.
    data: c_uint,
    /// `cublasComputeType_t`.
    compute: c_uint,
}

impl Kind {
    /// That of a float, `None` for others.
    fn of(element: ElementType) -> Option<Self> {
        let (data, compute) = match element {
            ElementType::F32 => (R_32F, COMPUTE_32F),
            ElementType::F64 => (R_64F, COMPUTE_64F),
            ElementType::F16 => (R_16F, COMPUTE_32F),
            ElementType::Bf16 => (R_16BF, COMPUTE_32F),
            _ => return None,
        };
        Some(Self { data, compute })
    }

    /// One and zero, in the computing type.
    fn scalars(self) -> (Scalar, Scalar) {
        const SHORT: &[f32; 2] = &[1.0, 0.0];
        const LONG: &[f64; 2] = &[1.0, 0.0];
        let short = (&raw const SHORT[0], &raw const SHORT[1]);
        let long = (&raw const LONG[0], &raw const LONG[1]);
        match self.compute {
            COMPUTE_64F => (long.0.cast(), long.1.cast()),
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
impl Blas {
    pub(super) const DECLARED: &'static [super::shared_library::Symbol] = Functions::DECLARED;
}

/// The numbers that are passed, by their names in the headers.
#[cfg(test)]
pub(super) const NUMBERS: [(&str, i64); 16] = [
    ("CUBLAS_STATUS_SUCCESS", SUCCESS as i64),
    ("CUBLAS_STATUS_NOT_SUPPORTED", NOT_SUPPORTED as i64),
    ("CUBLAS_STATUS_ARCH_MISMATCH", ARCH_MISMATCH as i64),
    ("CUBLAS_OP_N", AS_IT_IS as i64),
    ("CUBLAS_GEMM_DEFAULT", DEFAULT_ALGORITHM as i64),
    (
        "CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION",
        WHOLE_SUMS as i64,
    ),
    ("CUBLAS_COMPUTE_32F", COMPUTE_32F as i64),
    ("CUBLAS_COMPUTE_64F", COMPUTE_64F as i64),
    ("CUBLAS_POINTER_MODE_HOST", 0),
    ("CUDA_R_32F", R_32F as i64),
    ("CUDA_R_64F", R_64F as i64),
    ("CUDA_R_16F", R_16F as i64),
    ("CUDA_R_16BF", R_16BF as i64),
    ("MAJOR_VERSION", MAJOR as i64),
    ("MINOR_VERSION", MINOR as i64),
    ("PATCH_LEVEL", PATCH as i64),
];

const SUCCESS: Code = 0;
const ARCH_MISMATCH: Code = 8;
const NOT_SUPPORTED: Code = 15;
/// `CUBLAS_OP_N`: not transposed.
const AS_IT_IS: c_uint = 0;
/// `CUBLAS_GEMM_DEFAULT`.
const DEFAULT_ALGORITHM: c_int = -1;
/// `CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION`: parts of sums are not rounded to 16 bits
/// either. Products of `f32` are not rounded to fewer bits by default.
const WHOLE_SUMS: c_uint = 16;
const COMPUTE_32F: c_uint = 68;
const COMPUTE_64F: c_uint = 70;
const R_32F: c_uint = 0;
const R_64F: c_uint = 1;
const R_16F: c_uint = 2;
const R_16BF: c_uint = 14;
const MAJOR: Property = 0;
const MINOR: Property = 1;
const PATCH: Property = 2;
