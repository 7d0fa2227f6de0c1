//! What happens to a process besides calls: load, first call, fork, exit.
//!
//! At load: glibc's loader functions are found, the name `libcuda.so` is registered, PyTorch's back end is chosen
//! in the environment, and a fork handler is set. No thread, no log line, no driver. After a fork the child makes real
//! calls only: the driver does not survive a fork, and our locks may have been held by threads that are no more. Once exit
//! has begun, we make no driver call of our own: the driver may be gone before us.

use std::sync::atomic::{AtomicBool, Ordering};

use wm_driver::search;

use crate::glance::GLANCE;
use crate::{boundary, loader, torch};

static USED: AtomicBool = AtomicBool::new(false);

/// Is this the child of a process that had used CUDA?
#[inline]
pub(crate) fn forked() -> bool {
    GLANCE.forked.load(Ordering::Relaxed)
}

/// Has the process begun to exit?
#[inline]
pub(crate) fn exiting() -> bool {
    GLANCE.exiting.load(Ordering::Relaxed)
}

#[ctor::ctor(unsafe)]
fn at_load() {
    boundary::keep_errno(|| {
        loader::prepare();
        torch::choose();
        // SAFETY: a handler that stores one flag; it stays valid, for this library is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        if let Some(path) = search::own_path() {
            loader::register_name(&path);
        }
    });
}

extern "C" fn in_child() {
    // A child forked before the first call is an ordinary process: it may use CUDA, and us.
    if USED.load(Ordering::Relaxed) {
        GLANCE.forked.store(true, Ordering::Relaxed);
        crate::endpoint::forked();
        crate::ipc::forked();
    }
}

/// The first CUDA call of the process.
pub(crate) fn at_first_call() {
    USED.store(true, Ordering::Relaxed);
    // SAFETY: a handler without arguments that stays valid.
    unsafe { libc::atexit(at_exit) };
}

extern "C" fn at_exit() {
    GLANCE.exiting.store(true, Ordering::Relaxed);
    if !forked() {
        crate::multipath::stop();
        crate::ipc::stop();
        crate::endpoint::stop();
        crate::trace::finish();
        crate::guard::finish();
    }
}
