use meshwork_accel::{ElementType, ReduceOp};

use super::{Collective, Vector};

/// A collective on its own, as a program: to see what a compiler makes of it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum CollectiveProgram {
    /// A sum of all devices, on every device.
    AllReduce,
    /// What all devices have, on every device.
    AllGather,
    /// A sum of all devices, of which each keeps its block.
    ReduceScatter,
    /// A block from every device to every device.
    AllToAll,
    /// What each device has, on the next.
    Permute,
}

impl CollectiveProgram {
    /// The program in StableHLO, for `devices` replicas with this many bytes of `f32` each: whole
    /// elements, and where blocks are scattered, as many for each device.
    ///
    /// ```
    /// use meshwork_accel_tpu::CollectiveProgram;
    ///
    /// let program = CollectiveProgram::AllReduce.stablehlo(4096, 8);
    /// assert!(program.contains("tensor<1024xf32>"));
    /// ```
    #[must_use]
    pub fn stablehlo(self, bytes: usize, devices: usize) -> String {
        let element = ElementType::F32;
        let elements = (bytes / element.size()).max(1);
        let len = match self {
            Self::AllReduce | Self::AllGather | Self::Permute => elements,
            Self::ReduceScatter | Self::AllToAll => elements.next_multiple_of(devices.max(1)),
        };
        let vector = Vector { element, len };
        let collective = match self {
            Self::AllReduce => Collective::AllReduce(ReduceOp::Sum, vector),
            Self::AllGather => Collective::AllGather(vector),
            Self::ReduceScatter => Collective::ReduceScatter(ReduceOp::Sum, vector),
            Self::AllToAll => Collective::AllToAll(vector),
            Self::Permute => {
                let pairs = (0..devices).map(|device| (device, (device + 1) % devices));
                Collective::Permute(vector, pairs.collect())
            }
        };
        collective.program(devices).expect("f32 has a sum")
    }
}
