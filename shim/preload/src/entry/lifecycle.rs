//! What happens to a process besides calls: load, first call, fork, exit.
//!
//! At load, glibc's loader functions are looked up, PyTorch's allocator is chosen in the environment, a fork handler is set, and
//! the name `libcuda.so` is registered: no thread, no log line, no driver. What a fork and the exit forbid is said in
//! `process/flags.rs`.

use wm_driver::interposer;

use super::loader;
use crate::process::{self, keep_errno};
use crate::{dedup, endpoint, guard, ipc, multipath, torch, trace};

#[ctor::ctor(unsafe)]
fn at_load() {
    keep_errno(|| {
        loader::prepare();
        torch::choose();
        // SAFETY: a handler that stores one flag; it stays valid, for this library is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        if let Some(path) = interposer::own_path() {
            loader::register_name(&path);
        }
    });
}

extern "C" fn in_child() {
    if process::note_fork() {
        endpoint::forked();
        ipc::forked();
    }
}

/// The first CUDA call of the process.
pub(super) fn at_first_call() {
    process::note_use();
    // SAFETY: a handler without arguments that stays valid.
    unsafe { libc::atexit(at_exit) };
}

extern "C" fn at_exit() {
    process::note_exit();
    if !process::forked() {
        dedup::stop();
        multipath::stop();
        ipc::stop();
        endpoint::stop();
        trace::finish();
        guard::finish();
    }
}
