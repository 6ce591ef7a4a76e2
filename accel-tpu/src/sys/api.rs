//! A loaded plugin: its table of functions, and how they are called.
#![expect(
    unsafe_code,
    reason = "plugins are C libraries: to load one and to call it is to trust it"
)]

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, PoisonError};

use libloading::Library;

use super::args::{Args, Function};
use super::handle::Counters;
use super::pjrt::*;
use super::{Live, read};
use crate::{Attributes, Error, Status};

/// A plugin that is loaded and set up; clones are the same one.
///
/// A plugin stays loaded until the process ends, because none can be unloaded safely. Loading one
/// twice sets it up once.
#[derive(Clone)]
pub struct Plugin(Arc<Loaded>);

struct Loaded {
    table: Table,
    path: PathBuf,
    counters: Counters,
}

/// The function table of a plugin.
#[derive(Clone, Copy)]
struct Table {
    start: NonNull<PJRT_Api>,
    /// The bytes that the plugin knows of.
    size: usize,
    version: PluginVersion,
}

// SAFETY: the table is never written after it was given out, and lives as long as the process.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

/// The version of PJRT that a plugin was built for.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct PluginVersion {
    major: i32,
    minor: i32,
}

impl Plugin {
    /// Loads the plugin at `path` and sets it up.
    ///
    /// The file is trusted: its code runs in this process. For libtpu the environment matters, see
    /// [`tpu`](crate::tpu).
    ///
    /// # Errors
    /// [`Error::Environment`] for libtpu on a machine without a TPU, [`Error::Load`],
    /// [`Error::NoApi`], [`Error::ApiVersion`], and [`Error::Plugin`] when it cannot be set up.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        crate::environment::check_environment(path)?;
        // One path, one setup: libraries are told apart as the system's loader does.
        let known = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let plugin = |table| {
            Self(Arc::new(Loaded {
                table,
                path: path.to_owned(),
                counters: Counters::default(),
            }))
        };
        if let Some(table) = loaded.get(&known) {
            return Ok(plugin(*table));
        }
        let plugin = plugin(Table::open(path)?);
        plugin.set_up()?;
        loaded.insert(known, plugin.0.table);
        Ok(plugin)
    }

    /// The file it was loaded from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The version of PJRT that it was built for.
    #[must_use]
    pub fn version(&self) -> PluginVersion {
        self.0.table.version
    }

    /// The plugin's attributes, such as the versions of StableHLO that it reads.
    ///
    /// # Errors
    /// [`Error::NotSupported`], [`Error::Plugin`].
    pub fn attributes(&self) -> Result<Attributes, Error> {
        let mut args = PJRT_Plugin_Attributes_Args::new();
        // SAFETY: the call has no arguments.
        unsafe { self.call(&mut args) }?;
        // SAFETY: the attributes live as long as the process.
        Ok(unsafe { read::attributes(args.attributes, args.num_attributes) })
    }

    /// How many objects of this plugin are alive that were made through this value and its clones.
    #[must_use]
    pub fn live(&self) -> Live {
        self.0.counters.live()
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// Calls the function that takes these arguments.
    ///
    /// # Safety
    /// The arguments are what the header asks for: pointers point to what it says, for as long as
    /// it says.
    pub(super) unsafe fn call<A: Args>(&self, args: &mut A) -> Result<(), Error> {
        let function = self.0.table.function::<A>()?;
        // SAFETY: the caller says that the arguments are right.
        let error = unsafe { function(args) };
        self.check(A::FUNCTION, error)
    }

    /// Makes an error of ours of one of the plugin, and frees that.
    pub(super) fn check(
        &self,
        function: &'static str,
        error: *mut PJRT_Error,
    ) -> Result<(), Error> {
        if error.is_null() {
            return Ok(());
        }
        let refused = Error::Plugin {
            function,
            status: self.status_of(error),
            message: self.message_of(error),
        };
        self.destroy_error(error);
        Err(refused)
    }

    fn set_up(&self) -> Result<(), Error> {
        let mut args = PJRT_Plugin_Initialize_Args::new();
        // SAFETY: the call has no arguments.
        unsafe { self.call(&mut args) }
    }

    fn status_of(&self, error: *const PJRT_Error) -> Status {
        let mut args = PJRT_Error_GetCode_Args {
            error,
            ..Args::new()
        };
        let unknown = Status::new(PJRT_Error_Code_UNKNOWN);
        let Ok(function) = self.0.table.function::<PJRT_Error_GetCode_Args>() else {
            return unknown;
        };
        // SAFETY: the error is alive until `check` destroys it.
        let another = unsafe { function(&raw mut args) };
        if !another.is_null() {
            self.destroy_error(another);
            return unknown;
        }
        Status::new(args.code)
    }

    fn message_of(&self, error: *const PJRT_Error) -> String {
        let mut args = PJRT_Error_Message_Args {
            struct_size: PJRT_Error_Message_Args_STRUCT_SIZE,
            extension_start: ptr::null_mut(),
            error,
            message: ptr::null(),
            message_size: 0,
        };
        let Some(function) = self.0.table.error_message() else {
            return String::new();
        };
        // SAFETY: the error is alive until `check` destroys it.
        unsafe { function(&raw mut args) };
        // SAFETY: and so is its message.
        unsafe { read::text(args.message, args.message_size) }
    }

    fn destroy_error(&self, error: *mut PJRT_Error) {
        let mut args = PJRT_Error_Destroy_Args {
            struct_size: PJRT_Error_Destroy_Args_STRUCT_SIZE,
            extension_start: ptr::null_mut(),
            error,
        };
        if let Some(function) = self.0.table.error_destroy() {
            // SAFETY: whoever has an error destroys it once, here.
            unsafe { function(&raw mut args) };
        }
    }
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin")
            .field("path", &self.path())
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}

impl PluginVersion {
    /// Changes when old callers break.
    #[must_use]
    pub const fn major(self) -> i32 {
        self.major
    }

    /// Changes when functions come.
    #[must_use]
    pub const fn minor(self) -> i32 {
        self.minor
    }
}

impl Display for PluginVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl Table {
    /// Loads the library for good, and asks it for its table.
    fn open(path: &Path) -> Result<Self, Error> {
        let load = |source| Error::Load {
            path: path.to_owned(),
            source,
        };
        // SAFETY: the caller of `Plugin::load` trusts the library, its constructors included.
        let library = unsafe { Library::new(path) }.map_err(load)?;
        let none = || Error::NoApi {
            path: path.to_owned(),
        };
        // SAFETY: this is the one function whose name and type PJRT fixes.
        let entry =
            unsafe { library.get::<unsafe extern "C" fn() -> *const PJRT_Api>(b"GetPjrtApi\0") };
        let entry = *entry.map_err(|_| none())?;
        // SAFETY: it takes nothing, and the library is loaded.
        let start = NonNull::new(unsafe { entry() }.cast_mut()).ok_or_else(none)?;
        // Its threads, and what it registered to run at exit, are not undone by unloading.
        std::mem::forget(library);
        Self::check(start, path)
    }

    fn check(start: NonNull<PJRT_Api>, path: &Path) -> Result<Self, Error> {
        // SAFETY: every version of the table begins with its size.
        let size = unsafe { start.cast::<usize>().read() };
        // Errors are reported by functions that have been there from the beginning.
        if size < offset_of!(PJRT_Api, PJRT_Plugin_Attributes) {
            let path = path.to_owned();
            return Err(Error::NoApi { path });
        }
        // SAFETY: it is long enough for its version.
        let version = unsafe { &raw const (*start.as_ptr()).pjrt_api_version };
        // SAFETY: as above.
        let version = unsafe { version.read() };
        let (major, minor) = (version.major_version, version.minor_version);
        let expected = PJRT_API_MAJOR.cast_signed();
        if major != expected {
            let path = path.to_owned();
            return Err(Error::ApiVersion {
                path,
                major,
                expected,
            });
        }
        Ok(Self {
            start,
            size,
            version: PluginVersion { major, minor },
        })
    }

    // A reference would promise all of `PJRT_Api`, and the table of an older plugin ends before
    // that.

    fn error_message(&self) -> PJRT_Error_Message {
        // SAFETY: `check` has seen that the table has this.
        unsafe { (*self.start.as_ptr()).PJRT_Error_Message }
    }

    fn error_destroy(&self) -> PJRT_Error_Destroy {
        // SAFETY: `check` has seen that the table has this.
        unsafe { (*self.start.as_ptr()).PJRT_Error_Destroy }
    }

    fn function<A: Args>(&self) -> Result<Function<A>, Error> {
        let missing = Error::NotSupported {
            function: A::FUNCTION,
            major: self.version.major,
            minor: self.version.minor,
        };
        if self.size < A::END {
            return Err(missing);
        }
        // SAFETY: the table reaches to the end of this function's entry.
        unsafe { A::read(self.start.as_ptr()) }.ok_or(missing)
    }
}

/// The tables of all plugins of this process, by path, so that each is set up once.
static LOADED: Mutex<BTreeMap<PathBuf, Table>> = Mutex::new(BTreeMap::new());

#[cfg(test)]
impl Plugin {
    /// One of these functions, which are there until the process ends.
    pub(super) fn of(mut api: PJRT_Api) -> Self {
        api.struct_size = size_of::<PJRT_Api>();
        let start = NonNull::from(Box::leak(Box::new(api)));
        let path = PathBuf::from("p.so");
        Self(Arc::new(Loaded {
            table: Table::check(start, &path).expect("it is whole"),
            path,
            counters: Counters::default(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table whose functions are all missing, that says it is `size` bytes of version 0.`minor`.
    fn table(size: usize, minor: i32) -> Result<Table, Error> {
        // SAFETY: the table is made of numbers and optional functions.
        let mut api: PJRT_Api = unsafe { std::mem::zeroed() };
        api.struct_size = size;
        api.pjrt_api_version.minor_version = minor;
        Table::check(NonNull::from(Box::leak(Box::new(api))), Path::new("p.so"))
    }

    #[track_caller]
    fn check_missing<A: Args>(table: &Table, name: &str) {
        let error = table.function::<A>().expect_err("the function is missing");
        assert_eq!(
            error.to_string(),
            format!("{name} is not in the plugin, which speaks PJRT 0.7: use a newer release")
        );
    }

    #[test]
    fn a_function_past_the_end_of_an_older_table_is_named() {
        let older = table(offset_of!(PJRT_Api, PJRT_Client_Create), 7).unwrap();
        check_missing::<PJRT_Client_Create_Args>(&older, "PJRT_Client_Create");
        check_missing::<PJRT_Compile_Args>(&older, "PJRT_Compile");
    }

    #[test]
    fn a_function_that_is_left_out_of_a_table_is_named() {
        let whole = table(size_of::<PJRT_Api>(), 7).unwrap();
        check_missing::<PJRT_Client_Create_Args>(&whole, "PJRT_Client_Create");
    }

    #[test]
    fn a_table_too_short_for_errors_is_no_plugin() {
        assert!(matches!(table(16, 7), Err(Error::NoApi { .. })));
    }

    /// Writes a word of its own.
    unsafe extern "C" fn message(args: *mut PJRT_Error_Message_Args) {
        const WORD: &str = "too old";
        // SAFETY: the caller gives arguments that are its own.
        let args = unsafe { &mut *args };
        (args.message, args.message_size) = (WORD.as_ptr().cast(), WORD.len());
    }

    unsafe extern "C" fn destroy(_: *mut PJRT_Error_Destroy_Args) {}

    unsafe extern "C" fn code(args: *mut PJRT_Error_GetCode_Args) -> *mut PJRT_Error {
        // SAFETY: as above.
        unsafe { &mut *args }.code = PJRT_Error_Code_UNIMPLEMENTED;
        ptr::null_mut()
    }

    /// Memory that ends where the table does: under Miri, or where it lies at the end of a page,
    /// nothing behind it can be looked at unnoticed.
    #[test]
    fn errors_of_a_plugin_whose_table_ends_early_are_told() {
        const WORDS: usize = offset_of!(PJRT_Api, PJRT_Plugin_Attributes) / size_of::<usize>();
        let short: &'static mut [usize] = Vec::leak(vec![0; WORDS]);
        let start = NonNull::from(&mut *short).cast::<PJRT_Api>();
        // SAFETY: all zero is a table, and each of these fields is in it.
        unsafe { (*start.as_ptr()).struct_size = size_of_val(short) };
        // SAFETY: as above.
        unsafe { (*start.as_ptr()).PJRT_Error_Message = Some(message) };
        // SAFETY: as above.
        unsafe { (*start.as_ptr()).PJRT_Error_Destroy = Some(destroy) };
        // SAFETY: as above.
        unsafe { (*start.as_ptr()).PJRT_Error_GetCode = Some(code) };
        let plugin = Plugin(Arc::new(Loaded {
            table: Table::check(start, Path::new("p.so")).unwrap(),
            path: "p.so".into(),
            counters: Counters::default(),
        }));
        let error = plugin.check("PJRT_Client_Create", NonNull::dangling().as_ptr());
        let Err(Error::Plugin {
            status, message, ..
        }) = error
        else {
            panic!("{error:?}");
        };
        assert_eq!(status, Status::new(PJRT_Error_Code_UNIMPLEMENTED));
        assert_eq!(message, "too old");
    }

    #[test]
    fn what_is_no_library_and_what_is_no_plugin_are_told_apart() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = Plugin::load(here.join("Cargo.toml"));
        assert!(matches!(text, Err(Error::Load { .. })));
        if cfg!(target_os = "linux") {
            assert!(matches!(
                Plugin::load("libc.so.6"),
                Err(Error::NoApi { .. })
            ));
        }
    }
}
