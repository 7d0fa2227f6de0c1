//! Opens a CUDA driver by path, calls it, and puts its memory calls behind one trait.
//!
//! * [`search`], [`loader`], [`table`]: find the real library, open it past every interposer, hold
//!   its functions.
//! * [`api`]: these functions with Rust signatures, and handles that are released on drop.
//! * [`gpu`]: the contract between memory policy and mechanism; [`device`] is its real
//!   implementation.
//! * [`streams`]: unique names for streams, which outlive the driver's handles.
//! * [`share`]: physical memory between processes.
//! * [`cells`]: small copies in stream order between the device and host memory of ours.
//! * [`probe`]: the cost of our own driver calls.
//! * [`lock`]: how locks are taken.
//! * [`logger`]: log lines of the libraries, to stderr or a file.
//! * [`thread`]: threads of ours, which do not disturb the process; [`departure`]: they leave the
//!   driver before it ends.
//!
//! Invariant: every call goes through a [`Table`], never through this process's exports, so the
//! library never meets its own hooks.

mod actions;
pub mod api;
mod cache;
mod callbacks;
pub mod cells;
pub mod checkpoint;
mod copies;
mod copy_streams;
pub mod departure;
pub mod device;
pub mod dmem;
mod events;
pub mod gpu;
pub mod host;
pub mod interposer;
pub mod loader;
mod lock;
pub mod logger;
pub mod probe;
mod recording;
pub mod search;
pub mod share;
mod spares;
pub mod staging;
pub mod streams;
pub mod table;
pub mod thread;
mod windows;

pub use api::Api;
pub use callbacks::{Fingerprinting, ListContexts};
pub use cells::Cells;
pub use device::{Device, Unsupported};
pub use gpu::{Event, Gpu, Handle, KeyedFingerprint, LinkWay, OomAnswer, Shortfall, StreamId, Tier};
pub use loader::{Loader, NotADriver};
pub use lock::{lock, lock_soon};
pub use table::Table;
