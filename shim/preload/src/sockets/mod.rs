//! Local sockets in a process that is not ours: where they are, which users may be at the other end, and how the process is kept
//! from noticing them. For the statistics endpoint and for memory that is shared between processes.
//!
//! * [`private_folder`]: the user's private folder. * [`file`](mod@file): sockets that listen in it. * [`descriptor`]: what is open.

pub(crate) mod descriptor;
pub(crate) mod file;
pub(crate) mod private_folder;
