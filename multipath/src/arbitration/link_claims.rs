//! The links in use, by this process and by others of the same user.
//!
//! Ranks that all copy at once must not relay through each other: each link is then busy with its
//! own rank's bytes, and a relay only takes turns with them. So a copy claims the links that it
//! uses for its expected duration, and relays are chosen among the unclaimed links. Claims are
//! hints: a wrong one costs speed, never bytes. They expire by themselves, so a killed process
//! blocks no link for long. [`Claims`] decides how long; processes exchange their claims on a
//! [`ClaimsPage`] in shared memory.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use wm_abi::CUdevice;
use wm_driver::lock;

use crate::arbitration::claims::Claims;
use crate::arbitration::page::ClaimsPage;
use crate::vocabulary::machine::Link;

/// Claims of this process, and the page where others see them.
#[derive(Debug)]
pub(crate) struct LinkClaims {
    own: Mutex<Claims>,
    page: Option<ClaimsPage>,
}

impl LinkClaims {
    /// With the page at `path`; without a path, claims stay within this process.
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        let page = path.and_then(|path| {
            ClaimsPage::open(&path)
                .inspect_err(|error| {
                    log::warn!(
                        "{}: {error}; other processes do not see which links this one uses: if the file is not yours, \
                         have its owner remove it",
                        path.display()
                    )
                })
                .ok()
        });
        Self { own: Mutex::default(), page }
    }

    /// The links that a copy to `target` avoids now.
    pub(crate) fn busy(&self, target: CUdevice) -> BTreeSet<Link> {
        let now = now();
        let others = self.page.as_ref().map(|page| page.others(now)).unwrap_or_default();
        let mut busy = self.own().obstacles(target, now);
        busy.extend(others);
        busy
    }

    /// Has no other process published a claim that is still valid?
    pub(crate) fn is_quiet(&self) -> bool {
        self.page.as_ref().is_none_or(|page| page.others(now()).is_empty())
    }

    /// Claims links for a copy to `target` for its expected duration. The target's own link is the
    /// first.
    pub(crate) fn claim(&self, target: CUdevice, links: &[Link], duration: Duration) {
        self.change(|own, now| own.claim(target, links, now, duration));
    }

    /// A copy to `target` is over.
    pub(crate) fn release(&self, target: CUdevice, links: &[Link]) {
        self.change(|own, now| own.release(target, links, now));
    }

    fn own(&self) -> std::sync::MutexGuard<'_, Claims> {
        lock(&self.own)
    }

    /// Changes the claims, then publishes them with the lock released: that writes a file.
    fn change(&self, change: impl FnOnce(&mut Claims, u64)) {
        let now = now();
        let mut own = self.own();
        change(&mut own, now);
        let told = self.page.as_ref().map(|page| (page, own.told(now)));
        drop(own);
        if let Some((page, links)) = told {
            page.publish(&links);
        }
    }
}

/// Milliseconds since 1970: one clock for all processes. A step of it ends claims early or late,
/// which costs speed only.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
