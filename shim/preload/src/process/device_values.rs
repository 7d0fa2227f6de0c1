//! A number for each device, which threads change without a lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wm_abi::CUdevice;

/// By ordinal, 0 to 63: more than any machine has.
#[derive(Debug)]
pub(crate) struct DeviceValues([AtomicU64; 64]);

impl DeviceValues {
    /// All devices have the same value.
    pub(crate) const fn new(value: u64) -> Self {
        let mut values = [const { AtomicU64::new(0) }; 64];
        let mut device = 0;
        while device < values.len() {
            values[device] = AtomicU64::new(value);
            device += 1;
        }
        Self(values)
    }

    /// A device's value; `None` for an ordinal that no machine has.
    pub(crate) fn get(&self, device: CUdevice) -> Option<u64> {
        self.slot(device).map(|slot| slot.load(Relaxed))
    }

    pub(crate) fn set(&self, device: CUdevice, value: u64) {
        if let Some(slot) = self.slot(device) {
            slot.store(value, Relaxed);
        }
    }

    fn slot(&self, device: CUdevice) -> Option<&AtomicU64> {
        self.0.get(usize::try_from(device).ok()?)
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (out-of-bounds access): a device number that no machine has.
    use super::*;

    #[test]
    fn each_device_has_its_own_value_and_other_numbers_have_none() {
        let values = DeviceValues::new(7);
        values.set(63, 8);
        assert_eq!([0, 62, 63].map(|device| values.get(device)), [Some(7), Some(7), Some(8)]);
        for outside in [-1, 64, CUdevice::MAX] {
            values.set(outside, 9);
            assert_eq!(values.get(outside), None);
        }
    }
}
