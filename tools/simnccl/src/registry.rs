//! The communicators of the process, by their handles.
//!
//! No handle is used twice, so that a stale one is an error. A child of `fork` has none of its
//! parent's communicators, because their threads stay behind.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::abi::{Code, Handle, Outcome};
use crate::communicator::Communicator;
use crate::report::error;

/// See the file's text.
#[derive(Debug)]
pub(crate) struct Registry {
    communicators: Mutex<BTreeMap<Handle, Arc<Communicator>>>,
    next: AtomicUsize,
}

/// The process's one instance.
pub(crate) static REGISTRY: Registry = Registry::new();

impl Registry {
    const fn new() -> Self {
        Self { communicators: Mutex::new(BTreeMap::new()), next: AtomicUsize::new(1) }
    }

    pub(crate) fn insert(&self, communicator: Arc<Communicator>) -> Handle {
        let handle = Handle(self.next.fetch_add(1, Ordering::Relaxed) << 4);
        crate::lock(&self.communicators).insert(handle, communicator);
        handle
    }

    pub(crate) fn find(&self, handle: Handle) -> Outcome<Arc<Communicator>> {
        let found = crate::lock(&self.communicators).get(&handle).cloned();
        let found = found.ok_or_else(|| error(Code::INVALID_ARGUMENT, "no such communicator"))?;
        match found.process() == std::process::id() {
            true => Ok(found),
            false => Err(error(Code::INVALID_USAGE, "the communicator is of the process before fork")),
        }
    }

    /// Removes a communicator. Of several threads, one gets it.
    pub(crate) fn remove(&self, handle: Handle) -> Outcome<Arc<Communicator>> {
        let found = self.find(handle)?;
        let removed = crate::lock(&self.communicators).remove(&handle);
        removed.map_or_else(|| Err(error(Code::INVALID_ARGUMENT, "no such communicator")), |_| Ok(found))
    }
}
