//! Communicators as the layers above ask for them.

use std::time::Duration;

use meshwork_accel::{
    self as accel, CancelCheck, CommunicatorId, CommunicatorRank, DeviceCollective,
    DeviceCommunicator, DeviceCommunicators, DeviceId, ElementType, ReduceOp,
};

use super::Communicator;
use super::wide::given;
use crate::accelerator::CudaAccelerator;
use crate::buffer::CudaBuffer;
use crate::error::Error;
use crate::nccl::{NcclRank, UniqueId, translate};
use crate::sys::collectives::tells_of_a_lost_peer;

impl DeviceCommunicators for CudaAccelerator {
    fn library(&self) -> Result<String, accel::Error> {
        Ok(format!("NCCL {}", self.nccl()?.version()))
    }

    fn name(&self) -> Result<CommunicatorId, accel::Error> {
        let id = self.nccl()?.unique_id()?;
        Ok(CommunicatorId::from_bytes(*id.as_bytes()))
    }

    fn join(
        &self,
        device: DeviceId,
        name: &CommunicatorId,
        place: CommunicatorRank,
        cancel_check: &mut CancelCheck<'_>,
    ) -> Result<Box<dyn DeviceCommunicator<Buffer = CudaBuffer>>, accel::Error> {
        let (nccl, logical) = (self.nccl()?, self.logical(device)?);
        let nccl_rank = NcclRank::new(
            UniqueId::from_bytes(*name.as_bytes()),
            place.rank(),
            place.world(),
        )?;
        let joined = Communicator::enter(nccl, logical, nccl_rank, PATIENCE, cancel_check);
        let communicator = Some(joined.map_err(|error| error.of_communicator(device))?);
        Ok(Box::new(Joined {
            communicator,
            device,
        }))
    }
}

/// A rank that is aborted by its first failure.
struct Joined {
    communicator: Option<Communicator>,
    device: DeviceId,
}

impl DeviceCommunicator for Joined {
    type Buffer = CudaBuffer;

    fn supports(&self, op: Option<ReduceOp>, element: ElementType) -> bool {
        // What is not reduced moves as bytes.
        op.is_none_or(|op| translate(op, given(op, element)).is_ok())
    }

    fn carry_out(
        &mut self,
        work: DeviceCollective<'_, CudaBuffer>,
        cancel_check: &mut CancelCheck<'_>,
    ) -> Result<(), accel::Error> {
        let broken = accel::Error::CommunicatorBroken;
        let communicator = self.communicator.as_mut().ok_or(broken)?;
        let queued = communicator.queue(work, cancel_check);
        let done = queued.and_then(|()| communicator.finish(cancel_check));
        if communicator.is_broken() {
            // Nothing waits on the device for the others any more.
            self.communicator = None;
        }
        done.map_err(|error| error.of_communicator(self.device))
    }
}

impl Error {
    /// As an error of a communicator's rank on `device`.
    fn of_communicator(self, device: DeviceId) -> accel::Error {
        match self {
            Self::Deadline { operation, .. } => accel::Error::GivenUp { operation },
            Self::Broken => accel::Error::CommunicatorBroken,
            Self::RankOutside { rank, world } => accel::Error::RankOutside { rank, world },
            Self::Call {
                function: operation,
                code,
                status,
            } => match tells_of_a_lost_peer(operation, code) {
                true => accel::Error::PeerLost {
                    operation,
                    code,
                    status,
                },
                false => accel::Error::DeviceFailed {
                    device,
                    operation,
                    code,
                    status,
                },
            },
            other => other.into(),
        }
    }
}

/// Of calls without a watch, which nobody makes here.
const PATIENCE: Duration = Duration::ZERO;
