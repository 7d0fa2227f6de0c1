//! Which links are in use, by this process and by others of the same user.
//!
//! Ranks that all copy at once must not relay through each other: each link is then busy with its own rank's bytes, and
//! a relay only takes turns with them. So whoever copies claims the links it uses, for as long as it expects to take,
//! and relays are chosen among links that nobody else has claimed. Claims are hints: a wrong one costs speed, never
//! bytes. They expire by themselves, so a killed process blocks nothing for longer than its last copy would have taken.
//!
//! Within the process a claim names the copy's target: copies to one target follow each other through the same links and
//! are no obstacle to each other. Across processes claims stand on a [`page`] in shared memory.

pub mod page;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use wm_abi::CUdevice;

use crate::plan::Direction;
use crate::topology::Identity;
use page::{Page, RECORD_LINKS};

/// One direction of one device's PCIe link, the same number in every process of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link(pub u64);

impl Link {
    /// The link of a device.
    pub fn of(device: &Identity, direction: Direction) -> Self {
        // FNV-1a: the same in every build, which the standard library's hasher does not promise.
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = device.uuid.bytes().chain(device.pci.bytes()).fold(0xcbf2_9ce4_8422_2325, step);
        Self((hash << 1 | direction as u64).max(1))
    }
}

/// A use of a link by this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The link.
    pub link: Link,
    /// Whose copy it is.
    pub target: CUdevice,
    /// When it ends, in milliseconds since 1970.
    pub until: u64,
}

/// The links that a copy to `target` should keep away from.
pub fn obstacles(own: &[Claim], others: &[Link], target: CUdevice, now: u64) -> BTreeSet<Link> {
    let own = own.iter().filter(|claim| claim.until > now && claim.target != target).map(|claim| claim.link);
    own.chain(others.iter().copied()).collect()
}

/// Claims of this process, and the page where others see them.
#[derive(Debug)]
pub struct Share {
    own: Mutex<Vec<Claim>>,
    page: Option<Page>,
}

impl Share {
    /// With the page at `path`, or for this process alone.
    pub fn new(path: Option<PathBuf>) -> Self {
        let page = path.and_then(|path| {
            Page::open(&path)
                .inspect_err(|error| log::debug!("{}: {error}; links are not shared", path.display()))
                .ok()
        });
        Self { own: Mutex::default(), page }
    }

    /// The links that a copy to `target` should keep away from now.
    pub fn busy(&self, target: CUdevice) -> BTreeSet<Link> {
        let now = now();
        let others = self.page.as_ref().map(|page| page.others(now)).unwrap_or_default();
        obstacles(&self.own(), &others, target, now)
    }

    /// Does no other process copy now, as far as it says so?
    pub fn is_quiet(&self) -> bool {
        self.page.as_ref().is_none_or(|page| page.others(now()).is_empty())
    }

    /// Claims links for a copy to `target` that takes about so long.
    pub fn claim(&self, target: CUdevice, links: &[Link], duration: Duration) {
        let until = now() + duration.as_millis() as u64 + 1;
        let mut own = self.own();
        own.retain(|claim| claim.target != target || !links.contains(&claim.link));
        own.extend(links.iter().map(|link| Claim { link: *link, target, until }));
        self.publish(own.clone(), own);
    }

    /// A copy to `target` is over.
    pub fn release(&self, target: CUdevice, links: &[Link]) {
        let mut own = self.own();
        own.retain(|claim| claim.target != target || !links.contains(&claim.link));
        self.publish(own.clone(), own);
    }

    fn own(&self) -> std::sync::MutexGuard<'_, Vec<Claim>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what is claimed now. The lock is let go first: a file is written.
    fn publish(&self, claims: Vec<Claim>, held: std::sync::MutexGuard<'_, Vec<Claim>>) {
        drop(held);
        let Some(page) = &self.page else { return };
        let now = now();
        let live: Vec<_> = claims.iter().filter(|claim| claim.until > now).take(RECORD_LINKS).collect();
        let links: BTreeSet<_> = live.iter().map(|claim| claim.link).collect();
        let until = live.iter().map(|claim| claim.until).max().unwrap_or(0);
        page.publish(&links.into_iter().collect::<Vec<_>>(), until);
    }
}

/// Milliseconds since 1970: one clock for all processes. A step of it ends claims early or late, which costs speed only.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    //! Hazard: a rank relays through links that other ranks need, or gives up its own after one copy.
    use super::*;

    const fn claim(link: u64, target: CUdevice, until: u64) -> Claim {
        Claim { link: Link(link), target, until }
    }

    #[test]
    fn copies_to_one_target_do_not_hinder_each_other() {
        let own = [claim(1, 0, 100), claim(2, 0, 100), claim(3, 5, 100)];
        assert_eq!(obstacles(&own, &[], 0, 50), BTreeSet::from([Link(3)]));
        assert_eq!(obstacles(&own, &[Link(9)], 5, 50), BTreeSet::from([Link(1), Link(2), Link(9)]));
    }

    #[test]
    fn claims_expire() {
        assert!(obstacles(&[claim(1, 3, 100)], &[], 0, 100).is_empty());
    }

    #[test]
    fn directions_of_one_link_differ_and_zero_is_no_link() {
        let device = Identity { uuid: String::new(), pci: String::new(), numa: None };
        let (into, out) = (Link::of(&device, Direction::In), Link::of(&device, Direction::Out));
        assert_ne!(into, out);
        assert!(into.0 != 0 && out.0 != 0);
    }
}
