//! The answers of a driver about itself and its devices.

use std::ffi::c_int;
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
    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, CUresult,
};
use wm_driver::{Api, Table};

use crate::doctor::limits::LimitedDevice;

/// A driver and its devices.
#[derive(Debug, Serialize)]
pub(in crate::doctor) struct ExaminedDriver {
    pub(super) path: PathBuf,
    /// 13000 is CUDA 13.0.
    pub(super) version: c_int,
    pub(super) devices: Vec<ExaminedDevice>,
    /// `peers[a][b]`: can device `a` use memory of device `b`?
    pub(super) peers: Vec<Vec<bool>>,
}

/// One device.
#[derive(Debug, Serialize)]
pub(super) struct ExaminedDevice {
    pub(super) ordinal: c_int,
    pub(super) name: String,
    pub(super) total_bytes: u64,
    pub(super) compute_capability: String,
    pub(super) pci: String,
    /// The host memory nearest to the device, as the kernel says; absent where it does not.
    pub(super) numa_node: Option<c_int>,
    pub(super) virtual_memory: bool,
    pub(super) host_memory_in_ranges: bool,
    pub(super) file_descriptors: bool,
    pub(super) memory_pools: bool,
    pub(super) rdma: bool,
    /// Do processes share it through MPS?
    pub(super) mps: bool,
}

impl ExaminedDriver {
    /// Its devices, as far as their limits matter.
    pub(in crate::doctor) fn limited(&self) -> impl Iterator<Item = LimitedDevice> {
        let limited = |device: &ExaminedDevice| LimitedDevice {
            ordinal: device.ordinal,
            total_bytes: device.total_bytes,
            pci: device.pci.clone(),
        };
        self.devices.iter().map(limited)
    }
}

/// Asks the driver.
pub(super) fn survey(table: &Table) -> Result<ExaminedDriver, CUresult> {
    table.init()?;
    let (version, count) = (table.driver_version()?, table.device_count()?);
    let devices = (0..count).map(|ordinal| device(table, ordinal)).collect::<Result<Vec<_>, _>>()?;
    let row = |from| {
        (0..count)
            .map(|to| from == to || table.device_can_access_peer(from, to).is_ok_and(|able| able != 0))
            .collect()
    };
    Ok(ExaminedDriver {
        path: table.path().to_owned(),
        version,
        devices,
        peers: (0..count).map(row).collect(),
    })
}

fn device(table: &Table, ordinal: c_int) -> Result<ExaminedDevice, CUresult> {
    let attribute = |which| table.device_attribute(which, ordinal).ok();
    let flag = |which| attribute(which).is_some_and(|value| value != 0);
    let number = |which| attribute(which).unwrap_or(0);
    let pci = format!(
        "{:04x}:{:02x}:{:02x}.0",
        number(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
        number(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
        number(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)
    );
    Ok(ExaminedDevice {
        ordinal,
        name: table.device_name(ordinal)?,
        total_bytes: table.device_total_mem(ordinal)? as u64,
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

/// The kernel's record of a PCI device; `None` in virtual machines that have none.
fn numa_node(pci: &str) -> Option<c_int> {
    let text = fs::read_to_string(format!("/sys/bus/pci/devices/{pci}/numa_node")).ok()?;
    text.trim().parse().ok().filter(|node| *node >= 0)
}
