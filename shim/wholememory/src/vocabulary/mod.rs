//! Words of the API: codes, descriptions of tensors, and which rank has which rows. Values; no I/O.

pub mod codes;
pub mod description;
pub mod partition;
