//! Facts of the process that every layer above may ask: the opened driver, whether the process has
//! forked or exits, the thread's `errno`, and the two cache lines that a call of the program reads.
//!
//! Nothing here decides, and nothing here knows a subsystem. A fact has one writer, which is named
//! at the fact.

pub(crate) mod callers;
mod device_set;
mod device_values;
mod driver;
mod errno;
mod flags;
pub(crate) mod hot;
pub(crate) mod own_memory;
mod signals;
mod site;
pub(crate) mod sticky_error;
pub(crate) mod torch_pools;

pub(crate) use device_set::DeviceSet;
pub(crate) use device_values::DeviceValues;
pub(crate) use driver::{CachedFn, driver, open_once, opened};
pub(crate) use errno::{preserve_errno, preserve_errno_at};
pub(crate) use flags::{
    detached, exiting, forked, record_exit, record_first_call, record_fork, set_detached,
};
pub(crate) use hot::{PROCESS_HOT, THREAD_HOT, streams};
pub(crate) use signals::SignalsHeld;
pub(crate) use site::{LastSite, Site, StreamKind};
