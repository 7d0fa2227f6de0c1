//! The parts of every handler: the boundary to the program, the real functions, streams, and the
//! retry after an out-of-memory.

pub(in crate::hooks) mod arrays;
pub(in crate::hooks) mod boundary;
pub(in crate::hooks) mod exports;
pub(in crate::hooks) mod initialise;
pub(in crate::hooks) mod lookup;
pub(in crate::hooks) mod oom;
pub(in crate::hooks) mod stream;
