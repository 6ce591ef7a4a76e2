use std::sync::{Arc, Mutex, PoisonError};

use super::lru_cache::LruCache;
use crate::stablehlo::{Collective, Kernel};
use crate::{CompileOptions, Error, Executable, PjrtClient};

/// The programs of a client, compiled when first needed.
#[derive(Debug)]
pub(super) struct Kernels {
    client: PjrtClient,
    /// Of XLA's compiler, by name, for all programs.
    compiler_options: Vec<(String, String)>,
    compiled: Mutex<LruCache<Key, Arc<Executable>>>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Key {
    One(Kernel),
    /// On these devices, in the order of replicas.
    Several(Collective, Vec<usize>),
}

impl Kernels {
    pub(super) fn new(client: PjrtClient) -> Self {
        Self {
            client,
            compiler_options: Vec::new(),
            compiled: Mutex::new(LruCache::of(MOST)),
        }
    }

    pub(super) fn add_compiler_option(&mut self, name: String, value: String) {
        self.compiler_options.push((name, value));
    }

    /// A program, with the options that all have.
    pub(super) fn compile(&self, text: &str, options: CompileOptions) -> Result<Executable, Error> {
        let chosen = self.compiler_options.iter();
        let options = chosen.fold(options, |options, (name, value)| {
            options.with_compiler_option(name, value)
        });
        self.client.compile(text.as_bytes(), &options)
    }

    /// The program of a kernel, for any device.
    pub(super) fn of_one_device(&self, kernel: &Kernel) -> Result<Arc<Executable>, Error> {
        self.of(Key::One(kernel.clone()), || {
            (kernel.program(), CompileOptions::any_device())
        })
    }

    /// The program of a collective, for these devices.
    pub(super) fn of_devices(
        &self,
        collective: Collective,
        devices: Vec<usize>,
    ) -> Result<Arc<Executable>, Error> {
        let known = self.client.devices();
        let infos: Vec<_> = devices
            .iter()
            .filter_map(|&device| known.get(device))
            .collect();
        let replicas = u32::try_from(devices.len()).expect("no client has more devices");
        let (program, count) = (collective.program(devices.len()), devices.len());
        debug_assert_eq!(
            infos.len(),
            count,
            "devices were looked up by their buffers"
        );
        self.of(Key::Several(collective, devices), || {
            (program, CompileOptions::replicas(replicas).on(infos))
        })
    }

    fn of(
        &self,
        key: Key,
        program: impl FnOnce() -> (Option<String>, CompileOptions),
    ) -> Result<Arc<Executable>, Error> {
        if let Some(known) = self.lock().find(&key) {
            return Ok(known);
        }
        // Others go on meanwhile; two that need the same both compile it, and one is kept.
        let (text, options) = program();
        let text = text.unwrap_or_default();
        let compiled = Arc::new(self.compile(&text, options)?);
        self.lock().keep(key, Arc::clone(&compiled));
        Ok(compiled)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, LruCache<Key, Arc<Executable>>> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many programs are kept.
const MOST: usize = 1024;
