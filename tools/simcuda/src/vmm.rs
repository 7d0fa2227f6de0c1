//! The virtual-memory calls: physical memory, reservations, mappings and rights, as separate
//! objects.
//!
//! None of these calls waits for a device. A kernel that still uses removed memory faults.

use std::collections::BTreeMap;
use std::ffi::{c_uint, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use wm_abi::*;

use crate::entry::{Outcome, exports, get, get_all, put, require};
use crate::memory::space::{self, Protection};
use crate::memory::store::{self, unique};
use crate::memory::{Area, GRANULARITY, Mapping, Owner, Physical, Place, Rights};
use crate::races;
use crate::settings::settings;
use crate::state::driver;

/// Handles of physical memory have a tag of their own.
const TAG: u64 = 0x5120 << 40;

/// The place that a location names.
///
/// # Errors
/// `INVALID_DEVICE` for a device that does not exist, `INVALID_VALUE` for other values.
pub(crate) fn place_of(location: &CUmemLocation) -> Outcome<Place> {
    match location.type_ {
        CU_MEM_LOCATION_TYPE_DEVICE => Ok(Place::Device(driver().device(location.id)?.ordinal)),
        CU_MEM_LOCATION_TYPE_HOST | CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Ok(Place::Host),
        CU_MEM_LOCATION_TYPE_HOST_NUMA if location.id == 0 => Ok(Place::Host),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

fn is_aligned(value: u64) -> bool {
    value > 0 && value.is_multiple_of(GRANULARITY)
}

/// Checks the arguments of `cuMemCreate`.
fn check(prop: &CUmemAllocationProp) -> Outcome<Place> {
    require(prop.type_ == CU_MEM_ALLOCATION_TYPE_PINNED, CUresult::INVALID_VALUE)?;
    let place = place_of(&prop.location)?;
    let types = prop.requestedHandleTypes;
    require(types & !CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR == 0, CUresult::NOT_SUPPORTED)?;
    // Memory of "the host" without a NUMA node cannot be shared.
    let unshareable = types != 0 && prop.location.type_ == CU_MEM_LOCATION_TYPE_HOST;
    require(!unshareable, CUresult::INVALID_VALUE)?;
    Ok(place)
}

fn create(size: u64, prop: &CUmemAllocationProp) -> Outcome<u64> {
    let place = check(prop)?;
    require(is_aligned(size), CUresult::INVALID_VALUE)?;
    let make = || match (prop.requestedHandleTypes, place) {
        (0, _) => driver().cut(place, size),
        (types, Place::Device(i)) => {
            Physical::shareable(place, size, Some(&driver().devices[i].budget), types)
        }
        (types, Place::Host) => Physical::shareable(place, size, Some(&driver().host_budget), types),
    };
    if place == Place::Host {
        make_host_memory(size);
    }
    let physical = crate::pool::with_reclaim(place, make)?;
    if place == Place::Host && settings().checkpoints.is_some() {
        store::created_on_host().push(Arc::downgrade(&physical));
    }
    Ok(retain(&physical))
}

/// Takes the time in which the system makes, or pins, memory of the host.
pub(crate) fn make_host_memory(bytes: u64) {
    if let Some(speed) = settings().host_making {
        std::thread::sleep(Duration::from_secs_f64(bytes as f64 / speed));
    }
}

/// Adds a reference to physical memory. Returns its handle.
fn retain(physical: &Arc<Physical>) -> u64 {
    let handle = TAG | (physical.id << 4);
    let mut handles = driver().handles.lock().unwrap_or_else(PoisonError::into_inner);
    handles.entry(handle).or_insert_with(|| (Arc::clone(physical), 0)).1 += 1;
    handle
}

fn release(handle: u64) -> Outcome {
    let mut handles = driver().handles.lock().unwrap_or_else(PoisonError::into_inner);
    let (_, references) = handles.get_mut(&handle).ok_or(CUresult::INVALID_VALUE)?;
    *references -= 1;
    let last = (*references == 0).then(|| handles.remove(&handle));
    drop(handles);
    drop(last);
    Ok(())
}

fn physical(handle: u64) -> Outcome<Arc<Physical>> {
    let handles = driver().handles.lock().unwrap_or_else(PoisonError::into_inner);
    handles.get(&handle).map(|(physical, _)| Arc::clone(physical)).ok_or(CUresult::INVALID_VALUE)
}

fn reserve(size: u64, alignment: u64, hint: u64) -> Outcome<CUdeviceptr> {
    require(is_aligned(size), CUresult::INVALID_VALUE)?;
    require(alignment == 0 || alignment.is_power_of_two(), CUresult::INVALID_VALUE)?;
    let start = space::reserve(size, alignment.max(GRANULARITY), hint)?;
    let owner = Owner::Reserved(BTreeMap::new());
    driver().memory_mut().insert(Area { start, size, span: size, id: unique(), sync_memops: false, owner });
    Ok(start)
}

/// Releases a whole, empty reservation.
fn unreserve(start: CUdeviceptr, size: u64) -> Outcome {
    let is_it = |area: &Area| {
        matches!(&area.owner, Owner::Reserved(mappings) if mappings.is_empty()) && area.size == size
    };
    driver().memory_mut().remove_if(start, is_it).map(Area::discard).ok_or(CUresult::INVALID_VALUE)
}

fn map(start: CUdeviceptr, size: u64, offset: usize, handle: u64) -> Outcome {
    let physical = physical(handle)?;
    require(is_aligned(size) && is_aligned(start), CUresult::INVALID_VALUE)?;
    // A handle is mapped as a whole or not at all.
    require(offset == 0 && size == physical.size, CUresult::NOT_SUPPORTED)?;
    let mut memory = driver().memory_mut();
    let mappings = memory.reservation(start, size).ok_or(CUresult::INVALID_VALUE)?;
    let before = mappings.range(..start + size).next_back();
    let free = before.is_none_or(|(other, mapping)| other + mapping.physical.size <= start);
    require(free, CUresult::INVALID_VALUE)?;
    physical.map(start, Protection::None)?;
    mappings.insert(start, Mapping { physical, rights: Rights::default(), id: unique() });
    Ok(())
}

/// Starts of the mappings that together are exactly a range.
fn whole(mappings: &BTreeMap<u64, Mapping>, start: u64, size: u64) -> Outcome<Vec<u64>> {
    let end = start.checked_add(size).ok_or(CUresult::INVALID_VALUE)?;
    let (mut at, mut starts) = (start, Vec::new());
    while at < end {
        let mapping = mappings.get(&at).ok_or(CUresult::INVALID_VALUE)?;
        starts.push(at);
        at += mapping.physical.size;
    }
    require(at == end && size > 0, CUresult::INVALID_VALUE)?;
    Ok(starts)
}

/// Starts of the mappings in a range, none of which it cuts. Holes are no error: they have no
/// mapping to remove.
fn inside(mappings: &BTreeMap<u64, Mapping>, start: u64, size: u64) -> Outcome<Vec<u64>> {
    let end = start.checked_add(size).filter(|_| is_aligned(size)).ok_or(CUresult::INVALID_VALUE)?;
    let before = mappings.range(..start).next_back();
    let cut_at_start = before.is_some_and(|(at, mapping)| at + mapping.physical.size > start);
    let last = mappings.range(start..end).next_back();
    let cut_at_end = last.is_some_and(|(at, mapping)| at + mapping.physical.size > end);
    require(!cut_at_start && !cut_at_end, CUresult::INVALID_VALUE)?;
    Ok(mappings.range(start..end).map(|(at, _)| *at).collect())
}

fn unmap(start: CUdeviceptr, size: u64) -> Outcome {
    races::leave(start..start.saturating_add(size), "an unmapping");
    let mut memory = driver().memory_mut();
    let mappings = memory.reservation(start, size).ok_or(CUresult::INVALID_VALUE)?;
    let starts = inside(mappings, start, size)?;
    let removed: Vec<_> = starts.iter().filter_map(|at| mappings.remove(at)).collect();
    space::unmap(start, size);
    drop(memory);
    drop(removed);
    Ok(())
}

fn set_access(start: CUdeviceptr, size: u64, wanted: &[CUmemAccessDesc]) -> Outcome {
    let mut memory = driver().memory_mut();
    let mappings = memory.reservation(start, size).ok_or(CUresult::INVALID_VALUE)?;
    let starts = whole(mappings, start, size)?;
    let wanted = wanted.iter().map(right).collect::<Outcome<Vec<_>>>()?;
    let to_cpu = wanted.iter().any(|(place, flags)| *place == Place::Host && *flags != 0);
    let on_device = starts.iter().any(|at| mappings[at].physical.place != Place::Host);
    require(!(to_cpu && on_device), CUresult::NOT_SUPPORTED)?;
    // A driver before CUDA 12.2 does not know the location.
    require(settings().cpu_access || !to_cpu, CUresult::INVALID_VALUE)?;
    let is_unreachable = |(place, flags): &(Place, c_uint)| {
        let is_other = |at: &u64| ![Place::Host, *place].contains(&mappings[at].physical.place);
        *place != Place::Host && *flags != 0 && starts.iter().any(is_other)
    };
    // A driver refuses the device, which has no way to the memory.
    require(settings().peers || !wanted.iter().any(is_unreachable), CUresult::INVALID_DEVICE)?;
    for at in starts {
        let mapping = mappings.get_mut(&at).ok_or(CUresult::INVALID_VALUE)?;
        let mut rights = mapping.rights.clone();
        wanted.iter().for_each(|(place, flags)| rights.set(*place, *flags));
        space::protect(at, mapping.physical.size, rights.protection())?;
        mapping.rights = rights;
    }
    Ok(())
}

fn right(descriptor: &CUmemAccessDesc) -> Outcome<(Place, c_uint)> {
    let known =
        [CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_READWRITE];
    require(known.contains(&descriptor.flags), CUresult::INVALID_VALUE)?;
    let place = place_of(&descriptor.location).map_err(|_| CUresult::INVALID_VALUE)?;
    Ok((place, descriptor.flags))
}

/// The mapping at an address.
fn mapped(address: CUdeviceptr) -> Outcome<(Arc<Physical>, Rights)> {
    let memory = driver().memory();
    let (_, mapping) =
        memory.find(address).and_then(|area| area.mapping(address)).ok_or(CUresult::INVALID_VALUE)?;
    Ok((Arc::clone(&mapping.physical), mapping.rights.clone()))
}

/// The rights of a place to memory that the driver itself has mapped.
fn rights_of_own(address: CUdeviceptr, place: Place) -> Outcome<c_uint> {
    match driver().memory().find(address).map(|area| &area.owner) {
        Some(Owner::Linear { physical, .. } | Owner::Pool { physical, live: true, .. }) => {
            Ok(if physical.place == place { CU_MEM_ACCESS_FLAGS_PROT_READWRITE } else { 0 })
        }
        _ => Err(CUresult::INVALID_VALUE),
    }
}

/// The location of a place.
pub(crate) fn location_of(place: Place) -> CUmemLocation {
    match place {
        Place::Device(i) => CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: i as i32 },
        Place::Host => CUmemLocation { type_: CU_MEM_LOCATION_TYPE_HOST_NUMA, id: 0 },
    }
}

fn properties(physical: &Physical) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: physical.handle_types,
        location: location_of(physical.place),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: CUmemAllocationFlags::default(),
    }
}

/// A new descriptor of shareable memory, which the program then owns.
fn export(handle: u64, kind: c_uint) -> Outcome<i32> {
    let physical = physical(handle)?;
    let allowed = kind == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && physical.handle_types & kind != 0;
    require(allowed, CUresult::INVALID_VALUE)?;
    duplicate(physical.file().0).map(IntoRawFd::into_raw_fd)
}

/// Memory of this or another process, by descriptor. The program keeps the descriptor.
fn import(fd: i32, kind: c_uint) -> Outcome<u64> {
    require(kind == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUresult::INVALID_VALUE)?;
    require(fd >= 0, CUresult::UNKNOWN)?;
    // SAFETY: only used during this call; a closed descriptor is an error of the calls below.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    let place = store::place_of(file).ok_or(CUresult::INVALID_VALUE)?;
    if let Place::Device(ordinal) = place {
        driver().device(ordinal as i32)?;
    }
    let size = size_of_file(file)?;
    let foreign =
        Physical::foreign(duplicate(file)?, 0, size, place, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    Ok(retain(&foreign))
}

fn duplicate(file: BorrowedFd<'_>) -> Outcome<OwnedFd> {
    // SAFETY: an open descriptor.
    let fd = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) };
    require(fd >= 0, CUresult::OPERATING_SYSTEM)?;
    // SAFETY: a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn size_of_file(file: BorrowedFd<'_>) -> Outcome<u64> {
    // SAFETY: all zeroes is a valid `stat`.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a descriptor and a valid structure.
    let result = unsafe { libc::fstat(file.as_raw_fd(), &raw mut stat) };
    require(result == 0 && stat.st_size > 0, CUresult::INVALID_VALUE)?;
    Ok(stat.st_size as u64)
}

exports! {
    fn cuMemGetAllocationGranularity(granularity: *mut usize, prop: *const CUmemAllocationProp, option: c_uint) |call| {
        // The result is the same for every device, so none is looked up.
        require(!matches!(check(&get(prop)?), Err(error) if error != CUresult::INVALID_DEVICE), CUresult::INVALID_VALUE)?;
        require(option <= CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, CUresult::INVALID_VALUE)?;
        put(granularity, GRANULARITY as usize)
    }

    fn cuMemCreate(handle: *mut u64, size: usize, prop: *const CUmemAllocationProp, flags: u64) |call| {
        require(!handle.is_null() && flags == 0, CUresult::INVALID_VALUE)?;
        put(handle, create(size as u64, &get(prop)?)?)
    }

    fn cuMemRelease(handle: u64) |call| {
        release(handle)
    }

    fn cuMemAddressReserve(ptr: *mut CUdeviceptr, size: usize, alignment: usize, addr: CUdeviceptr, flags: u64) |call| {
        require(!ptr.is_null() && flags == 0, CUresult::INVALID_VALUE)?;
        put(ptr, reserve(size as u64, alignment as u64, addr)?)
    }

    fn cuMemAddressFree(ptr: CUdeviceptr, size: usize) |call| {
        unreserve(ptr, size as u64)
    }

    fn cuMemMap(ptr: CUdeviceptr, size: usize, offset: usize, handle: u64, flags: u64) |call| {
        require(flags == 0, CUresult::INVALID_VALUE)?;
        map(ptr, size as u64, offset, handle)
    }

    fn cuMemUnmap(ptr: CUdeviceptr, size: usize) |call| {
        unmap(ptr, size as u64)
    }

    fn cuMemSetAccess(ptr: CUdeviceptr, size: usize, desc: *const CUmemAccessDesc, count: usize) |call| {
        require(count > 0, CUresult::INVALID_VALUE)?;
        set_access(ptr, size as u64, &get_all(desc, count)?)
    }

    fn cuMemGetAccess(flags: *mut u64, location: *const CUmemLocation, ptr: CUdeviceptr) |call| {
        let place = place_of(&get(location)?)?;
        let rights = mapped(ptr).map(|(_, rights)| rights.of(place)).or_else(|_| rights_of_own(ptr, place))?;
        put(flags, u64::from(rights))
    }

    fn cuMemRetainAllocationHandle(handle: *mut u64, addr: *mut c_void) |call| {
        require(!handle.is_null(), CUresult::INVALID_VALUE)?;
        put(handle, retain(&mapped(addr as u64)?.0))
    }

    fn cuMemGetAllocationPropertiesFromHandle(prop: *mut CUmemAllocationProp, handle: u64) |call| {
        put(prop, properties(&*physical(handle)?))
    }

    fn cuMemExportToShareableHandle(shareableHandle: *mut c_void, handle: u64, handleType: c_uint, flags: u64) |call| {
        require(!shareableHandle.is_null() && flags == 0, CUresult::INVALID_VALUE)?;
        put(shareableHandle.cast(), export(handle, handleType)?)
    }

    fn cuMemImportFromShareableHandle(handle: *mut u64, osHandle: *mut c_void, shHandleType: c_uint) |call| {
        require(!handle.is_null(), CUresult::INVALID_VALUE)?;
        put(handle, import(osHandle as usize as i32, shHandleType)?)
    }
}
