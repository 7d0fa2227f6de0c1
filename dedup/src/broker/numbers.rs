//! The numbers by which the broker knows clients, leases and segments. None is given twice by one
//! broker.

/// One use of a chunk by one client, or its wait for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseNumber(pub u64);

/// A client, for as long as it is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientNumber(pub(super) u64);

/// A process that uses copies in host memory, for as long as it is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeeperNumber(pub(super) u64);

/// A segment of host memory that holds copies. It means nothing to another broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentNumber(pub u64);
