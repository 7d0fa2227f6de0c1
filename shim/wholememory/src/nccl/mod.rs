//! NCCL, by which rows pass between islands.
//!
//! It is opened when memory first spans several islands: the process's own NCCL if one is loaded
//! (PyTorch's), so that a process has one. Nothing here knows of ranks' memory.
//!
//! * [`library`]: its functions. * [`link`]: a communicator.

mod abi;
#[allow(unsafe_code, reason = "another library is opened, and its functions are called")]
pub mod library;
#[allow(unsafe_code, reason = "NCCL's functions are called")]
pub mod link;
