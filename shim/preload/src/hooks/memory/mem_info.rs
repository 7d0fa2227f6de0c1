//! The answer of `cuMemGetInfo` for a device, from the driver's figures and from the held bytes.
//! Pure.
//!
//! Invariant: the free bytes and the program's bytes, on whatever tier, are together at most the
//! total. Programs assert it (PyTorch does when cuDNN picks an algorithm). So bytes that went
//! elsewhere use the total up as if they were on the device, and only once more is held than a
//! device has does the total grow.

use wm_memory::TierBytes;

/// The program's memory on one device's account. Sizes are bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceAccount {
    /// In blocks of ours.
    pub(crate) live: TierBytes,
    /// Device memory that we hold and that no block uses.
    pub(crate) unused: u64,
    /// In physical memory that the program made itself.
    pub(crate) pieces: TierBytes,
    /// The user's limit.
    pub(crate) limit: u64,
}

/// Free and total bytes for the program, from the driver's.
pub(crate) fn mem_info(free: u64, total: u64, held: &DeviceAccount) -> (u64, u64) {
    let on_device = held.live.device.saturating_add(held.pieces.device);
    let all = on_device.saturating_add(held.live.elsewhere()).saturating_add(held.pieces.elsewhere());
    let total = total.max(all);
    let within_limit = held.limit.saturating_sub(on_device);
    (free.saturating_add(held.unused).min(within_limit).min(total - all), total)
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): a program that adds its own bytes to the free ones finds more than
    //! the total, and ends itself.
    use super::*;

    const GIB: u64 = 1 << 30;

    fn holdings(device: u64, host: u64, unused: u64) -> DeviceAccount {
        let live = TierBytes { device: device * GIB, peer: 0, host: host * GIB };
        DeviceAccount { live, unused: unused * GIB, pieces: TierBytes::default(), limit: u64::MAX }
    }

    #[test]
    fn what_we_hold_unused_is_free() {
        assert_eq!(mem_info(3 * GIB, 10 * GIB, &holdings(4, 0, 2)), (5 * GIB, 10 * GIB));
    }

    #[test]
    fn what_overflowed_uses_the_total_up_and_then_extends_it() {
        assert_eq!(mem_info(5 * GIB, 10 * GIB, &holdings(4, 2, 0)), (4 * GIB, 10 * GIB));
        assert_eq!(mem_info(0, 10 * GIB, &holdings(9, 6, 0)), (0, 15 * GIB));
    }

    #[test]
    fn the_users_limit_holds_for_blocks_and_pieces_together() {
        let pieces = TierBytes { device: GIB, peer: 0, host: 0 };
        let held = DeviceAccount { pieces, limit: 6 * GIB, ..holdings(4, 0, 0) };
        assert_eq!(mem_info(5 * GIB, 10 * GIB, &held), (GIB, 10 * GIB));
    }

    /// Every mix of held bytes, the absurd included: the sum never exceeds the total, and nothing
    /// overflows.
    #[test]
    fn free_and_held_are_never_more_than_the_total() {
        let sizes = [0, 1, GIB, 7 * GIB, 80 * GIB, u64::MAX / 2];
        let mixes = (0..sizes.len().pow(6))
            .map(|n| std::array::from_fn(|i| sizes[n / sizes.len().pow(i as u32) % sizes.len()]));
        for [free, live, host, pieces, elsewhere, limit] in mixes {
            let tiers = |device, host| TierBytes { device, peer: 0, host };
            let held = DeviceAccount {
                live: tiers(live, host),
                unused: GIB,
                pieces: tiers(pieces, elsewhere),
                limit,
            };
            let (left, total) = mem_info(free, 80 * GIB, &held);
            let all = [left, live, host, pieces, elsewhere].into_iter().fold(0u64, u64::saturating_add);
            assert!(all <= total, "{held:?}: {left} free of {total}");
        }
    }
}
