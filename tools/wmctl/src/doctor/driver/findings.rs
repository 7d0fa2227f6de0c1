//! Findings about a driver and its devices: the functions of the shim that work with them, those
//! that do not, and remedies.

use std::ffi::c_int;
use std::path::Path;

use wm_abi::CUresult;
use wm_driver::{NotADriver, search};

use super::survey::{ExaminedDevice, ExaminedDriver};
use crate::doctor::finding::Finding;
use crate::stats;

/// Oldest driver that knows all that the shim uses: CUDA 12.2, driver 535.
const OLDEST: c_int = 12_020;

pub(super) fn not_found(missing: &search::NotFound) -> Finding {
    let remedy = if Path::new("/dev/nvidiactl").exists() {
        "a GPU is visible, its library is not: in a container run with `--gpus all`; else set WMSHIM_DRIVER to libcuda.so.1"
    } else {
        "install NVIDIA's driver (535 or newer), run on a machine with a GPU, or try it with the simulated driver: WMSHIM_DRIVER=sim"
    };
    Finding::blocks(format!("no CUDA driver: {}", searched(missing)), remedy)
}

/// The places looked at, those with the same finding together.
fn searched(missing: &search::NotFound) -> String {
    let mut places: Vec<(&NotADriver, Vec<String>)> = Vec::new();
    for (place, why) in &missing.searched {
        let place = place.display().to_string();
        match places.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, group)) => group.push(place),
            None => places.push((why, vec![place])),
        }
    }
    places.iter().map(|(why, group)| format!("{why}: {}", group.join(" "))).collect::<Vec<_>>().join("; ")
}

pub(super) fn unusable(path: &Path, error: CUresult) -> Finding {
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

pub(super) fn judge(driver: &ExaminedDriver, findings: &mut Vec<Finding>) {
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
    judge_devices(&driver.devices, findings);
    judge_peers(driver, findings);
}

/// A requirement: whether a device fulfils it, the function that is missing otherwise, a remedy.
type DeviceRequirement = (fn(&ExaminedDevice) -> bool, &'static str, &'static str);

/// All that a device needs for everything; the last may be missing in a machine that is fit.
const PARTS: [DeviceRequirement; 4] = [
    (
        |device| device.host_memory_in_ranges,
        "cannot map host memory into device ranges: no overflow to host",
        "update the driver to 535 or newer; some vGPU profiles lack it",
    ),
    (
        |device| device.file_descriptors,
        "cannot export memory as file descriptors: no sharing between processes",
        "use a driver and container that allow it; WMSHIM_DEDUP stays off",
    ),
    (
        |device| device.memory_pools,
        "without memory pools: cudaMallocAsync programs do not run",
        "leave WMSHIM_TORCH_ALLOCATOR as it is: PyTorch does without them",
    ),
    (
        |device| device.rdma,
        "without RDMA into virtual memory: network cards copy through the host",
        "load nvidia-peermem or use a driver with DMA-BUF; single-node programs lose nothing",
    ),
];

/// One finding for all devices that it is true of: machines have eight of a kind.
fn judge_devices(devices: &[ExaminedDevice], findings: &mut Vec<Finding>) {
    let (managed, unmanaged): (Vec<_>, Vec<_>) = devices.iter().partition(|device| device.virtual_memory);
    if !unmanaged.is_empty() {
        findings.push(Finding::blocks(
            format!("{} without virtual memory management: nothing can be stitched", named(&unmanaged)),
            "set WMSHIM_STITCH=off to only pass calls through (else PyTorch's default under wmshim fails here), or use a device of the \
             Pascal generation or newer",
        ));
    }
    for (has, what, remedy) in PARTS {
        let lacking: Vec<_> = managed.iter().copied().filter(|device| !has(device)).collect();
        if !lacking.is_empty() {
            findings.push(Finding::note(format!("{} {what}", named(&lacking)), remedy));
        }
    }
    let whole = |device: &&ExaminedDevice| PARTS.iter().take(3).all(|(has, ..)| has(device));
    let whole: Vec<_> = managed.iter().copied().filter(whole).collect();
    if !whole.is_empty() {
        findings.push(Finding::good(format!(
            "{}: stitching, overflow to host, sharing, memory pools",
            named(&whole)
        )));
    }
    let shared: Vec<_> = devices.iter().filter(|device| device.mps).collect();
    if !shared.is_empty() {
        findings.push(Finding::note(
            format!(
                "{} shared through MPS: copies take one link, and programs share the memory",
                named(&shared)
            ),
            "give each program a share, WMSHIM_DEVICE_LIMIT=45% for two (docs/operations.md, MPS)",
        ));
    }
}

/// `device 0`, or `devices 0, 1, 2`.
fn named(devices: &[&ExaminedDevice]) -> String {
    let ordinals: Vec<_> = devices.iter().map(|device| device.ordinal.to_string()).collect();
    format!("device{} {}", if ordinals.len() == 1 { "" } else { "s" }, ordinals.join(", "))
}

fn judge_peers(driver: &ExaminedDriver, findings: &mut Vec<Finding>) {
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
