//! What every hooked call looks at: one cache line of the process, one of the thread.
//!
//! Between two calls a program fills the caches with things of its own, so the price of a call that hits is the number of
//! lines it touches. The modules that own these values read and write them here and nowhere else; what a value
//! means is said there.
//!
//! Invariants: the process's line is written when something happens (a fork, a capture, a context's end), not when a call
//! does; both are written without a lock and need no first use.

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::transmute_copy;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, Ordering::Relaxed};

use libc::c_int;
use wm_abi::symbol::{self, Symbol};
use wm_driver::streams::Streams;

use crate::managers::Last;
use crate::state::driver;

/// The process's line: all but the end of [`Streams`], whose first fields are those that calls read.
#[repr(C, align(64))]
pub(crate) struct Glance {
    /// [`crate::lifecycle::forked`].
    pub(crate) forked: AtomicBool,
    /// [`crate::lifecycle::exiting`].
    pub(crate) exiting: AtomicBool,
    /// [`crate::health`]: some context may have failed.
    pub(crate) suspect: AtomicBool,
    /// [`crate::guard`]'s mode; 0 is off.
    pub(crate) guard: AtomicU8,
    /// [`crate::trace`]: what is asked of device memory is written down.
    pub(crate) traced: AtomicBool,
    /// [`crate::hooks`]' pools, a bit a device: the program chose another pool.
    pub(crate) replaced: AtomicU64,
    /// The same: the default pool has been allocated from.
    pub(crate) used: AtomicU64,
    /// Which context is current: asked at every allocation.
    pub(crate) current: Real<symbol::cuCtxGetCurrent>,
    /// [`crate::state::streams`].
    pub(crate) streams: Streams,
}

pub(crate) static GLANCE: Glance = Glance {
    forked: AtomicBool::new(false),
    exiting: AtomicBool::new(false),
    suspect: AtomicBool::new(false),
    guard: AtomicU8::new(0),
    traced: AtomicBool::new(false),
    replaced: AtomicU64::new(0),
    used: AtomicU64::new(0),
    current: Real::new(),
    streams: Streams::new(),
};

/// The thread's line.
#[repr(C, align(64))]
pub(crate) struct Mine {
    /// [`crate::boundary`]: the thread is in a handler.
    pub(crate) inside: Cell<bool>,
    errno: Cell<Option<&'static Cell<c_int>>>,
    /// [`crate::managers`]: where the thread's last call acted.
    pub(crate) last: Cell<Option<Last>>,
}

const _: () = assert!(size_of::<Mine>() == 64, "a thread's line is one line");
const _: () = assert!(std::mem::offset_of!(Glance, streams) + Streams::SEEN <= 64, "so is the process's");

thread_local! {
    /// No destructor, so there at any time of a thread's life.
    pub(crate) static MINE: Mine =
        const { Mine { inside: Cell::new(false), errno: Cell::new(None), last: Cell::new(None) } };
}

impl Mine {
    /// The thread's `errno`, whose address the C library is asked for once.
    #[inline]
    pub(crate) fn errno(&self) -> &'static Cell<c_int> {
        self.errno.get().unwrap_or_else(|| self.find_errno())
    }

    #[cold]
    #[inline(never)]
    fn find_errno(&self) -> &'static Cell<c_int> {
        let errno = errno();
        self.errno.set(Some(errno));
        errno
    }
}

/// The calling thread's `errno`. Not to be handed to another thread, which a `Cell` cannot be.
pub(crate) fn errno() -> &'static Cell<c_int> {
    // SAFETY: the address of the calling thread's errno is valid for the thread's life, and stays in the thread.
    unsafe { &*libc::__errno_location().cast::<Cell<c_int>>() }
}

/// A driver function's address beside what its callers look at anyway. The driver's table is asked once.
pub(crate) struct Real<S> {
    address: AtomicPtr<()>,
    of: PhantomData<fn() -> S>,
}

impl<S: Symbol> Real<S> {
    pub(crate) const fn new() -> Self {
        Self { address: AtomicPtr::new(std::ptr::null_mut()), of: PhantomData }
    }

    /// The function, as [`wm_driver::Table::get`] gives it.
    #[inline]
    pub(crate) fn get(&self) -> S::Function {
        const { assert!(size_of::<S::Function>() == size_of::<*mut ()>()) };
        let address = self.address.load(Relaxed);
        if address.is_null() {
            return self.look_up();
        }
        // SAFETY: `look_up` stored a function of this type here, and `Symbol` promises that it is a pointer.
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
