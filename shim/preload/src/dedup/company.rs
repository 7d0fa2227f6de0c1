//! `WMSHIM_DEDUP=auto`: a process that is alone with its memory has no broker, no thread, and no
//! passes. It begins to share once it has copied much from the host and another process of the user
//! has done so, too.
//!
//! Until then blocks, addresses that are copied, and kernels with parameters into blocks are noted:
//! a kernel may have stored a block's address, through which another one writes later.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use wm_dedup::client::Presence;
use wm_dedup::policy::backoff::Backoff;
use wm_driver::lock;

use super::broker_start;
use crate::process::preserve_errno;
use crate::settings;

/// Bytes from the host after which a process could share, unless the user says otherwise.
const MUCH: u64 = 1 << 30;

/// The time between two looks for others. One takes two system calls.
const LOOKS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));

/// The processes with which this one could share.
#[derive(Debug)]
pub(super) struct Company {
    /// Bytes that were copied from the host into blocks that could be shared.
    loaded: AtomicU64,
    search: Mutex<PresenceSearch>,
}

#[derive(Debug)]
struct PresenceSearch {
    presence: Option<Presence>,
    times: Backoff,
}

impl Company {
    pub(super) const fn new() -> Self {
        let search = PresenceSearch { presence: None, times: Backoff::new(LOOKS) };
        Self { loaded: AtomicU64::new(0), search: Mutex::new(search) }
    }

    pub(super) fn add_loaded(&self, bytes: u64) {
        self.loaded.fetch_add(bytes, Relaxed);
    }

    /// Is there another process to share with? It is looked for at most once a second. Waits for
    /// nothing.
    pub(super) fn is_found(&self) -> bool {
        if self.loaded.load(Relaxed) < settings::load().dedup_from.unwrap_or(MUCH) {
            return false;
        }
        let Ok(mut search) = self.search.try_lock() else { return false };
        let now = Instant::now();
        if !search.times.is_due(now) {
            return false;
        }
        search.times.end(now, false);
        preserve_errno(|| {
            if search.presence.is_none() {
                let folder = broker_start::location().ok().map(|home| home.folder);
                search.presence = folder.and_then(|folder| Presence::announce(&folder).ok());
            }
            search.presence.as_ref().is_some_and(|presence| !presence.is_alone())
        })
    }

    /// Sharing has ended in this process: no other one begins for it.
    pub(super) fn leave(&self) {
        lock(&self.search).presence = None;
    }
}
