//! Memory of a GPU that stays where it is as long as it lives: NCCL writes to it over the network,
//! and the preloaded library must not move it meanwhile. Shared memory is never moved.

use wm_abi::*;
use wm_driver::Api;
use wm_driver::api::Named;
use wm_driver::api::owned::Reservation;

use crate::error::Result;

/// Some memory. Its context must be current where it is made and dropped.
#[derive(Debug)]
pub(super) struct FixedMemory {
    driver: Named<'static>,
    address: CUdeviceptr,
    bytes: usize,
}

impl FixedMemory {
    /// At least so many bytes.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn new(driver: Named<'static>, device: CUdevice, bytes: u64) -> Result<Self> {
        let location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: device };
        let property = CUmemAllocationProp {
            type_: CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            location,
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: CUmemAllocationFlags::default(),
        };
        let page = driver.mem_granularity(&property, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)?;
        let bytes = (bytes as usize).max(1).next_multiple_of(page.max(1));
        let range = Reservation::filled(&driver, bytes, &property)?;
        range.allow(&[CUmemAccessDesc { location, flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE }])?;
        Ok(Self { driver, address: range.into_raw(), bytes })
    }

    /// Its address.
    pub(super) fn address(&self) -> CUdeviceptr {
        self.address
    }

    /// Its bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes as u64
    }
}

impl Drop for FixedMemory {
    fn drop(&mut self) {
        let _ = self.driver.mem_unmap(self.address, self.bytes);
        let _ = self.driver.mem_address_free(self.address, self.bytes);
    }
}
