//! The events of a process besides calls: load, first call, fork, exit.
//!
//! At load, glibc's loader functions are looked up, PyTorch's allocator is chosen in the
//! environment, a fork handler is set, and the name `libcuda.so` is registered: no thread, no log
//! line, no driver. `process/flags.rs` says what a fork and the exit forbid.

use std::time::Duration;

use wm_driver::{departure, interposer};

use super::loader;
use crate::pauses::Pauses;
use crate::process::{self, preserve_errno};
use crate::subsystems::PROCESS;
use crate::{black_box, multipath};

#[ctor::ctor(unsafe)]
fn at_load() {
    preserve_errno(|| {
        loader::prepare();
        PROCESS.torch.choose();
        // SAFETY: a handler that stores one flag; it stays valid, for this library is never
        // unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        if let Some(path) = interposer::own_path() {
            loader::register_name(&path);
        }
    });
}

extern "C" fn in_child() {
    if process::record_fork() {
        black_box::forked();
        PROCESS.endpoint.forked();
        PROCESS.ipc.forked();
    }
}

/// The first CUDA call of the process.
pub(super) fn at_first_call() {
    process::record_first_call();
    departure::before_exit(at_exit);
}

/// The longest that the exit waits for driver calls of our own threads. The slowest of these makes
/// a context: half a second at most on an idle machine.
const DEPARTURE: Duration = Duration::from_secs(3);

/// Waits for no lock without a bound: the exit may have begun in a signal handler, on a thread that
/// holds one.
extern "C" fn at_exit() {
    if process::record_exit() && !process::forked() {
        Pauses::stop(PROCESS.paused_parts());
        PROCESS.turns.stop();
        PROCESS.sharing.stop();
        multipath::stop();
        PROCESS.ipc.stop();
        PROCESS.endpoint.stop();
        departure::close(DEPARTURE);
        PROCESS.trace.finish();
        PROCESS.profile.finish();
        PROCESS.guard.finish();
        PROCESS.overflow.finish();
        black_box::finish();
    }
}
