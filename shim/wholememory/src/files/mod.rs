//! Memory of all ranks from files and to files.
//!
//! A file has entries, one after the other, without anything between or around them. An entry's
//! place in memory may be larger; the bytes around it stay as they are.
//!
//! * [`plan`]: which entry goes where. * [`load`] and [`store`]: the calls. * `place`: entries in
//!   memory. * [`slices`]: work in phases, by threads. `direct`: reads past the kernel's cache.
//!   `replacement`: a file that replaces another one when it is complete. [`settings`]: the
//!   environment's settings of both.

mod direct;
pub mod load;
#[allow(unsafe_code, reason = "bytes of memory by their addresses")]
pub mod place;
pub mod plan;
mod replacement;
pub mod settings;
pub mod slices;
pub mod store;
