//! The bytes that went over each path. Relaxed atomics, no lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wm_abi::CUdevice;

use crate::vocabulary::copy::LinkDirection;

/// Devices by ordinal; more than any machine has.
const DEVICES: usize = 64;

#[derive(Debug, Default)]
struct Counter {
    count: AtomicU64,
    bytes: AtomicU64,
}

impl Counter {
    fn add(&self, bytes: usize) {
        self.count.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }
}

/// The path of a part of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CopyRoute {
    /// The target's own link, by its own engine alone.
    Direct,
    /// The target's own link, and pinned buffers that threads of ours fill or empty.
    Threads,
    /// A sibling.
    Relay(CUdevice),
}

/// Copies through one path so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteUsage {
    /// The path.
    pub route: CopyRoute,
    /// The direction.
    pub direction: LinkDirection,
    /// Copies that had a part there.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Copies that were not the driver's alone, by path and direction.
#[derive(Debug)]
pub(crate) struct Traffic {
    direct: [Counter; 2],
    threads: [Counter; 2],
    relays: [[Counter; 2]; DEVICES],
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            direct: Default::default(),
            threads: Default::default(),
            relays: std::array::from_fn(|_| Default::default()),
        }
    }
}

impl Traffic {
    /// Counts a part of a copy.
    pub(crate) fn add(&self, route: CopyRoute, direction: LinkDirection, bytes: usize) {
        if let Some(path) = self.path(route).filter(|_| bytes > 0) {
            path[direction as usize].add(bytes);
        }
    }

    fn path(&self, route: CopyRoute) -> Option<&[Counter; 2]> {
        match route {
            CopyRoute::Direct => Some(&self.direct),
            CopyRoute::Threads => Some(&self.threads),
            CopyRoute::Relay(device) => self.relays.get(usize::try_from(device).ok()?),
        }
    }

    /// Every path that was taken.
    pub(crate) fn read(&self) -> Vec<RouteUsage> {
        let own = [(CopyRoute::Direct, &self.direct), (CopyRoute::Threads, &self.threads)];
        let relay = |(device, path)| (CopyRoute::Relay(device as CUdevice), path);
        let paths = own.into_iter().chain(self.relays.iter().enumerate().map(relay));
        paths.flat_map(|(route, path)| flows(route, path)).filter(|flow| flow.count > 0).collect()
    }
}

fn flows(route: CopyRoute, path: &[Counter; 2]) -> impl Iterator<Item = RouteUsage> {
    [LinkDirection::In, LinkDirection::Out].into_iter().map(move |direction| {
        let counter = &path[direction as usize];
        RouteUsage {
            route,
            direction,
            count: counter.count.load(Relaxed),
            bytes: counter.bytes.load(Relaxed),
        }
    })
}
