//! A piece on the host becomes memory of its device, for a receiver that relies on that.
//!
//! Memory of the device with the same bytes takes its place, under the same handle and at the same
//! addresses. If the program has mapped the piece nowhere, no work uses it: a program unmaps memory
//! after its last use. If it is mapped, it changes behind the closed gate, while the device is
//! idle, and waits for that no longer than moves do; so that needs `WMSHIM_MIGRATE=on`.

use std::cell::Cell;
use std::slice;
use std::time::Duration;

use wm_abi::*;
use wm_driver::api::owned::PhysicalMemory;
use wm_driver::{Api, Device, Gpu, LinkWay, Table, Tier};
use wm_memory::{Charge, Manager, PieceKind};

use crate::gate::{GATE, PASSING};
use crate::hooks::call::oom;
use crate::physical::{Access, HeldPiece, book, cache};
use crate::process::driver;
use crate::registry;
use crate::subsystems::PROCESS;

/// The time of a copy that has begun: for so many bytes in a second, and a second.
const SLOWEST: u64 = 1 << 30;

/// How long work is waited for behind the gate that other threads have submitted shortly before it
/// closed.
const NEWER: Duration = Duration::from_millis(5);

/// Times that a piece is brought which other threads change meanwhile.
const ATTEMPTS: usize = 3;

/// Is the piece of an alias on its device afterwards?
pub(super) fn bring(alias: u64) -> bool {
    for _ in 0..ATTEMPTS {
        // Another thread may have brought it, or changed it meanwhile.
        if !book().is_displaced(alias) || bring_once(alias) != Some(false) {
            break;
        }
    }
    !book().is_displaced(alias)
}

/// `None`: it cannot be brought. `false`: it was changed meanwhile.
fn bring_once(alias: u64) -> Option<bool> {
    let piece = cache().handles_for(alias)?.held(alias).filter(|piece| !piece.shared)?;
    let manager = registry::existing(piece.kind.device)?;
    let is_mapped = !piece.at.is_empty();
    if is_mapped && !PROCESS.moves.is_on() {
        return None;
    }
    let memory = DeviceMemory::make(manager, &piece)?;
    if !is_mapped {
        return Some(memory.take_place_of(alias, &piece));
    }
    // Before the gate closes, since other threads wait behind it.
    PROCESS.moves.await_idle(manager);
    GATE.with_quiesced(PASSING, |_| {
        let is_idle = PROCESS.moves.finds_idle(manager, NEWER);
        is_idle.then(|| memory.take_place_of(alias, &piece))
    })?
}

/// Memory of the device that takes a piece's place, or goes back to the driver.
struct DeviceMemory {
    manager: &'static Manager<Device>,
    memory: PhysicalMemory<'static, Table>,
    charge: Charge<'static, Device>,
}

impl DeviceMemory {
    fn make(manager: &'static Manager<Device>, piece: &HeldPiece) -> Option<Self> {
        let PieceKind { bytes, handle_types, rdma, .. } = piece.kind;
        let property = CUmemAllocationProp {
            type_: CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: handle_types,
            location: location(piece.kind.device),
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: CUmemAllocationFlags { gpuDirectRDMACapable: rdma.into(), ..Default::default() },
        };
        let made = Cell::new(None);
        let _code = oom::retry_on(Some(piece.kind.device), || {
            let Some(charge) = manager.charge(Tier::Device, bytes, true) else {
                return CUresult::OUT_OF_MEMORY;
            };
            let created = PhysicalMemory::new(driver(), bytes as usize, &property);
            created.map(|memory| made.set(Some(Self { manager, memory, charge }))).into()
        });
        made.take()
    }

    /// `false`: the piece has changed, or the driver has refused.
    fn take_place_of(self, alias: u64, piece: &HeldPiece) -> bool {
        let access: Option<Vec<Access>> =
            piece.at.iter().map(|at| own_access(*at, piece.kind.device)).collect();
        let Some(access) = access.filter(|_| self.has_bytes_of(piece)) else { return false };
        let handle = self.memory.raw();
        let is_exchanged = cache().exchange(alias, piece, handle, &access);
        if is_exchanged {
            let _is_the_aliass = self.memory.into_raw();
            self.charge.made(false);
            book().came_home(alias, self.charge);
        }
        is_exchanged
    }

    /// Copies the piece.
    fn has_bytes_of(&self, piece: &HeldPiece) -> bool {
        let Some(from) = View::of(piece.handle, piece.kind) else { return false };
        let Some(to) = View::of(self.memory.raw(), piece.kind) else { return false };
        let (gpu, bytes) = (self.manager.gpu(), piece.kind.bytes);
        let Ok(event) = gpu.copy(LinkWay::In, to.address, from.address, bytes as usize) else { return false };
        let limit = Duration::from_secs(1 + bytes / SLOWEST);
        if gpu.wait_any(&[slice::from_ref(&event)], limit).is_none() {
            // The copy is not over: its memory stays mapped.
            std::mem::forget((from, to));
            return false;
        }
        gpu.recycle(event);
        true
    }
}

/// A second mapping of memory, for the device alone.
struct View {
    address: u64,
    bytes: usize,
    is_mapped: bool,
}

impl View {
    fn of(handle: u64, kind: PieceKind) -> Option<Self> {
        let bytes = kind.bytes as usize;
        let address = driver().mem_address_reserve(bytes).ok()?;
        let mut view = Self { address, bytes, is_mapped: false };
        driver().mem_map(address, bytes, handle).ok()?;
        view.is_mapped = true;
        let access =
            CUmemAccessDesc { location: location(kind.device), flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        driver().mem_set_access(address, bytes, &[access]).ok()?;
        Some(view)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // Addresses with a mapping that the driver refuses to remove are lost.
        let unmapped = if self.is_mapped { driver().mem_unmap(self.address, self.bytes) } else { Ok(()) };
        let _left = unmapped.and_then(|()| driver().mem_address_free(self.address, self.bytes));
    }
}

fn location(device: CUdevice) -> CUmemLocation {
    CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: device }
}

/// The access rights at an address; `None` if work of other devices may use it, or no work may.
fn own_access(address: u64, device: CUdevice) -> Option<Access> {
    let of =
        |device| Some((device, u32::try_from(driver().mem_access(address, &location(device)).ok()?).ok()?));
    let all: Option<Vec<(CUdevice, u32)>> = (0..registry::device_count()?).map(of).collect();
    let granted: Access = all?.into_iter().filter(|(_, flags)| *flags != 0).collect();
    (granted.len() == 1 && granted[0].0 == device).then_some(granted)
}
