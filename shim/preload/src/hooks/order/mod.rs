//! Contexts, and the waits of the host.

pub(in crate::hooks) mod context;
pub(in crate::hooks) mod wait;
