//! Physical memory that the program makes itself, which may lie on the host.
//!
//! The order is that of a block of ours: the device; the device once more after our unused memory
//! was given back; then pinned host memory, if the user allows it and the caller does not need the
//! device; the device's headroom last. If all fails, the driver's first answer counts. Libraries
//! that pass memory to peers, network cards or multicast objects need the device: NCCL's flags come
//! in lines of 128 bytes, which arrive whole over NVLink only. Memory that went elsewhere answers
//! queries as device memory, and the CPU has no access to it.

use std::ffi::{c_uint, c_void};
use std::mem::MaybeUninit;

use wm_abi::*;
use wm_driver::{Api, Device, Gpu, OomAnswer, Tier};
use wm_memory::{Charge, HandlePool, Manager, OverflowVerdict, PieceKind};

use crate::gate::GATE;
use crate::hooks::call::boundary::Outcome;
use crate::hooks::call::oom;
use crate::hooks::memory::{adopted, reserved};
use crate::physical::{self, Asked, book, cache, segment};
use crate::process::{self, callers, driver};
use crate::subsystems::PROCESS;
use crate::{registry, shortage};

/// Handle types that host memory can be shared by.
const SHAREABLE: c_uint = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// Bytes of the host that an estimate may be wrong by.
const FAR: u64 = 1 << 30;

/// A request for memory on a device.
struct CreateRequest {
    property: CUmemAllocationProp,
    bytes: usize,
    manager: Option<&'static Manager<Device>>,
    /// The kind under which its memory on the device stays idle after the release; `None`: it
    /// does not.
    kind: Option<PieceKind>,
    /// The device's manager may move its memory, which is made as the manager makes it.
    is_movable: bool,
}

/// `cuMemCreate`.
pub(in crate::hooks) unsafe fn mem_create(
    handle: *mut u64,
    bytes: usize,
    property: *const CUmemAllocationProp,
    flags: u64,
) -> Outcome {
    GATE.await_resume();
    if handle.is_null() || property.is_null() || flags != 0 || process::exiting() || process::detached() {
        return Outcome::Forward;
    }
    // Pieces stay where they are. Nothing else depends on the answer than sharing, which ends.
    let _is_for_others = GATE.is_for_others();
    // SAFETY: the program's description of the memory, not null.
    let property = unsafe { *property };
    let on_a_device = property.location.type_ == CU_MEM_LOCATION_TYPE_DEVICE;
    if !on_a_device || property.type_ != CU_MEM_ALLOCATION_TYPE_PINNED {
        return Outcome::Forward;
    }
    let manager = registry::of_device(property.location.id);
    let kind = manager.and_then(|_| physical::kind(&property, bytes));
    let mut request = CreateRequest { property, bytes, manager, kind, is_movable: false };
    request.is_movable = request.may_move();
    let has_room = !segment::refuses(bytes as u64);
    let made = if has_room { request.anywhere() } else { Err(CUresult::OUT_OF_MEMORY) };
    let comes_again = segment::answered(bytes as u64, made.map(drop).into());
    if !has_room {
        shortage::refused_piece(comes_again);
    }
    if made == Err(CUresult::OUT_OF_MEMORY) && request.kind.is_some() {
        cache().refused();
    }
    PROCESS.profile.settle();
    // SAFETY: the program's out-pointer, not null.
    made.map(|made| unsafe { *handle = made }).into()
}

impl CreateRequest {
    /// Idle memory of a tier, if there is some.
    fn reserved(&self, tier: Tier) -> Option<u64> {
        let kind = self.kind?.on(tier);
        // The lock comes first: memory that is reserved has an alias for all other threads.
        let mut handles = cache().handles()?;
        let charge = self.manager?.reserve(kind)?;
        let alias = handles.reserve(kind);
        drop(handles);
        self.record(alias, tier, Some(charge));
        Some(alias)
    }

    fn anywhere(&self) -> Result<u64, CUresult> {
        self.on_device().or_else(|code| self.on_host(code))
    }

    fn on_device(&self) -> Result<u64, CUresult> {
        if let Some(alias) = self.reserved(Tier::Device) {
            return Ok(alias);
        }
        let first = self.beside_headroom();
        let is_short = first == Err(CUresult::OUT_OF_MEMORY);
        let relieved =
            is_short && self.manager.is_some_and(|manager| oom::release_unused(manager, self.bytes));
        if relieved { self.beside_headroom() } else { first }
    }

    /// Others give way. If the piece may lie elsewhere, what is not used leaves the device.
    fn find_room(&self, manager: &Manager<Device>, verdict: Option<OverflowVerdict>) -> bool {
        let bytes = self.bytes as u64;
        let has_left = || verdict.is_none() && PROCESS.moves.make_for_piece(manager, bytes, self.is_movable);
        shortage::others_give_way(manager, bytes, verdict)
            || has_left() && oom::release_unused(manager, self.bytes)
    }

    /// As for memory that may overflow, if the manager makes memory that serves as what is asked
    /// for, and moves or sharing take it.
    fn may_move(&self) -> bool {
        let Some(manager) = self.manager.filter(|manager| self.is_taken(manager)) else { return false };
        let made = manager.gpu().property(Tier::Device);
        let CUmemAllocationProp { requestedHandleTypes, allocFlags, .. } = self.property;
        self.is_plain()
            && requestedHandleTypes & !made.requestedHandleTypes == 0
            && allocFlags.gpuDirectRDMACapable <= made.allocFlags.gpuDirectRDMACapable
            && self.is_borne()
    }

    /// PyTorch's own pieces lie in segments of many tensors, which are not shared.
    fn is_taken(&self, manager: &Manager<Device>) -> bool {
        let bytes = self.bytes as u64;
        let moves = PROCESS.moves.is_on()
            && bytes >= PROCESS.moves.smallest()
            && manager.settings().overflow.contains(&Tier::Host);
        moves || PROCESS.sharing.asks_for_pieces_of(bytes) && !callers::is_torch_itself()
    }

    /// New memory of the device. A piece that could lie on the host leaves the headroom to the
    /// driver, and a large one leaves room to small ones. Where others give way for pieces, they
    /// make that room ([`crate::moves`]).
    fn beside_headroom(&self) -> Result<u64, CUresult> {
        let bytes = self.bytes as u64;
        let is_taken = |manager: &&Manager<Device>| {
            !manager.leaves_headroom(bytes) || !manager.leaves_small_room(bytes) && !PROCESS.moves.gives_way()
        };
        let could_overflow =
            |manager: &&Manager<Device>| self.is_plain() && self.may_overflow(manager) && self.is_borne();
        if self.manager.filter(is_taken).is_some_and(|manager| could_overflow(&manager)) {
            return Err(CUresult::OUT_OF_MEMORY);
        }
        self.attempt(Tier::Device)
    }

    /// `code` is why the device did not do.
    fn on_host(&self, code: CUresult) -> Result<u64, CUresult> {
        let Some(manager) = self.manager.filter(|_| code == CUresult::OUT_OF_MEMORY) else {
            return Err(code);
        };
        let verdict = self.refusal(manager);
        // As for a block: where the caller has given up what it does not use, what is cold leaves.
        let again = self.find_room(manager, verdict).then(|| self.beside_headroom());
        if let Some(answer) = again.filter(|answer| *answer != Err(CUresult::OUT_OF_MEMORY)) {
            return answer;
        }
        if let Some(verdict) = verdict {
            self.record_refusal(manager, verdict);
            return Err(code);
        }
        let made = self.reserved(Tier::Host).ok_or(code).or_else(|_| {
            // Memory of other kinds may lie idle there.
            cache().make_host_room(manager, self.bytes as u64);
            let first = self.attempt(Tier::Host);
            let is_relieved = first.is_err() && manager.relieve_host(self.bytes as u64) > 0;
            if is_relieved { self.attempt(Tier::Host) } else { first }
        });
        match made {
            Ok(made) => {
                physical::set_any_elsewhere();
                PROCESS.overflow.note();
                Ok(made)
            }
            // The driver's headroom is better than an error.
            Err(_) => self.attempt(Tier::Device).map_err(|_| {
                self.record_refusal(manager, OverflowVerdict::Allowed);
                code
            }),
        }
    }

    /// Why it may not lie elsewhere, if it may not.
    fn refusal(&self, manager: &Manager<Device>) -> Option<OverflowVerdict> {
        if !self.is_plain() {
            return Some(OverflowVerdict::Unfit);
        }
        if manager.settings().overflow.is_empty() {
            return Some(OverflowVerdict::Off);
        }
        if !self.may_overflow(manager) {
            return Some(OverflowVerdict::Allowed);
        }
        if !self.is_borne() {
            return Some(OverflowVerdict::Unfit);
        }
        match shortage::of_piece() {
            OomAnswer::Spill => None,
            OomAnswer::FailOnce => Some(OverflowVerdict::Later),
            _ => Some(OverflowVerdict::Unfit),
        }
    }

    /// The program is refused the memory, and asks for it again if the verdict is that it does.
    fn record_refusal(&self, manager: &Manager<Device>, verdict: OverflowVerdict) {
        if verdict != OverflowVerdict::Later {
            manager.pool(HandlePool::refused);
            let asked = self.bytes as u64;
            PROCESS.overflow.say(self.device(), asked, || manager.shortage_of_piece(asked, verdict));
        }
    }

    /// New memory. The user's limits hold for memory whose place the program would not notice.
    fn attempt(&self, tier: Tier) -> Result<u64, CUresult> {
        let is_cached = self.kind.is_some();
        let charge = |manager: &'static Manager<Device>| {
            manager.charge(tier, self.bytes as u64, self.is_plain()).ok_or(CUresult::OUT_OF_MEMORY)
        };
        let charge = self.manager.map(charge).transpose()?;
        let made = self.make(tier)?;
        charge.iter().for_each(|charge| charge.made(is_cached));
        let has_alias = is_cached || tier == Tier::Host || self.is_movable;
        let handle = if has_alias {
            let kind = self.kind.unwrap_or_else(|| physical::kind_of(&self.property, self.bytes));
            cache().made(kind.on(tier), made, is_cached, self.is_movable)
        } else {
            made
        };
        self.record(handle, tier, charge);
        Ok(handle)
    }

    fn record(&self, handle: u64, tier: Tier, charge: Option<Charge<'static, Device>>) {
        let mut book = book();
        book.made(handle, self.asked(), tier, charge);
        if self.is_movable {
            book.made_movable(handle);
            // Before the program has the handle: calls that name it ask.
            PROCESS.moves.expect_pieces();
            physical::set_any_elsewhere();
        }
    }

    fn make(&self, tier: Tier) -> Result<u64, CUresult> {
        let made = driver().mem_create(self.bytes, &self.property_on(tier))?;
        let is_held = tier != Tier::Host
            || self.manager.is_none_or(|manager| manager.gpu().host_holds(self.bytes as u64));
        if is_held || driver().mem_release(made).is_err() { Ok(made) } else { Err(CUresult::OUT_OF_MEMORY) }
    }

    fn property_on(&self, tier: Tier) -> CUmemAllocationProp {
        if let Some(manager) = self.manager.filter(|_| self.is_movable) {
            return manager.gpu().property(tier);
        }
        match physical::location(self.device(), tier).filter(|_| tier == Tier::Host) {
            Some(location) => {
                CUmemAllocationProp { location, allocFlags: CUmemAllocationFlags::default(), ..self.property }
            }
            None => self.property,
        }
    }

    /// Memory whose place the program would not notice, and that a limit may therefore refuse.
    fn is_plain(&self) -> bool {
        let flags = &self.property.allocFlags;
        self.property.requestedHandleTypes & !SHAREABLE == 0 && flags.compressionType == 0 && flags.usage == 0
    }

    /// Can the caller cope with memory that is not where it asked for it?
    fn is_borne(&self) -> bool {
        shortage::may_leave_device(self.property.allocFlags.gpuDirectRDMACapable != 0)
    }

    fn may_overflow(&self, manager: &Manager<Device>) -> bool {
        let (bytes, idle) = (self.bytes as u64, manager.pool(|pool| pool.idle(Tier::Host)));
        // The current figure takes a dozen files: it is asked where the estimate is near the limit.
        let is_there = || {
            let (estimate, missing) = (manager.gpu().host_estimate(), bytes - idle);
            estimate >= missing && (estimate - missing >= FAR || manager.gpu().host_available() >= missing)
        };
        manager.settings().overflow.contains(&Tier::Host) && (idle >= bytes || is_there())
    }

    fn device(&self) -> CUdevice {
        self.property.location.id
    }

    fn asked(&self) -> Asked {
        let CUmemAllocationProp { requestedHandleTypes, allocFlags, .. } = self.property;
        Asked { device: self.device(), handle_types: requestedHandleTypes, flags: allocFlags }
    }
}

/// `cuMemRelease`.
pub(in crate::hooks) fn mem_release(handle: u64) -> CUresult {
    // Before the call: afterwards the driver may give the number to another thread's piece.
    let gone = book().let_go(handle);
    let result = cache().release(handle).unwrap_or_else(|| driver().mem_release(handle).into());
    match gone {
        Some(number) if result == CUresult::SUCCESS => book().settle(number),
        Some(number) => book().keep(handle, number),
        None => {}
    }
    result
}

/// `cuMemRetainAllocationHandle` of memory that is no block of ours.
pub(in crate::hooks) unsafe fn retain(handle: *mut u64, address: *mut c_void) -> CUresult {
    let cached = cache().handles().filter(|_| !handle.is_null());
    let result = match cached.and_then(|mut handles| handles.retain(address as u64)) {
        // SAFETY: the program's out-pointer, not null.
        Some(alias) => alias.map(|alias| unsafe { *handle = alias }).into(),
        // SAFETY: the program's arguments.
        None => unsafe { driver().get::<symbol::cuMemRetainAllocationHandle>()(handle, address) },
    };
    if result == CUresult::SUCCESS {
        // SAFETY: just written, here or by the driver.
        book().retained(address as u64, unsafe { *handle });
    }
    result
}

/// `cuMemImportFromShareableHandle`.
pub(in crate::hooks) unsafe fn mem_import_from_shareable_handle(
    handle: *mut u64,
    shared: *mut c_void,
    kind: c_uint,
) -> CUresult {
    // SAFETY: the program's arguments.
    let result = unsafe { driver().get::<symbol::cuMemImportFromShareableHandle>()(handle, shared, kind) };
    if result == CUresult::SUCCESS {
        // SAFETY: the driver has just written there.
        learn(unsafe { *handle });
    }
    result
}

/// Memory that was imported. The driver tells its place, and not the device that was asked for: if
/// the code's own memory may lie on the host, imported host memory stands in for a device's.
fn learn(handle: u64) {
    if book().held_again(handle) {
        return;
    }
    let mut property = MaybeUninit::<CUmemAllocationProp>::uninit();
    let properties = driver().get::<symbol::cuMemGetAllocationPropertiesFromHandle>();
    // SAFETY: a live local, and the program's handle.
    if unsafe { properties(property.as_mut_ptr(), handle) } != CUresult::SUCCESS {
        return;
    }
    // SAFETY: the driver has just written there.
    let property = unsafe { property.assume_init() };
    let CUmemAllocationProp { location, requestedHandleTypes, allocFlags, .. } = property;
    let is_here = location.type_ == CU_MEM_LOCATION_TYPE_DEVICE;
    let (tier, device) = match registry::current_device().filter(|_| !is_here) {
        Some(current) => (Tier::Host, current),
        None => (Tier::Device, location.id),
    };
    let asked = Asked { device, handle_types: requestedHandleTypes, flags: allocFlags };
    book().imported(handle, asked, tier, tier == Tier::Host && shortage::shares_host_memory());
    if tier == Tier::Host {
        physical::set_any_elsewhere();
    }
}

/// `cuMemGetAllocationPropertiesFromHandle`.
pub(in crate::hooks) unsafe fn mem_get_allocation_properties_from_handle(
    property: *mut CUmemAllocationProp,
    handle: u64,
) -> CUresult {
    let mut handles = cache().handles_for(handle).filter(|_| !property.is_null());
    let is_adopted = handles.as_ref().is_some_and(|handles| handles.adopted_at(handle).is_some());
    if let Some(asked) = book().asked(handle).filter(|_| is_adopted) {
        // The driver's handle of it is the manager's for now, and all that it would tell is known.
        // SAFETY: the program's out-pointer, not null.
        unsafe { *property = asked.property() };
        return CUresult::SUCCESS;
    }
    let named = handles.as_mut().and_then(|handles| handles.bound(handle)).unwrap_or(handle);
    drop(handles);
    // SAFETY: the program's arguments.
    let result = unsafe { driver().get::<symbol::cuMemGetAllocationPropertiesFromHandle>()(property, named) };
    let asked = book().asked(handle);
    if let Some(asked) = asked.filter(|_| result == CUresult::SUCCESS) {
        // SAFETY: the driver has just written there.
        unsafe { *property = asked.property() };
    }
    result
}

/// `cuMemMap`.
pub(in crate::hooks) fn mem_map(
    address: CUdeviceptr,
    bytes: usize,
    offset: usize,
    handle: u64,
    flags: u64,
) -> Outcome {
    if reserved::is_ours(address) {
        return Outcome::Return(CUresult::INVALID_VALUE);
    }
    // A second mapping of it, perhaps.
    if !adopted::disown(handle) {
        return Outcome::Return(CUresult::OUT_OF_MEMORY);
    }
    let plainly = || {
        let named =
            cache().handles_for(handle).and_then(|mut handles| handles.bound(handle)).unwrap_or(handle);
        // SAFETY: a function without pointers.
        unsafe { driver().get::<symbol::cuMemMap>()(address, bytes, offset, named, flags) }
    };
    let result = cache().map(address, bytes, offset, handle, flags).unwrap_or_else(plainly);
    if result == CUresult::SUCCESS {
        book().mapped(address, bytes as u64, handle);
        shortage::mapped();
        segment::changed();
    }
    Outcome::Return(result)
}

/// `cuMemUnmap`.
pub(in crate::hooks) fn mem_unmap(address: CUdeviceptr, bytes: usize) -> Outcome {
    if reserved::is_ours(address) {
        return Outcome::Return(CUresult::INVALID_VALUE);
    }
    let length = bytes as u64;
    if !adopted::disown_in(address, length, None) {
        return Outcome::Return(CUresult::OUT_OF_MEMORY);
    }
    book().unmapping(address, length);
    let cached = cache().handles_in(address, length).and_then(|mut handles| handles.unmap(address, length));
    let result = cached.map_or_else(|| unmap(address, bytes), CUresult::from);
    match result {
        CUresult::SUCCESS => book().unmapped(address, length),
        _ => {
            book().stays_mapped(address, length);
            adopted::adopt_in(address, length);
        }
    }
    Outcome::Return(result)
}

/// `cuMemUnmap` of mappings that are not those of cached handles.
fn unmap(address: u64, bytes: usize) -> CUresult {
    let forget = |()| {
        let mut handles = cache().handles();
        handles.iter_mut().for_each(|handles| handles.unmapped(address, bytes as u64));
    };
    driver().mem_unmap(address, bytes).map(forget).into()
}

/// `cuMemSetAccess`. The CPU gets no access to device memory, and none to host memory that stands
/// in for it: with access, a copy across the border between the two would crash inside the driver.
pub(in crate::hooks) unsafe fn mem_set_access(
    address: CUdeviceptr,
    bytes: usize,
    wanted: *const CUmemAccessDesc,
    count: usize,
) -> Outcome {
    if reserved::is_ours(address) {
        return Outcome::Return(CUresult::INVALID_VALUE);
    }
    if wanted.is_null() || count == 0 {
        return Outcome::Forward;
    }
    // SAFETY: the program's list of `count` entries, not null.
    let wanted = unsafe { std::slice::from_raw_parts(wanted, count) };
    let to_cpu = |entry: &CUmemAccessDesc| {
        entry.location.type_ != CU_MEM_LOCATION_TYPE_DEVICE && entry.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE
    };
    if wanted.iter().any(to_cpu) {
        let mut book = book();
        book.disclose(address, bytes as u64);
        if book.reaches_elsewhere(address, bytes as u64) {
            return Outcome::Return(CUresult::NOT_SUPPORTED);
        }
    }
    if !adopted::disown_in(address, bytes as u64, Some(wanted)) {
        return Outcome::Return(CUresult::OUT_OF_MEMORY);
    }
    let allowed = cache().allow(address, bytes, wanted);
    if allowed == Some(CUresult::SUCCESS) {
        adopted::adopt_in(address, bytes as u64);
    }
    allowed.map_or(Outcome::Forward, Outcome::Return)
}
