//! NVRTC: its functions, and programs that it compiles.
#![expect(unsafe_code, reason = "functions of other languages are called here")]

use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::ptr;

use cudarc::nvrtc::sys::{self, nvrtcResult};

use super::foreign::{Handle, Returned, call, code_of, table, text_at};
use crate::error::Failure;
use crate::target::Target;
use crate::{Error, Libraries, Library};

table! {
    /// The functions of NVRTC that this crate calls.
    Nvrtc of Library::Nvrtc {
        nvrtcVersion(_, _);
        nvrtcGetNumSupportedArchs(_);
        nvrtcGetSupportedArchs(_);
        nvrtcCreateProgram(_, _, _, _, _, _);
        nvrtcDestroyProgram(_);
        nvrtcCompileProgram(_, _, _);
        nvrtcGetPTXSize(_, _);
        nvrtcGetPTX(_, _);
        nvrtcGetCUBINSize(_, _);
        nvrtcGetCUBIN(_, _);
        nvrtcGetProgramLogSize(_, _);
        nvrtcGetProgramLog(_, _);
    } lacking {
        /// Asked about codes that no enum has.
        nvrtcGetErrorString(c_uint) -> *const c_char;
    }
}

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
        unsafe { call!(self, nvrtcVersion(&raw mut major, &raw mut minor)) }?;
        let number = |value| u32::try_from(value).expect("a version is not negative");
        Ok((number(major), number(minor)))
    }

    /// The architectures that it makes code for, as 90 for compute capability 9.0, in order.
    pub(crate) fn architectures(&self) -> Result<Vec<u32>, Failure> {
        let mut count: c_int = 0;
        // SAFETY: `count` is writable.
        unsafe { call!(self, nvrtcGetNumSupportedArchs(&raw mut count)) }?;
        let count = usize::try_from(count).expect("a count is not negative");
        let mut numbers: Vec<c_int> = vec![0; count];
        // SAFETY: there is room for as many numbers as were announced.
        unsafe { call!(self, nvrtcGetSupportedArchs(numbers.as_mut_ptr())) }?;
        let numbers = numbers
            .into_iter()
            .filter_map(|number| u32::try_from(number).ok());
        Ok(numbers.collect())
    }

    /// Compiles `source` for `target`: to a cubin, or to PTX that ends in 0.
    pub(crate) fn compile(&self, source: &str, target: Target) -> Result<Vec<u8>, Error> {
        let program = Program::new(self, source)?;
        program.compile(target)?;
        let image = match target {
            Target::Machine(_) => program.text(Text::Cubin),
            Target::Portable(_) => program.text(Text::Ptx),
        };
        Ok(image?)
    }

    fn check(&self, returned: Returned) -> Result<(), Failure> {
        if returned.is(nvrtcResult::NVRTC_SUCCESS) {
            return Ok(());
        }
        // SAFETY: any number may be asked about.
        let text = unsafe { (self.nvrtcGetErrorString)(returned.code) };
        // SAFETY: it is a constant of the library, which stays loaded.
        Err(returned.failure(unsafe { text_at(text) }))
    }
}

/// What it is asked for besides the architecture. It neither contracts nor flushes: every machine
/// is to compute the same bits.
pub(crate) const OPTIONS: [&str; 3] = ["--fmad=false", "--ftz=false", "--prec-div=true"];

/// A source on its way to code.
struct Program<'a> {
    nvrtc: &'a Nvrtc,
    handle: Handle<sys::_nvrtcProgram>,
}

impl<'a> Program<'a> {
    fn new(nvrtc: &'a Nvrtc, source: &str) -> Result<Self, Failure> {
        let source = CString::new(source).expect("source of kernels is text without 0");
        let mut handle = Handle::NULL;
        // SAFETY: `handle` is writable, source and name end in 0 and are copied, and there are no
        // headers.
        unsafe {
            call!(
                nvrtc,
                nvrtcCreateProgram(
                    &raw mut handle.0,
                    source.as_ptr(),
                    c"meshwork.cu".as_ptr(),
                    0,
                    ptr::null(),
                    ptr::null(),
                )
            )
        }?;
        Ok(Self { nvrtc, handle })
    }

    fn compile(&self, target: Target) -> Result<(), Error> {
        let of_target = format!("--gpu-architecture={target}");
        let options: Vec<CString> = std::iter::once(&*of_target)
            .chain(OPTIONS)
            .map(|option| CString::new(option).expect("an option is text without 0"))
            .collect();
        let pointers: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        let count = c_int::try_from(pointers.len()).expect("a handful of options");
        // SAFETY: the program lives, and there are so many options, which end in 0.
        let returned = unsafe {
            code_of!(
                self.nvrtc,
                nvrtcCompileProgram(self.handle.0, count, pointers.as_ptr())
            )
        };
        let refused = [
            nvrtcResult::NVRTC_ERROR_COMPILATION,
            // It does not know the architecture.
            nvrtcResult::NVRTC_ERROR_INVALID_OPTION,
        ];
        if !refused.into_iter().any(|code| returned.is(code)) {
            return Ok(self.nvrtc.check(returned)?);
        }
        let log = self.text(Text::Log)?;
        let log = CStr::from_bytes_until_nul(&log).unwrap_or_default();
        Err(Error::Compile {
            architecture: target.to_string(),
            log: log.to_string_lossy().trim().to_owned(),
        })
    }

    fn text(&self, which: Text) -> Result<Vec<u8>, Failure> {
        let mut bytes = 0;
        self.size(which, &mut bytes)?;
        let mut text = vec![0_u8; bytes];
        let (nvrtc, program, at) = (self.nvrtc, self.handle.0, text.as_mut_ptr().cast());
        match which {
            // SAFETY: the program lives, and there is room for as many bytes as were announced.
            Text::Cubin => unsafe { call!(nvrtc, nvrtcGetCUBIN(program, at)) },
            // SAFETY: as above.
            Text::Ptx => unsafe { call!(nvrtc, nvrtcGetPTX(program, at)) },
            // SAFETY: as above.
            Text::Log => unsafe { call!(nvrtc, nvrtcGetProgramLog(program, at)) },
        }?;
        Ok(text)
    }

    fn size(&self, which: Text, bytes: &mut usize) -> Result<(), Failure> {
        let (nvrtc, program) = (self.nvrtc, self.handle.0);
        match which {
            // SAFETY: the program lives, and `bytes` is writable.
            Text::Cubin => unsafe { call!(nvrtc, nvrtcGetCUBINSize(program, bytes)) },
            // SAFETY: as above.
            Text::Ptx => unsafe { call!(nvrtc, nvrtcGetPTXSize(program, bytes)) },
            // SAFETY: as above.
            Text::Log => unsafe { call!(nvrtc, nvrtcGetProgramLogSize(program, bytes)) },
        }
    }
}

/// What a program can be asked for.
#[derive(Clone, Copy, Debug)]
enum Text {
    Cubin,
    Ptx,
    Log,
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the program was made by `new`, and ends here.
        let _ = unsafe { call!(self.nvrtc, nvrtcDestroyProgram(&raw mut self.handle.0)) };
    }
}
