//! Constants of the protocol, equal on both sides.

/// Of this protocol. Both sides must speak the same.
pub const VERSION: u32 = 5;

/// Names, and descriptors, a packet. The kernel limits the descriptors of a message, and each side
/// has a limit of open ones.
pub const BATCH: usize = 32;

/// Leases that one packet gives back.
pub const RELEASES: usize = 256;

/// Names that one packet notes, or that have come.
pub const NOTES: usize = 256;

/// Names of copies in host memory that one packet asks for, or offers.
pub const COPIES: usize = 256;

/// Clients and devices that a report has room for.
pub const REPORTED: usize = 512;

/// Bytes of the longest packet: a report.
pub const LONGEST: usize = 64 + REPORTED * 48;

/// File name of the broker's socket, in the user's private folder.
pub const SOCKET: &str = "dedup.sock";

/// Opens every conversation.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"wm-dedup");
