//! What is known of a compiled program, whether it can be run here or not.
#![expect(
    unsafe_code,
    reason = "calls into the plugin, with memory that it fills"
)]

use super::api::Plugin;
use super::args::Args;
use super::handle::Handle;
use super::pjrt::*;
use super::read;
use crate::Error;
use crate::hlo::OptimizedProgram;

/// A compiled program.
#[derive(Debug)]
pub struct PjrtProgram(Handle<PJRT_Executable>);

/// The memory that a program takes on each of its devices, in bytes, as its compiler reckons.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ProgramMemory {
    /// The code.
    pub code: i64,
    /// All arguments.
    pub arguments: i64,
    /// All results.
    pub outputs: i64,
    /// Results that take the memory of arguments.
    pub aliased: i64,
    /// Bytes of temporary memory during a run.
    pub temporary: i64,
    /// The most at any time, where the compiler knows; else 0.
    pub peak: i64,
}

impl ProgramMemory {
    /// What a run takes besides its arguments: results of their own, and temporary memory.
    #[must_use]
    pub fn beside_arguments(&self) -> u64 {
        let results = self.outputs.saturating_sub(self.aliased).max(0);
        results.unsigned_abs() + self.temporary.max(0).unsigned_abs()
    }
}

impl PjrtProgram {
    /// # Safety
    /// As for [`Handle::take`].
    pub(super) unsafe fn take(
        plugin: &Plugin,
        function: &'static str,
        raw: *mut PJRT_Executable,
    ) -> Result<Self, Error> {
        // SAFETY: the caller says so.
        unsafe { Handle::take(plugin, function, raw) }.map(Self)
    }

    /// How many copies of it run at once, each with arguments of its own.
    ///
    /// # Errors
    /// [`Error::Plugin`].
    pub fn replicas(&self) -> Result<usize, Error> {
        let mut args = PJRT_Executable_NumReplicas_Args {
            executable: self.0.raw(),
            ..Args::new()
        };
        // SAFETY: the program is alive.
        unsafe { self.0.plugin().call(&mut args) }?;
        Ok(args.num_replicas)
    }

    /// Over how many devices each copy is spread.
    ///
    /// # Errors
    /// [`Error::Plugin`].
    pub fn partitions(&self) -> Result<usize, Error> {
        let mut args = PJRT_Executable_NumPartitions_Args {
            executable: self.0.raw(),
            ..Args::new()
        };
        // SAFETY: the program is alive.
        unsafe { self.0.plugin().call(&mut args) }?;
        Ok(args.num_partitions)
    }

    /// How many results it has on each device.
    ///
    /// # Errors
    /// [`Error::Plugin`].
    pub fn outputs(&self) -> Result<usize, Error> {
        let mut args = PJRT_Executable_NumOutputs_Args {
            executable: self.0.raw(),
            ..Args::new()
        };
        // SAFETY: the program is alive.
        unsafe { self.0.plugin().call(&mut args) }?;
        Ok(args.num_outputs)
    }

    /// The memory that it takes on each device.
    ///
    /// # Errors
    /// [`Error::NotSupported`], [`Error::Plugin`].
    pub fn memory(&self) -> Result<ProgramMemory, Error> {
        let mut args = PJRT_Executable_GetCompiledMemoryStats_Args {
            executable: self.0.raw(),
            ..Args::new()
        };
        // SAFETY: the program is alive.
        unsafe { self.0.plugin().call(&mut args) }?;
        Ok(ProgramMemory {
            code: args.generated_code_size_in_bytes,
            arguments: args.argument_size_in_bytes,
            outputs: args.output_size_in_bytes,
            aliased: args.alias_size_in_bytes,
            temporary: args.temp_size_in_bytes,
            peak: args.peak_memory_in_bytes,
        })
    }

    /// The optimized program, as the compiler made it.
    ///
    /// # Errors
    /// [`Error::Plugin`] from plugins that do not report it, [`Error::Program`].
    pub fn optimized(&self) -> Result<OptimizedProgram, Error> {
        let (format, code) = self.optimized_code()?;
        OptimizedProgram::decode(&format, &code)
    }

    /// The program as bytes, which [`PjrtClient::load`](crate::PjrtClient::load) takes.
    ///
    /// # Errors
    /// [`Error::Plugin`].
    pub fn serialize(&self) -> Result<Vec<u8>, Error> {
        let mut args = PJRT_Executable_Serialize_Args {
            executable: self.0.raw(),
            ..Args::new()
        };
        // SAFETY: the program is alive.
        unsafe { self.0.plugin().call(&mut args) }?;
        // SAFETY: the bytes live until they are deleted below.
        let bytes = unsafe {
            read::list(
                args.serialized_bytes.cast::<u8>(),
                args.serialized_bytes_size,
            )
        };
        let bytes = bytes.to_vec();
        if let Some(delete) = args.serialized_executable_deleter {
            // SAFETY: nobody has the bytes any more.
            unsafe { delete(args.serialized_executable) };
        }
        Ok(bytes)
    }

    /// The form of the optimized program, and the program.
    fn optimized_code(&self) -> Result<(String, Vec<u8>), Error> {
        let mut program = PJRT_Program {
            struct_size: PJRT_Program_STRUCT_SIZE,
            extension_start: std::ptr::null_mut(),
            code: std::ptr::null_mut(),
            code_size: 0,
            format: std::ptr::null(),
            format_size: 0,
        };
        let mut args = PJRT_Executable_OptimizedProgram_Args {
            executable: self.0.raw(),
            program: &raw mut program,
            ..Args::new()
        };
        // SAFETY: without memory for it, only the size is told.
        unsafe { self.0.plugin().call(&mut args) }?;
        let mut code = vec![0_u8; program.code_size];
        program.code = code.as_mut_ptr().cast();
        args.program = &raw mut program;
        // SAFETY: there is as much memory as was asked for.
        unsafe { self.0.plugin().call(&mut args) }?;
        // SAFETY: the name of the form is the plugin's, and lives as long as the program.
        let format = unsafe { read::text(program.format, program.format_size) };
        Ok((format, code))
    }
}
