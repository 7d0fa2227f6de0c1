//! The driver's answers about an address: every attribute, for every kind of memory.
//!
//! One function makes the same queries for all kinds, so that a difference between two kinds, or
//! between two drivers, is one row of a comparison.

use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::driver::Driver;
use crate::fixture::{
    Memory, Physical, Pinned, Primary, Range, Stream, alloc_async, device_properties, host_properties,
    synchronize,
};
use crate::{cu, must};

const PIECE: usize = 2 << 20;

/// Attributes whose values are numbers, comparable as they are.
const NUMBERS: &[(c_uint, &str)] = &[
    (CU_POINTER_ATTRIBUTE_MEMORY_TYPE, "memory type"),
    (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, "sync memops"),
    (CU_POINTER_ATTRIBUTE_IS_MANAGED, "is managed"),
    (CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, "device ordinal"),
    (CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, "legacy ipc capable"),
    (CU_POINTER_ATTRIBUTE_MAPPED, "mapped"),
    (CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, "allowed handle types"),
    (CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, "access flags"),
    (CU_POINTER_ATTRIBUTE_RANGE_SIZE, "range size"),
];

/// Numbers that depend on a device's abilities and the driver's own granularity.
const NUMBERS_OF_MACHINE: &[(c_uint, &str)] = &[
    (CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, "rdma capable"),
    (CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, "decompress capable"),
    (CU_POINTER_ATTRIBUTE_MAPPING_SIZE, "mapping size"),
];

/// Attributes whose values are addresses or handles: recorded relative to the allocation.
const PLACES: &[(c_uint, &str)] = &[
    (CU_POINTER_ATTRIBUTE_CONTEXT, "context"),
    (CU_POINTER_ATTRIBUTE_DEVICE_POINTER, "device pointer"),
    (CU_POINTER_ATTRIBUTE_HOST_POINTER, "host pointer"),
    (CU_POINTER_ATTRIBUTE_BUFFER_ID, "buffer id"),
    (CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, "range start"),
    (CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, "pool"),
    (CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, "memory block id"),
];

/// An attribute. The unwritten bytes of a narrow one are zero.
fn ask(driver: &'static Driver, attribute: c_uint, address: CUdeviceptr) -> (CUresult, u64) {
    let mut value = 0_u64;
    let code = cu!(driver, cuPointerGetAttribute((&raw mut value).cast(), attribute, address));
    (code, value)
}

fn number(driver: &'static Driver, attribute: c_uint, address: CUdeviceptr) -> Verdict<u64> {
    let mut value = 0_u64;
    must!(driver, cuPointerGetAttribute((&raw mut value).cast(), attribute, address));
    Ok(value)
}

/// Records every attribute at `base + offset`, in words that two runs share.
fn describe(case: &mut Case, base: CUdeviceptr, offset: u64) -> Verdict {
    let d = case.driver;
    let mut current = CUcontext::NULL;
    must!(d, cuCtxGetCurrent(&mut current));
    let at = |name: &str| if offset == 0 { name.to_owned() } else { format!("{name} inside") };
    for (attribute, name) in NUMBERS {
        let (code, value) = ask(d, *attribute, base + offset);
        case.observe(at(name), answer(code, value.to_string()));
    }
    for (attribute, name) in PLACES {
        let (code, value) = ask(d, *attribute, base + offset);
        case.observe(at(name), answer(code, place(value, base, offset, current)));
    }
    for (attribute, name) in NUMBERS_OF_MACHINE {
        let (code, value) = ask(d, *attribute, base + offset);
        case.observe_machine(at(name), answer(code, value.to_string()));
    }
    let (mut start, mut size) = (0, 0);
    let code = cu!(d, cuMemGetAddressRange_v2(&mut start, &mut size, base + offset));
    let place = place(start, base, offset, current);
    case.observe(at("address range"), answer(code, format!("{place}, {size} bytes")));
    Ok(())
}

fn answer(code: CUresult, value: String) -> String {
    if code == CUresult::SUCCESS { value } else { crate::case::short(code) }
}

/// Addresses differ from run to run; their relation to the allocation does not.
fn place(value: u64, base: u64, offset: u64, context: CUcontext) -> String {
    match value {
        0 => "zero".into(),
        _ if value == base => "base".into(),
        _ if value == base + offset => "the address itself".into(),
        _ if value == context.0 as u64 => "current context".into(),
        _ => "another value".into(),
    }
}

fn expect_like_device_memory(case: &mut Case, address: CUdeviceptr) -> Verdict {
    let d = case.driver;
    let asked = |attribute| number(d, attribute, address);
    case.expect(asked(CU_POINTER_ATTRIBUTE_MEMORY_TYPE)? == 2, "the memory type is not device");
    case.expect(asked(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)? == 0, "the device ordinal is not 0");
    case.expect(asked(CU_POINTER_ATTRIBUTE_IS_MANAGED)? == 0, "it is called managed");
    case.expect(asked(CU_POINTER_ATTRIBUTE_MAPPED)? == 1, "it is not mapped");
    case.expect(asked(CU_POINTER_ATTRIBUTE_DEVICE_POINTER)? == address, "its device pointer is another");
    let host = ask(d, CU_POINTER_ATTRIBUTE_HOST_POINTER, address).0;
    case.expect(host == CUresult::INVALID_VALUE, "it has a host pointer");
    Ok(())
}

pub(super) fn device(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let memory = Memory::new(d, 3 << 20)?;
    describe(case, memory.address, 0)?;
    describe(case, memory.address, 70_000)?;
    expect_like_device_memory(case, memory.address)?;
    expect_like_device_memory(case, memory.address + 70_000)?;
    let context = number(d, CU_POINTER_ATTRIBUTE_CONTEXT, memory.address)?;
    case.expect_that("its context is its creator's", context == primary.context.0 as u64);
    let start = number(d, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, memory.address + 70_000)?;
    case.expect_that("its range starts at its base", start == memory.address);
    let size = number(d, CU_POINTER_ATTRIBUTE_RANGE_SIZE, memory.address)?;
    case.expect_eq("its range's size", size, 3 << 20);
    let ipc = number(d, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, memory.address)?;
    case.expect_eq("can be shared by cuIpc", ipc, 1);
    Ok(())
}

/// Two contexts of one device: each block belongs to the context that was current at its
/// allocation, also when the other one is current.
pub(super) fn context_of_its_maker(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let first = Memory::new(d, PIECE)?;
    let mut made = CUcontext::NULL;
    must!(d, cuCtxCreate_v2(&mut made, 0, primary.device));
    let mut second = 0;
    must!(d, cuMemAlloc_v2(&mut second, PIECE));
    for current in [made, primary.context] {
        must!(d, cuCtxSetCurrent(current));
        for (address, context) in [(first.address, primary.context), (second, made), (second + 77, made)] {
            let told = ask(d, CU_POINTER_ATTRIBUTE_CONTEXT, address);
            case.expect(told == (CUresult::SUCCESS, context.0 as u64), format!("{told:?}, not {context:?}"));
        }
    }
    case.observe("each is its maker's", true);
    must!(d, cuCtxDestroy_v2(made));
    Ok(())
}

pub(super) fn small_device(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (_neighbour, memory) = (Memory::new(d, 100)?, Memory::new(d, 1000)?);
    describe(case, memory.address, 0)?;
    describe(case, memory.address, 999)?;
    expect_like_device_memory(case, memory.address)
}

pub(super) fn pitched(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (mut address, mut pitch) = (0, 0);
    must!(d, cuMemAllocPitch_v2(&mut address, &mut pitch, 1000, 100, 4));
    describe(case, address, 0)?;
    expect_like_device_memory(case, address)?;
    must!(d, cuMemFree_v2(address));
    Ok(())
}

pub(super) fn from_pool(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let address = alloc_async(d, 3 << 20, stream.raw)?;
    synchronize(d, stream.raw)?;
    describe(case, address, 0)?;
    describe(case, address, 70_000)?;
    expect_like_device_memory(case, address)?;
    let pool = super::pool::default_pool(d)?;
    let answered = number(d, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address)?;
    case.expect_that("its pool is the default one", answered == pool.0 as u64);
    must!(d, cuMemFreeAsync(address, stream.raw));
    synchronize(d, stream.raw)
}

pub(super) fn mapped_device(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let mut range = Range::reserve(d, 4 * PIECE)?;
    range.map(PIECE, &Physical::new(d, 2 * PIECE, &device_properties(primary.device, 0))?)?;
    range.allow(PIECE, 2 * PIECE, primary.device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)?;
    describe(case, range.address + PIECE as u64, 0)?;
    describe(case, range.address + PIECE as u64, 70_000)?;
    let code = ask(d, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, range.address).0;
    case.code("memory type of the unmapped part", code);
    Ok(())
}

pub(super) fn mapped_host(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let mut range = Range::reserve(d, PIECE)?;
    range.map(0, &Physical::new(d, PIECE, &host_properties(0))?)?;
    range.allow(0, PIECE, primary.device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)?;
    describe(case, range.address, 0)?;
    let kind = number(d, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, range.address)?;
    case.expect_eq("its type is host", kind, CU_MEMORYTYPE_HOST.into());
    Ok(())
}

pub(super) fn managed(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let mut address = 0;
    must!(d, cuMemAllocManaged(&mut address, 1 << 20, CU_MEM_ATTACH_GLOBAL));
    describe(case, address, 0)?;
    case.expect_eq("it is managed", number(d, CU_POINTER_ATTRIBUTE_IS_MANAGED, address)?, 1);
    must!(d, cuMemFree_v2(address));
    Ok(())
}

pub(super) fn pinned(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let pinned = Pinned::new(d, 100_000, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP)?;
    describe(case, pinned.address(), 0)?;
    describe(case, pinned.address(), 5000)?;
    let kind = number(d, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pinned.address())?;
    case.expect_eq("its type is host", kind, CU_MEMORYTYPE_HOST.into());
    let host = number(d, CU_POINTER_ATTRIBUTE_HOST_POINTER, pinned.address() + 5000)?;
    case.expect_that("its host pointer is itself", host == pinned.address() + 5000);
    Ok(())
}

pub(super) fn registered(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let memory = super::host::Pages::new(64 << 10);
    must!(d, cuMemHostRegister_v2(memory.pointer(), memory.bytes(), CU_MEMHOSTREGISTER_DEVICEMAP));
    describe(case, memory.pointer() as u64, 0)?;
    let kind = number(d, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory.pointer() as u64)?;
    case.expect_eq("its type is host", kind, CU_MEMORYTYPE_HOST.into());
    must!(d, cuMemHostUnregister(memory.pointer()));
    Ok(())
}

pub(super) fn unknown(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let heap = vec![0_u8; 100_000];
    let wrong = CUresult::INVALID_VALUE;
    let memory_type = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    case.expect_code("heap memory", ask(d, memory_type, heap.as_ptr() as u64).0, wrong);
    case.expect_code("address 0", ask(d, memory_type, 0).0, wrong);
    describe(case, heap.as_ptr() as u64, 0)?;
    let memory = Memory::new(d, 4096)?;
    case.expect_code("attribute 0", ask(d, 0, memory.address).0, wrong);
    case.expect_code("attribute 999", ask(d, 999, memory.address).0, wrong);
    case.expect_code("null", cu!(d, cuPointerGetAttribute(null_mut(), memory_type, memory.address)), wrong);
    let freed = memory.address;
    drop(memory);
    case.expect_code("freed memory", ask(d, memory_type, freed).0, wrong);
    Ok(())
}

pub(super) fn several(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let memory = Memory::new(d, PIECE)?;
    let heap = vec![0_u8; 4096];
    for (name, address) in [("device", memory.address), ("heap", heap.as_ptr() as u64), ("zero", 0)] {
        let mut attributes = [
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            CU_POINTER_ATTRIBUTE_IS_MANAGED,
            CU_POINTER_ATTRIBUTE_CONTEXT,
            CU_POINTER_ATTRIBUTE_RANGE_SIZE,
            CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
        ];
        let mut values = [0_u64; 6];
        let mut places: Vec<*mut c_void> = values.iter_mut().map(|value| (&raw mut *value).cast()).collect();
        let code = cu!(d, cuPointerGetAttributes(6, attributes.as_mut_ptr(), places.as_mut_ptr(), address));
        case.expect_ok(&format!("{name}: all at once"), code);
        let [kind, ordinal, managed, context, size, synchronous] = values;
        case.observe(format!("{name}: type"), kind);
        case.observe(format!("{name}: ordinal"), ordinal as u32);
        case.observe(format!("{name}: sync memops"), synchronous);
        case.observe(
            format!("{name}: managed, with context, size"),
            format!("{managed} {} {size}", context != 0),
        );
    }
    let code = cu!(d, cuPointerGetAttributes(0, null_mut(), null_mut(), memory.address));
    case.code("no attributes", code);
    Ok(())
}

pub(super) fn buffer_ids(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let id = |memory: &Memory| number(d, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory.address + 5);
    let first = Memory::new(d, PIECE)?;
    let second = Memory::new(d, PIECE)?;
    let mut seen = vec![id(&first)?, id(&second)?];
    case.expect_that("an id is kept", id(&first)? == seen[0]);
    case.expect_that("two memories have two ids", seen[0] != seen[1]);
    drop((first, second));
    for _ in 0..4 {
        let id = id(&Memory::new(d, PIECE)?)?;
        case.expect_that("no id comes back", !seen.contains(&id));
        seen.push(id);
    }
    Ok(())
}

pub(super) fn sync_memops(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let memory = Memory::new(d, PIECE)?;
    let attribute = CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
    let set =
        |value: u32, address| cu!(d, cuPointerSetAttribute((&raw const value).cast(), attribute, address));
    case.expect_eq("at first", number(d, attribute, memory.address)?, 0);
    case.expect_ok("set", set(1, memory.address));
    case.expect_eq("after", number(d, attribute, memory.address)?, 1);
    case.expect_ok("clear", set(0, memory.address));
    case.expect_eq("at last", number(d, attribute, memory.address)?, 0);
    let one = 1_u32;
    let code =
        cu!(d, cuPointerSetAttribute((&raw const one).cast(), CU_POINTER_ATTRIBUTE_MAPPED, memory.address));
    case.code("set an attribute that cannot be set", code);
    case.expect_code("address 8", set(1, 8), CUresult::INVALID_VALUE);
    Ok(())
}

/// Memory of a pool that the program made: the driver serves it and answers all queries.
pub(super) fn from_own_pool(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (stream, pool) = (Stream::non_blocking(d)?, super::pool::create(d, 0)?);
    let mut address = 0;
    must!(d, cuMemAllocFromPoolAsync(&mut address, PIECE, pool, stream.raw));
    synchronize(d, stream.raw)?;
    describe(case, address, 0)?;
    expect_like_device_memory(case, address)?;
    let owner = number(d, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address)?;
    case.expect_that("its pool is the program's", owner == pool.0 as u64);
    must!(d, cuMemFreeAsync(address, stream.raw));
    synchronize(d, stream.raw)?;
    must!(d, cuMemPoolDestroy(pool));
    Ok(())
}

/// Attributes that a program may try to set, and tokens that only old RDMA stacks use.
pub(super) fn rare_attributes(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let memory = Memory::new(d, PIECE)?;
    let mut tokens = CUDA_POINTER_ATTRIBUTE_P2P_TOKENS::default();
    let place = (&raw mut tokens).cast();
    let code = cu!(d, cuPointerGetAttribute(place, CU_POINTER_ATTRIBUTE_P2P_TOKENS, memory.address));
    case.observe_machine("tokens", crate::case::short(code));
    let one = 1_u64;
    for (attribute, name) in NUMBERS.iter().chain(PLACES).chain(NUMBERS_OF_MACHINE) {
        if *attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS {
            let code = cu!(d, cuPointerSetAttribute((&raw const one).cast(), *attribute, memory.address));
            case.expect(code != CUresult::SUCCESS, format!("{name} was set"));
            case.observe_machine(format!("set {name}"), crate::case::short(code));
        }
    }
    Ok(())
}
