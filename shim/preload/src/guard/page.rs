//! Blocks with unmapped space behind them, and the report of which of them lies near a device
//! fault.
//!
//! The driver says that an address was illegal, and not which one. The report therefore names the
//! guarded blocks. If the kernel's log is readable, it has the page of the fault, and the report
//! names the one block that the page belongs to.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use wm_abi::{CUdevice, CUresult};
use wm_driver::lock;
use wm_memory::guard;

use super::guarded_block::GuardedBlock;

/// Live blocks that a report names, and freed ones: more would hide the first.
const NAMED: usize = 12;

/// Bytes of a page: the kernel's log has addresses of pages.
const PAGE: u64 = 4096;

/// Freed blocks that are remembered.
const REMEMBERED: usize = 1024;

/// Blocks with a page guard, live and freed.
#[derive(Debug)]
pub(super) struct PageGuards(Mutex<Register>);

#[derive(Debug)]
struct Register {
    live: BTreeMap<u64, GuardedBlock>,
    /// The block that was freed last is at the end.
    freed: VecDeque<GuardedBlock>,
    /// Blocks that got a guard since the process began.
    guarded: u64,
}

impl PageGuards {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Register { live: BTreeMap::new(), freed: VecDeque::new(), guarded: 0 }))
    }

    fn register(&self) -> MutexGuard<'_, Register> {
        lock(&self.0)
    }

    /// A block was allocated with unmapped space behind it.
    pub(super) fn insert(&self, block: GuardedBlock) {
        let mut register = self.register();
        register.guarded += 1;
        register.live.insert(block.address, block);
    }

    /// A block was freed; the address may be one without a guard.
    pub(super) fn freed(&self, address: u64) {
        let mut register = self.register();
        if let Some(block) = register.live.remove(&address) {
            register.freed.push_back(block);
            let excess = register.freed.len().saturating_sub(REMEMBERED);
            register.freed.drain(..excess);
        }
    }

    /// A device's contexts have ended, and its blocks with them.
    pub(super) fn end_device(&self, device: CUdevice) {
        self.register().live.retain(|_, block| block.device != device);
    }

    /// Blocks that got a guard since the process began.
    pub(super) fn guarded(&self) -> u64 {
        self.register().guarded
    }

    /// The lines to log after a device fault. Behind each block `unit` bytes are never mapped.
    /// `faults` are the addresses of the kernel's log, the last one at the end.
    pub(super) fn report(&self, error: CUresult, unit: u64, faults: &[u64]) -> Vec<String> {
        let (live, freed) = {
            let register = self.register();
            let live: Vec<GuardedBlock> = register.live.values().cloned().collect();
            (live, register.freed.iter().rev().cloned().collect::<Vec<_>>())
        };
        let mut lines = vec![format!(
            "{error}: a kernel has touched memory that is not there; live blocks with a guard: {}",
            live.len()
        )];
        match named_by_address(unit, faults, &live, &freed) {
            Some(line) => lines.push(line),
            None => lines.extend(candidates(live, &freed)),
        }
        lines
    }
}

/// The block that the latest fault near any block belongs to.
fn named_by_address(
    unit: u64,
    faults: &[u64],
    live: &[GuardedBlock],
    freed: &[GuardedBlock],
) -> Option<String> {
    let near = faults.iter().rev().find_map(|fault| Some((fault, verdict(*fault, live, freed, unit)?)));
    near.map(|(fault, verdict)| format!("the kernel's log has a fault in the page at {fault:#x}: {verdict}"))
}

/// The block that the page of a fault belongs to: behind a live one, inside a freed one, or behind
/// a freed one.
fn verdict(fault: u64, live: &[GuardedBlock], freed: &[GuardedBlock], unit: u64) -> Option<String> {
    let end = |block: &GuardedBlock| block.address + block.bytes as u64;
    let behind = |block: &&GuardedBlock| {
        (end(block)..end(block).next_multiple_of(guard::ALIGNMENT) + unit).contains(&fault)
    };
    let inside = |block: &&GuardedBlock| (block.address / PAGE * PAGE..end(block)).contains(&fault);
    let live = live.iter().find(behind).map(|block| format!("behind the end of {block}"));
    live.or_else(|| freed.iter().find(inside).map(|block| format!("inside {block}, which has been freed")))
        .or_else(|| freed.iter().find(behind).map(|block| format!("behind the end of {block}, freed since")))
}

/// Without an address: the blocks that were allocated and freed last, and how to find out more.
fn candidates(mut live: Vec<GuardedBlock>, freed: &[GuardedBlock]) -> Vec<String> {
    let mut lines = vec![
        "the driver does not tell the address. An access behind the end of one of these blocks ends so, or an access \
         to one that was freed; so does any other wild address"
            .to_owned(),
    ];
    live.sort_by_key(|block| std::cmp::Reverse(block.id));
    lines.extend(live.iter().take(NAMED).map(GuardedBlock::to_string));
    if live.len() > NAMED {
        lines.push(format!("and {} older ones: `wmctl stats --blocks` lists them all", live.len() - NAMED));
    }
    lines.extend(freed.iter().take(NAMED).map(|block| format!("freed: {block}")));
    lines.push(
        "to narrow it down: WMSHIM_GUARD=canary names the block if the write stays near its end; \
         `dmesg | grep 'Xid.*31'` (as root) has the address; compute-sanitizer, with WMSHIM_STITCH=off, names kernel \
         and line; CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1 leaves a file for cuda-gdb"
            .to_owned(),
    );
    lines
}

#[cfg(test)]
mod tests {
    //! Hazard (out-of-bounds access): a report that accuses the neighbour, or a list of freed
    //! blocks that grows for ever.
    use super::super::guarded_block::CallOrigin;
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

    fn guards(blocks: u64) -> PageGuards {
        let guards = PageGuards::new();
        (1..=blocks).for_each(|id| guards.insert(block(id * 0x100_0000, 1 << 20, id)));
        guards
    }

    #[test]
    fn a_fault_with_an_address_names_one_block() {
        let guards = guards(3);
        let lines = guards.report(CUresult::ILLEGAL_ADDRESS, UNIT, &[0, 0x200_0000 + (1 << 20)]);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(
            lines[0].ends_with("live blocks with a guard: 3") && lines[1].contains("block 2"),
            "{lines:?}"
        );
    }

    #[test]
    fn a_fault_without_one_names_the_latest_blocks_and_how_to_go_on() {
        let guards = guards(NAMED as u64 + 5);
        guards.freed(0x100_0000);
        guards.freed(0x100_0000);
        let lines = guards.report(CUresult::ILLEGAL_ADDRESS, UNIT, &[]);
        assert!(lines[2].starts_with(&format!("block {} ", NAMED + 5)), "{lines:?}");
        assert!(lines.iter().any(|line| line.starts_with("and 4 older ones")), "{lines:?}");
        assert_eq!(lines.iter().filter(|line| line.starts_with("freed: block 1 ")).count(), 1, "{lines:?}");
        assert!(lines.last().is_some_and(|line| line.contains("WMSHIM_GUARD=canary")), "{lines:?}");
    }

    #[test]
    fn freed_blocks_are_forgotten_oldest_first_and_a_device_takes_its_own_along() {
        let guards = guards(REMEMBERED as u64 + 2);
        (1..=REMEMBERED as u64 + 1).for_each(|id| guards.freed(id * 0x100_0000));
        assert_eq!(guards.register().freed.front().map(|block| block.id), Some(2));
        guards.end_device(0);
        assert!(guards.register().live.is_empty());
        assert_eq!(guards.guarded(), REMEMBERED as u64 + 2);
    }
}
