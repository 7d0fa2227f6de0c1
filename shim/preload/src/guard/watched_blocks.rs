//! The blocks that canaries watch: since when, and whether one is being checked right now. Pure.
//!
//! Invariants:
//! * A tail may be checked only when its pattern is known to be there: the host has waited for
//!   the stream it was written in since, or it was written in our own stream, in which checks are
//!   queued too.
//! * While a thread checks a block, its memory is not given back: a free waits for the check
//!   ([`Taken::BeingChecked`]). So the bytes read are the block's tail, and a difference in them is
//!   an overrun.

use std::collections::BTreeMap;

use wm_abi::{CUcontext, CUdevice};
use wm_driver::StreamId;

use super::guarded_block::GuardedBlock;

/// Where and when a pattern was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) stream: StreamId,
    pub(super) context: CUcontext,
}

/// Where a pattern was written, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern {
    /// It is in its place.
    There,
    /// Our own stream is to write it.
    InOurs,
    /// A stream of the program is to write it.
    In(Written),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchState {
    Watched,
    Checking,
}

/// A watched block.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) block: GuardedBlock,
    /// `None` once the pattern is known to be there.
    pub(super) unknown: Option<Written>,
    /// Our own stream may still have to write the pattern.
    pub(super) ours: bool,
    /// An overrun has been told.
    pub(super) told: bool,
    serial: u64,
    state: WatchState,
}

/// The answer to the free of a block.
#[derive(Debug)]
pub(super) enum Taken {
    /// It is out: its memory may be given back.
    Out(Box<Entry>),
    /// A thread is checking it: ask again when that has ended.
    BeingChecked,
    /// It is not watched.
    Unknown,
}

/// The work that a wait of the host covered.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scope {
    Stream(StreamId),
    Context(CUcontext),
}

#[derive(Debug, Default)]
pub(super) struct WatchedBlocks {
    entries: BTreeMap<u64, Entry>,
    /// Blocks whose pattern is not known to be there, by serial number.
    fresh: BTreeMap<u64, u64>,
    serial: u64,
    /// Where the next round of checks begins.
    next: u64,
}

impl WatchedBlocks {
    pub(super) const fn new() -> Self {
        Self { entries: BTreeMap::new(), fresh: BTreeMap::new(), serial: 0, next: 0 }
    }

    /// A block whose pattern is written, or on its way in a stream or in our own.
    pub(super) fn enter(&mut self, block: GuardedBlock, written: Pattern) {
        self.serial += 1;
        let (address, serial) = (block.address, self.serial);
        let unknown = match written {
            Pattern::In(written) => Some(written),
            Pattern::There | Pattern::InOurs => None,
        };
        if unknown.is_some() {
            self.fresh.insert(serial, address);
        }
        let ours = written == Pattern::InOurs;
        let entry = Entry { block, unknown, ours, told: false, serial, state: WatchState::Watched };
        self.entries.insert(address, entry);
    }

    /// A moment: blocks that were entered up to it.
    pub(super) fn moment(&self) -> u64 {
        self.serial
    }

    /// The host has waited for everything that `scope` held at a moment.
    pub(super) fn waited(&mut self, scope: Scope, moment: u64) {
        let covers = |written: Written| match scope {
            Scope::Stream(stream) => written.stream == stream,
            Scope::Context(context) => written.context == context,
        };
        let entries = &mut self.entries;
        self.fresh.retain(|serial, address| {
            let Some(entry) = entries.get_mut(address) else { return false };
            let past = *serial <= moment && entry.unknown.is_some_and(covers);
            if past {
                entry.unknown = None;
            }
            !past
        });
    }

    /// At most `most` blocks of a device that may be checked, in turn: call
    /// [`WatchedBlocks::checked`] for each.
    pub(super) fn choose(&mut self, device: CUdevice, most: usize) -> Vec<GuardedBlock> {
        let turn = self.next;
        let ready = |entry: &&mut Entry| {
            entry.block.device == device && entry.unknown.is_none() && entry.state == WatchState::Watched
        };
        let mut chosen = Vec::new();
        for range in [turn..u64::MAX, 0..turn] {
            let left = most - chosen.len();
            for entry in self.entries.range_mut(range).map(|(_, entry)| entry).filter(ready).take(left) {
                entry.state = WatchState::Checking;
                self.next = entry.block.address + 1;
                chosen.push(entry.block.clone());
            }
        }
        chosen
    }

    /// A check at a block has ended. The block, if its overrun is new.
    pub(super) fn seen(&mut self, address: u64, damaged: bool) -> Option<GuardedBlock> {
        let entry = self.entries.get_mut(&address)?;
        let new = damaged && !entry.told;
        entry.told |= damaged;
        new.then(|| entry.block.clone())
    }

    /// The check has ended.
    pub(super) fn checked(&mut self, address: u64) {
        if let Some(entry) = self.entries.get_mut(&address) {
            entry.state = WatchState::Watched;
        }
    }

    /// The program frees a block.
    pub(super) fn begin_free(&mut self, address: u64) -> Taken {
        if self.entries.get(&address).is_some_and(|entry| entry.state == WatchState::Checking) {
            return Taken::BeingChecked;
        }
        self.remove(address).map_or(Taken::Unknown, |entry| Taken::Out(Box::new(entry)))
    }

    /// A block is gone.
    pub(super) fn remove(&mut self, address: u64) -> Option<Entry> {
        let entry = self.entries.remove(&address)?;
        self.fresh.remove(&entry.serial);
        Some(entry)
    }

    /// All of a device's blocks are gone.
    pub(super) fn end_device(&mut self, device: CUdevice) {
        self.entries.retain(|_, entry| entry.block.device != device);
        let entries = &self.entries;
        self.fresh.retain(|_, address| entries.contains_key(address));
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): a block that is accused before its pattern was there, or of its
    //! successor's writes.
    use super::*;
    use crate::guard::guarded_block::CallOrigin;

    const A: Written = Written { stream: StreamId(1), context: CUcontext(16) };
    const B: Written = Written { stream: StreamId(2), context: CUcontext(16) };

    fn block(address: u64) -> GuardedBlock {
        GuardedBlock { device: 0, address, bytes: 8, id: address, origin: CallOrigin::of("cuMemAlloc") }
    }

    fn watched(written: &[Pattern]) -> WatchedBlocks {
        let mut watched = WatchedBlocks::new();
        for (at, written) in written.iter().enumerate() {
            watched.enter(block(at as u64 * 4096), *written);
        }
        watched
    }

    fn chosen(watched: &mut WatchedBlocks, most: usize) -> Vec<u64> {
        watched.choose(0, most).iter().map(|block| block.address / 4096).collect()
    }

    #[test]
    fn a_tail_is_checked_only_once_its_pattern_is_there() {
        let mut watched = watched(&[Pattern::In(A), Pattern::In(B), Pattern::InOurs]);
        assert_eq!(chosen(&mut watched, 9), [2]);
        let moment = watched.moment();
        watched.enter(block(0x10000), Pattern::In(A));
        watched.waited(Scope::Stream(A.stream), moment);
        assert_eq!(chosen(&mut watched, 9), [0], "not the one that came after the wait began");
        watched.waited(Scope::Context(A.context), watched.moment());
        assert_eq!(chosen(&mut watched, 9), [1, 16]);
    }

    #[test]
    fn checks_go_round() {
        let mut watched = watched(&[Pattern::There; 5]);
        let mut round = |most| {
            let seen = chosen(&mut watched, most);
            seen.iter().for_each(|at| watched.checked(at * 4096));
            seen
        };
        assert_eq!((round(2), round(2), round(2)), (vec![0, 1], vec![2, 3], vec![4, 0]));
        assert_eq!(round(9).len(), 5);
    }

    #[test]
    fn a_block_is_not_given_back_during_a_check() {
        let mut watched = watched(&[Pattern::There]);
        assert_eq!(chosen(&mut watched, 1), [0]);
        assert!(matches!(watched.begin_free(0), Taken::BeingChecked));
        assert!(watched.seen(0, true).is_some());
        assert!(matches!(watched.begin_free(0), Taken::BeingChecked));
        watched.checked(0);
        assert!(matches!(watched.begin_free(0), Taken::Out(_)));
        assert!(matches!(watched.begin_free(0), Taken::Unknown));
    }

    #[test]
    fn an_overrun_is_told_once() {
        let mut watched = watched(&[Pattern::There]);
        let mut told = || {
            assert_eq!(chosen(&mut watched, 1), [0]);
            let told = watched.seen(0, true).is_some();
            watched.checked(0);
            told
        };
        assert_eq!((told(), told()), (true, false));
        let Taken::Out(entry) = watched.begin_free(0) else { panic!("no thread checks it") };
        assert!(entry.told);
    }

    #[test]
    fn a_device_takes_its_blocks_with_it() {
        let mut watched = watched(&[Pattern::There, Pattern::In(A)]);
        watched.end_device(0);
        watched.waited(Scope::Context(A.context), watched.moment());
        assert!(chosen(&mut watched, 9).is_empty());
    }
}
