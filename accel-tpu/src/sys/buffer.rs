//! Memory on a device.
#![expect(
    unsafe_code,
    reason = "calls into the plugin, with memory that it reads and writes"
)]

use std::ptr;
use std::time::Duration;

use bytemuck::checked;
use meshwork_accel::{Element, ElementType};

use super::args::Args;
use super::client::PjrtClient;
use super::event::Event;
use super::handle::Handle;
use super::pjrt::*;
use super::read;
use crate::Error;

/// Elements on one device, which no call changes; freed when dropped.
///
/// A program may take a buffer's memory for a result of its own, if it says so; using the buffer
/// afterwards is an error.
#[derive(Debug)]
pub struct Buffer {
    handle: Handle<PJRT_Buffer>,
    client: PjrtClient,
    device: usize,
}

impl Buffer {
    /// # Safety
    /// As for [`Handle::take`].
    pub(super) unsafe fn take(
        client: &PjrtClient,
        device: usize,
        function: &'static str,
        raw: *mut PJRT_Buffer,
    ) -> Result<Self, Error> {
        // SAFETY: the caller says so.
        let handle = unsafe { Handle::take(client.plugin(), function, raw) }?;
        let client = client.clone();
        Ok(Self {
            handle,
            client,
            device,
        })
    }

    /// The number of its device in the client.
    #[must_use]
    pub const fn device(&self) -> usize {
        self.device
    }

    /// The element type that it holds.
    ///
    /// # Errors
    /// [`Error::UnsupportedElement`], [`Error::Plugin`].
    pub fn element_type(&self) -> Result<ElementType, Error> {
        let mut args = PJRT_Buffer_ElementType_Args {
            buffer: self.raw(),
            ..Args::new()
        };
        // SAFETY: the buffer is alive.
        unsafe { self.client.plugin().call(&mut args) }?;
        let code = args.type_;
        let known = CODES.iter().find(|(_, known)| *known == code);
        known
            .map(|(element, _)| *element)
            .ok_or(Error::UnsupportedElement { code })
    }

    /// The sizes of its dimensions; none for a scalar.
    ///
    /// # Errors
    /// [`Error::Plugin`].
    pub fn dims(&self) -> Result<Vec<usize>, Error> {
        let mut args = PJRT_Buffer_Dimensions_Args {
            buffer: self.raw(),
            ..Args::new()
        };
        // SAFETY: the buffer is alive.
        unsafe { self.client.plugin().call(&mut args) }?;
        // SAFETY: the list lives as long as the buffer.
        let sizes = unsafe { read::list(args.dims, args.num_dims) };
        Ok(sizes
            .iter()
            .map(|&size| usize::try_from(size).expect("a size is not negative"))
            .collect())
    }

    /// Tells when its elements are there, or why they never will be.
    ///
    /// # Errors
    /// [`Error::Plugin`].
    pub fn ready(&self) -> Result<Event, Error> {
        let mut args = PJRT_Buffer_ReadyEvent_Args {
            buffer: self.raw(),
            ..Args::new()
        };
        // SAFETY: the buffer is alive.
        unsafe { self.client.plugin().call(&mut args) }?;
        // SAFETY: the event is new.
        unsafe { Event::take(self.client.plugin(), "PJRT_Buffer_ReadyEvent", args.event) }
    }

    /// Copies all elements to `to` in row-major order, once they are there.
    ///
    /// What the device computes is waited for `within`; the copy itself for as long as it takes,
    /// because `to` cannot be given back before.
    ///
    /// # Errors
    /// [`Error::ElementMismatch`], [`Error::Shape`], [`Error::Deadline`], [`Error::Plugin`].
    pub fn download<T: Element>(&self, to: &mut [T], within: Duration) -> Result<(), Error> {
        let buffer = self.element_type()?;
        if buffer != T::TYPE {
            let other = T::TYPE;
            return Err(Error::ElementMismatch { buffer, other });
        }
        let dims = self.dims()?;
        sizes(&dims, to.len())?;
        self.ready()?.wait(within)?;
        if let Some(bytes) = T::bytes_mut(to) {
            return self.copy_out(&dims, bytes);
        }
        // Not every byte is one of these elements: they are looked at before they are believed.
        let mut bytes = vec![0; size_of_val(to)];
        self.copy_out(&dims, &mut bytes)?;
        match checked::try_cast_slice::<u8, T>(&bytes) {
            Ok(elements) => to.copy_from_slice(elements),
            Err(_) => {
                let (function, what) = ("PJRT_Buffer_ToHostBuffer", "elements of that type");
                return Err(Error::Nothing { function, what });
            }
        }
        Ok(())
    }

    /// A copy on another device of the same client.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`], and [`Error::Plugin`] for its own device too.
    pub fn copy_to(&self, device: usize) -> Result<Self, Error> {
        let dst_device = self.client.raw_device(device)?;
        let mut args = PJRT_Buffer_CopyToDevice_Args {
            buffer: self.raw(),
            dst_device,
            ..Args::new()
        };
        // SAFETY: buffer and device are alive, and of one client.
        unsafe { self.client.plugin().call(&mut args) }?;
        // SAFETY: the buffer is new.
        unsafe {
            Self::take(
                &self.client,
                device,
                "PJRT_Buffer_CopyToDevice",
                args.dst_buffer,
            )
        }
    }

    pub(super) fn is_of(&self, client: &PjrtClient) -> bool {
        self.client.is(client)
    }

    pub(super) fn raw(&self) -> *mut PJRT_Buffer {
        self.handle.raw()
    }

    fn copy_out(&self, dims: &[usize], to: &mut [u8]) -> Result<(), Error> {
        // Devices lay out dimensions as it suits them; what comes out is row-major: last fastest.
        let order: Vec<i64> = (0_i64..).take(dims.len()).collect();
        let order: Vec<i64> = order.into_iter().rev().collect();
        let mut layout = row_major(&order);
        let mut args = PJRT_Buffer_ToHostBuffer_Args {
            src: self.raw(),
            host_layout: &raw mut layout,
            dst: to.as_mut_ptr().cast(),
            dst_size: to.len(),
            ..Args::new()
        };
        // SAFETY: the memory is borrowed until the copy has ended, which is waited for below.
        unsafe { self.client.plugin().call(&mut args) }?;
        // SAFETY: the event is new.
        unsafe { Event::take(self.client.plugin(), "PJRT_Buffer_ToHostBuffer", args.event) }?
            .await_end()
    }
}

/// `dims` as PJRT has them, if they hold as many elements as there are.
pub(super) fn sizes(dims: &[usize], elements: usize) -> Result<Vec<i64>, Error> {
    let too_large = || Error::TooLarge {
        dims: dims.to_vec(),
    };
    let shape = dims
        .iter()
        .copied()
        .try_fold(1_usize, usize::checked_mul)
        .ok_or_else(too_large)?;
    if shape != elements {
        return Err(Error::Shape { shape, elements });
    }
    let sizes = dims
        .iter()
        .map(|&size| i64::try_from(size).map_err(|_| too_large()));
    sizes.collect()
}

/// PJRT's number of an element type.
pub(super) fn code_of(element: ElementType) -> Result<PJRT_Buffer_Type, Error> {
    let found = CODES.iter().find(|(known, _)| *known == element);
    let code = u32::from(element.code());
    found
        .map(|(_, code)| *code)
        .ok_or(Error::UnsupportedElement { code })
}

fn row_major(order: &[i64]) -> PJRT_Buffer_MemoryLayout {
    PJRT_Buffer_MemoryLayout {
        struct_size: PJRT_Buffer_MemoryLayout_STRUCT_SIZE,
        extension_start: ptr::null_mut(),
        __bindgen_anon_1: PJRT_Buffer_MemoryLayout__bindgen_ty_1 {
            tiled: PJRT_Buffer_MemoryLayout_Tiled {
                struct_size: PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE,
                extension_start: ptr::null_mut(),
                minor_to_major: order.as_ptr(),
                minor_to_major_size: order.len(),
                tile_dims: ptr::null(),
                tile_dim_sizes: ptr::null(),
                num_tiles: 0,
            },
        },
        type_: PJRT_Buffer_MemoryLayout_Type_Tiled,
    }
}

const CODES: [(ElementType, PJRT_Buffer_Type); 13] = [
    (ElementType::Bool, PJRT_Buffer_Type_PRED),
    (ElementType::I8, PJRT_Buffer_Type_S8),
    (ElementType::I16, PJRT_Buffer_Type_S16),
    (ElementType::I32, PJRT_Buffer_Type_S32),
    (ElementType::I64, PJRT_Buffer_Type_S64),
    (ElementType::U8, PJRT_Buffer_Type_U8),
    (ElementType::U16, PJRT_Buffer_Type_U16),
    (ElementType::U32, PJRT_Buffer_Type_U32),
    (ElementType::U64, PJRT_Buffer_Type_U64),
    (ElementType::F16, PJRT_Buffer_Type_F16),
    (ElementType::Bf16, PJRT_Buffer_Type_BF16),
    (ElementType::F32, PJRT_Buffer_Type_F32),
    (ElementType::F64, PJRT_Buffer_Type_F64),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_type_has_one_code() {
        let mut codes: Vec<_> = ElementType::ALL
            .map(|element| code_of(element).unwrap())
            .to_vec();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), ElementType::ALL.len());
    }

    #[test]
    fn shapes_hold_as_many_elements_as_there_are() {
        assert_eq!(sizes(&[2, 3], 6).unwrap(), [2, 3]);
        assert_eq!(sizes(&[], 1).unwrap(), [0_i64; 0]);
        assert_eq!(sizes(&[0, 9], 0).unwrap(), [0, 9]);
        assert!(matches!(
            sizes(&[2, 3], 5),
            Err(Error::Shape {
                shape: 6,
                elements: 5
            })
        ));
        assert!(matches!(
            sizes(&[usize::MAX, 2], 5),
            Err(Error::TooLarge { .. })
        ));
        assert!(matches!(
            sizes(&[usize::MAX, 0], 0),
            Err(Error::TooLarge { .. })
        ));
    }
}
