//! What workers compute on.

use std::str::FromStr;

use candle_core::Device;

use crate::Error;

/// What the workers of a host compute on: the processor's cores, or NVIDIA's GPUs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Devices {
    /// Numbers of GPUs: the first worker of a host has the first, counted round and round. None for
    /// the processor.
    gpus: Vec<usize>,
}

impl Devices {
    /// Whether that is the processor.
    #[must_use]
    pub fn are_cpus(&self) -> bool {
        self.gpus.is_empty()
    }

    /// That of the worker with this number on its host.
    ///
    /// # Errors
    /// [`Error::Device`] if it is a GPU that is not there, or this program was built without.
    pub fn of_worker(&self, local_rank: usize) -> Result<Device, Error> {
        match self.gpus.iter().cycle().nth(local_rank) {
            None => Ok(Device::Cpu),
            Some(&gpu) => Device::new_cuda(gpu).map_err(|source| Error::Device { gpu, source }),
        }
    }
}

/// `cpu`, `cuda` for the first GPU, or such as `cuda:0,1`.
impl FromStr for Devices {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "must be cpu, cuda, or cuda: and numbers of GPUs, such as cuda:0,1";
        match (text, text.strip_prefix("cuda:")) {
            ("cpu", _) => Ok(Self { gpus: Vec::new() }),
            ("cuda", _) => Ok(Self { gpus: vec![0] }),
            (_, Some(gpus)) => {
                let gpus = gpus.split(',').map(str::parse);
                let gpus: Result<_, _> = gpus.collect();
                gpus.map(|gpus| Self { gpus }).map_err(|_| WRONG)
            }
            (_, None) => Err(WRONG),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_from_what_is_typed() {
        let read = |text: &str| text.parse::<Devices>();
        assert!(read("cpu").unwrap().are_cpus());
        for (text, gpus) in [("cuda", vec![0]), ("cuda:2,0", vec![2, 0])] {
            assert_eq!(read(text), Ok(Devices { gpus }));
        }
        for wrong in ["", "gpu", "cuda:", "cuda:1,", "cuda:-1", "CUDA"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
