//! Operations on elements of which not all bytes are values, which are truth values: what other
//! ranks have written is bytes until it has been looked at.
//!
//! What is handed over has one source, which is named if a byte is neither 0 nor 1. In a reduction
//! each other byte than 0 stands for true, on all ranks alike, as nobody sees the contributions.

use std::ops::Range;

use meshwork_accel::{Element, Reduction};

use super::communicator::ShmCommunicator;
use super::flag::Atomic;
use super::wait::Waiter;
use crate::Rank;
use crate::failure::Failure;
use crate::operation::{OnArrival, Request, SendBlocks, Transfer, Work};
use crate::wire::WireError;

impl<A: Atomic> ShmCommunicator<A> {
    /// Carries an operation out on copies of the bytes that it writes to.
    pub(super) fn carry_out_on_bytes<T: Element>(
        &mut self,
        request: &Request,
        waiter: &Waiter<'_>,
        work: Work<'_, T>,
    ) -> Result<(), Failure> {
        match work {
            Work::Barrier => self.carry_out::<u8>(request, waiter, Work::Barrier),
            Work::Agree => self.carry_out::<u8>(request, waiter, Work::Agree),
            Work::Reduce {
                buffer,
                reduction,
                root,
            } => {
                let mut bytes = bytemuck::cast_slice(buffer).to_vec();
                let work = Work::Reduce {
                    buffer: &mut bytes,
                    reduction: of_bytes(&reduction)?,
                    root,
                };
                self.carry_out(request, waiter, work)?;
                write_truth(buffer, &mut bytes);
                Ok(())
            }
            Work::Exchange(transfer) => self.exchange_bytes(request, waiter, transfer),
            Work::Broadcast { buffer, root } => {
                let mut bytes: Vec<u8> = bytemuck::cast_slice(buffer).to_vec();
                let work = Work::Broadcast {
                    buffer: &mut bytes,
                    root,
                };
                self.carry_out(request, waiter, work)?;
                write_values(buffer, &bytes, root)
            }
            Work::Send { input, to } => {
                let input: &[u8] = bytemuck::cast_slice(input);
                self.carry_out(request, waiter, Work::Send { input, to })
            }
            Work::Receive { output, from } => {
                let mut bytes = vec![0_u8; output.len()];
                let work = Work::Receive {
                    output: &mut bytes,
                    from,
                };
                self.carry_out(request, waiter, work)?;
                write_values(output, &bytes, from)
            }
        }
    }

    fn exchange_bytes<T: Element>(
        &mut self,
        request: &Request,
        waiter: &Waiter<'_>,
        transfer: Transfer<'_, T>,
    ) -> Result<(), Failure> {
        let Transfer {
            outgoing_blocks,
            receives,
            output,
            then,
        } = transfer;
        let mut bytes: Vec<u8> = bytemuck::cast_slice(output).to_vec();
        let then = match then {
            OnArrival::Copy => OnArrival::Copy,
            OnArrival::Fold(reduction) => OnArrival::Fold(of_bytes(&reduction)?),
        };
        let is_copied = matches!(then, OnArrival::Copy);
        let transfer = Transfer {
            outgoing_blocks: SendBlocks {
                input: bytemuck::cast_slice(outgoing_blocks.input),
                blocks: outgoing_blocks.blocks,
                parts: outgoing_blocks.parts,
                taker: outgoing_blocks.taker,
                counts: outgoing_blocks.counts,
            },
            receives,
            output: &mut bytes,
            then,
        };
        self.carry_out(request, waiter, Work::Exchange(transfer))?;
        if !is_copied {
            write_truth(output, &mut bytes);
            return Ok(());
        }
        // All are looked at before any is written.
        for take in receives {
            values::<T>(&bytes[take.into.clone()], Rank::at(take.from))?;
        }
        receives.iter().try_for_each(|take| {
            let Range { start, end } = take.into;
            write_values(
                &mut output[start..end],
                &bytes[start..end],
                Rank::at(take.from),
            )
        })
    }
}

/// And, or and xor of bytes are those of truth values, bit by bit.
fn of_bytes<T: Element>(reduction: &Reduction<T>) -> Result<Reduction<u8>, Failure> {
    Reduction::new(reduction.op()).map_err(Failure::Unsupported)
}

fn write_truth<T: Element>(into: &mut [T], bytes: &mut [u8]) {
    for byte in bytes.iter_mut() {
        *byte = u8::from(*byte != 0);
    }
    let values = bytemuck::checked::cast_slice(bytes);
    into.copy_from_slice(values);
}

fn write_values<T: Element>(into: &mut [T], bytes: &[u8], from: Rank) -> Result<(), Failure> {
    into.copy_from_slice(values(bytes, from)?);
    Ok(())
}

fn values<T: Element>(bytes: &[u8], from: Rank) -> Result<&[T], Failure> {
    let element = T::TYPE;
    let refused = |_| Failure::Protocol(from, WireError::Value { element });
    bytemuck::checked::try_cast_slice(bytes).map_err(refused)
}
