//! The 64 bytes of an IPC handle, as we fill them.

use wm_abi::CUipcMemHandle;

/// First bytes of every handle of ours; the driver's begin otherwise.
const MAGIC: [u8; 8] = *b"wmshim\0\x01";

/// Names one allocation of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ticket {
    /// The exporting process.
    pub(crate) pid: u32,
    /// The allocation, unique in that process.
    pub(crate) id: u64,
    /// Its first address there.
    pub(crate) address: u64,
    /// Known to those who were given a handle of that process.
    pub(crate) secret: u64,
}

impl Ticket {
    pub(crate) fn new(id: u64, address: u64, secret: u64) -> Self {
        Self { pid: std::process::id(), id, address, secret }
    }

    pub(crate) fn encode(&self) -> CUipcMemHandle {
        let mut reserved = [0; 64];
        reserved[..8].copy_from_slice(&MAGIC);
        reserved[8..12].copy_from_slice(&self.pid.to_le_bytes());
        for (position, word) in [self.id, self.address, self.secret].into_iter().enumerate() {
            reserved[16 + position * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        CUipcMemHandle { reserved }
    }

    /// `None` for a handle of the driver's.
    pub(crate) fn decode(handle: &CUipcMemHandle) -> Option<Self> {
        let bytes = &handle.reserved;
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        (bytes[..8] == MAGIC).then_some(())?;
        let pid = u32::from_le_bytes(bytes[8..12].try_into().ok()?);
        Some(Self { pid, id: word(16)?, address: word(24)?, secret: word(32)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_and_foreign_handles_are_not() {
        let ticket = Ticket::new(7, 0x7f00_0020_0000, 0xdead_beef_0000_0001);
        assert_eq!(Ticket::decode(&ticket.encode()), Some(ticket));
        assert_eq!(Ticket::decode(&CUipcMemHandle { reserved: [0x5a; 64] }), None);
    }
}
