//! The table of the real driver's functions. Internal driver calls go through it, never through our
//! exports.
//!
//! `entry/install.rs` opens the driver at the first CUDA call of the process; hooks run only behind
//! an opened one.

use std::marker::PhantomData;
use std::mem::transmute_copy;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use wm_abi::symbol::Symbol;
use wm_driver::Table;

static DRIVER: OnceLock<Option<Table>> = OnceLock::new();

/// The real driver's functions. Hooks run only where there is a driver.
pub(crate) fn driver() -> &'static Table {
    opened().expect("hooks are installed only behind an opened driver")
}

/// The real driver, if one has been opened in this process.
pub(crate) fn opened() -> Option<&'static Table> {
    DRIVER.get().and_then(Option::as_ref)
}

/// Opens the driver, unless that has been tried already.
pub(crate) fn open_once(open: impl FnOnce() -> Option<Table>) {
    DRIVER.get_or_init(open);
}

/// A driver function's address, in a cache line that its callers read anyway. The driver's table is
/// asked once.
pub(crate) struct CachedFn<S> {
    address: AtomicPtr<()>,
    of: PhantomData<fn() -> S>,
}

impl<S: Symbol> CachedFn<S> {
    pub(crate) const fn new() -> Self {
        Self { address: AtomicPtr::new(std::ptr::null_mut()), of: PhantomData }
    }

    /// Another function of the same type is to be called in its place. To be called before the
    /// first [`CachedFn::get`].
    pub(crate) fn replace(&self, address: *const ()) {
        self.address.store(address.cast_mut(), Relaxed);
    }

    /// The function, as [`wm_driver::Table::get`] gives it.
    #[inline]
    pub(crate) fn get(&self) -> S::Function {
        const { assert!(size_of::<S::Function>() == size_of::<*mut ()>()) };
        let address = self.address.load(Relaxed);
        if address.is_null() {
            return self.look_up();
        }
        // SAFETY: `look_up` stored a function of this type here, and `Symbol` promises that it is a
        // pointer.
        unsafe { transmute_copy(&address) }
    }

    #[cold]
    #[inline(never)]
    fn look_up(&self) -> S::Function {
        let function = driver().get::<S>();
        // SAFETY: a function pointer, of the size that `get` asserts.
        self.address.store(unsafe { transmute_copy::<S::Function, *mut ()>(&function) }, Relaxed);
        function
    }
}
