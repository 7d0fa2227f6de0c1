//! Legacy IPC with two devices: memory that another process opens on a device on which it is not,
//! and memory that the importer's other device copies or uses. Copies need no access; kernels of a
//! device on which it was not opened have none, and enabled peer access does not give it.

use wm_abi::*;

use super::peer::both;
use super::share::ipc_handle;
use crate::case::{Case, Verdict};
use crate::driver::Driver;
use crate::fixture::process::{Channel, Partner};
use crate::fixture::{Kernels, Memory, Primary, pattern, read};
use crate::{cu, must};

const BYTES: usize = 1 << 20;

/// Memory of device 0, a partner with its handle, and the contexts, which end last.
struct Shared {
    memory: Memory,
    partner: Partner,
    _contexts: (Primary, Primary),
}

fn share(case: &mut Case, role: &str) -> Verdict<Shared> {
    let d = case.driver;
    let contexts = both(d)?;
    let memory = Memory::holding(d, &pattern(BYTES, 1))?;
    let (code, handle) = ipc_handle(d, memory.address);
    case.expect_ok("get a handle", code);
    let mut partner = Partner::start(role)?;
    partner.channel.send(&handle.reserved)?;
    Ok(Shared { memory, partner, _contexts: contexts })
}

fn open(driver: &'static Driver, channel: &mut Channel) -> Verdict<CUdeviceptr> {
    let handle = CUipcMemHandle { reserved: channel.receive()? };
    let mut address = 0;
    must!(driver, cuIpcOpenMemHandle_v2(&mut address, handle, 1));
    Ok(address)
}

/// It belongs to the device on which it was opened.
pub(super) fn opened_elsewhere(case: &mut Case) -> Verdict {
    let mut shared = share(case, "ipc-elsewhere")?;
    let partner = &mut shared.partner;
    case.expect_eq("device ordinal", partner.channel.receive_number()?, 1);
    case.expect_eq("its context is the opener's", partner.channel.receive_number()?, 1);
    case.expect_eq("the partner reads our bytes", partner.channel.receive_number()?, 1);
    case.expect_ok("a kernel of the opener's device", partner.channel.receive_code()?);
    case.expect_ok("copy to the device it lies on", partner.channel.receive_code()?);
    case.expect_eq("the copy's bytes", partner.channel.receive_number()?, 1);
    case.expect_ok("close", partner.channel.receive_code()?);
    shared.partner.finish()?;
    case.expect_that("we read what the partner's kernel wrote", shared.memory.read()? == vec![5; BYTES]);
    Ok(())
}

pub(super) fn open_elsewhere(driver: &'static Driver, channel: &mut Channel) -> Verdict {
    let (first, second) = both(driver)?;
    second.enter()?;
    let opened = open(driver, channel)?;
    let (mut ordinal, mut context) = (-1, CUcontext::NULL);
    let asked = (&raw mut ordinal).cast();
    must!(driver, cuPointerGetAttribute(asked, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, opened));
    let asked = (&raw mut context).cast();
    must!(driver, cuPointerGetAttribute(asked, CU_POINTER_ATTRIBUTE_CONTEXT, opened));
    channel.send_number(ordinal as u64)?;
    channel.send_number((context == second.context).into())?;
    channel.send_number((read(driver, opened, BYTES)? == pattern(BYTES, 1)).into())?;
    let kernels = Kernels::load(driver)?;
    kernels.fill(CUstream::NULL, opened, BYTES as u64 / 4, 0x0505_0505)?;
    channel.send_code(cu!(driver, cuCtxSynchronize()))?;
    first.enter()?;
    let there = Memory::new(driver, BYTES)?;
    channel.send_code(cu!(driver, cuMemcpyDtoD_v2(there.address, opened, BYTES)))?;
    must!(driver, cuCtxSynchronize());
    channel.send_number((there.read()? == vec![5; BYTES]).into())?;
    second.enter()?;
    channel.send_code(cu!(driver, cuIpcCloseMemHandle(opened)))
}

/// The driver copies between all devices without peer access.
pub(super) fn copied_to_a_peer(case: &mut Case) -> Verdict {
    let mut shared = share(case, "ipc-copy")?;
    let partner = &mut shared.partner;
    case.expect_ok("copy", partner.channel.receive_code()?);
    case.expect_eq("the copy's bytes", partner.channel.receive_number()?, 1);
    case.expect_ok("copy back", partner.channel.receive_code()?);
    shared.partner.finish()?;
    case.expect_that("we read what the partner copied", shared.memory.read()? == vec![7; BYTES]);
    Ok(())
}

pub(super) fn copy(driver: &'static Driver, channel: &mut Channel) -> Verdict {
    let (_first, second) = both(driver)?;
    let opened = open(driver, channel)?;
    second.enter()?;
    let there = Memory::new(driver, BYTES)?;
    channel.send_code(cu!(driver, cuMemcpyDtoD_v2(there.address, opened, BYTES)))?;
    must!(driver, cuCtxSynchronize());
    channel.send_number((there.read()? == pattern(BYTES, 1)).into())?;
    must!(driver, cuMemsetD8_v2(there.address, 7, BYTES));
    let code = cu!(driver, cuMemcpyDtoD_v2(opened, there.address, BYTES));
    must!(driver, cuCtxSynchronize());
    channel.send_code(code)
}

/// Access that is enabled after the opening, and before it: an H200's driver gives no access to
/// opened memory.
pub(super) fn used_by_a_peer(case: &mut Case) -> Verdict {
    for (role, label) in [("ipc-enable", "enabled after"), ("ipc-enabled", "enabled before")] {
        let mut shared = share(case, role)?;
        let code = shared.partner.channel.receive_code()?;
        case.code(label, code);
        shared.partner.finish()?;
        let same = shared.memory.read()? == vec![6; BYTES];
        case.observe(format!("{label}: we read what the peer's kernel wrote"), same);
        case.expect(same == (code == CUresult::SUCCESS), "the bytes are not what the code says");
    }
    Ok(())
}

pub(super) fn enable_after(driver: &'static Driver, channel: &mut Channel) -> Verdict {
    let (first, second) = both(driver)?;
    let opened = open(driver, channel)?;
    second.enter()?;
    must!(driver, cuCtxEnablePeerAccess(first.context, 0));
    use_by_a_peer(driver, channel, opened, [first, second])
}

pub(super) fn enable_before(driver: &'static Driver, channel: &mut Channel) -> Verdict {
    let (first, second) = both(driver)?;
    second.enter()?;
    must!(driver, cuCtxEnablePeerAccess(first.context, 0));
    first.enter()?;
    let opened = open(driver, channel)?;
    second.enter()?;
    use_by_a_peer(driver, channel, opened, [first, second])
}

fn use_by_a_peer(
    driver: &'static Driver,
    channel: &mut Channel,
    opened: CUdeviceptr,
    contexts: [Primary; 2],
) -> Verdict {
    let kernels = Kernels::load(driver)?;
    kernels.fill(CUstream::NULL, opened, BYTES as u64 / 4, 0x0606_0606)?;
    channel.send_code(cu!(driver, cuCtxSynchronize()))?;
    // A context with a fault is not destroyed.
    std::mem::forget((contexts, kernels));
    Ok(())
}

/// A kernel of a peer without access: the answer is recorded, because the documentation does not
/// define it.
pub(super) fn used_without_access(case: &mut Case) -> Verdict {
    let mut shared = share(case, "ipc-no-access")?;
    case.code("a kernel without peer access", shared.partner.channel.receive_code()?);
    shared.partner.finish()
}

pub(super) fn use_without_access(driver: &'static Driver, channel: &mut Channel) -> Verdict {
    let (first, second) = both(driver)?;
    let opened = open(driver, channel)?;
    second.enter()?;
    use_by_a_peer(driver, channel, opened, [first, second])
}
