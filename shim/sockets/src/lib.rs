//! Local sockets in a process that is not ours: the statistics endpoint, shared memory, the ranks
//! of WholeMemory.
//!
//! * [`private_folder`]: the user's private folder.
//! * [`file`](mod@file): sockets that listen at a path.
//! * [`descriptor`]: the descriptors that are open, which the host program must not lose or
//!   inherit.
//! * [`packet`]: bytes and descriptors that one message carries (`SCM_RIGHTS`).

pub mod descriptor;
pub mod file;
pub mod packet;
pub mod private_folder;
