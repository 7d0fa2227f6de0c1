//! A set of devices that threads change without a lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wm_abi::CUdevice;

/// Devices by ordinal, 0 to 63: more than any machine has. Other ordinals are never members.
#[derive(Debug, Default)]
pub(crate) struct DeviceSet(AtomicU64);

impl DeviceSet {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds a device. `true` if it was no member before; one of several threads that add it at once
    /// is told so.
    pub(crate) fn insert(&self, device: CUdevice) -> bool {
        let bit = bit(device);
        bit != 0 && self.0.load(Relaxed) & bit == 0 && self.0.fetch_or(bit, Relaxed) & bit == 0
    }

    pub(crate) fn remove(&self, device: CUdevice) {
        self.0.fetch_and(!bit(device), Relaxed);
    }

    pub(crate) fn contains(&self, device: CUdevice) -> bool {
        self.0.load(Relaxed) & bit(device) != 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Relaxed) == 0
    }

    /// The members, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = CUdevice> {
        let members = self.0.load(Relaxed);
        (0..64).filter(move |device| members & bit(*device) != 0)
    }
}

/// A device's bit; 0 for an ordinal that is no member of any set.
fn bit(device: CUdevice) -> u64 {
    u32::try_from(device).ok().and_then(|device| 1u64.checked_shl(device)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    //! Hazard (out-of-bounds access): a device number beyond the set, or below 0, is taken for
    //! another device.
    use super::*;

    #[test]
    fn members_are_told_apart_and_other_numbers_are_none() {
        let set = DeviceSet::new();
        assert!(set.is_empty() && set.insert(63) && set.insert(0) && !set.insert(63));
        for outside in [-1, 64, CUdevice::MAX] {
            set.insert(outside);
            set.remove(outside);
            assert!(!set.contains(outside));
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63]);
        set.remove(0);
        assert!(set.contains(63) && !set.contains(0));
    }
}
