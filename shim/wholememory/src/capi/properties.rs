//! The properties of a device, as CUDA's runtime of version 13 describes them (`cudaDeviceProp`),
//! filled from the driver's attributes.
//!
//! A description lives as long as the process: callers keep the pointer.

use std::collections::HashMap;
use std::ffi::{c_int, c_uint};
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use wm_abi::*;
use wm_driver::Api;
use wm_driver::api::Named;

use super::call::value;
use super::exports::exports;
use super::registry::driver;
use crate::error::{Result, require};

/// Bytes of the structure.
const BYTES: usize = 1008;
/// Bytes of a name.
const NAME: usize = 256;

/// A field of the structure. Each begins at a multiple of its size.
#[derive(Debug, Clone, Copy)]
enum PropertyField {
    /// So many bytes that are left 0.
    Nothing(usize),
    /// The bytes of the device's memory.
    Memory,
    /// An attribute, as an `int`.
    Int(c_uint),
    /// An attribute, as a `size_t`.
    Size(c_uint),
}

use PropertyField::{Int, Memory, Nothing, Size};

/// The fields behind name and UUID, in the order of the structure.
const FIELDS: &[PropertyField] = &[
    // The LUID and its mask are for Windows.
    Nothing(8),
    Nothing(4),
    Memory,
    Size(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
    Int(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
    Int(CU_DEVICE_ATTRIBUTE_WARP_SIZE),
    Size(CU_DEVICE_ATTRIBUTE_MAX_PITCH),
    Int(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
    Int(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
    Int(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
    Int(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z),
    Int(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
    Int(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
    Int(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z),
    Size(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
    Int(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
    Int(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
    Size(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT),
    Size(CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT),
    Int(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
    Int(CU_DEVICE_ATTRIBUTE_INTEGRATED),
    Int(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH),
    Int(CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS),
    Size(CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT),
    Int(CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS),
    Int(CU_DEVICE_ATTRIBUTE_ECC_ENABLED),
    Int(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
    Int(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID),
    Int(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
    Int(CU_DEVICE_ATTRIBUTE_TCC_DRIVER),
    Int(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT),
    Int(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING),
    Int(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
    Int(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
    Int(CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE),
    Int(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR),
    Int(CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED),
    Int(CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED),
    Int(CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED),
    Size(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
    Int(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR),
    Int(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY),
    Int(CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD),
    Int(CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID),
    Int(CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED),
    Int(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS),
    Int(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS),
    Int(CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED),
    Int(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM),
    Int(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH),
    Size(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
    Int(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES),
    Int(CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST),
    Int(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR),
    Int(CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE),
    Size(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK),
    Int(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED),
    Int(CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED),
    Int(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED),
    Int(CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED),
    Int(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED),
    Int(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED),
    Int(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS),
    Int(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING),
    Int(CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES),
    Int(CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED),
    Int(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED),
    Int(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH),
    Int(CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS),
    Int(CU_DEVICE_ATTRIBUTE_NUMA_CONFIG),
    Int(CU_DEVICE_ATTRIBUTE_NUMA_ID),
    Int(CU_DEVICE_ATTRIBUTE_MPS_ENABLED),
    Int(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID),
    Int(CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID),
    Int(CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID),
    Int(CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED),
];

/// Descriptions that were given out, by ordinal.
static DESCRIBED: Mutex<Option<HashMap<c_int, &'static DeviceProperties>>> = Mutex::new(None);

/// `cudaDeviceProp`: bytes at an address that a `size_t` may have.
#[derive(Debug)]
#[repr(C, align(8))]
pub struct DeviceProperties([u8; BYTES]);

/// Writes one field after the other.
struct PropertyWriter {
    bytes: Box<DeviceProperties>,
    end: usize,
}

impl PropertyWriter {
    fn put<const SIZE: usize>(&mut self, value: [u8; SIZE], alignment: usize) {
        self.end = self.end.next_multiple_of(alignment);
        self.bytes.0[self.end..self.end + SIZE].copy_from_slice(&value);
        self.end += SIZE;
    }

    fn field(&mut self, field: PropertyField, attribute: impl Fn(c_uint) -> c_int, memory: usize) {
        match field {
            Nothing(bytes) => self.end += bytes,
            Memory => self.put(memory.to_ne_bytes(), align_of::<usize>()),
            Int(which) => self.put(attribute(which).to_ne_bytes(), align_of::<c_int>()),
            Size(which) => {
                let value = usize::try_from(attribute(which)).unwrap_or_default();
                self.put(value.to_ne_bytes(), align_of::<usize>());
            }
        }
    }
}

fn describe(driver: Named<'static>, device: CUdevice) -> Result<Box<DeviceProperties>> {
    let mut writer = PropertyWriter { bytes: Box::new(DeviceProperties([0; BYTES])), end: 0 };
    let name = driver.device_name(device)?;
    let length = name.len().min(NAME - 1);
    writer.bytes.0[..length].copy_from_slice(&name.as_bytes()[..length]);
    writer.end = NAME;
    writer.put(driver.device_uuid(device)?.bytes, 1);
    let memory = driver.device_total_mem(device)?;
    // A driver that is older than an attribute does not have its value.
    let attribute = |which| driver.device_attribute(which, device).unwrap_or_default();
    FIELDS.iter().for_each(|field| writer.field(*field, attribute, memory));
    Ok(writer.bytes)
}

fn properties(ordinal: c_int) -> Result<&'static DeviceProperties> {
    let driver = Named(driver()?);
    driver.init()?;
    require(ordinal >= -1, "no device has a number below 0")?;
    let device = if ordinal < 0 { driver.ctx_device()? } else { driver.device_get(ordinal)? };
    let mut described = DESCRIBED.lock().unwrap_or_else(PoisonError::into_inner);
    let described = described.get_or_insert_default();
    if let Some(known) = described.get(&device) {
        return Ok(known);
    }
    let new: &'static DeviceProperties = Box::leak(describe(driver, device)?);
    described.insert(device, new);
    Ok(new)
}

exports! {
    // env_func_ptrs.h: Devices.
    // env_func_ptrs.h: Devices.
    // env_func_ptrs.h: Devices.
    /// Returns the properties of a device, as CUDA 13's runtime describes them (`cudaDeviceProp`);
    /// -1 is the current one. They live as long as the process.
    ///
    /// * On failure: null.
    fn get_device_prop(ordinal: c_int) -> *mut DeviceProperties {
        value("get_device_prop", null_mut(), || Ok((&raw const *properties(ordinal)?).cast_mut()))
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a field at another place than CUDA's header has it. Offsets are those of CUDA 13's
    //! `driver_types.h`.
    use super::*;

    fn offset_of(wanted: c_uint) -> usize {
        let mut writer = PropertyWriter { bytes: Box::new(DeviceProperties([0; BYTES])), end: NAME + 16 };
        let mark = |which| if which == wanted { 0x5a5a_5a5a } else { 0 };
        FIELDS.iter().for_each(|field| writer.field(*field, mark, 0));
        let found = writer.bytes.0.windows(4).position(|word| word == [0x5a; 4]);
        found.expect("the attribute has a field")
    }

    #[test]
    fn fields_are_where_the_header_has_them() {
        assert_eq!(offset_of(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK), 296);
        assert_eq!(offset_of(CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT), 552);
        assert_eq!(offset_of(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH), 748);
        assert_eq!(offset_of(CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED), 780);
    }
}
