//! The driver and its devices, asked through the same table that the shim uses.
//!
//! Only questions that need no context: the doctor takes no GPU memory and disturbs nobody.

mod findings;
mod render;

use std::ffi::{CStr, c_int, c_uint};
use std::fs;
use std::path::PathBuf;

use serde::Serialize;
use wm_abi::{
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, CU_DEVICE_ATTRIBUTE_MPS_ENABLED,
    CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
};
use wm_abi::{CUresult, symbol::*};
use wm_driver::{Loader, Table, search};

use super::finding::Finding;
pub(super) use render::render;

/// A driver and what it serves.
#[derive(Debug, Serialize)]
pub(super) struct Driver {
    path: PathBuf,
    /// 13000 is CUDA 13.0.
    version: c_int,
    devices: Vec<Device>,
    /// `peers[a][b]`: can device `a` use memory of device `b`?
    peers: Vec<Vec<bool>>,
}

#[derive(Debug, Serialize)]
struct Device {
    ordinal: c_int,
    name: String,
    total_bytes: u64,
    compute_capability: String,
    pci: String,
    /// The host memory nearest to the device, as the kernel says; absent where it does not.
    numa_node: Option<c_int>,
    virtual_memory: bool,
    host_memory_in_ranges: bool,
    file_descriptors: bool,
    memory_pools: bool,
    rdma: bool,
    /// Do processes share it through MPS?
    mps: bool,
}

/// Opens the driver and asks it. `None` with a finding that says why.
pub(super) fn examine(findings: &mut Vec<Finding>) -> Option<Driver> {
    let explicit = crate::shim::driver();
    let table = match search::open(&Loader::system(), explicit.as_deref()) {
        Ok(table) => table,
        Err(missing) => {
            findings.push(findings::not_found(&missing));
            return None;
        }
    };
    match survey(&table) {
        Ok(driver) => {
            findings::judge(&driver, findings);
            Some(driver)
        }
        Err(error) => {
            findings.push(findings::unusable(table.path(), error));
            None
        }
    }
}

fn survey(table: &Table) -> Result<Driver, CUresult> {
    // SAFETY: takes flags, which must be 0.
    unsafe { table.get::<cuInit>()(0) }.ok()?;
    let version = integer(|out| {
        // SAFETY: writes one integer.
        unsafe { table.get::<cuDriverGetVersion>()(out) }
    })?;
    let count = integer(|out| {
        // SAFETY: writes one integer.
        unsafe { table.get::<cuDeviceGetCount>()(out) }
    })?;
    let devices = (0..count).map(|ordinal| device(table, ordinal)).collect::<Result<Vec<_>, _>>()?;
    let row = |from| (0..count).map(|to| from == to || can_access(table, from, to)).collect();
    Ok(Driver { path: table.path().to_owned(), version, devices, peers: (0..count).map(row).collect() })
}

fn device(table: &Table, ordinal: c_int) -> Result<Device, CUresult> {
    let attribute = |which| attribute(table, ordinal, which);
    let flag = |which| attribute(which).is_some_and(|value| value != 0);
    let number = |which| attribute(which).unwrap_or(0);
    let pci = format!(
        "{:04x}:{:02x}:{:02x}.0",
        number(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
        number(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
        number(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)
    );
    Ok(Device {
        ordinal,
        name: name(table, ordinal)?,
        total_bytes: total(table, ordinal)?,
        compute_capability: format!(
            "{}.{}",
            number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
        ),
        numa_node: numa_node(&pci)
            .or_else(|| attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID).filter(|node| *node >= 0)),
        pci,
        virtual_memory: flag(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
        host_memory_in_ranges: flag(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
        file_descriptors: flag(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED),
        memory_pools: flag(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED),
        rdma: flag(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED),
        mps: flag(CU_DEVICE_ATTRIBUTE_MPS_ENABLED),
    })
}

fn integer(ask: impl FnOnce(*mut c_int) -> CUresult) -> Result<c_int, CUresult> {
    let mut value = 0;
    ask(&raw mut value).ok().map(|()| value)
}

/// An attribute's value; `None` where the driver does not know it.
fn attribute(table: &Table, ordinal: c_int, which: c_uint) -> Option<c_int> {
    integer(|out| {
        // SAFETY: writes one integer.
        unsafe { table.get::<cuDeviceGetAttribute>()(out, which, ordinal) }
    })
    .ok()
}

fn can_access(table: &Table, from: c_int, to: c_int) -> bool {
    integer(|out| {
        // SAFETY: writes one integer.
        unsafe { table.get::<cuDeviceCanAccessPeer>()(out, from, to) }
    })
    .is_ok_and(|answer| answer != 0)
}

fn name(table: &Table, ordinal: c_int) -> Result<String, CUresult> {
    let mut buffer = [0_u8; 256];
    // SAFETY: writes a terminated string of at most the given length.
    unsafe { table.get::<cuDeviceGetName>()(buffer.as_mut_ptr().cast(), buffer.len() as c_int, ordinal) }
        .ok()?;
    Ok(CStr::from_bytes_until_nul(&buffer).unwrap_or_default().to_string_lossy().into_owned())
}

fn total(table: &Table, ordinal: c_int) -> Result<u64, CUresult> {
    let mut bytes = 0_usize;
    // SAFETY: writes one size.
    unsafe { table.get::<cuDeviceTotalMem_v2>()(&raw mut bytes, ordinal) }.ok()?;
    Ok(bytes as u64)
}

/// What the kernel says of a PCI device; `None` in virtual machines that do not tell.
fn numa_node(pci: &str) -> Option<c_int> {
    let text = fs::read_to_string(format!("/sys/bus/pci/devices/{pci}/numa_node")).ok()?;
    text.trim().parse().ok().filter(|node| *node >= 0)
}
