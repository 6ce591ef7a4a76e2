//! Which struct goes to which function of the table.
#![expect(
    unsafe_code,
    reason = "whether a struct may be all zero, and where its function stands, only the header says"
)]

use std::mem::offset_of;

use super::pjrt::*;

/// Any function of the table that can fail.
pub(super) type Function<A> = unsafe extern "C" fn(*mut A) -> *mut PJRT_Error;

/// The arguments and results of one function.
///
/// # Safety
/// All zero is a value of the struct, and `read` reads from the table below `END` only.
pub(super) unsafe trait Args: Sized {
    /// The function's name.
    const FUNCTION: &'static str;

    /// The bytes of a table that has the function.
    const END: usize;

    /// All zero but for the size, which says to the plugin which fields are known here.
    fn new() -> Self;

    /// The function's entry in a table.
    ///
    /// # Safety
    /// `table` points to at least `END` bytes of a table.
    unsafe fn read(table: *const PJRT_Api) -> Option<Function<Self>>;
}

macro_rules! functions {
    ($($function:ident($args:ident, $size:ident);)+) => {$(
        // SAFETY: the struct is made of numbers, truth values, pointers and optional functions, and
        // `END` is the end of the field that is read.
        unsafe impl Args for $args {
            const FUNCTION: &'static str = stringify!($function);
            const END: usize = offset_of!(PJRT_Api, $function) + size_of::<Option<Function<Self>>>();

            fn new() -> Self {
                // SAFETY: as said above.
                let zero: Self = unsafe { std::mem::zeroed() };
                Self { struct_size: $size, ..zero }
            }

            unsafe fn read(table: *const PJRT_Api) -> Option<Function<Self>> {
                // SAFETY: the caller says that the field is there.
                unsafe { (*table).$function }
            }
        }
    )+};
}

functions! {
    PJRT_Error_GetCode(PJRT_Error_GetCode_Args, PJRT_Error_GetCode_Args_STRUCT_SIZE);
    PJRT_Plugin_Initialize(PJRT_Plugin_Initialize_Args, PJRT_Plugin_Initialize_Args_STRUCT_SIZE);
    PJRT_Plugin_Attributes(PJRT_Plugin_Attributes_Args, PJRT_Plugin_Attributes_Args_STRUCT_SIZE);
    PJRT_Event_Destroy(PJRT_Event_Destroy_Args, PJRT_Event_Destroy_Args_STRUCT_SIZE);
    PJRT_Event_IsReady(PJRT_Event_IsReady_Args, PJRT_Event_IsReady_Args_STRUCT_SIZE);
    PJRT_Event_Error(PJRT_Event_Error_Args, PJRT_Event_Error_Args_STRUCT_SIZE);
    PJRT_Event_Await(PJRT_Event_Await_Args, PJRT_Event_Await_Args_STRUCT_SIZE);
    PJRT_Event_OnReady(PJRT_Event_OnReady_Args, PJRT_Event_OnReady_Args_STRUCT_SIZE);
    PJRT_Client_Create(PJRT_Client_Create_Args, PJRT_Client_Create_Args_STRUCT_SIZE);
    PJRT_Client_Destroy(PJRT_Client_Destroy_Args, PJRT_Client_Destroy_Args_STRUCT_SIZE);
    PJRT_Client_PlatformName(PJRT_Client_PlatformName_Args, PJRT_Client_PlatformName_Args_STRUCT_SIZE);
    PJRT_Client_PlatformVersion(PJRT_Client_PlatformVersion_Args, PJRT_Client_PlatformVersion_Args_STRUCT_SIZE);
    PJRT_Client_ProcessIndex(PJRT_Client_ProcessIndex_Args, PJRT_Client_ProcessIndex_Args_STRUCT_SIZE);
    PJRT_Client_AddressableDevices(PJRT_Client_AddressableDevices_Args, PJRT_Client_AddressableDevices_Args_STRUCT_SIZE);
    PJRT_Client_Compile(PJRT_Client_Compile_Args, PJRT_Client_Compile_Args_STRUCT_SIZE);
    PJRT_Client_BufferFromHostBuffer(PJRT_Client_BufferFromHostBuffer_Args, PJRT_Client_BufferFromHostBuffer_Args_STRUCT_SIZE);
    PJRT_Client_TopologyDescription(PJRT_Client_TopologyDescription_Args, PJRT_Client_TopologyDescription_Args_STRUCT_SIZE);
    PJRT_DeviceDescription_Id(PJRT_DeviceDescription_Id_Args, PJRT_DeviceDescription_Id_Args_STRUCT_SIZE);
    PJRT_DeviceDescription_ProcessIndex(PJRT_DeviceDescription_ProcessIndex_Args, PJRT_DeviceDescription_ProcessIndex_Args_STRUCT_SIZE);
    PJRT_DeviceDescription_Attributes(PJRT_DeviceDescription_Attributes_Args, PJRT_DeviceDescription_Attributes_Args_STRUCT_SIZE);
    PJRT_DeviceDescription_Kind(PJRT_DeviceDescription_Kind_Args, PJRT_DeviceDescription_Kind_Args_STRUCT_SIZE);
    PJRT_DeviceDescription_ToString(PJRT_DeviceDescription_ToString_Args, PJRT_DeviceDescription_ToString_Args_STRUCT_SIZE);
    PJRT_Device_GetDescription(PJRT_Device_GetDescription_Args, PJRT_Device_GetDescription_Args_STRUCT_SIZE);
    PJRT_Device_LocalHardwareId(PJRT_Device_LocalHardwareId_Args, PJRT_Device_LocalHardwareId_Args_STRUCT_SIZE);
    PJRT_Device_MemoryStats(PJRT_Device_MemoryStats_Args, PJRT_Device_MemoryStats_Args_STRUCT_SIZE);
    PJRT_Executable_Destroy(PJRT_Executable_Destroy_Args, PJRT_Executable_Destroy_Args_STRUCT_SIZE);
    PJRT_Executable_NumReplicas(PJRT_Executable_NumReplicas_Args, PJRT_Executable_NumReplicas_Args_STRUCT_SIZE);
    PJRT_Executable_NumPartitions(PJRT_Executable_NumPartitions_Args, PJRT_Executable_NumPartitions_Args_STRUCT_SIZE);
    PJRT_Executable_NumOutputs(PJRT_Executable_NumOutputs_Args, PJRT_Executable_NumOutputs_Args_STRUCT_SIZE);
    PJRT_Executable_OptimizedProgram(PJRT_Executable_OptimizedProgram_Args, PJRT_Executable_OptimizedProgram_Args_STRUCT_SIZE);
    PJRT_Executable_Serialize(PJRT_Executable_Serialize_Args, PJRT_Executable_Serialize_Args_STRUCT_SIZE);
    PJRT_Executable_DeserializeAndLoad(PJRT_Executable_DeserializeAndLoad_Args, PJRT_Executable_DeserializeAndLoad_Args_STRUCT_SIZE);
    PJRT_Executable_GetCompiledMemoryStats(PJRT_Executable_GetCompiledMemoryStats_Args, PJRT_Executable_GetCompiledMemoryStats_Args_STRUCT_SIZE);
    PJRT_LoadedExecutable_Destroy(PJRT_LoadedExecutable_Destroy_Args, PJRT_LoadedExecutable_Destroy_Args_STRUCT_SIZE);
    PJRT_LoadedExecutable_GetExecutable(PJRT_LoadedExecutable_GetExecutable_Args, PJRT_LoadedExecutable_GetExecutable_Args_STRUCT_SIZE);
    PJRT_LoadedExecutable_AddressableDevices(PJRT_LoadedExecutable_AddressableDevices_Args, PJRT_LoadedExecutable_AddressableDevices_Args_STRUCT_SIZE);
    PJRT_LoadedExecutable_Execute(PJRT_LoadedExecutable_Execute_Args, PJRT_LoadedExecutable_Execute_Args_STRUCT_SIZE);
    PJRT_Buffer_Destroy(PJRT_Buffer_Destroy_Args, PJRT_Buffer_Destroy_Args_STRUCT_SIZE);
    PJRT_Buffer_ElementType(PJRT_Buffer_ElementType_Args, PJRT_Buffer_ElementType_Args_STRUCT_SIZE);
    PJRT_Buffer_Dimensions(PJRT_Buffer_Dimensions_Args, PJRT_Buffer_Dimensions_Args_STRUCT_SIZE);
    PJRT_Buffer_CopyToDevice(PJRT_Buffer_CopyToDevice_Args, PJRT_Buffer_CopyToDevice_Args_STRUCT_SIZE);
    PJRT_Buffer_ToHostBuffer(PJRT_Buffer_ToHostBuffer_Args, PJRT_Buffer_ToHostBuffer_Args_STRUCT_SIZE);
    PJRT_Buffer_ReadyEvent(PJRT_Buffer_ReadyEvent_Args, PJRT_Buffer_ReadyEvent_Args_STRUCT_SIZE);
    PJRT_TopologyDescription_Create(PJRT_TopologyDescription_Create_Args, PJRT_TopologyDescription_Create_Args_STRUCT_SIZE);
    PJRT_TopologyDescription_Destroy(PJRT_TopologyDescription_Destroy_Args, PJRT_TopologyDescription_Destroy_Args_STRUCT_SIZE);
    PJRT_TopologyDescription_PlatformName(PJRT_TopologyDescription_PlatformName_Args, PJRT_TopologyDescription_PlatformName_Args_STRUCT_SIZE);
    PJRT_TopologyDescription_PlatformVersion(PJRT_TopologyDescription_PlatformVersion_Args, PJRT_TopologyDescription_PlatformVersion_Args_STRUCT_SIZE);
    PJRT_TopologyDescription_GetDeviceDescriptions(PJRT_TopologyDescription_GetDeviceDescriptions_Args, PJRT_TopologyDescription_GetDeviceDescriptions_Args_STRUCT_SIZE);
    PJRT_Compile(PJRT_Compile_Args, PJRT_Compile_Args_STRUCT_SIZE);
}
