//! Functions of NVIDIA's libraries, called as cudarc declares them.
//!
//! cudarc has the types and the constants, kept up to date by others; it is not asked to load or to
//! call. It would load a library by a few names of its own choice, panic where one or a function is
//! missing, and return codes as enums, where a code of a newer library is undefined behaviour. Here
//! a function is looked up in the library that was found, under the name by which its declaration
//! is asked for, and returns a number.
//!
//! ```text
//!   sys::cuMemAlloc_v2: unsafe fn(*mut CUdeviceptr, usize) -> CUresult     cudarc's declaration
//!          │ Declaration::Foreign
//!          v
//!   unsafe extern "C" fn(*mut CUdeviceptr, usize) -> c_uint                what is called
//! ```
#![expect(
    unsafe_code,
    reason = "what a function takes is believed to be what cudarc declares"
)]

use std::ffi::{CStr, c_char, c_uint};

use cudarc::{cublas, driver, nccl, nvrtc};

use crate::error::Failure;

/// A function that a library has, whatever it takes.
pub(super) type AnyFunction = unsafe extern "C" fn();

/// One of the functions of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function {
    name: &'static str,
    address: AnyFunction,
}

impl Function {
    pub(super) const fn new(name: &'static str, address: AnyFunction) -> Self {
        Self { name, address }
    }

    /// The function as cudarc declares it: by the [`call`] macro only, which takes the declaration
    /// of the same name.
    pub(super) fn declared<D: Declaration>(self, declaration: D) -> D::Foreign {
        declaration.foreign(self.address)
    }

    /// What it has returned.
    pub(super) fn returned(self, code: c_uint) -> Returned {
        let function = self.name.strip_suffix("_v2").unwrap_or(self.name);
        Returned { function, code }
    }
}

/// A return code that nobody has looked at.
#[must_use = "a call may have failed"]
#[derive(Clone, Copy, Debug)]
pub(super) struct Returned {
    pub(super) function: &'static str,
    pub(super) code: c_uint,
}

impl Returned {
    /// Whether the code is this one.
    pub(super) fn is(self, code: impl ReturnCode) -> bool {
        self.code == code.number()
    }

    /// The failure, in the library's words.
    pub(super) fn failure(self, status: String) -> Failure {
        Failure {
            function: self.function,
            code: self.code.into(),
            status,
        }
    }
}

/// The enums in which cudarc has return codes.
pub(super) trait ReturnCode: Copy {
    /// As C has it.
    fn number(self) -> c_uint;
}

macro_rules! return_codes {
    ($($code:ty),+) => {$(
        impl ReturnCode for $code {
            fn number(self) -> c_uint {
                self as c_uint
            }
        }

        // C's enums of these libraries are as large as numbers.
        const _: () = assert!(size_of::<$code>() == size_of::<c_uint>());
    )+};
}

return_codes!(
    driver::sys::CUresult,
    nvrtc::sys::nvrtcResult,
    nccl::sys::ncclResult_t,
    cublas::sys::cublasStatus_t
);

/// A function by which cudarc calls one of a library's that returns a code.
pub(super) trait Declaration: Copy {
    /// The library's function: of the same arguments, and a number for the code.
    type Foreign: Copy;

    /// Its type for an address.
    fn foreign(self, address: AnyFunction) -> Self::Foreign;
}

macro_rules! declarations {
    ($($argument:ident)*) => {
        impl<Code: ReturnCode, $($argument),*> Declaration for unsafe fn($($argument),*) -> Code {
            type Foreign = unsafe extern "C" fn($($argument),*) -> c_uint;

            fn foreign(self, address: AnyFunction) -> Self::Foreign {
                // SAFETY: pointers to functions are alike, whatever these take; to call one is
                // unsafe, and who does says why it takes this.
                unsafe { std::mem::transmute::<AnyFunction, Self::Foreign>(address) }
            }
        }

        declarations!(@fewer $($argument)*);
    };
    (@fewer) => {};
    (@fewer $first:ident $($rest:ident)*) => { declarations!($($rest)*); };
}

// As many as `cublasGemmStridedBatchedEx` takes.
declarations!(A B C D E F G H I J K L M N O P Q R S T U V W);

/// A pointer to what only the library knows, and nobody follows here.
#[derive(Debug)]
pub(super) struct Handle<T>(pub(super) *mut T);

impl<T> Handle<T> {
    pub(super) const NULL: Self = Self(std::ptr::null_mut());
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T> PartialEq for Handle<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

// SAFETY: it is handed to the library only, which takes it of any thread.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<T> {}

/// The text at an address that a library gave, which may be none.
///
/// # Safety
/// `text` is null, or a string that ends in 0 and lives until this returns.
pub(super) unsafe fn text_at(text: *const c_char) -> String {
    if text.is_null() {
        return "unknown".to_owned();
    }
    // SAFETY: the caller says so.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

/// Declares a table of functions and how it is loaded: all of them are there, or none is. Each is
/// given by its name in `sys`, cudarc's module of the library, and a `_` for each argument; after
/// `lacking` come those that cudarc's declarations do not fit, with a type of our own.
macro_rules! table {
    (
        $(#[$doc:meta])*
        $table:ident of $library:path {
            $($symbol:ident($($any:tt),*);)+
        } lacking {
            $($(#[$why:meta])* $own:ident($($argument:ty),*) -> $result:ty;)+
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        #[expect(non_snake_case, reason = "functions are called as NVIDIA calls them")]
        pub(crate) struct $table {
            $(pub(super) $symbol: $crate::sys::foreign::Function,)+
            $($(#[$why])* $own: unsafe extern "C" fn($($argument),*) -> $result,)+
        }

        impl $table {
            /// Loads the library and looks up every function.
            fn lookup(libraries: &$crate::Libraries) -> Result<Self, $crate::Error> {
                let shared = $crate::sys::shared_library::SharedLibrary::open($library, libraries)?;
                let table = Self {
                    $($symbol: shared.any(stringify!($symbol))?,)+
                    $(
                        // SAFETY: the declaration is that of NVIDIA's header, which a test has the
                        // C compiler compare.
                        $own: unsafe { shared.function(stringify!($own))? },
                    )+
                };
                shared.keep();
                Ok(table)
            }

            /// Each function with its type.
            #[cfg(test)]
            pub(super) fn declared() -> Vec<$crate::sys::foreign::Symbol> {
                vec![
                    $((
                        stringify!($symbol),
                        $crate::sys::foreign::type_of(sys::$symbol as unsafe fn($($any),*) -> _),
                    ),)+
                    $((
                        stringify!($own),
                        std::any::type_name::<unsafe extern "C" fn($($argument),*) -> $result>(),
                    ),)+
                ]
            }
        }
    };
}

/// Calls a function of a table, as `sys`, cudarc's module of the library, declares it: an error
/// unless it did what it should.
macro_rules! call {
    ($table:expr, $symbol:ident($($argument:expr),* $(,)?)) => {
        $table.check($crate::sys::foreign::code_of!($table, $symbol($($argument),*)))
    };
}

/// The same, for who makes something of the code.
macro_rules! code_of {
    ($table:expr, $symbol:ident($($argument:expr),* $(,)?)) => {{
        let declaration: unsafe fn($($crate::sys::foreign::any!($argument)),*) -> _ = sys::$symbol;
        let function = $table.$symbol;
        let call = function.declared(declaration);
        function.returned(call($($argument),*))
    }};
}

/// The type of an argument, which its declaration has.
macro_rules! any {
    ($argument:expr) => {
        _
    };
}

pub(super) use {any, call, code_of, table};

/// A function's name and its type.
#[cfg(test)]
pub(super) type Symbol = (&'static str, &'static str);

/// The type of a library's function, from cudarc's declaration.
#[cfg(test)]
pub(super) fn type_of<D: Declaration>(_: D) -> &'static str {
    std::any::type_name::<D::Foreign>()
}
