//! What went over which path. Relaxed atomics, no lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wm_abi::CUdevice;

use crate::plan::Direction;

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

/// Copies through one path so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// The relay; `None` for the direct path.
    pub relay: Option<CUdevice>,
    /// Which way.
    pub direction: Direction,
    /// Copies that had a part there.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Copies that took several paths, by path and direction.
#[derive(Debug)]
pub struct Traffic {
    direct: [Counter; 2],
    relays: [[Counter; 2]; DEVICES],
}

impl Default for Traffic {
    fn default() -> Self {
        Self { direct: Default::default(), relays: std::array::from_fn(|_| Default::default()) }
    }
}

impl Traffic {
    /// Counts a part of a copy.
    pub fn add(&self, relay: Option<CUdevice>, direction: Direction, bytes: usize) {
        if let Some(path) = self.path(relay).filter(|_| bytes > 0) {
            path[direction as usize].add(bytes);
        }
    }

    fn path(&self, relay: Option<CUdevice>) -> Option<&[Counter; 2]> {
        match relay {
            None => Some(&self.direct),
            Some(device) => self.relays.get(usize::try_from(device).ok()?),
        }
    }

    /// Every path that was taken.
    pub fn read(&self) -> Vec<Flow> {
        let relays = self.relays.iter().enumerate().map(|(device, path)| (Some(device as CUdevice), path));
        let paths = std::iter::once((None, &self.direct)).chain(relays);
        paths.flat_map(|(relay, path)| flows(relay, path)).filter(|flow| flow.count > 0).collect()
    }
}

fn flows(relay: Option<CUdevice>, path: &[Counter; 2]) -> impl Iterator<Item = Flow> {
    [Direction::In, Direction::Out].into_iter().map(move |direction| {
        let counter = &path[direction as usize];
        Flow { relay, direction, count: counter.count.load(Relaxed), bytes: counter.bytes.load(Relaxed) }
    })
}
