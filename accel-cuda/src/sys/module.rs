//! Compiled kernels on a GPU, and how each kind of them is called.
#![expect(unsafe_code, reason = "functions of other languages are called here")]

mod choices;
mod tensors;

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::Arc;

pub(crate) use choices::{Lines, One};

use super::driver::{Address, FunctionHandle, ModuleHandle, sys};
use super::foreign::call;
use super::gpu::Gpu;
use super::memory::{Part, in_order};
use super::stream::Stream;
use crate::error::Failure;
use crate::kernels::{Grid, Kernel, MOST_PLACES};

/// All kernels, loaded on one GPU.
#[derive(Debug)]
pub(crate) struct Module {
    gpu: Arc<Gpu>,
    handle: ModuleHandle,
    multiprocessors: u32,
    functions: HashMap<Kernel, FunctionHandle>,
}

/// Which kernel, by how many threads.
struct Launch {
    kernel: Kernel,
    grid: Grid,
}

impl Module {
    /// Loads what the compiler made of the source of [`Kernel`]s; each of them is there, or it is
    /// an error. The image is a cubin, or PTX that ends in 0.
    pub(crate) fn load(gpu: Arc<Gpu>, image: &[u8]) -> Result<Self, Failure> {
        let multiprocessors = gpu.card().multiprocessors()?;
        let here = gpu.enter()?;
        let mut handle = ModuleHandle::NULL;
        // SAFETY: `handle` is writable and the GPU is current; an image says itself how long it is,
        // and who made it here made all of it.
        unsafe {
            call!(
                gpu.driver,
                cuModuleLoadData(&raw mut handle.0, image.as_ptr().cast())
            )
        }?;
        drop(here);
        let mut module = Self {
            gpu,
            handle,
            multiprocessors,
            functions: HashMap::new(),
        };
        for kernel in Kernel::all() {
            let function = module.function(kernel)?;
            module.functions.insert(kernel, function);
        }
        Ok(module)
    }

    /// How many multiprocessors its GPU has.
    pub(crate) fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    fn function(&self, kernel: Kernel) -> Result<FunctionHandle, Failure> {
        let _here = self.gpu.enter()?;
        let name = CString::new(kernel.name()).expect("names of kernels have no 0");
        let mut function = FunctionHandle::NULL;
        // SAFETY: `function` is writable, the module lives, and the name ends in 0.
        unsafe {
            call!(
                self.gpu.driver,
                cuModuleGetFunction(&raw mut function.0, self.handle.0, name.as_ptr())
            )
        }?;
        Ok(function)
    }

    /// Replaces each element of `into` by the op of itself and the same of `from`, as many as both
    /// have. The stream of `into` does the work, after and before the work of the stream of `from`.
    pub(crate) fn reduce(
        &self,
        kernel: Kernel,
        into: Part<'_>,
        from: Part<'_>,
    ) -> Result<(), Failure> {
        let Some(size) = kernel.reduces() else {
            return Err(not_of_this_kind(kernel));
        };
        let (mut to, mut at) = (into.address(), from.address());
        let mut count = (into.bytes().min(from.bytes()) / size) as u64;
        let grid = Grid::of_packs(count, size, self.multiprocessors);
        let mut arguments = arguments![to, at, count];
        self.launch_in_order(Launch { kernel, grid }, &mut arguments, into, &[from])
    }

    /// Replaces each element of all `targets` by the op of the elements of all `sources`. Streams
    /// of the memory are put in order by the caller, before and after; `stream` does the work.
    pub(crate) fn fold(
        &self,
        kernel: Kernel,
        targets: &[Part<'_>],
        sources: &[Part<'_>],
        stream: &Stream,
    ) -> Result<(), Failure> {
        let Some(size) = kernel.folds() else {
            return Err(not_of_this_kind(kernel));
        };
        let parts = targets.iter().chain(sources);
        let bytes = parts.map(Part::bytes).min().unwrap_or(0);
        let mut count = (bytes / size) as u64;
        let (mut to, mut at) = (Places::of(targets), Places::of(sources));
        let grid = Grid::of_elements(count, self.multiprocessors);
        let mut arguments = arguments![to, at, count];
        self.launch(kernel, grid, stream, &mut arguments)
    }

    /// Divides each element by `by`, integers towards zero; `stream` does the work.
    pub(crate) fn divide(
        &self,
        kernel: Kernel,
        values: Part<'_>,
        by: u32,
        stream: &Stream,
    ) -> Result<(), Failure> {
        let Some(size) = kernel.divides() else {
            return Err(not_of_this_kind(kernel));
        };
        let (mut at, mut by) = (values.address(), by);
        let mut count = (values.bytes() / size) as u64;
        let grid = Grid::of_elements(count, self.multiprocessors);
        let mut arguments = arguments![at, by, count];
        self.launch(kernel, grid, stream, &mut arguments)
    }

    /// Sets each element to the lowest bytes of `bits`, as many as an element has.
    pub(crate) fn fill(&self, kernel: Kernel, values: Part<'_>, bits: u64) -> Result<(), Failure> {
        let Some(size) = kernel.fills() else {
            return Err(not_of_this_kind(kernel));
        };
        let (mut at, mut bits) = (values.address(), bits);
        let mut count = (values.bytes() / size) as u64;
        let grid = Grid::of_elements(count, self.multiprocessors);
        let mut arguments = arguments![at, bits, count];
        self.launch(kernel, grid, values.stream(), &mut arguments)
    }

    /// Launches a kernel by the stream of `into`, after and before the work of the streams of
    /// `sources`.
    fn launch_in_order(
        &self,
        Launch { kernel, grid }: Launch,
        arguments: &mut [*mut c_void],
        into: Part<'_>,
        sources: &[Part<'_>],
    ) -> Result<(), Failure> {
        in_order(into, sources, || {
            self.launch(kernel, grid, into.stream(), arguments)
        })
    }

    fn launch(
        &self,
        kernel: Kernel,
        grid: Grid,
        stream: &Stream,
        arguments: &mut [*mut c_void],
    ) -> Result<(), Failure> {
        let Some(function) = self.functions.get(&kernel) else {
            return Err(not_of_this_kind(kernel));
        };
        let driver = &self.gpu.driver;
        let _here = self.gpu.enter()?;
        // SAFETY: each argument points to a value of the type that kernels of this kind take in
        // this place, and is read before this returns. Addresses have as many elements as the count
        // says.
        unsafe {
            call!(
                driver,
                cuLaunchKernel(
                    function.0,
                    grid.blocks(),
                    1,
                    1,
                    grid.threads(),
                    1,
                    1,
                    0,
                    stream.handle.0,
                    arguments.as_mut_ptr(),
                    ptr::null_mut(),
                )
            )
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let Ok(_here) = self.gpu.enter() else { return };
        // SAFETY: it was loaded by `load`, and ends here; streams that use it are waited for by the
        // memory that they work on, which is dropped first.
        let _ = unsafe { call!(self.gpu.driver, cuModuleUnload(self.handle.0)) };
    }
}

/// The function that code goes to.
pub(crate) const LOADING: &str = "cuModuleLoadData";

/// `struct places` of the kernels' source.
#[repr(C)]
struct Places {
    count: u32,
    address: [Address; MOST_PLACES],
}

impl Places {
    /// Of as many parts as fit.
    fn of(parts: &[Part<'_>]) -> Self {
        let mut address = [0; MOST_PLACES];
        let mut count = 0;
        for (place, part) in address.iter_mut().zip(parts) {
            *place = part.address();
            count += 1;
        }
        Self { count, address }
    }
}

/// The addresses of the values that a kernel takes, in the order of its parameters.
macro_rules! arguments {
    ($($value:ident),+ $(,)?) => {
        [$($crate::sys::module::address_of(&mut $value)),+]
    };
}

use arguments;

fn address_of<T>(value: &mut T) -> *mut c_void {
    ptr::from_mut(value).cast()
}

fn not_of_this_kind(kernel: Kernel) -> Failure {
    Failure {
        function: "cuLaunchKernel",
        code: 0,
        status: format!("{} is a kernel of another kind", kernel.name()),
    }
}
