//! Words of the API: codes, descriptions of tensors, which rank has which rows, and which ranks
//! reach each other. Values; no I/O.

pub mod codes;
pub mod description;
pub mod islands;
pub mod partition;
