//! Where the process enters the library, and the only code that knows all of it: loading, the first
//! call, fork and exit.
//!
//! [`trampolines`] are the exported driver functions, [`loader`] the exported `dlopen`. [`install`]
//! opens the driver and connects each trampoline with a hook or the real function; [`lifecycle`]
//! tells the subsystems of a fork and of the exit. No layer below imports this one: hooks get the
//! trampolines as a value when they are installed.

mod install;
mod lifecycle;
mod loader;
pub(crate) mod trampolines;
