//! When a line about memory that lies elsewhere is due, and its text. Pure.

use std::collections::BTreeMap;
use std::fmt;

use wm_abi::CUdevice;
use wm_driver::Tier;
use wm_memory::{Peaks, ReadableBytes};

/// Bytes of one device that lie elsewhere, by tier.
pub(super) type BytesElsewhere = BTreeMap<Tier, u64>;

/// When a line is due: at the first byte elsewhere, and from [`Notices::AMPLE`] on whenever twice
/// as much lies there as at the last line.
#[derive(Debug)]
pub(super) struct Notices {
    said: u32,
    next: u64,
}

impl Notices {
    pub(super) const NEW: Self = Self { said: 0, next: 1 };

    /// Lines of one process, without the one at its end.
    const MOST: u32 = 8;

    /// The least for a second line. Doublings of a few MiB would use up all lines before a program
    /// is slow: from here on they suffice for 64 GiB.
    const AMPLE: u64 = 1 << 30;

    /// Is a line due, with so many bytes elsewhere now? Counts the line.
    pub(super) fn is_due(&mut self, elsewhere: u64) -> bool {
        let is_due = elsewhere >= self.next && !self.are_over();
        if is_due {
            self.said += 1;
            self.next = elsewhere.saturating_mul(2).max(Self::AMPLE);
        }
        is_due
    }

    pub(super) fn has_begun(&self) -> bool {
        self.said > 0
    }

    pub(super) fn are_over(&self) -> bool {
        self.said == Self::MOST
    }
}

/// Where memory lies that is not on its device.
pub(super) fn whereabouts(places: &BTreeMap<CUdevice, BytesElsewhere>) -> String {
    let of_device = |(device, places): (&CUdevice, &BytesElsewhere)| {
        let parts: Vec<String> =
            places.iter().filter(|(_, bytes)| **bytes > 0).map(|(tier, bytes)| part(*tier, *bytes)).collect();
        (!parts.is_empty()).then(|| format!("of device {device} {}", parts.join(", ")))
    };
    places.iter().filter_map(of_device).collect::<Vec<_>>().join("; ")
}

fn part(tier: Tier, bytes: u64) -> String {
    let bytes = ReadableBytes(bytes);
    match tier {
        Tier::Device => format!("{bytes} on it"),
        Tier::Peer(other) => format!("{bytes} on device {other}"),
        Tier::Host => format!("{bytes} on the host"),
    }
}

/// The most that a program held of a device's memory, on the device and elsewhere.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needs {
    pub(super) peaks: Peaks,
    /// Blocks and pieces that were made elsewhere, in whole or in part. Others left the device
    /// later.
    pub(super) overflows: u64,
    /// Bytes of the device that stay free.
    pub(super) headroom: u64,
}

impl Needs {
    const NONE: Self = Self { peaks: Peaks::NONE, overflows: 0, headroom: 0 };

    fn was_elsewhere(&self) -> bool {
        self.overflows > 0 || self.peaks.tiers.elsewhere() > 0
    }

    /// Another time of the same memory: a device before and after a reset. Its manager counts on.
    fn or(&mut self, other: &Self) {
        self.peaks.join(&other.peaks);
        self.overflows = self.overflows.max(other.overflows);
        self.headroom = self.headroom.max(other.headroom);
    }

    /// The part of one device in the line.
    fn write(&self, device: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Peaks { tiers, total } = self.peaks;
        let bytes = ReadableBytes;
        write!(f, "of device {device}")?;
        if self.overflows > 0 {
            write!(f, " {} times,", self.overflows)?;
        }
        write!(f, " at most {} on it", bytes(tiers.device))?;
        for (there, place) in [(tiers.peer, "other devices"), (tiers.host, "the host")] {
            if there > 0 {
                write!(f, ", {} on {place}", bytes(there))?;
            }
        }
        write!(f, "; this program needs {} on device {device}", bytes(total))?;
        match self.headroom {
            0 => Ok(()),
            headroom => write!(f, ", beside {} that stay free (WMSHIM_HEADROOM)", bytes(headroom)),
        }
    }
}

/// The needs of every device, by its number. It is written as the line at the process's end, and
/// neither it nor the line has memory of the allocator.
#[derive(Debug, Clone, Copy)]
pub(super) struct NeedsByDevice([Needs; 64]);

impl NeedsByDevice {
    pub(super) const NONE: Self = Self([Needs::NONE; 64]);

    /// Another time of a device's memory.
    pub(super) fn add(&mut self, device: CUdevice, needs: &Needs) {
        if let Some(all) = usize::try_from(device).ok().and_then(|number| self.0.get_mut(number)) {
            all.or(needs);
        }
    }

    /// Devices with memory elsewhere.
    fn overflowed(&self) -> impl Iterator<Item = (usize, &Needs)> {
        self.0.iter().enumerate().filter(|(_, needs)| needs.was_elsewhere())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.overflowed().next().is_none()
    }
}

impl fmt::Display for NeedsByDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (device, needs) in self.overflowed() {
            f.write_str(between)?;
            needs.write(device, f)?;
            between = "; ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a terminal that is filled, or a program that is slow and does not say why.
    use super::*;
    use wm_memory::TierBytes;

    #[test]
    fn the_first_byte_and_each_doubling_are_said_and_eight_lines_are_enough() {
        let mut notices = Notices::NEW;
        assert!(!notices.is_due(0) && !notices.has_begun());
        assert!(notices.is_due(3) && !notices.is_due(6) && !notices.is_due((1 << 30) - 1), "that is little");
        assert!(
            notices.is_due(3 << 29) && !notices.is_due(5 << 29) && notices.is_due(6 << 29),
            "twice as much"
        );
        assert!(!notices.is_due(1) && !notices.is_due(6 << 29), "not again, when it has been less");
        let lines = (0..64).filter(|bit| notices.is_due(1 << bit)).count();
        assert!((lines, notices.are_over()) == (5, true));
        assert!(!notices.is_due(u64::MAX));
    }

    #[test]
    fn the_lines_suffice_for_the_memory_of_a_machine() {
        let mut notices = Notices::NEW;
        let due: Vec<u64> =
            (0..4096).map(|count| count * (64 << 20)).filter(|bytes| notices.is_due(*bytes)).collect();
        let gib = [1, 2, 4, 8, 16, 32, 64].map(|gib| gib << 30);
        assert_eq!(due, [&[64 << 20][..], &gib].concat());
    }

    #[test]
    fn each_place_is_named_and_what_is_nowhere_is_not() {
        let places = [(Tier::Peer(2), 4 << 20), (Tier::Host, 1 << 30)].into();
        let all = BTreeMap::from([(0, BytesElsewhere::from([(Tier::Host, 0)])), (1, places)]);
        assert_eq!(whereabouts(&all), "of device 1 4.0 MiB on device 2, 1.00 GiB on the host");
    }

    #[test]
    fn what_is_needed_is_the_most_of_any_time() {
        let needs = |device, host, total| {
            let peaks = Peaks { tiers: TierBytes { device, peer: 0, host }, total };
            Needs { peaks, overflows: 2, headroom: 0 }
        };
        let mut all = NeedsByDevice::NONE;
        all.add(0, &needs(8 << 20, 2 << 20, 9 << 20));
        all.add(0, &needs(4 << 20, 5 << 20, 6 << 20));
        assert_eq!(
            all.to_string(),
            "of device 0 2 times, at most 8.0 MiB on it, 5.0 MiB on the host; this program needs 9.0 MiB on device 0"
        );
        all.add(2, &Needs { headroom: 1 << 20, ..needs(1 << 20, 0, 1 << 20) });
        let second = "; of device 2 2 times, at most 1.0 MiB on it; this program needs 1.0 MiB on device 2, \
                      beside 1.0 MiB that stay free (WMSHIM_HEADROOM)";
        assert!(all.to_string().ends_with(second), "{all}");
        let mut evicted = NeedsByDevice::NONE;
        evicted.add(1, &Needs { overflows: 0, ..needs(2 << 20, 1 << 20, 3 << 20) });
        assert_eq!(
            evicted.to_string(),
            "of device 1 at most 2.0 MiB on it, 1.0 MiB on the host; this program needs 3.0 MiB on device 1",
            "all was made on the device, and a part left it"
        );
        all.add(-1, &needs(1, 1, 1));
        all.add(64, &needs(1, 1, 1));
        assert_eq!(all.overflowed().count(), 2, "other numbers are no device's");
    }
}
