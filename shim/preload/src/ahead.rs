//! Host memory that is pinned ahead of need (`WMSHIM_HOST_AHEAD`): a program that goes past its device does not wait for it, but the first time.
//!
//! The thread starts when something had to lie on the host, and keeps as much idle as a quarter of what does, of the size that was asked for last. When nothing asked for some seconds, what it
//! has made and nobody uses goes back to the machine, and the thread ends.
//!
//! Off by default: no thread, and nothing is pinned that nobody uses.
//!
//! Invariants: a process that fits its devices has no such thread; the user's limit of host memory holds for what is made ahead, too; no lock is held across a driver call.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use wm_abi::CUdevice;
use wm_driver::thread::Uncancelled;
use wm_driver::{Device, Tier};
use wm_memory::Manager;

use crate::physical::{self, MemoryKind, kept};
use crate::{process, registry, settings};

/// What had to lie on the host.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HostNeed {
    /// A block of so many bytes.
    Block(u64),
    /// Memory that PyTorch makes itself.
    Piece(MemoryKind),
}

/// So much is made ahead at least, in bytes.
const LEAST: u64 = 32 << 20;

/// One part in so many of what lies on the host is.
const PART: u64 = 4;

/// A block's handles: no larger ones are made for blocks either.
const LARGEST_HANDLE: u64 = 64 << 20;
const SMALLEST_HANDLE: u64 = 2 << 20;

/// When nothing asked for so long, what nobody uses goes back.
const IDLE: Duration = Duration::from_secs(5);

const STACK: usize = 256 << 10;

struct HostPool {
    is_running: bool,
    need: Option<(CUdevice, HostNeed)>,
}

static POOL: Mutex<HostPool> = Mutex::new(HostPool { is_running: false, need: None });
static ASKED: Condvar = Condvar::new();

fn pool() -> MutexGuard<'static, HostPool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Something has to lie on the host.
pub(crate) fn needed(device: CUdevice, need: HostNeed) {
    // The program may cancel the thread, which reads files here.
    let _whole = Uncancelled::new();
    if limit() == 0 || process::exiting() {
        return;
    }
    let mut pool = pool();
    pool.need = Some((device, need));
    let is_new = !std::mem::replace(&mut pool.is_running, true);
    drop(pool);
    ASKED.notify_one();
    if is_new && let Err(error) = wm_driver::thread::spawn(c"wmshim-host", STACK, run) {
        // Once: it is not tried again.
        log::info!("host memory is not pinned ahead: no thread could be started: {error}");
    }
}

/// The most that is made ahead for a device.
fn limit() -> u64 {
    settings::load().host_ahead.map_or(0, |size| size.of(wm_driver::host::whole()))
}

fn run() {
    let mut made = Vec::new();
    while let Some((device, need)) = next() {
        while !is_over() && make_one(device, need, &mut made) {}
    }
    if !is_over() {
        made.into_iter().for_each(Stock::give_back);
    }
}

fn is_over() -> bool {
    process::exiting() || process::forked()
}

/// What was asked for last; `None` when nothing was for a while. The thread is no more then, and the next one that asks starts another.
fn next() -> Option<(CUdevice, HostNeed)> {
    let waited = ASKED.wait_timeout_while(pool(), IDLE, |pool| pool.need.is_none());
    let (mut pool, _) = waited.unwrap_or_else(PoisonError::into_inner);
    let need = pool.need.take().filter(|_| !is_over());
    pool.is_running = need.is_some();
    need
}

/// What was made ahead on a device, in bytes.
struct Stock {
    device: CUdevice,
    blocks: u64,
    pieces: u64,
}

impl Stock {
    fn give_back(self) {
        if let Some(manager) = registry::existing(self.device) {
            let idle = manager.usage().idle.host;
            manager.relieve_host(self.blocks.min(idle));
        }
        let idle = kept::idle(self.device, Tier::Host);
        kept::give_back(self.device, Tier::Host, self.pieces.min(idle));
    }
}

/// Makes one more. `false`: there is enough, or no more to be had.
fn make_one(device: CUdevice, need: HostNeed, made: &mut Vec<Stock>) -> bool {
    let Some(manager) = registry::existing(device) else { return false };
    if idle(manager, device, need) >= wanted(manager, device) {
        return false;
    }
    let bytes = match need {
        HostNeed::Block(bytes) => {
            let bytes = handle_for(bytes);
            if manager.stock_host(bytes) == Ok(true) { bytes } else { 0 }
        }
        HostNeed::Piece(kind) => physical::stock_host(manager, kind),
    };
    let index = made.iter().position(|stock| stock.device == device).unwrap_or_else(|| {
        made.push(Stock { device, blocks: 0, pieces: 0 });
        made.len() - 1
    });
    match need {
        HostNeed::Block(_) => made[index].blocks += bytes,
        HostNeed::Piece(_) => made[index].pieces += bytes,
    }
    bytes > 0
}

fn idle(manager: &Manager<Device>, device: CUdevice, need: HostNeed) -> u64 {
    match need {
        HostNeed::Block(_) => manager.usage().idle.host,
        HostNeed::Piece(_) => kept::idle(device, Tier::Host),
    }
}

/// Bytes that are to lie idle.
fn wanted(manager: &Manager<Device>, device: CUdevice) -> u64 {
    let used = manager.usage().live.host + physical::account(device).held.host;
    (used / PART).max(LEAST).min(limit())
}

/// The size of handles that a block of so many bytes has on the host, for the most part.
fn handle_for(bytes: u64) -> u64 {
    1 << (bytes / 4).clamp(SMALLEST_HANDLE, LARGEST_HANDLE).ilog2()
}
