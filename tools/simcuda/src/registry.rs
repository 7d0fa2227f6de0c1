//! Handles: numbers for objects.
//!
//! Invariant: a number is never used twice in a process, so a stale handle is an error and not
//! another object. If the settings ask for it, handles are reused as in NVIDIA's driver, where the
//! handle of a destroyed object is soon another's.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::settings::settings;

/// The objects of one kind. Kinds have different tags, so that a handle of one kind is unknown to
/// all others.
#[derive(Debug)]
pub(crate) struct Registry<T> {
    tag: usize,
    next: AtomicUsize,
    /// Handles of removed objects, the latest last.
    spare: Mutex<Vec<usize>>,
    objects: RwLock<HashMap<usize, Arc<T>>>,
}

impl<T> Registry<T> {
    /// An empty registry whose handles carry `tag`.
    pub(crate) fn new(tag: usize) -> Self {
        Self { tag, next: AtomicUsize::new(1), spare: Mutex::default(), objects: RwLock::default() }
    }

    /// A fresh handle. Looks like an aligned pointer, as programs may expect.
    pub(crate) fn reserve(&self) -> usize {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.unwrap_or_else(|| self.fresh())
    }

    fn fresh(&self) -> usize {
        (self.tag << 40) | (self.next.fetch_add(1, Ordering::Relaxed) << 4)
    }

    /// Adds an object that knows its own handle.
    pub(crate) fn insert(&self, make: impl FnOnce(usize) -> T) -> (usize, Arc<T>) {
        let handle = self.reserve();
        let object = Arc::new(make(handle));
        self.enter(handle, Arc::clone(&object));
        (handle, object)
    }

    /// Adds an object under a handle from [`Self::reserve`].
    pub(crate) fn enter(&self, handle: usize, object: Arc<T>) {
        self.objects.write().unwrap_or_else(PoisonError::into_inner).insert(handle, object);
    }

    /// The object of a handle.
    pub(crate) fn get(&self, handle: usize) -> Option<Arc<T>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).get(&handle).cloned()
    }

    /// Forgets an object whose next life has the same handle.
    pub(crate) fn suspend(&self, handle: usize) -> Option<Arc<T>> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner).remove(&handle)
    }

    /// Forgets a handle.
    pub(crate) fn remove(&self, handle: usize) -> Option<Arc<T>> {
        let gone = self.suspend(handle);
        if gone.is_some() && settings().reuse_handles {
            self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
        }
        gone
    }

    /// Every present object.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Forgets every object that fails a test.
    pub(crate) fn retain(&self, keep: impl Fn(&T) -> bool) {
        let mut gone = Vec::new();
        self.objects.write().unwrap_or_else(PoisonError::into_inner).retain(|handle, object| {
            let keeps = keep(object);
            if !keeps {
                gone.push(*handle);
            }
            keeps
        });
        if settings().reuse_handles {
            gone.sort_unstable();
            self.spare.lock().unwrap_or_else(PoisonError::into_inner).append(&mut gone);
        }
    }
}
