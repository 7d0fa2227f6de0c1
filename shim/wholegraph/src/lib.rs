//! `libwholegraph.so`: the C API of WholeMemory, for programs that do not preload wmshim.
//!
//! Everything is in `wm-wholememory`; this is its form as a shared library.

// Its functions are exported because it is linked.
use wm_wholememory as _;
