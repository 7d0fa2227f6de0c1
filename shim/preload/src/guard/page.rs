//! Blocks with unmapped space behind them: which of them, live or freed, is near when the device faults.
//!
//! The driver says that an address was illegal, and not which. So the report names what is known: the blocks. Where the
//! kernel's log can be read, it has the address, and with it the report names the block itself.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

use wm_abi::{CUdevice, CUresult};
use wm_driver::Gpu;
use wm_memory::{AllocateError, BlockGuard, Order, guard};

use super::call::Call;
use super::counters::SEEN;
use super::guarded_block::{CallOrigin, GuardedBlock};
use super::kernel_log;
use crate::process::Site;
use crate::registry;

/// Live blocks that a report names, and freed ones: more would hide the first.
const NAMED: usize = 12;

/// The kernel's log has addresses of pages.
const PAGE: u64 = 4096;

/// Freed blocks that are remembered.
const REMEMBERED: usize = 1024;

/// Guarded blocks.
struct Register {
    live: BTreeMap<u64, GuardedBlock>,
    /// Freed ones, the last one at the end.
    gone: VecDeque<GuardedBlock>,
}

static REGISTER: Mutex<Register> = Mutex::new(Register { live: BTreeMap::new(), gone: VecDeque::new() });

fn register() -> MutexGuard<'static, Register> {
    REGISTER.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn allocate(site: &Site, bytes: usize, order: Order, call: Call) -> Result<u64, AllocateError> {
    let address = site.manager.allocate_guarded(bytes, order, BlockGuard::Page)?;
    if guard::is_fenced(bytes)
        && let Some(block) = site.manager.block(address)
    {
        let device = site.manager.gpu().ordinal();
        let block = GuardedBlock { device, address, bytes, id: block.id, origin: CallOrigin::of(call.name) };
        register().live.insert(address, block);
        SEEN.guarded.fetch_add(1, Relaxed);
    }
    Ok(address)
}

pub(super) fn freed(address: u64) {
    let mut register = register();
    if let Some(block) = register.live.remove(&address) {
        register.gone.push_back(block);
        let excess = register.gone.len().saturating_sub(REMEMBERED);
        register.gone.drain(..excess);
    }
}

pub(super) fn end_device(device: CUdevice) {
    register().live.retain(|_, block| block.device != device);
}

/// The device has faulted: says once what is known.
pub(super) fn tell(error: CUresult) {
    if error != CUresult::ILLEGAL_ADDRESS {
        return;
    }
    let (live, gone) = {
        let register = register();
        let live: Vec<GuardedBlock> = register.live.values().cloned().collect();
        (live, register.gone.iter().rev().cloned().collect::<Vec<_>>())
    };
    log::error!(
        "guard: {error}: a kernel has touched memory that is not there; live blocks with a guard: {}",
        live.len()
    );
    if !name_by_address(&live, &gone) {
        name_candidates(live, &gone);
    }
}

/// Names the block that a fault of the kernel's log is near to.
fn name_by_address(live: &[GuardedBlock], gone: &[GuardedBlock]) -> bool {
    let unit = registry::all().map(|manager| manager.gpu().granularity()).max().unwrap_or(0) as u64;
    let faults = kernel_log::faults();
    let near = faults.iter().rev().find_map(|fault| Some((fault, verdict(*fault, live, gone, unit)?)));
    let Some((fault, verdict)) = near else { return false };
    log::error!("guard: the kernel's log has a fault in the page at {fault:#x}: {verdict}");
    true
}

/// What the page of a fault is to guarded blocks, behind each of which `unit` bytes are never mapped.
fn verdict(fault: u64, live: &[GuardedBlock], gone: &[GuardedBlock], unit: u64) -> Option<String> {
    let end = |block: &GuardedBlock| block.address + block.bytes as u64;
    let behind = |block: &&GuardedBlock| {
        (end(block)..end(block).next_multiple_of(guard::ALIGNMENT) + unit).contains(&fault)
    };
    let inside = |block: &&GuardedBlock| (block.address / PAGE * PAGE..end(block)).contains(&fault);
    let live = live.iter().find(behind).map(|block| format!("behind the end of {block}"));
    live.or_else(|| gone.iter().find(inside).map(|block| format!("inside {block}, which has been freed")))
        .or_else(|| gone.iter().find(behind).map(|block| format!("behind the end of {block}, freed since")))
}

/// The driver does not tell the address: the blocks that were allocated and freed last, and how to find out more.
fn name_candidates(mut live: Vec<GuardedBlock>, gone: &[GuardedBlock]) {
    log::error!(
        "guard: the driver does not tell the address. An access behind the end of one of these blocks ends so, or an \
         access to one that was freed; so does any other wild address"
    );
    live.sort_by_key(|block| std::cmp::Reverse(block.id));
    live.iter().take(NAMED).for_each(|block| log::error!("guard: {block}"));
    if live.len() > NAMED {
        log::error!("guard: and {} older ones: `wmctl stats --blocks` lists them all", live.len() - NAMED);
    }
    gone.iter().take(NAMED).for_each(|block| log::error!("guard: freed: {block}"));
    log::error!(
        "guard: to narrow it down: WMSHIM_GUARD=canary names the block if the write stays near its end; \
         `dmesg | grep 'Xid.*31'` (as root) has the address; compute-sanitizer, with WMSHIM_STITCH=off, names kernel and \
         line; CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1 leaves a file for cuda-gdb"
    );
}

#[cfg(test)]
mod tests {
    //! Hazard: a report that accuses the neighbour.
    use super::*;

    const UNIT: u64 = 2 << 20;

    fn block(address: u64, bytes: usize, id: u64) -> GuardedBlock {
        GuardedBlock { device: 0, address, bytes, id, origin: CallOrigin::of("cuMemAlloc") }
    }

    #[test]
    fn a_fault_is_laid_to_the_block_that_it_is_behind_or_in() {
        let live = [block(0x7000_0010_0000, 3 << 20, 1), block(0x7000_0080_0000 - 0x100_0400, 0x100_03f0, 2)];
        let gone = [block(0x7000_0a00_0100, 1 << 20, 3)];
        let verdict = |fault| verdict(fault, &live, &gone, UNIT);
        let says = |fault, words: &[&str]| {
            let text = verdict(fault).expect("a block is near");
            assert!(words.iter().all(|word| text.contains(word)), "{fault:#x}: {text}");
        };
        says(0x7000_0040_0000, &["behind the end of block 1"]);
        says(0x7000_0040_0000 + UNIT - 0x1000, &["behind the end of block 1"]);
        says(0x7000_0080_0000, &["behind the end of block 2"]);
        says(0x7000_0a00_0000, &["inside block 3", "freed"]);
        says(0x7000_0a10_1000, &["behind the end of block 3", "freed since"]);
        assert_eq!(verdict(0x7000_0040_0000 + UNIT), None);
        assert_eq!(verdict(0), None);
    }
}
