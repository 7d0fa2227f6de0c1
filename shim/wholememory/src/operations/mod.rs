//! What is done with rows by their numbers. Each operation is one or a few launches in the caller's stream: no host waits, and no
//! rank waits for another, since each reaches all rows by their addresses.

pub mod rows;
