//! A library, loaded.
#![expect(
    unsafe_code,
    reason = "loading code, and saying what type a function has, is believing what was found"
)]

use std::fs;
use std::path::Path;

use crate::{Error, Libraries, Library};

/// A library that is loaded for as long as the process lives.
///
/// It is never unloaded: those of CUDA have threads and exit handlers of their own, which would be
/// left without code. So its functions are valid for ever.
#[derive(Debug)]
pub(super) struct SharedLibrary {
    library: Library,
    file: String,
    handle: libloading::Library,
}

impl SharedLibrary {
    /// Loads the first of the candidates that can be loaded.
    pub(super) fn open(library: Library, libraries: &Libraries) -> Result<Self, Error> {
        let mut tried = Vec::new();
        let mut said = None;
        for candidate in libraries.candidates(library) {
            let file = candidate.display().to_string();
            if is_path(&candidate) && !candidate.exists() {
                tried.push(file);
                continue;
            }
            load_companions(library, &candidate);
            // SAFETY: constructors of the library run. It is one of NVIDIA's, by its name, or one
            // that the user has named; those do nothing but set themselves up.
            match unsafe { libloading::Library::new(&candidate) } {
                Ok(handle) => {
                    return Ok(Self {
                        library,
                        file,
                        handle,
                    });
                }
                // What a file that is there lacks says more than that a name is not known.
                Err(error) if said.is_none() || is_path(&candidate) => {
                    said = Some(error_text(&error));
                }
                Err(_) => {}
            }
            tried.push(file);
        }
        Err(Error::NotLoadable {
            library,
            tried,
            said: said.unwrap_or_else(|| match libraries.leaves_out(library) {
                true => "the program leaves it out".to_owned(),
                false => "no such file".to_owned(),
            }),
        })
    }

    /// The function of this name.
    ///
    /// # Safety
    /// `F` is an `unsafe extern "C" fn` type, and that of the function.
    pub(super) unsafe fn function<F: Copy>(&self, name: &'static str) -> Result<F, Error> {
        // SAFETY: the caller knows the type.
        match unsafe { self.handle.get::<F>(name) } {
            Ok(function) => Ok(*function),
            Err(_) => Err(Error::NoFunction {
                library: self.library,
                file: self.file.clone(),
                function: name,
            }),
        }
    }

    /// Keeps the library loaded from now on, so that its functions outlive this.
    pub(super) fn keep(self) {
        std::mem::forget(self.handle);
    }
}

/// Loads what a library will look for by name only, from the folder where the library itself is:
/// NVRTC needs `libnvrtc-builtins`, which pip puts where no loader looks. Whether that helped is
/// seen later.
fn load_companions(library: Library, file: &Path) {
    let folder = file
        .parent()
        .filter(|_| library == Library::Nvrtc && is_path(file));
    let Some(entries) = folder.and_then(|folder| fs::read_dir(folder).ok()) else {
        return;
    };
    for entry in entries.flatten() {
        if entry
            .file_name()
            .to_string_lossy()
            .starts_with("libnvrtc-builtins.so")
        {
            // SAFETY: it holds data, and what NVIDIA runs to set it up.
            let companion = unsafe { libloading::Library::new(entry.path()) };
            std::mem::forget(companion);
        }
    }
}

/// Whether a candidate is a path; others are names that the loader looks up.
fn is_path(candidate: &Path) -> bool {
    candidate
        .parent()
        .is_some_and(|parent| parent != Path::new(""))
}

/// The words of the system's loader, which are the source of libloading's error.
fn error_text(error: &libloading::Error) -> String {
    let mut error: &dyn std::error::Error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// A function's name, and the types of its result and its arguments.
#[cfg(test)]
pub(super) type Symbol = (&'static str, &'static str, &'static [&'static str]);

/// Declares a table of functions and how it is loaded: all of them are there, or none is.
macro_rules! table {
    (
        $(#[$doc:meta])*
        $table:ident of $library:expr;
        $($field:ident: $symbol:ident($($argument:ty),*) -> $result:ty;)+
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $table {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> $result,)+
        }

        impl $table {
            /// Loads the library and looks up every function.
            fn lookup(libraries: &$crate::Libraries) -> Result<Self, $crate::Error> {
                let shared = $crate::sys::shared_library::SharedLibrary::open($library, libraries)?;
                let table = Self {
                    $(
                        // SAFETY: the declaration is that of NVIDIA's header, which a test has the
                        // C compiler compare.
                        $field: unsafe { shared.function(stringify!($symbol))? },
                    )+
                };
                shared.keep();
                Ok(table)
            }

            /// Each function with the types of its result and its arguments, as written here.
            #[cfg(test)]
            pub(super) const DECLARED: &'static [$crate::sys::shared_library::Symbol] = &[$((
                stringify!($symbol),
                stringify!($result),
                &[$(stringify!($argument)),*],
            )),+];
        }
    };
}

pub(super) use table;
