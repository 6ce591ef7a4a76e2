//! A library, loaded.
#![expect(
    unsafe_code,
    reason = "loading code, and saying what type a function has, is believing what was found"
)]

use std::fs;
use std::path::Path;

use super::foreign::{AnyFunction, Function};
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

    /// The function of this name, to be called as what it is declared elsewhere.
    pub(super) fn any(&self, name: &'static str) -> Result<Function, Error> {
        // SAFETY: any function is one without arguments, as long as nobody calls it so.
        let address = unsafe { self.function::<AnyFunction>(name)? };
        Ok(Function::new(name, address))
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
