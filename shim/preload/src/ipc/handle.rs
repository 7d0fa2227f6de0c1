//! The 64 bytes of an IPC handle, as we fill them.

use wm_abi::CUipcMemHandle;
use wm_trust::user;

use super::key::ExporterKey;

/// First bytes of every handle of ours; the driver's begin otherwise. The last is the version of
/// the exchange.
const MAGIC: [u8; 8] = *b"wmshim\0\x03";

/// Names one allocation of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ticket {
    /// The exporting process, as it numbers itself: for messages only. Two processes may have the
    /// same number.
    pub(crate) pid: u32,
    /// The user that it runs as.
    pub(crate) user: u32,
    /// The key by which the exporting process is recognised.
    pub(crate) key: ExporterKey,
    /// The allocation, unique in that process.
    pub(crate) id: u64,
    /// Its first address there.
    pub(crate) address: u64,
    /// Of pieces of `cuMemCreate`: the bytes of those that follow each other from that address on,
    /// the first of which has the number `id`. 0: a whole block.
    pub(crate) bytes: u64,
}

impl Ticket {
    /// For an allocation of this process.
    pub(crate) fn new(id: u64, address: u64, bytes: u64, key: ExporterKey) -> Self {
        Self { pid: std::process::id(), user: user::effective(), key, id, address, bytes }
    }

    pub(crate) fn encode(&self) -> CUipcMemHandle {
        let mut reserved = [0; 64];
        reserved[..8].copy_from_slice(&MAGIC);
        reserved[8..12].copy_from_slice(&self.pid.to_le_bytes());
        reserved[12..16].copy_from_slice(&self.user.to_le_bytes());
        reserved[16..24].copy_from_slice(&self.id.to_le_bytes());
        reserved[24..32].copy_from_slice(&self.address.to_le_bytes());
        reserved[32..48].copy_from_slice(&self.key.0);
        reserved[48..56].copy_from_slice(&self.bytes.to_le_bytes());
        CUipcMemHandle { reserved }
    }

    /// `None` for a handle of the driver's.
    pub(crate) fn decode(handle: &CUipcMemHandle) -> Option<Self> {
        let rest = handle.reserved.strip_prefix(&MAGIC)?;
        let (pid, rest) = rest.split_first_chunk()?;
        let (user, rest) = rest.split_first_chunk()?;
        let (id, rest) = rest.split_first_chunk()?;
        let (address, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_first_chunk()?;
        let (bytes, _) = rest.split_first_chunk()?;
        Some(Self {
            pid: u32::from_le_bytes(*pid),
            user: u32::from_le_bytes(*user),
            key: ExporterKey(*key),
            id: u64::from_le_bytes(*id),
            address: u64::from_le_bytes(*address),
            bytes: u64::from_le_bytes(*bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (corrupt input): a handle is not read as it was written.
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_and_foreign_handles_are_not() {
        let ticket = Ticket::new(
            7,
            0x7f00_0020_0000,
            40 << 20,
            ExporterKey(std::array::from_fn(|position| position as u8)),
        );
        assert_eq!(Ticket::decode(&ticket.encode()), Some(ticket));
        assert_eq!(Ticket::decode(&CUipcMemHandle { reserved: [0x5a; 64] }), None);
    }
}
