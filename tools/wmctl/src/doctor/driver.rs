//! The driver and its devices, asked through the same table that the shim uses.
//!
//! Only questions that need no context: the doctor takes no GPU memory and disturbs nobody.

use std::ffi::{CStr, c_int, c_uint};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use wm_abi::{
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
    CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
};
use wm_abi::{CUresult, symbol::*};
use wm_driver::{Loader, Table, search};

use super::finding::Finding;
use crate::human;
use crate::stats;
use crate::table::Table as Text;

/// Oldest driver that knows all that the shim uses: CUDA 12.2, driver 535.
const OLDEST: c_int = 12_020;

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
}

/// Opens the driver and asks it. `None` with a finding that says why.
pub(super) fn examine(findings: &mut Vec<Finding>) -> Option<Driver> {
    let explicit = std::env::var_os("WMSHIM_DRIVER").filter(|value| !value.is_empty()).map(PathBuf::from);
    let table = match search::open(&Loader::system(), explicit.as_deref()) {
        Ok(table) => table,
        Err(missing) => {
            findings.push(not_found(&missing));
            return None;
        }
    };
    match survey(&table) {
        Ok(driver) => {
            judge(&driver, findings);
            Some(driver)
        }
        Err(error) => {
            findings.push(unusable(table.path(), error));
            None
        }
    }
}

fn not_found(missing: &search::NotFound) -> Finding {
    let remedy = if Path::new("/dev/nvidiactl").exists() {
        "a GPU is visible, its library is not: in a container run with `--gpus all`; else set WMSHIM_DRIVER to libcuda.so.1"
    } else {
        "install NVIDIA's driver (535 or newer), run on a machine with a GPU, or set WMSHIM_DRIVER to a simulated driver"
    };
    Finding::blocks(format!("no CUDA driver: {}", searched(missing)), remedy)
}

/// The places looked at, those with the same finding together.
fn searched(missing: &search::NotFound) -> String {
    let mut places: Vec<(&str, Vec<String>)> = Vec::new();
    for (place, why) in &missing.searched {
        let place = place.display().to_string();
        match places.iter_mut().find(|(reason, _)| reason == why) {
            Some((_, group)) => group.push(place),
            None => places.push((why, vec![place])),
        }
    }
    places.iter().map(|(why, group)| format!("{why}: {}", group.join(" "))).collect::<Vec<_>>().join("; ")
}

fn unusable(path: &Path, error: CUresult) -> Finding {
    let remedy = match error {
        CUresult::NO_DEVICE => {
            "no GPU is visible: check CUDA_VISIBLE_DEVICES, `nvidia-smi`, and the container's `--gpus`"
        }
        CUresult::SYSTEM_DRIVER_MISMATCH => {
            "the kernel module and the library differ: reboot, or update the container"
        }
        CUresult::SYSTEM_NOT_READY => {
            "the system is not ready: start nvidia-fabricmanager on machines with NVSwitch"
        }
        _ => "run `nvidia-smi`; what it reports has to be repaired first",
    };
    Finding::blocks(format!("{} was opened, and fails: {error}", path.display()), remedy)
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

fn judge(driver: &Driver, findings: &mut Vec<Finding>) {
    let version = stats::cuda(driver.version);
    findings.push(if driver.version < OLDEST {
        Finding::note(
            format!("the driver is of CUDA {version}; overflow to host memory needs 12.2"),
            "update the driver to 535 or newer",
        )
    } else {
        Finding::good(format!("driver of CUDA {version} at {}", driver.path.display()))
    });
    if driver.devices.is_empty() {
        findings.push(Finding::blocks(
            "the driver has no devices",
            "check CUDA_VISIBLE_DEVICES and `nvidia-smi`",
        ));
    }
    driver.devices.iter().for_each(|device| judge_device(device, findings));
    judge_peers(driver, findings);
}

fn judge_device(device: &Device, findings: &mut Vec<Finding>) {
    let ordinal = device.ordinal;
    if !device.virtual_memory {
        findings.push(Finding::blocks(
            format!("device {ordinal} has no virtual memory management: nothing can be stitched"),
            "set WMSHIM_STITCH=off to only pass calls through, or use a device of the Pascal generation or newer",
        ));
        return;
    }
    let parts = [
        (
            device.host_memory_in_ranges,
            "cannot map host memory into device ranges: no overflow to host",
            "update the driver to 535 or newer; some vGPU profiles lack it",
        ),
        (
            device.file_descriptors,
            "cannot export memory as file descriptors: no sharing between processes",
            "use a driver and container that allow it; WMSHIM_DEDUP stays off",
        ),
        (
            device.memory_pools,
            "has no memory pools: cudaMallocAsync programs do not run",
            "set WMSHIM_TORCH_ALLOCATOR=native for PyTorch",
        ),
        (
            device.rdma,
            "offers no RDMA into virtual memory: network cards copy through the host",
            "load nvidia-peermem or use a driver with DMA-BUF; single-node programs lose nothing",
        ),
    ];
    let lacking = parts.iter().filter(|(has, ..)| !has);
    findings
        .extend(lacking.map(|(_, what, remedy)| Finding::note(format!("device {ordinal} {what}"), *remedy)));
    if parts.iter().take(3).all(|(has, ..)| *has) {
        findings.push(Finding::good(format!(
            "device {ordinal}: stitching, overflow to host, sharing, memory pools"
        )));
    }
}

fn judge_peers(driver: &Driver, findings: &mut Vec<Finding>) {
    let count = driver.devices.len();
    let reachable = driver.peers.iter().flatten().filter(|can| **can).count();
    match (count, reachable == count * count) {
        (0 | 1, _) => {}
        (_, true) => findings
            .push(Finding::good("all devices can use each other's memory (WMSHIM_OVERFLOW=peer,host)")),
        (_, false) => findings.push(Finding::note(
            "not all pairs of devices can use each other's memory",
            "overflow to peers uses the pairs that can; `nvidia-smi topo -p2p r` tells why the others cannot",
        )),
    }
}

/// Driver and devices as tables.
pub(super) fn render(driver: &Option<Driver>) -> String {
    let Some(driver) = driver else { return "Driver   none\n\n".to_owned() };
    let mut devices =
        Text::new(&[">DEVICE", "NAME", ">MEMORY", "CC", "PCI", "NUMA", "VMM", "HOST", "FD", "POOLS", "RDMA"]);
    let yes = |flag: bool| if flag { "yes" } else { "no" }.to_owned();
    for device in &driver.devices {
        devices.row([
            device.ordinal.to_string(),
            device.name.clone(),
            human::bytes(device.total_bytes),
            device.compute_capability.clone(),
            device.pci.clone(),
            device.numa_node.map_or_else(|| "-".into(), |node| node.to_string()),
            yes(device.virtual_memory),
            yes(device.host_memory_in_ranges),
            yes(device.file_descriptors),
            yes(device.memory_pools),
            yes(device.rdma),
        ]);
    }
    let heading = format!("Driver   {} (CUDA {})", driver.path.display(), stats::cuda(driver.version));
    format!("{heading}\n\n{devices}\n{}", peers(driver))
}

fn peers(driver: &Driver) -> String {
    if driver.devices.len() < 2 {
        return String::new();
    }
    let headings: Vec<_> = std::iter::once("PEERS".to_owned())
        .chain((0..driver.devices.len()).map(|ordinal| format!(">{ordinal}")))
        .collect();
    let mut table = Text::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    for (from, row) in driver.peers.iter().enumerate() {
        let mark = |(to, can): (usize, &bool)| {
            if from == to {
                "."
            } else if *can {
                "yes"
            } else {
                "no"
            }
            .to_owned()
        };
        table.row(std::iter::once(from.to_string()).chain(row.iter().enumerate().map(mark)));
    }
    format!("{table}\n")
}
