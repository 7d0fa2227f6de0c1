//! The numbers by which the broker knows clients and leases. None is given twice by one broker.

/// One use of a chunk by one client, or its wait for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseNumber(pub u64);

/// A client, for as long as it is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientNumber(pub(super) u64);
