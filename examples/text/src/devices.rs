//! What workers compute on.

use std::str::FromStr;

use candle_core::Device;

use crate::Error;

/// What the workers of a host compute on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Devices {
    /// The processor's cores.
    Cpu,
    /// NVIDIA's GPUs, by their numbers: worker `r` has the one at place `r` of the list, which begins
    /// again at its end.
    Cuda(Vec<usize>),
}

impl Devices {
    /// That of a worker.
    ///
    /// # Errors
    /// [`Error::Device`] if it is a GPU that is not there, or this program was built without.
    pub fn of_worker(&self, rank: usize) -> Result<Device, Error> {
        match self {
            Self::Cpu => Ok(Device::Cpu),
            Self::Cuda(gpus) => {
                let gpu = gpus.get(rank % gpus.len().max(1)).copied().unwrap_or(0);
                Device::new_cuda(gpu).map_err(|source| Error::Device { gpu, source })
            }
        }
    }
}

/// `cpu`, `cuda` for the first GPU, or such as `cuda:0,1`.
impl FromStr for Devices {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "must be cpu, cuda, or cuda: and numbers of GPUs, such as cuda:0,1";
        match (text, text.strip_prefix("cuda:")) {
            ("cpu", _) => Ok(Self::Cpu),
            ("cuda", _) => Ok(Self::Cuda(vec![0])),
            (_, Some(gpus)) => {
                let gpus = gpus.split(',').map(str::parse);
                let gpus: Result<_, _> = gpus.collect();
                gpus.map(Self::Cuda).map_err(|_| WRONG)
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
        assert_eq!(read("cpu"), Ok(Devices::Cpu));
        assert_eq!(read("cuda"), Ok(Devices::Cuda(vec![0])));
        assert_eq!(read("cuda:2,0"), Ok(Devices::Cuda(vec![2, 0])));
        for wrong in ["", "gpu", "cuda:", "cuda:1,", "cuda:-1", "CUDA"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
