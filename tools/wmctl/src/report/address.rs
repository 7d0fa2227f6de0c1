//! The address space: which live ranges lie beside each other, and the holes between them. Pure.

use super::model::{HeldRange, SizeClass};

/// The longest hole. What lies further apart is of two regions.
pub(crate) const LONGEST_HOLE: u64 = 64 << 20;

/// Live ranges with no more than a hole between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AddressRegion {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Live ranges, and the bytes that they cover.
    pub(crate) ranges: Vec<HeldRange>,
    pub(crate) live: u64,
}

impl AddressRegion {
    pub(crate) fn bytes(&self) -> u64 {
        self.to - self.from
    }

    /// How much of each of so many parts is live, from 0 to 1, and how much of that is elsewhere.
    pub(crate) fn filled(&self, parts: usize) -> Vec<[f64; 2]> {
        let mut filled = vec![[0.0; 2]; parts];
        let part = self.bytes() as f64 / parts as f64;
        if part <= 0.0 {
            return filled;
        }
        let mut covered = self.from;
        for range in &self.ranges {
            let from = (range.address.max(covered) - self.from) as f64 / part;
            let to = (range.end().max(covered) - self.from) as f64 / part;
            covered = covered.max(range.end());
            let elsewhere = (range.elsewhere.min(range.bytes) as f64) / range.bytes.max(1) as f64;
            for (index, cell) in filled.iter_mut().enumerate().skip(from as usize) {
                let share = (to.min(index as f64 + 1.0) - from.max(index as f64)).max(0.0);
                cell[0] += share;
                cell[1] += share * elsewhere;
                if to <= index as f64 + 1.0 {
                    break;
                }
            }
        }
        filled
    }
}

/// Regions by address. `ranges` are in the order of their addresses; those without one are left
/// out.
pub(crate) fn regions(ranges: &[HeldRange]) -> Vec<AddressRegion> {
    let mut regions: Vec<AddressRegion> = Vec::new();
    for range in ranges.iter().filter(|range| range.address > 0 && range.bytes > 0) {
        match regions.last_mut() {
            Some(region) if range.address.saturating_sub(region.to) <= LONGEST_HOLE => {
                region.live += range.end().saturating_sub(range.address.max(region.to));
                region.to = region.to.max(range.end());
                region.ranges.push(*range);
            }
            _ => regions.push(AddressRegion {
                from: range.address,
                to: range.end(),
                ranges: vec![*range],
                live: range.end() - range.address,
            }),
        }
    }
    regions
}

/// The holes in a region, by address: first address and bytes.
pub(crate) fn holes(region: &AddressRegion) -> impl Iterator<Item = (u64, u64)> {
    let mut covered = region.from;
    region.ranges.iter().filter_map(move |range| {
        let hole = (covered, range.address.saturating_sub(covered));
        covered = covered.max(range.end());
        (hole.1 > 0).then_some(hole)
    })
}

/// The class of a size: the power of two that is not above it.
pub(crate) fn class_of(bytes: u64) -> u64 {
    1 << bytes.max(1).ilog2()
}

/// The classes of live ranges and of the holes between them. `allocations`: how many there were of
/// each class, by its power.
pub(crate) fn classes(ranges: &[HeldRange], allocations: &[u64; 64]) -> Vec<SizeClass> {
    let mut classes: Vec<SizeClass> = (0..64)
        .map(|power| SizeClass { from: 1 << power, allocations: allocations[power], ..SizeClass::default() })
        .collect();
    for range in ranges.iter().filter(|range| range.bytes > 0) {
        let class = &mut classes[range.bytes.ilog2() as usize];
        class.live += 1;
        class.live_bytes = class.live_bytes.saturating_add(range.bytes);
    }
    for (_, bytes) in regions(ranges).iter().flat_map(holes) {
        let class = &mut classes[bytes.ilog2() as usize];
        class.holes += 1;
        class.hole_bytes = class.hole_bytes.saturating_add(bytes);
    }
    classes.retain(|class| class.allocations + class.live + class.holes > 0);
    classes
}
