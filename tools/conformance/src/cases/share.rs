//! Memory shared with another process: exported handles by file descriptor, and `cuIpc*`.
//!
//! The partner writes and reads at its own addresses; the case sees its bytes. The results of the
//! partner's calls come back as numbers and are judged here.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::driver::Driver;
use crate::fixture::process::{Channel, Partner};
use crate::fixture::{
    Event, Gate, Memory, Physical, Primary, Range, Stream, device_properties, pattern, read, write,
};
use crate::{cu, must, supported};

const PIECE: usize = 2 << 20;
const DESCRIPTOR: u32 = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

fn export(driver: &'static Driver, handle: u64) -> Verdict<OwnedFd> {
    let mut descriptor = -1_i32;
    must!(driver, cuMemExportToShareableHandle((&raw mut descriptor).cast(), handle, DESCRIPTOR, 0));
    // SAFETY: the driver made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

pub(super) fn descriptor(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let physical = Physical::new(d, PIECE, &device_properties(primary.device, DESCRIPTOR))?;
    let range = Range::holding(d, &physical, primary.device)?;
    write(d, range.address, &pattern(PIECE, 1))?;
    let mut partner = Partner::start("import")?;
    partner.channel.send_descriptor(export(d, physical.raw)?.as_raw_fd())?;
    case.expect_ok("import", partner.channel.receive_code()?);
    case.expect_eq("the partner reads our bytes", partner.channel.receive_number()?, 1);
    case.expect_that("we read the partner's", read(d, range.address, PIECE)? == pattern(PIECE, 2));
    partner.finish()
}

pub(super) fn import(driver: &'static Driver, channel: &mut Channel) -> Verdict {
    let primary = Primary::new(driver)?;
    let descriptor = channel.receive_descriptor()?;
    let mut raw = 0;
    let os_handle = descriptor.as_raw_fd() as usize as *mut _;
    let code = cu!(driver, cuMemImportFromShareableHandle(&mut raw, os_handle, DESCRIPTOR));
    channel.send_code(code)?;
    let physical = Physical::adopt(driver, raw, PIECE);
    let range = Range::holding(driver, &physical, primary.device)?;
    let same = read(driver, range.address, PIECE)? == pattern(PIECE, 1);
    write(driver, range.address, &pattern(PIECE, 2))?;
    channel.send_number(same.into())
}

pub(super) fn descriptor_outlives_handle(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let physical = Physical::new(d, PIECE, &device_properties(primary.device, DESCRIPTOR))?;
    let mut range = Range::holding(d, &physical, primary.device)?;
    write(d, range.address, &pattern(PIECE, 3))?;
    let descriptor = export(d, physical.raw)?;
    range.unmap()?;
    drop(physical);
    let mut raw = 0;
    let os_handle = descriptor.as_raw_fd() as usize as *mut _;
    must!(d, cuMemImportFromShareableHandle(&mut raw, os_handle, DESCRIPTOR));
    let again = Physical::adopt(d, raw, PIECE);
    range.map(0, &again)?;
    range.allow(0, PIECE, primary.device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)?;
    case.expect_that("the descriptor kept the bytes", read(d, range.address, PIECE)? == pattern(PIECE, 3));
    Ok(())
}

pub(super) fn descriptor_arguments(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let private = Physical::new(d, PIECE, &device_properties(primary.device, 0))?;
    let mut descriptor = -1_i32;
    let out = (&raw mut descriptor).cast();
    let code = cu!(d, cuMemExportToShareableHandle(out, private.raw, DESCRIPTOR, 0));
    case.expect_code("a handle not created for it", code, CUresult::INVALID_VALUE);
    let shared = Physical::new(d, PIECE, &device_properties(primary.device, DESCRIPTOR))?;
    let code = cu!(d, cuMemExportToShareableHandle(out, shared.raw, DESCRIPTOR, 1));
    case.expect_code("flags 1", code, CUresult::INVALID_VALUE);
    let mut raw = 0;
    let closed = usize::MAX as *mut _;
    let code = cu!(d, cuMemImportFromShareableHandle(&mut raw, closed, DESCRIPTOR));
    case.code("import of descriptor -1", code);
    case.expect(code != CUresult::SUCCESS, "descriptor -1 was imported");
    Ok(())
}

pub(super) fn ipc_handle(driver: &'static Driver, address: CUdeviceptr) -> (CUresult, CUipcMemHandle) {
    let mut handle = CUipcMemHandle { reserved: [0; 64] };
    (cu!(driver, cuIpcGetMemHandle(&mut handle, address)), handle)
}

/// Memory of 12 MiB, allocated when only pieces of it are free: an allocator that stitches does so
/// here.
pub(super) fn of_pieces(driver: &'static Driver) -> Verdict<Memory> {
    const PIECE: usize = 4 << 20;
    let mut pieces = (0..6).map(|_| Memory::new(driver, PIECE)).collect::<Verdict<Vec<_>>>()?;
    let kept: Vec<Memory> = (0..3).map(|i| pieces.remove(i)).collect();
    drop(pieces);
    let joined = Memory::holding(driver, &pattern(3 * PIECE, 6))?;
    drop(kept);
    Ok(joined)
}

pub(super) fn ipc(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let memory = Memory::holding(d, &pattern(5 << 20, 1))?;
    let (code, handle) = ipc_handle(d, memory.address);
    case.expect_ok("get a handle", code);
    let mut partner = Partner::start("ipc")?;
    partner.channel.send(&handle.reserved)?;
    for label in ["open", "open again", "close", "close again", "close once more"] {
        let code = partner.channel.receive_code()?;
        if label == "close once more" { case.code(label, code) } else { case.expect_ok(label, code) }
    }
    case.expect_eq("both opens give one address", partner.channel.receive_number()?, 1);
    case.expect_eq("the partner reads our bytes", partner.channel.receive_number()?, 1);
    case.expect_that("we read the partner's", memory.read()? == pattern(5 << 20, 2));
    partner.finish()
}

pub(super) fn ipc_open(driver: &'static Driver, channel: &mut Channel) -> Verdict {
    let _primary = Primary::new(driver)?;
    let handle = CUipcMemHandle { reserved: channel.receive()? };
    let (mut first, mut second) = (0, 0);
    channel.send_code(cu!(driver, cuIpcOpenMemHandle_v2(&mut first, handle, 1)))?;
    channel.send_code(cu!(driver, cuIpcOpenMemHandle_v2(&mut second, handle, 1)))?;
    let same = read(driver, first, 5 << 20)? == pattern(5 << 20, 1);
    write(driver, first, &pattern(5 << 20, 2))?;
    for _ in 0..3 {
        channel.send_code(cu!(driver, cuIpcCloseMemHandle(first)))?;
    }
    channel.send_number((first == second).into())?;
    channel.send_number(same.into())
}

pub(super) fn ipc_arguments(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let memory = Memory::new(d, PIECE)?;
    let (_, own) = ipc_handle(d, memory.address);
    let mut address = 0;
    let code = cu!(d, cuIpcOpenMemHandle_v2(&mut address, own, 1));
    case.code("open in the exporting process", code);
    case.expect(code != CUresult::SUCCESS, "memory was opened in the process that exported it");
    let nonsense = CUipcMemHandle { reserved: [0x5A; 64] };
    let code = cu!(d, cuIpcOpenMemHandle_v2(&mut address, nonsense, 1));
    case.code("open nonsense", code);
    case.expect(code != CUresult::SUCCESS, "a handle of nonsense was opened");
    case.code("open with flags 0", cu!(d, cuIpcOpenMemHandle_v2(&mut address, own, 0)));
    case.code("handle of an interior address", ipc_handle(d, memory.address + 512).0);
    case.expect_code("handle of address 8", ipc_handle(d, 8).0, CUresult::INVALID_VALUE);
    let range = Range::of_device(d, PIECE, primary.device)?;
    case.expect_code("handle of mapped memory", ipc_handle(d, range.address).0, CUresult::INVALID_VALUE);
    case.code("close of own memory", cu!(d, cuIpcCloseMemHandle(memory.address)));
    Ok(())
}

pub(super) fn ipc_handles_differ(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let mut seen = Vec::new();
    for _ in 0..4 {
        let memory = Memory::new(d, PIECE)?;
        let (code, handle) = ipc_handle(d, memory.address);
        case.expect_ok("get a handle", code);
        case.expect_that("no earlier memory had this handle", !seen.contains(&handle));
        seen.push(handle);
    }
    Ok(())
}

pub(super) fn ipc_small(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let _neighbour = Memory::holding(d, &[0xEE; 700])?;
    let memory = Memory::holding(d, &pattern(1000, 1))?;
    let (code, handle) = ipc_handle(d, memory.address);
    case.expect_ok("get a handle", code);
    let mut partner = Partner::start("ipc-small")?;
    partner.channel.send(&handle.reserved)?;
    case.expect_ok("open", partner.channel.receive_code()?);
    case.expect_eq("the partner reads our bytes", partner.channel.receive_number()?, 1);
    partner.finish()
}

pub(super) fn ipc_open_small(driver: &'static Driver, channel: &mut Channel) -> Verdict {
    let _primary = Primary::new(driver)?;
    let handle = CUipcMemHandle { reserved: channel.receive()? };
    let mut address = 0;
    channel.send_code(cu!(driver, cuIpcOpenMemHandle_v2(&mut address, handle, 1)))?;
    channel.send_number((read(driver, address, 1000)? == pattern(1000, 1)).into())
}

pub(super) fn ipc_event(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let event = Event::new(d, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING)?;
    let mut handle = CUipcEventHandle { reserved: [0; 64] };
    supported!(d, cuIpcGetEventHandle(&mut handle, event.raw));
    let gate = Gate::close(d, stream.raw)?;
    event.record(stream.raw)?;
    let mut partner = Partner::start("ipc-event")?;
    partner.channel.send(&handle.reserved)?;
    case.expect_ok("open", partner.channel.receive_code()?);
    case.expect_code("the partner's query before", partner.channel.receive_code()?, CUresult::NOT_READY);
    gate.open();
    case.expect_ok("the partner's wait", partner.channel.receive_code()?);
    let plain = Event::new(d, CU_EVENT_DISABLE_TIMING)?;
    let code = cu!(d, cuIpcGetEventHandle(&mut handle, plain.raw));
    case.code("handle of an event that is not interprocess", code);
    partner.finish()
}

pub(super) fn ipc_open_event(driver: &'static Driver, channel: &mut Channel) -> Verdict {
    let _primary = Primary::new(driver)?;
    let handle = CUipcEventHandle { reserved: channel.receive()? };
    let mut event = CUevent::NULL;
    channel.send_code(cu!(driver, cuIpcOpenEventHandle(&mut event, handle)))?;
    channel.send_code(cu!(driver, cuEventQuery(event)))?;
    channel.send_code(cu!(driver, cuEventSynchronize(event)))
}

/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`.
const DMA_BUF: u32 = 1;

/// Requests a dma-buf, and closes it.
fn ask_dma_buf(case: &mut Case, label: &str, address: CUdeviceptr, bytes: usize) {
    let mut descriptor = -1_i32;
    let out = (&raw mut descriptor).cast();
    let code = cu!(case.driver, cuMemGetHandleForAddressRange(out, address, bytes, DMA_BUF, 0));
    case.observe_machine(label, crate::case::short(code));
    if code == CUresult::SUCCESS {
        // SAFETY: the driver made this descriptor for us.
        drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
    }
}

/// Whether a machine can export dma-bufs differs; under the shim the answers must stay the same.
pub(super) fn dma_buf(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let memory = Memory::new(d, PIECE)?;
    let mut ask = |label: &str, address, bytes| ask_dma_buf(case, label, address, bytes);
    ask("whole", memory.address, PIECE);
    ask("a page of it", memory.address + 65_536, 65_536);
    ask("not whole pages", memory.address + 1, 100);
    ask("address 8", 8, 4096);
    Ok(())
}

/// The same for memory of every family, and for memory that may consist of many pieces.
pub(super) fn dma_buf_of_families(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let mut able = 0;
    must!(d, cuDeviceGetAttribute(&mut able, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, primary.device));
    case.observe_machine("dma-bufs are supported", able);
    let (stream, joined) = (Stream::non_blocking(d)?, of_pieces(d)?);
    let mapped = Range::of_device(d, PIECE, primary.device)?;
    let ordered = crate::fixture::alloc_async(d, PIECE, stream.raw)?;
    crate::fixture::synchronize(d, stream.raw)?;
    ask_dma_buf(case, "of many pieces", joined.address, joined.bytes);
    ask_dma_buf(case, "its last two megabytes", joined.address + (joined.bytes - PIECE) as u64, PIECE);
    ask_dma_buf(case, "mapped memory", mapped.address, PIECE);
    ask_dma_buf(case, "pool memory", ordered, PIECE);
    must!(d, cuMemFreeAsync(ordered, stream.raw));
    case.expect_that("the memory lives on", joined.read()? == pattern(joined.bytes, 6));
    Ok(())
}
