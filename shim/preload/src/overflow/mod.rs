//! Tells the user that memory lies elsewhere than on its device: kernels use it over the link then, and the program is slower.
//!
//! A line says so when that begins, at each doubling, and when the process ends: then with what it would have needed. Blocks and the
//! program's own pieces count alike. Invariants: no lock is held while a line is written; nothing is said in a forked child; the line at
//! the exit waits for no lock, since a signal handler that calls `exit` may have interrupted the thread that has it.

mod notices;
mod refusal;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, TryLockError};

use notices::{BytesElsewhere, Needs, Notices, whereabouts};
use wm_abi::CUdevice;
use wm_driver::{Device, Tier};
use wm_memory::{Manager, Usage};

pub(crate) use refusal::{of_piece, say};

use crate::{physical, process, registry};

static NOTICES: Mutex<Notices> = Mutex::new(Notices::NEW);

/// No more will be said before the process ends.
static ALL_SAID: AtomicBool = AtomicBool::new(false);

/// What devices that were reset needed before.
static RESET: Mutex<BTreeMap<CUdevice, Needs>> = Mutex::new(BTreeMap::new());

/// Memory that a device has no room for was given out, or has made room by leaving it.
pub(crate) fn noted() {
    if ALL_SAID.load(Relaxed) || process::forked() || process::exiting() {
        return;
    }
    let blocks: u64 = registry::all().map(|manager| manager.live().elsewhere()).sum();
    let pieces: u64 = physical::accounts().values().map(|account| account.held.elsewhere()).sum();
    let mut notices = NOTICES.lock().unwrap_or_else(PoisonError::into_inner);
    let is_first = !notices.has_begun();
    let is_due = notices.is_due(blocks + pieces);
    ALL_SAID.store(notices.are_over(), Relaxed);
    drop(notices);
    if is_due {
        let advice = "; kernels use it over the link, and are slower; WMSHIM_OVERFLOW=off fails instead";
        let places = whereabouts(&places());
        log::warn!(
            "memory lies elsewhere than on its device: {places}{}",
            if is_first { advice } else { "" }
        );
    }
}

/// What lies elsewhere, of each device.
fn places() -> BTreeMap<CUdevice, BytesElsewhere> {
    let mut all: BTreeMap<CUdevice, BytesElsewhere> = BTreeMap::new();
    for manager in registry::all() {
        all.insert(manager.gpu().ordinal(), manager.elsewhere());
    }
    for (device, account) in physical::accounts() {
        *all.entry(device).or_default().entry(Tier::Host).or_default() += account.held.host;
    }
    all
}

/// The device's contexts are gone, and its manager with them.
pub(crate) fn ended(manager: &Manager<Device>) {
    let mut reset = RESET.lock().unwrap_or_else(PoisonError::into_inner);
    reset.entry(manager.gpu().ordinal()).or_default().or(&of_blocks(manager, &manager.usage()));
}

/// The process ends.
pub(crate) fn finish() {
    let has_begun = match NOTICES.try_lock() {
        Ok(notices) => notices.has_begun(),
        Err(TryLockError::Poisoned(notices)) => notices.into_inner().has_begun(),
        Err(TryLockError::WouldBlock) => false,
    };
    if let Some(needs) = has_begun.then(needs).flatten() {
        let needs: Vec<String> = needs
            .iter()
            .filter(|(_, needs)| needs.overflows > 0)
            .map(|(device, needs)| needs.said(*device))
            .collect();
        if !needs.is_empty() {
            log::warn!("memory lay elsewhere than on its device: {}", needs.join("; "));
        }
    }
}

/// What each device would have needed; `None` where somebody is in the midst of changing it.
fn needs() -> Option<BTreeMap<CUdevice, Needs>> {
    let mut all = match RESET.try_lock() {
        Ok(reset) => reset.clone(),
        Err(TryLockError::Poisoned(reset)) => reset.into_inner().clone(),
        Err(TryLockError::WouldBlock) => return None,
    };
    for manager in registry::all() {
        let blocks = of_blocks(manager, &soon(|| manager.usage_now())?);
        all.entry(manager.gpu().ordinal()).or_default().or(&blocks);
    }
    for (device, account) in soon(physical::accounts_now)? {
        let pieces = Needs { peaks: account.peaks, overflows: account.overflows, headroom: 0 };
        all.entry(device).or_default().and(&pieces);
    }
    Some(all)
}

fn of_blocks(manager: &Manager<Device>, usage: &Usage) -> Needs {
    let headroom = manager.settings().headroom;
    Needs { peaks: usage.live_peaks, overflows: usage.counters.overflows, headroom }
}

/// Looks a few times: another thread has such a lock for less than a microsecond.
fn soon<T>(look: impl Fn() -> Option<T>) -> Option<T> {
    (0..100).find_map(|_| {
        let seen = look();
        if seen.is_none() {
            std::thread::yield_now();
        }
        seen
    })
}
