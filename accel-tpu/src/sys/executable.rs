//! A program that is loaded on devices.
#![expect(
    unsafe_code,
    reason = "calls into the plugin, with lists that it reads and fills"
)]

use std::ptr;

use super::args::Args;
use super::buffer::Buffer;
use super::client::PjrtClient;
use super::event::Event;
use super::handle::Handle;
use super::pjrt::*;
use super::program::PjrtProgram;
use super::read;
use crate::Error;

/// A program that can be run.
#[derive(Debug)]
pub struct Executable {
    handle: Handle<PJRT_LoadedExecutable>,
    program: PjrtProgram,
    outputs: usize,
    devices: Vec<usize>,
    /// The last field: fields are dropped in their order, and both objects are the client's.
    client: PjrtClient,
}

/// The outputs of a run, which may still be being computed.
#[derive(Debug)]
pub struct Execution {
    outputs: Vec<Vec<Buffer>>,
    done: Vec<Event>,
}

impl Execution {
    /// The results: one list for each device, in the order of the arguments.
    #[must_use]
    pub fn outputs(&self) -> &[Vec<Buffer>] {
        &self.outputs
    }

    /// Tells when each device has ended.
    #[must_use]
    pub fn done(&self) -> &[Event] {
        &self.done
    }

    /// Both, to keep.
    #[must_use]
    pub fn into_parts(self) -> (Vec<Vec<Buffer>>, Vec<Event>) {
        (self.outputs, self.done)
    }
}

impl Executable {
    /// # Safety
    /// As for [`Handle::take`].
    pub(super) unsafe fn take(
        client: &PjrtClient,
        function: &'static str,
        raw: *mut PJRT_LoadedExecutable,
    ) -> Result<Self, Error> {
        // SAFETY: the caller says so.
        let handle = unsafe { Handle::take(client.plugin(), function, raw) }?;
        let mut args = PJRT_LoadedExecutable_GetExecutable_Args {
            loaded_executable: handle.raw(),
            ..Args::new()
        };
        // SAFETY: the executable is alive.
        unsafe { client.plugin().call(&mut args) }?;
        let function = "PJRT_LoadedExecutable_GetExecutable";
        // SAFETY: the program is new, and ours to destroy.
        let program = unsafe { PjrtProgram::take(client.plugin(), function, args.executable) }?;
        Ok(Self {
            outputs: program.outputs()?,
            devices: devices_of(client, &handle)?,
            handle,
            program,
            client: client.clone(),
        })
    }

    /// The metadata of the program.
    #[must_use]
    pub const fn program(&self) -> &PjrtProgram {
        &self.program
    }

    /// The numbers of the devices of this process that it runs on, in the order of
    /// [`execute`](Self::execute).
    #[must_use]
    pub fn devices(&self) -> &[usize] {
        &self.devices
    }

    /// Runs the program on the devices that it was compiled for, with one list of arguments for
    /// each, replica by replica and in each partition by partition. Returns before it is done.
    ///
    /// # Errors
    /// [`Error::DeviceCount`], [`Error::ArgumentCount`], [`Error::ForeignBuffer`];
    /// [`Error::Plugin`] when arguments are of another shape, on another device or already used up.
    pub fn execute(&self, arguments: &[&[&Buffer]]) -> Result<Execution, Error> {
        self.execute_keeping(arguments, &[])
    }

    /// The same; on every device, arguments whose places are in `kept` stay usable, whatever the
    /// program says.
    ///
    /// # Errors
    /// Those of [`execute`](Self::execute).
    pub fn execute_keeping(
        &self,
        arguments: &[&[&Buffer]],
        kept: &[usize],
    ) -> Result<Execution, Error> {
        if arguments.len() != self.devices.len() {
            let (expected, found) = (self.devices.len(), arguments.len());
            return Err(Error::DeviceCount { expected, found });
        }
        self.run(arguments, kept, None)
    }

    /// Runs a program that was compiled for any one device on `device`; arguments whose places are
    /// in `kept` stay usable, whatever the program says. Returns before it is done.
    ///
    /// # Errors
    /// Those of [`execute`](Self::execute), and [`Error::UnknownDevice`].
    pub fn execute_on(
        &self,
        device: usize,
        arguments: &[&Buffer],
        kept: &[usize],
    ) -> Result<Execution, Error> {
        self.run(&[arguments], kept, Some(device))
    }

    fn run(
        &self,
        arguments: &[&[&Buffer]],
        kept: &[usize],
        on: Option<usize>,
    ) -> Result<Execution, Error> {
        let expected = self.check(arguments)?;
        let execute_device = match on {
            Some(device) => self.client.raw_device(device)?,
            None => ptr::null_mut(),
        };
        let inputs = raw_inputs(arguments);
        let input_lists: Vec<_> = inputs.iter().map(|list| list.as_ptr()).collect();
        let mut outputs = vec![vec![ptr::null_mut(); self.outputs]; arguments.len()];
        let output_lists: Vec<_> = outputs.iter_mut().map(|list| list.as_mut_ptr()).collect();
        let mut done = vec![ptr::null_mut(); arguments.len()];
        let kept: Vec<i64> = kept
            .iter()
            .filter_map(|&place| i64::try_from(place).ok())
            .collect();
        let mut options = options(&kept);
        let mut args = PJRT_LoadedExecutable_Execute_Args {
            executable: self.handle.raw(),
            options: &raw mut options,
            argument_lists: input_lists.as_ptr(),
            num_devices: arguments.len(),
            num_args: expected,
            output_lists: output_lists.as_ptr(),
            device_complete_events: done.as_mut_ptr(),
            execute_device,
            ..Args::new()
        };
        // SAFETY: all lists have the lengths that they are said to have and live until the call
        // ends; outputs are as many as the program says that it has.
        unsafe { self.client.plugin().call(&mut args) }?;
        match on {
            Some(device) => self.collect(&[device], &outputs, &done),
            None => self.collect(&self.devices, &outputs, &done),
        }
    }

    /// How many arguments each device is given.
    fn check(&self, arguments: &[&[&Buffer]]) -> Result<usize, Error> {
        let expected = arguments.first().map_or(0, |first| first.len());
        for (device, list) in arguments.iter().enumerate() {
            let found = list.len();
            if found != expected {
                return Err(Error::ArgumentCount {
                    device,
                    expected,
                    found,
                });
            }
            // The plugin would take the buffer of another for one of its own.
            if let Some(argument) = list.iter().position(|buffer| !buffer.is_of(&self.client)) {
                return Err(Error::ForeignBuffer { argument });
            }
        }
        Ok(expected)
    }

    /// Takes all that the plugin gave before any error is reported, so that nothing leaks.
    fn collect(
        &self,
        devices: &[usize],
        outputs: &[Vec<*mut PJRT_Buffer>],
        done: &[*mut PJRT_Event],
    ) -> Result<Execution, Error> {
        let function = "PJRT_LoadedExecutable_Execute";
        let taken: Vec<Vec<_>> = devices
            .iter()
            .zip(outputs)
            .map(|(&device, list)| {
                let take = |&raw: &*mut PJRT_Buffer| {
                    // SAFETY: the buffers are new.
                    unsafe { Buffer::take(&self.client, device, function, raw) }
                };
                list.iter().map(take).collect()
            })
            .collect();
        let events: Vec<_> = done
            .iter()
            // SAFETY: the events are new.
            .map(|&raw| unsafe { Event::take(self.client.plugin(), function, raw) })
            .collect();
        Ok(Execution {
            outputs: taken
                .into_iter()
                .map(|list| list.into_iter().collect())
                .collect::<Result<_, _>>()?,
            done: events.into_iter().collect::<Result<_, _>>()?,
        })
    }
}

fn devices_of(
    client: &PjrtClient,
    handle: &Handle<PJRT_LoadedExecutable>,
) -> Result<Vec<usize>, Error> {
    let mut args = PJRT_LoadedExecutable_AddressableDevices_Args {
        executable: handle.raw(),
        ..Args::new()
    };
    // SAFETY: the executable is alive.
    unsafe { client.plugin().call(&mut args) }?;
    // SAFETY: the list lives as long as the executable.
    let devices = unsafe { read::list(args.addressable_devices, args.num_addressable_devices) };
    Ok(devices
        .iter()
        .filter_map(|device| client.number_of(*device))
        .collect())
}

fn raw_inputs(arguments: &[&[&Buffer]]) -> Vec<Vec<*mut PJRT_Buffer>> {
    let list = |list: &&[&Buffer]| list.iter().map(|buffer| buffer.raw()).collect();
    arguments.iter().map(list).collect()
}

/// The options of one run; they point into `kept`.
fn options(kept: &[i64]) -> PJRT_ExecuteOptions {
    PJRT_ExecuteOptions {
        struct_size: PJRT_ExecuteOptions_STRUCT_SIZE,
        extension_start: ptr::null_mut(),
        send_callbacks: ptr::null_mut(),
        recv_callbacks: ptr::null_mut(),
        num_send_ops: 0,
        num_recv_ops: 0,
        launch_id: 0,
        non_donatable_input_indices: kept.as_ptr(),
        num_non_donatable_input_indices: kept.len(),
        context: ptr::null_mut(),
        call_location: ptr::null(),
        num_tasks: 0,
        task_ids: ptr::null_mut(),
        incarnation_ids: ptr::null_mut(),
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;
    use std::sync::Mutex;

    use super::super::api::Plugin;
    use super::*;

    /// What has been destroyed, in order.
    static DESTROYED: Mutex<Vec<&str>> = Mutex::new(Vec::new());

    unsafe extern "C" fn succeed<A: Args>(_: *mut A) -> *mut PJRT_Error {
        ptr::null_mut()
    }

    unsafe extern "C" fn destroy<A: Args>(_: *mut A) -> *mut PJRT_Error {
        DESTROYED.lock().unwrap().push(A::FUNCTION);
        ptr::null_mut()
    }

    unsafe extern "C" fn client(args: *mut PJRT_Client_Create_Args) -> *mut PJRT_Error {
        // SAFETY: the caller gives arguments that are its own.
        unsafe { &mut *args }.client = NonNull::dangling().as_ptr();
        ptr::null_mut()
    }

    unsafe extern "C" fn program(
        args: *mut PJRT_LoadedExecutable_GetExecutable_Args,
    ) -> *mut PJRT_Error {
        // SAFETY: as above.
        unsafe { &mut *args }.executable = NonNull::dangling().as_ptr();
        ptr::null_mut()
    }

    #[test]
    fn a_client_is_destroyed_after_its_executable_and_program() {
        // SAFETY: the table is made of numbers and optional functions.
        let mut api: PJRT_Api = unsafe { std::mem::zeroed() };
        api.PJRT_Client_Create = Some(client);
        api.PJRT_Client_PlatformName = Some(succeed::<PJRT_Client_PlatformName_Args>);
        api.PJRT_Client_PlatformVersion = Some(succeed::<PJRT_Client_PlatformVersion_Args>);
        api.PJRT_Client_ProcessIndex = Some(succeed::<PJRT_Client_ProcessIndex_Args>);
        api.PJRT_Client_AddressableDevices = Some(succeed::<PJRT_Client_AddressableDevices_Args>);
        api.PJRT_LoadedExecutable_GetExecutable = Some(program);
        api.PJRT_Executable_NumOutputs = Some(succeed::<PJRT_Executable_NumOutputs_Args>);
        api.PJRT_LoadedExecutable_AddressableDevices =
            Some(succeed::<PJRT_LoadedExecutable_AddressableDevices_Args>);
        api.PJRT_LoadedExecutable_Destroy = Some(destroy::<PJRT_LoadedExecutable_Destroy_Args>);
        api.PJRT_Executable_Destroy = Some(destroy::<PJRT_Executable_Destroy_Args>);
        api.PJRT_Client_Destroy = Some(destroy::<PJRT_Client_Destroy_Args>);
        let client = PjrtClient::new(&Plugin::of(api), &[]).unwrap();
        let raw = NonNull::dangling().as_ptr();
        // SAFETY: the functions above look at no object.
        let executable = unsafe { Executable::take(&client, "stub", raw) }.unwrap();
        drop(client);
        drop(executable);
        let order = [
            "PJRT_LoadedExecutable_Destroy",
            "PJRT_Executable_Destroy",
            "PJRT_Client_Destroy",
        ];
        assert_eq!(*DESTROYED.lock().unwrap(), order);
    }
}
