//! The answer to `blocks` as a table: blocks, and ranges of pieces.

use wm_schema::{BlockList, BytesByTier, DeviceBlocks, PieceEntry};

use crate::human::{bytes, count};
use crate::table::TextTable;

/// A row: memory of a device at an address, if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MemoryRow {
    device: i32,
    address: Option<u64>,
    kind: &'static str,
    bytes: u64,
    tiers: BytesByTier,
}

impl MemoryRow {
    fn cells(&self) -> [String; 7] {
        let sizes = [self.bytes, self.tiers.device, self.tiers.peer, self.tiers.host].map(bytes);
        let address = self.address.map_or_else(|| "-".to_owned(), |address| format!("{address:#x}"));
        let [size, device, peer, host] = sizes;
        [self.device.to_string(), address, size, device, peer, host, self.kind.to_owned()]
    }

    /// Takes a range in that begins where this one ends.
    fn grow(&mut self, next: &Self) -> bool {
        let end = self.address.and_then(|address| address.checked_add(self.bytes));
        let follows = end.is_some() && end == next.address;
        if follows {
            self.bytes = self.bytes.saturating_add(next.bytes);
            self.tiers.device = self.tiers.device.saturating_add(next.tiers.device);
            self.tiers.peer = self.tiers.peer.saturating_add(next.tiers.peer);
            self.tiers.host = self.tiers.host.saturating_add(next.tiers.host);
        }
        follows
    }
}

/// The live blocks and the ranges of mapped pieces, largest first.
pub(super) fn table(answer: &BlockList) -> String {
    let mut table =
        TextTable::new(&[">DEVICE", "ADDRESS", ">BYTES", ">ON DEVICE", ">ON PEERS", ">ON HOST", "KIND"]);
    let mut rows: Vec<MemoryRow> = answer.devices.iter().flat_map(of_device).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    rows.iter().for_each(|row| table.row(row.cells()));
    format!("{table}{}\n", totals(answer))
}

fn totals(answer: &BlockList) -> String {
    let blocks: Vec<u64> =
        answer.devices.iter().flat_map(|device| &device.blocks).map(|block| block.bytes).collect();
    let pieces: Vec<u64> =
        answer.devices.iter().flat_map(|device| &device.pieces).map(|piece| piece.bytes).collect();
    let total = |name: &str, sizes: &[u64]| {
        let sum = sizes.iter().copied().fold(0, u64::saturating_add);
        format!("{} {name}, {}", count(sizes.len() as u64), bytes(sum))
    };
    let mut parts = vec![total("blocks", &blocks)];
    parts.extend((!pieces.is_empty()).then(|| total("pieces", &pieces)));
    parts.join("; ")
}

fn of_device(device: &DeviceBlocks) -> Vec<MemoryRow> {
    let ordinal = device.ordinal;
    let block = |block: &wm_schema::BlockEntry| MemoryRow {
        device: ordinal,
        address: Some(block.address),
        kind: "block",
        bytes: block.bytes,
        tiers: block.tiers,
    };
    device.blocks.iter().map(block).chain(ranges(ordinal, &device.pieces)).collect()
}

/// Pieces whose addresses follow each other are one range, as a segment of PyTorch's is.
fn ranges(device: i32, pieces: &[PieceEntry]) -> Vec<MemoryRow> {
    let mut mapped: Vec<MemoryRow> = pieces.iter().flat_map(|piece| mappings(device, piece)).collect();
    mapped.sort_by_key(|row| row.address);
    let mut ranges: Vec<MemoryRow> = Vec::new();
    for row in mapped {
        let is_taken = ranges.last_mut().is_some_and(|last| last.grow(&row));
        if !is_taken {
            ranges.push(row);
        }
    }
    ranges
}

fn mappings(device: i32, piece: &PieceEntry) -> Vec<MemoryRow> {
    let row = |address, bytes| MemoryRow { device, address, kind: "pieces", bytes, tiers: on(piece, bytes) };
    if piece.mappings.is_empty() {
        return vec![row(None, piece.bytes)];
    }
    piece.mappings.iter().map(|range| row(Some(range.address), range.bytes)).collect()
}

/// So many bytes where the piece is, which has one place.
fn on(piece: &PieceEntry, bytes: u64) -> BytesByTier {
    let part = |of_tier: u64| if of_tier > 0 { bytes } else { 0 };
    let BytesByTier { device, peer, host } = piece.tiers;
    BytesByTier { device: part(device), peer: part(peer), host: part(host) }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): a piece is counted twice, or a range is shown where nothing is.
    use wm_schema::PieceRange;

    use super::*;

    fn piece(id: u64, host: bool, mapped: &[u64]) -> PieceEntry {
        let [device, host] = if host { [0, 16] } else { [16, 0] };
        let mappings = mapped.iter().map(|address| PieceRange { address: *address, bytes: 16 }).collect();
        PieceEntry { bytes: 16, id, tiers: BytesByTier { device, peer: 0, host }, mappings }
    }

    #[test]
    fn neighbours_are_one_range_and_a_piece_that_is_mapped_twice_counts_once() {
        let pieces = [
            piece(1, false, &[0x120]),
            piece(2, false, &[0x100, 0x200]),
            piece(3, true, &[0x110]),
            piece(4, true, &[]),
        ];
        let rows = ranges(0, &pieces);
        let shown: Vec<_> =
            rows.iter().map(|row| (row.address, row.bytes, row.tiers.device, row.tiers.host)).collect();
        assert_eq!(shown, [(None, 16, 0, 16), (Some(0x100), 48, 32, 16), (Some(0x200), 16, 16, 0)]);
        let device = DeviceBlocks { pieces: pieces.to_vec(), ..DeviceBlocks::default() };
        let list = BlockList { devices: vec![device], ..BlockList::default() };
        assert_eq!(totals(&list), "0 blocks, 0 B; 4 pieces, 64 B");
    }
}
