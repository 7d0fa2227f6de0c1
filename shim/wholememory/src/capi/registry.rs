//! The objects of handles.
//!
//! A handle is a number in the shape of a pointer that is never used twice, and never dereferenced:
//! a handle that was closed, or was never given out, is an error.

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use dashmap::DashMap;
use wm_driver::{NotADriver, Table};

use crate::communicator::Communicator;
use crate::embedding::Embedding;
use crate::embedding::optimizer::Optimizer;
use crate::embedding::policy::CachePolicy;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::tensor::Tensor;

/// A handle of any kind, as C has it.
pub(super) type ObjectHandle = *mut c_void;

/// The next handle of all kinds: a handle of one kind is none of another.
static NEXT: AtomicUsize = AtomicUsize::new(STEP);

/// The distance between handles: they look like aligned pointers.
const STEP: usize = 16;

/// Objects of one kind.
pub(super) struct Registry<T> {
    what: &'static str,
    objects: LazyLock<DashMap<NonZeroUsize, Arc<T>>>,
}

pub(super) static COMMUNICATORS: Registry<Communicator> = Registry::new("communicator");
pub(super) static MEMORIES: Registry<Memory> = Registry::new("memory handle");
pub(super) static TENSORS: Registry<Tensor> = Registry::new("tensor");
pub(super) static EMBEDDINGS: Registry<Embedding> = Registry::new("embedding");
pub(super) static OPTIMIZERS: Registry<Optimizer> = Registry::new("optimizer");
pub(super) static POLICIES: Registry<CachePolicy> = Registry::new("cache policy");

impl<T> Registry<T> {
    const fn new(what: &'static str) -> Self {
        Self { what, objects: LazyLock::new(DashMap::new) }
    }

    /// A handle for an object.
    pub(super) fn add(&self, object: Arc<T>) -> ObjectHandle {
        let number = NonZeroUsize::new(NEXT.fetch_add(STEP, Ordering::Relaxed)).unwrap_or(NonZeroUsize::MAX);
        self.objects.insert(number, object);
        number.get() as ObjectHandle
    }

    /// The handle that an object has, or a new one.
    pub(super) fn handle_of(&self, object: &Arc<T>) -> ObjectHandle {
        self.find(object).unwrap_or_else(|| self.add(Arc::clone(object)))
    }

    /// The handle that an object has.
    pub(super) fn find(&self, object: &Arc<T>) -> Option<ObjectHandle> {
        let found = self.objects.iter().find(|entry| Arc::ptr_eq(entry.value(), object));
        found.map(|entry| entry.key().get() as ObjectHandle)
    }

    /// The object of a handle.
    pub(super) fn get(&self, handle: ObjectHandle) -> Result<Arc<T>> {
        let number = NonZeroUsize::new(handle as usize);
        let found =
            number.and_then(|number| self.objects.get(&number).map(|entry| Arc::clone(entry.value())));
        found.ok_or_else(|| self.unknown(handle))
    }

    /// Closes a handle.
    pub(super) fn close(&self, handle: ObjectHandle) -> Result<Arc<T>> {
        let number = NonZeroUsize::new(handle as usize);
        let closed = number.and_then(|number| self.objects.remove(&number).map(|(_, object)| object));
        closed.ok_or_else(|| self.unknown(handle))
    }

    /// Closes the handle of an object, if it has one.
    pub(super) fn forget(&self, object: &Arc<T>) {
        self.objects.retain(|_, other| !Arc::ptr_eq(other, object));
    }

    /// Closes all handles.
    pub(super) fn clear(&self) {
        let all: Vec<_> = self.objects.iter().map(|entry| *entry.key()).collect();
        all.into_iter().for_each(|number| drop(self.objects.remove(&number)));
    }

    /// How many are open.
    pub(super) fn count(&self) -> usize {
        self.objects.len()
    }

    fn unknown(&self, handle: ObjectHandle) -> Error {
        Error::Input(format!("{handle:p} is no open {}", self.what))
    }
}

/// The driver as this process has it: under the preloaded library, that one, so memory is of its
/// pool.
pub(super) fn driver() -> Result<&'static Table> {
    static DRIVER: OnceLock<Result<Table, NotADriver>> = OnceLock::new();
    DRIVER.get_or_init(Table::of_process).as_ref().map_err(|reason| Error::NotSupported(reason.to_string()))
}
