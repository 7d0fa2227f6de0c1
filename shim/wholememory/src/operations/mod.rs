//! What is done with rows by their numbers. Each operation is one or a few launches in the caller's stream: no host waits, and no
//! rank waits for another, since each reaches all rows by their addresses.

pub mod rows;
pub mod scratch;
pub mod sort;
#[allow(unsafe_code, reason = "memory of the device is copied and filled")]
pub(crate) mod upload;
