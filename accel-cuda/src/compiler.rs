use crate::error::Failure;
use crate::kernels::SOURCE;
use crate::sys::compiler::Nvrtc;
use crate::sys::driver::Driver;
use crate::sys::module::LOADING;
use crate::target::{Capability, Target};
use crate::{Error, Libraries};

/// NVRTC, which compiles this crate's kernels. It needs neither a GPU nor a driver.
///
/// ```
/// use meshwork_accel_cuda::{Compiler, Error, Libraries};
///
/// match Compiler::open(&Libraries::from_env()) {
///     Ok(compiler) => println!("NVRTC {}", compiler.version()),
///     Err(absent @ Error::NotLoadable { .. }) => println!("{absent}"),
///     Err(broken) => return Err(broken),
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Compiler {
    nvrtc: Nvrtc,
    version: (u32, u32),
    architectures: Vec<u32>,
}

impl Compiler {
    /// Loads NVRTC.
    ///
    /// # Errors
    /// [`Error::NotLoadable`], [`Error::NoFunction`], and [`Error::Call`] where it does not work.
    pub fn open(libraries: &Libraries) -> Result<Self, Error> {
        let nvrtc = Nvrtc::open(libraries)?;
        let (version, architectures) = (nvrtc.version()?, nvrtc.architectures()?);
        Ok(Self {
            nvrtc,
            version,
            architectures,
        })
    }

    /// Its version, such as `13.0`.
    #[must_use]
    pub fn version(&self) -> String {
        format!("{}.{}", self.version.0, self.version.1)
    }

    /// The error for an image of this compiler that a driver did not load.
    pub(crate) fn refused_by(&self, driver: &Driver, failure: Failure) -> Error {
        let (major, minor) = self.version;
        let newest = driver.version().map_or(0, i32::unsigned_abs);
        let is_newer = major * 1000 + minor * 10 > newest;
        if failure.function != LOADING || !is_newer {
            return failure.into();
        }
        Error::CompilerTooNew {
            compiler: self.version(),
            driver: driver.version_text(),
            code: failure.code,
            status: failure.status,
        }
    }

    /// The architectures that it makes machine code for, oldest first.
    pub fn architectures(&self) -> impl Iterator<Item = Capability> {
        let numbers = self.architectures.iter();
        numbers.map(|number| Capability::new(number / 10, number % 10))
    }

    /// The code that it can generate for a GPU.
    pub(crate) fn target(&self, capability: Capability) -> Result<Target, Error> {
        Target::choose(capability, &self.architectures).ok_or_else(|| Error::Compile {
            architecture: format!("sm_{}", capability.number()),
            log: format!("NVRTC {} makes code for newer GPUs only", self.version()),
        })
    }

    /// All kernels, as code for `target`.
    pub(crate) fn compile(&self, target: Target) -> Result<Vec<u8>, Error> {
        self.nvrtc.compile(SOURCE, target)
    }
}
