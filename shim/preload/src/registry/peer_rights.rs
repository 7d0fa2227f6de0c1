//! Which devices may access which others' memory, as the program asked.

use std::sync::{Mutex, MutexGuard};

use wm_abi::CUdevice;
use wm_driver::lock;

/// `from` may read and write the memory of `owner`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PeerRight {
    pub(super) owner: CUdevice,
    pub(super) from: CUdevice,
}

/// The rights that the program has asked for.
#[derive(Debug)]
pub(super) struct PeerRights {
    rights: Mutex<Vec<PeerRight>>,
}

impl PeerRights {
    pub(super) const fn new() -> Self {
        Self { rights: Mutex::new(Vec::new()) }
    }

    fn rights(&self) -> MutexGuard<'_, Vec<PeerRight>> {
        lock(&self.rights)
    }

    pub(super) fn insert(&self, right: PeerRight) {
        let mut rights = self.rights();
        if !rights.contains(&right) {
            rights.push(right);
        }
    }

    /// Devices that may access a device's memory.
    pub(super) fn of_owner(&self, owner: CUdevice) -> Vec<CUdevice> {
        self.rights().iter().filter(|right| right.owner == owner).map(|right| right.from).collect()
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a right that was granted before the device had a manager is lost.
    use super::*;

    #[test]
    fn rights_are_kept_once_and_by_owner() {
        let rights = PeerRights::new();
        for (owner, from) in [(0, 1), (0, 2), (1, 0), (0, 1)] {
            rights.insert(PeerRight { owner, from });
        }
        assert_eq!(
            (rights.of_owner(0), rights.of_owner(1), rights.of_owner(2)),
            (vec![1, 2], vec![0], vec![])
        );
    }
}
