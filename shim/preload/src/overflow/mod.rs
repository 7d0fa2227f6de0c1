//! Tells the user that memory lies elsewhere than on its device: kernels use it over the link, and
//! the program is slower.
//!
//! A line says so at the first byte, at 1 GiB and each doubling, and when the process ends: then
//! with the device memory that the program would have needed. Blocks and the program's own pieces
//! count alike. Invariants: no lock is held while a line is written; no line is written in a forked
//! child; the line at the exit waits for no lock, since a signal handler that calls `exit` may have
//! interrupted the thread that has it.

mod holders;
mod notices;
mod refusal;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, TryLockError};

use holders::HolderFiles;
pub(crate) use holders::HolderSources;
use notices::{BytesElsewhere, Needs, NeedsByDevice, Notices, whereabouts};
use wm_abi::CUdevice;
use wm_driver::{Device, Tier, lock};
use wm_memory::{Manager, Shortage, Usage};

use crate::{black_box, events, process, registry};

/// The lines of a process about memory that lies elsewhere.
#[derive(Debug)]
pub(crate) struct OverflowLog {
    notices: Mutex<Notices>,
    /// No line is due before the process ends.
    are_over: AtomicBool,
    /// Needs of devices before they were reset.
    resets: Mutex<NeedsByDevice>,
    /// Requests that no tier could meet.
    refusals: AtomicU64,
    holders: HolderFiles,
}

impl OverflowLog {
    pub(crate) const fn new() -> Self {
        Self {
            notices: Mutex::new(Notices::NEW),
            are_over: AtomicBool::new(false),
            resets: Mutex::new(NeedsByDevice::NONE),
            refusals: AtomicU64::new(0),
            holders: HolderFiles::new(),
        }
    }

    /// The settings are known: at a refusal a file names the holders.
    pub(crate) fn name_holders(&self, sources: HolderSources) {
        self.holders.choose(sources);
    }

    /// A block was given out that its device has no room for, or a block has left its device.
    /// Writes a line if one is due.
    pub(crate) fn note(&self) {
        if self.are_over.load(Relaxed) || process::forked() || process::exiting() {
            return;
        }
        let elsewhere = registry::all()
            .map(|manager| manager.live().elsewhere() + manager.pool(|pool| pool.account()).held.elsewhere());
        if let Some(advice) = self.next_line(elsewhere.sum()) {
            log::warn!("memory lies elsewhere than on its device: {}{advice}", whereabouts(&places()));
        }
    }

    /// The end of the line, if one is due with so many bytes elsewhere.
    fn next_line(&self, elsewhere: u64) -> Option<&'static str> {
        let mut notices = lock(&self.notices);
        let is_first = !notices.has_begun();
        let is_due = notices.is_due(elsewhere);
        self.are_over.store(notices.are_over(), Relaxed);
        is_due.then_some(if is_first { ADVICE } else { "" })
    }

    /// Writes a line at the 1st, 2nd, 4th, 8th, ... refusal: a program that searches for its batch
    /// size is refused hundreds of times.
    pub(crate) fn say(&self, device: CUdevice, asked: u64, shortage: impl FnOnce() -> Shortage) {
        let count = self.refusals.fetch_add(1, Relaxed) + 1;
        black_box::refused(device, asked);
        events::tell_of_refusal(device, asked);
        if !count.is_power_of_two() || log::max_level() < log::LevelFilter::Warn {
            return;
        }
        let shortage = shortage();
        let number = if count == 1 { String::new() } else { format!("refusal {count}: ") };
        let (advice, file) = (refusal::advice_on(device, &shortage), self.holders.write(device, &shortage));
        log::warn!("device {device}: {number}{shortage}{advice}{file}");
    }

    /// The device's contexts are gone, and its manager is about to forget its blocks.
    pub(crate) fn device_ended(&self, manager: &Manager<Device>) {
        self.add_reset(manager.gpu().ordinal(), &needs_of(manager, &manager.usage()));
    }

    fn add_reset(&self, device: CUdevice, needs: &Needs) {
        lock(&self.resets).add(device, needs);
    }

    /// The process ends. Nothing is allocated: the exit may have begun in a signal handler that has
    /// interrupted the allocator.
    pub(crate) fn finish(&self) {
        if let Some(needs) = self.last_line(add_current_needs) {
            log::warn!("memory lay elsewhere than on its device: {needs}");
        }
    }

    /// The needs of every device, if a line was written before. `add_current` adds those of devices
    /// that are in use. `None` also if another thread has a lock.
    fn last_line(&self, add_current: impl FnOnce(&mut NeedsByDevice) -> Option<()>) -> Option<NeedsByDevice> {
        Self::try_read(&self.notices, Notices::has_begun).filter(|has_begun| *has_begun)?;
        let mut needs = Self::try_read(&self.resets, |resets| *resets)?;
        add_current(&mut needs)?;
        (!needs.is_empty()).then_some(needs)
    }

    fn try_read<T, R>(mutex: &Mutex<T>, read: impl FnOnce(&T) -> R) -> Option<R> {
        match mutex.try_lock() {
            Ok(value) => Some(read(&value)),
            Err(TryLockError::Poisoned(value)) => Some(read(&value.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// The end of the first line.
const ADVICE: &str = "; kernels use it over the link, and are slower; WMSHIM_OVERFLOW=off fails instead";

/// Bytes of each device that lie elsewhere.
fn places() -> BTreeMap<CUdevice, BytesElsewhere> {
    let mut all: BTreeMap<CUdevice, BytesElsewhere> = BTreeMap::new();
    for manager in registry::all() {
        let places = all.entry(manager.gpu().ordinal()).or_insert_with(|| manager.elsewhere());
        *places.entry(Tier::Host).or_default() += manager.pool(|pool| pool.account()).held.host;
    }
    all
}

/// Adds the needs of devices that are in use; `None` if another thread is changing them.
fn add_current_needs(all: &mut NeedsByDevice) -> Option<()> {
    for manager in registry::all() {
        let needs = needs_of(manager, &try_often(|| manager.usage_now())?);
        all.add(manager.gpu().ordinal(), &needs);
    }
    Some(())
}

/// The needs of blocks and pieces together.
fn needs_of(manager: &Manager<Device>, usage: &Usage) -> Needs {
    let overflows = usage.counters.overflows + usage.pieces.overflows;
    Needs { peaks: usage.together.live_peaks, overflows, headroom: manager.settings().headroom }
}

/// Tries 100 times: another thread has such a lock for less than a microsecond.
fn try_often<T>(attempt: impl Fn() -> Option<T>) -> Option<T> {
    (0..100).find_map(|_| {
        let result = attempt();
        if result.is_none() {
            std::thread::yield_now();
        }
        result
    })
}

#[cfg(test)]
mod tests {
    //! Hazard (deadlock): an exit that waits for the thread which it has interrupted. Hazard
    //! (oversubscription): a program is slow and no line says why.
    use super::*;
    use wm_memory::{Peaks, TierBytes};

    fn needs(host: u64) -> Needs {
        let tiers = TierBytes { device: 1 << 20, peer: 0, host };
        Needs { peaks: Peaks { tiers, total: tiers.total() }, overflows: 1, headroom: 0 }
    }

    #[test]
    fn the_first_line_has_the_advice_and_the_eighth_is_the_last() {
        let log = OverflowLog::new();
        assert_eq!(log.next_line(0), None);
        assert_eq!(
            (log.next_line(1), log.next_line(1), log.next_line(1 << 30)),
            (Some(ADVICE), None, Some(""))
        );
        assert_eq!((31..64).filter(|bit| log.next_line(1 << bit).is_some()).count(), 6);
        assert!(log.are_over.load(Relaxed));
    }

    #[test]
    fn the_line_at_the_exit_counts_devices_that_were_reset() {
        let log = OverflowLog::new();
        log.add_reset(1, &needs(4 << 20));
        assert!(log.last_line(|_| Some(())).is_none(), "no line was written before");
        log.next_line(1);
        let line = log.last_line(|needs| (!needs.is_empty()).then_some(())).expect("a line").to_string();
        assert!(line.contains("of device 1") && line.contains("4.0 MiB on the host"), "{line}");
        assert!(OverflowLog::new().last_line(|_| Some(())).is_none());
    }

    #[test]
    fn the_line_at_the_exit_waits_for_no_lock() {
        let log = OverflowLog::new();
        log.add_reset(0, &needs(1));
        log.next_line(1);
        let resets = log.resets.lock().expect("no panic");
        assert!(log.last_line(|_| Some(())).is_none());
        drop(resets);
        assert!(log.last_line(|_| None).is_none(), "a manager is in use");
        let _notices = log.notices.lock().expect("no panic");
        assert!(log.last_line(|_| Some(())).is_none());
    }
}
