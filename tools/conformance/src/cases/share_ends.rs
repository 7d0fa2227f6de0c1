//! Legacy IPC at its edges: exporters that have ended, freed memory, memory that cannot be named,
//! and the importer's view of opened memory.

use wm_abi::*;

use super::share::{ipc_handle, of_pieces};
use crate::case::{Case, Verdict, short};
use crate::driver::Driver;
use crate::fixture::process::{Channel, Partner};
use crate::fixture::{
    Kernels, Memory, Pinned, Primary, Stream, alloc_async, pattern, read, synchronize, write,
};
use crate::{cu, must};

const BYTES: usize = 1 << 20;

/// Opens a handle of another process after that process has ended.
pub(super) fn dead_exporter(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let mut partner = Partner::start("ipc-export")?;
    let handle = CUipcMemHandle { reserved: partner.channel.receive()? };
    partner.channel.send_number(0)?;
    partner.finish()?;
    let mut address = 0;
    let code = cu!(d, cuIpcOpenMemHandle_v2(&mut address, handle, 1));
    case.observe_machine("open", short(code));
    case.expect(code != CUresult::SUCCESS, "memory of a process that ended was opened");
    let memory = Memory::holding(d, &pattern(BYTES, 2))?;
    case.expect_that("the context lives on", memory.read()? == pattern(BYTES, 2));
    Ok(())
}

/// Opens a handle after its memory was freed: the answer is recorded, because CUDA does not define
/// it.
pub(super) fn freed_by_exporter(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let mut partner = Partner::start("ipc-export")?;
    let handle = CUipcMemHandle { reserved: partner.channel.receive()? };
    partner.channel.send_number(1)?;
    case.expect_ok("the exporter's free", partner.channel.receive_code()?);
    let mut address = 0;
    let code = cu!(d, cuIpcOpenMemHandle_v2(&mut address, handle, 1));
    case.observe_machine("open", short(code));
    partner.channel.send_number(0)?;
    partner.finish()
}

/// Makes memory and a handle of it; frees it on the message 1, ends on the message 0.
pub(super) fn export(driver: &'static Driver, channel: &mut Channel) -> Verdict {
    let _primary = Primary::new(driver)?;
    let mut address = 0;
    must!(driver, cuMemAlloc_v2(&mut address, BYTES));
    let (code, handle) = ipc_handle(driver, address);
    code.ok().map_err(|code| crate::case::Halt::Failed(format!("cuIpcGetMemHandle returned {code}")))?;
    channel.send(&handle.reserved)?;
    while channel.receive_number()? == 1 {
        channel.send_code(cu!(driver, cuMemFree_v2(address)))?;
    }
    Ok(())
}

/// The families of memory that have handles.
pub(super) fn families(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let (mut pitched, mut pitch, mut managed) = (0, 0, 0);
    must!(d, cuMemAllocPitch_v2(&mut pitched, &mut pitch, 1000, 1000, 4));
    must!(d, cuMemAllocManaged(&mut managed, BYTES, CU_MEM_ATTACH_GLOBAL));
    let (ordered, pinned) = (alloc_async(d, BYTES, stream.raw)?, Pinned::new(d, 4096, 0)?);
    synchronize(d, stream.raw)?;
    case.expect_ok("pitched memory", ipc_handle(d, pitched).0);
    case.expect_code("pool memory", ipc_handle(d, ordered).0, CUresult::INVALID_VALUE);
    case.expect_code("managed memory", ipc_handle(d, managed).0, CUresult::INVALID_VALUE);
    case.expect_code("pinned memory", ipc_handle(d, pinned.address()).0, CUresult::INVALID_VALUE);
    let freed = pitched;
    must!(d, cuMemFree_v2(pitched));
    case.expect_code("freed memory", ipc_handle(d, freed).0, CUresult::INVALID_VALUE);
    must!(d, cuMemFree_v2(managed));
    case.expect_ok("free of pool memory", cu!(d, cuMemFreeAsync(ordered, stream.raw)));
    Ok(())
}

/// Attributes of opened memory that the other process queries, with the required values. None:
/// recorded.
const ASKED: &[(u32, &str, Option<u64>)] = &[
    (CU_POINTER_ATTRIBUTE_MEMORY_TYPE, "memory type", Some(2)),
    (CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, "device ordinal", Some(0)),
    (CU_POINTER_ATTRIBUTE_IS_MANAGED, "is managed", Some(0)),
    (CU_POINTER_ATTRIBUTE_MAPPED, "mapped", Some(1)),
    (CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, "legacy ipc capable", None),
    (CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, "allowed handle types", None),
    (CU_POINTER_ATTRIBUTE_RANGE_SIZE, "range size", None),
];

/// Opened memory behaves like memory: kernels write it, it has attributes and a range, and the
/// importer may not free it.
pub(super) fn opened(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let memory = Memory::holding(d, &vec![1; BYTES])?;
    let (code, handle) = ipc_handle(d, memory.address);
    case.expect_ok("get a handle", code);
    let mut partner = Partner::start("ipc-attributes")?;
    partner.channel.send(&handle.reserved)?;
    for (_, name, wanted) in ASKED {
        let value = partner.channel.receive_number()?;
        case.observe_machine(*name, value);
        case.expect(wanted.is_none_or(|wanted| wanted == value), format!("{name}: {value}"));
    }
    let answers =
        ["range", "range starts there", "range size", "free", "free in order", "a handle of it", "close"];
    for name in answers {
        let value = partner.channel.receive_number()?;
        case.observe_machine(format!("{name} of opened memory"), value);
    }
    partner.finish()?;
    case.expect_that("we read what the partner's kernel wrote", memory.read()? == vec![5; BYTES]);
    Ok(())
}

pub(super) fn ask(driver: &'static Driver, channel: &mut Channel) -> Verdict {
    let _primary = Primary::new(driver)?;
    let handle = CUipcMemHandle { reserved: channel.receive()? };
    let mut address = 0;
    // The older name of the call: the same function on 64-bit machines.
    must!(driver, cuIpcOpenMemHandle(&mut address, handle, 1));
    let kernels = Kernels::load(driver)?;
    kernels.fill(CUstream::NULL, address, BYTES as u64 / 4, 0x0505_0505)?;
    must!(driver, cuCtxSynchronize());
    for (attribute, ..) in ASKED {
        let mut value = 0_u64;
        must!(driver, cuPointerGetAttribute((&raw mut value).cast(), *attribute, address));
        channel.send_number(value)?;
    }
    let (mut base, mut bytes) = (0, 0);
    channel.send_code(cu!(driver, cuMemGetAddressRange_v2(&mut base, &mut bytes, address + 4096)))?;
    channel.send_number((base == address).into())?;
    channel.send_number(bytes as u64)?;
    channel.send_code(cu!(driver, cuMemFree_v2(address)))?;
    channel.send_code(cu!(driver, cuMemFreeAsync(address, CUstream::NULL)))?;
    channel.send_code(ipc_handle(driver, address).0)?;
    channel.send_code(cu!(driver, cuIpcCloseMemHandle(address)))
}

/// Memory of many pieces is one block for the importing process.
pub(super) fn many_pieces(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let memory = of_pieces(d)?;
    let (code, handle) = ipc_handle(d, memory.address);
    case.expect_ok("get a handle", code);
    let mut partner = Partner::start("ipc-pieces")?;
    partner.channel.send(&handle.reserved)?;
    case.expect_ok("open", partner.channel.receive_code()?);
    case.expect_eq("the partner reads our bytes", partner.channel.receive_number()?, 1);
    partner.finish()?;
    case.expect_that("we read the partner's", memory.read()? == pattern(memory.bytes, 7));
    Ok(())
}

pub(super) fn open_pieces(driver: &'static Driver, channel: &mut Channel) -> Verdict {
    let _primary = Primary::new(driver)?;
    let handle = CUipcMemHandle { reserved: channel.receive()? };
    let (mut address, mut base, mut bytes) = (0, 0, 0);
    channel.send_code(cu!(driver, cuIpcOpenMemHandle_v2(&mut address, handle, 1)))?;
    must!(driver, cuMemGetAddressRange_v2(&mut base, &mut bytes, address));
    channel.send_number((read(driver, address, bytes)? == pattern(bytes, 6)).into())?;
    write(driver, address, &pattern(bytes, 7))
}

/// Memory is closed while a stream of the closing thread is under capture, in the mode that forbids
/// nothing.
pub(super) fn closed_in_a_capture(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let memory = Memory::holding(d, &pattern(BYTES, 1))?;
    let (code, handle) = ipc_handle(d, memory.address);
    case.expect_ok("get a handle", code);
    let mut partner = Partner::start("ipc-capture")?;
    partner.channel.send(&handle.reserved)?;
    case.code("close", partner.channel.receive_code()?);
    case.code("end of the capture", partner.channel.receive_code()?);
    case.expect_ok("open again", partner.channel.receive_code()?);
    case.expect_eq("the partner reads our bytes", partner.channel.receive_number()?, 1);
    partner.finish()
}

pub(super) fn close_in_a_capture(driver: &'static Driver, channel: &mut Channel) -> Verdict {
    let _primary = Primary::new(driver)?;
    let stream = Stream::non_blocking(driver)?;
    let handle = CUipcMemHandle { reserved: channel.receive()? };
    let (mut address, mut graph) = (0, CUgraph::NULL);
    must!(driver, cuIpcOpenMemHandle_v2(&mut address, handle, 1));
    must!(driver, cuStreamBeginCapture_v2(stream.raw, CU_STREAM_CAPTURE_MODE_RELAXED));
    channel.send_code(cu!(driver, cuIpcCloseMemHandle(address)))?;
    channel.send_code(cu!(driver, cuStreamEndCapture(stream.raw, &mut graph)))?;
    channel.send_code(cu!(driver, cuIpcOpenMemHandle_v2(&mut address, handle, 1)))?;
    channel.send_number((read(driver, address, BYTES)? == pattern(BYTES, 1)).into())
}
