//! NVRTC: its functions, as `nvrtc.h` of CUDA 13.0 has them, and programs that it compiles.
#![expect(unsafe_code, reason = "functions of other languages are called here")]

use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::ptr;

use super::driver::text_at;
use super::shared_library::table;
use crate::error::Failure;
use crate::target::Target;
use crate::{Error, Libraries, Library};

/// `nvrtcResult`.
pub(super) type Code = c_uint;

/// `nvrtcProgram`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(super) struct ProgramHandle(usize);

table! {
    /// The functions of NVRTC that this crate calls.
    Nvrtc of Library::Nvrtc;
    version: nvrtcVersion(*mut c_int, *mut c_int) -> Code;
    error_string: nvrtcGetErrorString(Code) -> *const c_char;
    num_supported_archs: nvrtcGetNumSupportedArchs(*mut c_int) -> Code;
    supported_archs: nvrtcGetSupportedArchs(*mut c_int) -> Code;
    create_program: nvrtcCreateProgram(
        *mut ProgramHandle,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char
    ) -> Code;
    destroy_program: nvrtcDestroyProgram(*mut ProgramHandle) -> Code;
    compile_program: nvrtcCompileProgram(ProgramHandle, c_int, *const *const c_char) -> Code;
    ptx_size: nvrtcGetPTXSize(ProgramHandle, *mut usize) -> Code;
    ptx: nvrtcGetPTX(ProgramHandle, *mut c_char) -> Code;
    cubin_size: nvrtcGetCUBINSize(ProgramHandle, *mut usize) -> Code;
    cubin: nvrtcGetCUBIN(ProgramHandle, *mut c_char) -> Code;
    log_size: nvrtcGetProgramLogSize(ProgramHandle, *mut usize) -> Code;
    log: nvrtcGetProgramLog(ProgramHandle, *mut c_char) -> Code;
}

/// A function that tells how long a text is.
type GetSize = unsafe extern "C" fn(ProgramHandle, *mut usize) -> Code;
/// A function that writes a text.
type GetText = unsafe extern "C" fn(ProgramHandle, *mut c_char) -> Code;

impl Nvrtc {
    /// Loads the compiler.
    ///
    /// # Errors
    /// [`Error::NotLoadable`], [`Error::NoFunction`].
    pub(crate) fn open(libraries: &Libraries) -> Result<Self, Error> {
        Self::lookup(libraries)
    }

    /// Its version, as 13 and 0.
    pub(crate) fn version(&self) -> Result<(u32, u32), Failure> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both are writable.
        let code = unsafe { (self.version)(&raw mut major, &raw mut minor) };
        self.check("nvrtcVersion", code)?;
        let number = |value| u32::try_from(value).expect("a version is not negative");
        Ok((number(major), number(minor)))
    }

    /// The architectures that it makes code for, as 90 for compute capability 9.0, in order.
    pub(crate) fn architectures(&self) -> Result<Vec<u32>, Failure> {
        let mut count: c_int = 0;
        // SAFETY: `count` is writable.
        let code = unsafe { (self.num_supported_archs)(&raw mut count) };
        self.check("nvrtcGetNumSupportedArchs", code)?;
        let count = usize::try_from(count).expect("a count is not negative");
        let mut numbers: Vec<c_int> = vec![0; count];
        // SAFETY: there is room for as many numbers as were announced.
        let code = unsafe { (self.supported_archs)(numbers.as_mut_ptr()) };
        self.check("nvrtcGetSupportedArchs", code)?;
        let numbers = numbers
            .into_iter()
            .filter_map(|number| u32::try_from(number).ok());
        Ok(numbers.collect())
    }

    /// Compiles `source` for `target`: to a cubin, or to PTX that ends in 0.
    pub(crate) fn compile(&self, source: &str, target: Target) -> Result<Vec<u8>, Error> {
        let program = Program::new(self, source)?;
        // Neither contracts nor flushes: every machine is to compute the same bits.
        let options = [
            format!("--gpu-architecture={target}"),
            "--fmad=false".to_owned(),
            "--ftz=false".to_owned(),
            "--prec-div=true".to_owned(),
        ];
        program.compile(&options, target)?;
        let image = match target {
            Target::Machine(_) => program.text("nvrtcGetCUBIN", self.cubin_size, self.cubin),
            Target::Portable(_) => program.text("nvrtcGetPTX", self.ptx_size, self.ptx),
        };
        Ok(image?)
    }

    fn check(&self, function: &'static str, code: Code) -> Result<(), Failure> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: any number may be asked about.
        let text = unsafe { (self.error_string)(code) };
        // SAFETY: it is a constant of the library, which stays loaded.
        let status = unsafe { text_at(text) };
        Err(Failure {
            function,
            code: code.into(),
            status,
        })
    }
}

/// A source on its way to code.
struct Program<'a> {
    nvrtc: &'a Nvrtc,
    handle: ProgramHandle,
}

impl<'a> Program<'a> {
    fn new(nvrtc: &'a Nvrtc, source: &str) -> Result<Self, Failure> {
        let source = CString::new(source).expect("source of kernels is text without 0");
        let mut handle = ProgramHandle(0);
        // SAFETY: `handle` is writable, source and name end in 0 and are copied, and there are no
        // headers.
        let code = unsafe {
            (nvrtc.create_program)(
                &raw mut handle,
                source.as_ptr(),
                c"meshwork.cu".as_ptr(),
                0,
                ptr::null(),
                ptr::null(),
            )
        };
        nvrtc.check("nvrtcCreateProgram", code)?;
        Ok(Self { nvrtc, handle })
    }

    fn compile(&self, options: &[String], target: Target) -> Result<(), Error> {
        let options: Vec<CString> = options
            .iter()
            .map(|option| CString::new(option.as_str()).expect("an option is text without 0"))
            .collect();
        let pointers: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        let count = c_int::try_from(pointers.len()).expect("a handful of options");
        // SAFETY: the program lives, and there are so many options, which end in 0.
        let code = unsafe { (self.nvrtc.compile_program)(self.handle, count, pointers.as_ptr()) };
        if code != COMPILATION && code != INVALID_OPTION {
            return Ok(self.nvrtc.check("nvrtcCompileProgram", code)?);
        }
        let log = self.text("nvrtcGetProgramLog", self.nvrtc.log_size, self.nvrtc.log)?;
        let log = CStr::from_bytes_until_nul(&log).unwrap_or_default();
        Err(Error::Compile {
            architecture: target.to_string(),
            log: log.to_string_lossy().trim().to_owned(),
        })
    }

    fn text(
        &self,
        function: &'static str,
        size: GetSize,
        get: GetText,
    ) -> Result<Vec<u8>, Failure> {
        let mut bytes = 0;
        // SAFETY: the program lives, and `bytes` is writable.
        let code = unsafe { size(self.handle, &raw mut bytes) };
        self.nvrtc.check(function, code)?;
        let mut text = vec![0_u8; bytes];
        // SAFETY: there is room for as many bytes as were announced.
        let code = unsafe { get(self.handle, text.as_mut_ptr().cast()) };
        self.nvrtc.check(function, code)?;
        Ok(text)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the program was made by `new`, and ends here.
        unsafe { (self.nvrtc.destroy_program)(&raw mut self.handle) };
    }
}

const SUCCESS: Code = 0;
/// `NVRTC_ERROR_INVALID_OPTION`: it does not know the architecture.
const INVALID_OPTION: Code = 5;
/// `NVRTC_ERROR_COMPILATION`.
const COMPILATION: Code = 6;
