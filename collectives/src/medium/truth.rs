//! Operations on truth values, of which not all bytes are some: what other ranks have written is
//! bytes until it has been looked at.
//!
//! What is handed over has one source, which is named if a byte is neither 0 nor 1. In a reduction
//! links look at what comes in; in memory nobody sees the contributions, and each other byte of the
//! result than 0 stands for true, on all ranks alike.

use std::ops::Range;

use bytemuck::checked;
use meshwork_accel::ElementType;

use crate::Rank;
use crate::failure::Failure;
use crate::operation::{OnArrival, Transfer, Work, carrying};
use crate::wire::WireError;

/// Carries an operation out by one on bytes, copies of those that it writes to.
pub(crate) fn carry_out(
    work: Work<'_, bool>,
    on_bytes: impl FnOnce(Work<'_, u8>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    match work {
        Work::Barrier => on_bytes(Work::Barrier),
        Work::Agree => on_bytes(Work::Agree),
        Work::Reduce {
            buffer,
            reduction,
            root,
        } => {
            let mut bytes = bytemuck::cast_slice(buffer).to_vec();
            on_bytes(Work::Reduce {
                buffer: &mut bytes,
                reduction: carrying(&reduction),
                root,
            })?;
            write_truth(buffer, &bytes);
            Ok(())
        }
        Work::Exchange(transfer) => exchange(transfer, on_bytes),
        Work::Broadcast { buffer, root } => {
            let mut bytes: Vec<u8> = bytemuck::cast_slice(buffer).to_vec();
            on_bytes(Work::Broadcast {
                buffer: &mut bytes,
                root,
            })?;
            write_values(buffer, &bytes, root)
        }
        Work::Send { input, to } => {
            let input: &[u8] = bytemuck::cast_slice(input);
            on_bytes(Work::Send { input, to })
        }
        Work::Receive { output, from } => {
            let mut bytes = vec![0_u8; output.len()];
            on_bytes(Work::Receive {
                output: &mut bytes,
                from,
            })?;
            write_values(output, &bytes, from)
        }
    }
}

fn exchange(
    transfer: Transfer<'_, bool>,
    on_bytes: impl FnOnce(Work<'_, u8>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Transfer {
        outgoing_blocks,
        receives,
        output,
        then,
    } = transfer;
    let mut bytes: Vec<u8> = bytemuck::cast_slice(output).to_vec();
    let is_copied = matches!(then, OnArrival::Copy);
    on_bytes(Work::Exchange(Transfer {
        outgoing_blocks: outgoing_blocks.cast(),
        receives,
        output: &mut bytes,
        then: then.cast(),
    }))?;
    if !is_copied {
        write_truth(output, &bytes);
        return Ok(());
    }
    // All are looked at before any is written.
    for take in receives {
        values(&bytes[take.into.clone()], Rank::at(take.from))?;
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

fn write_truth(into: &mut [bool], bytes: &[u8]) {
    for (value, byte) in into.iter_mut().zip(bytes) {
        *value = *byte != 0;
    }
}

fn write_values(into: &mut [bool], bytes: &[u8], from: Rank) -> Result<(), Failure> {
    into.copy_from_slice(values(bytes, from)?);
    Ok(())
}

fn values(bytes: &[u8], from: Rank) -> Result<&[bool], Failure> {
    let element = ElementType::Bool;
    let refused = |_| Failure::Protocol(from, WireError::Value { element });
    checked::try_cast_slice(bytes).map_err(refused)
}
