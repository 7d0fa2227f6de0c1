//! The endpoint's one thread.
//!
//! Made with `pthread_create` rather than the standard library's threads: those leave thread-local state with
//! destructors behind in the thread that spawns, and that thread is the host's.

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;

use super::server::Server;

/// The thread parses short lines and formats JSON: little stack will do.
const STACK_BYTES: usize = 256 << 10;

/// Runs the server on a detached thread with all signals blocked.
///
/// # Errors
/// Those of `pthread_create`; the server is dropped.
pub(super) fn spawn(server: Server) -> io::Result<()> {
    let argument = Box::into_raw(Box::new(server));
    let outcome = with_signals_blocked(|| create(argument.cast()));
    if outcome == 0 {
        return Ok(());
    }
    // SAFETY: no thread was made, so the box is still ours alone.
    drop(unsafe { Box::from_raw(argument) });
    Err(io::Error::from_raw_os_error(outcome))
}

/// `pthread_create`, detached and with a small stack. Returns its error number.
fn create(argument: *mut c_void) -> i32 {
    let mut thread = MaybeUninit::uninit();
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let attributes = attributes.as_mut_ptr();
    // SAFETY: the attributes are initialised before and destroyed after use; `main` takes what `spawn` boxed.
    unsafe {
        libc::pthread_attr_init(attributes);
        libc::pthread_attr_setdetachstate(attributes, libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(attributes, STACK_BYTES);
        let outcome = libc::pthread_create(thread.as_mut_ptr(), attributes, main, argument);
        libc::pthread_attr_destroy(attributes);
        outcome
    }
}

extern "C" fn main(argument: *mut c_void) -> *mut c_void {
    // SAFETY: names the calling thread; 13 bytes with the terminator, of 16 allowed.
    unsafe { libc::pthread_setname_np(libc::pthread_self(), c"wmshim-stats".as_ptr()) };
    // SAFETY: `spawn` boxed it for this thread.
    let server = unsafe { Box::from_raw(argument.cast::<Server>()) };
    // A panic must stop here: unwinding out of a thread's first function would abort the host.
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| server.run())).is_err() {
        log::warn!("statistics: the endpoint failed and is off; the program goes on");
    }
    std::ptr::null_mut()
}

/// A new thread inherits the mask of the one that makes it: blocked meanwhile, restored after.
fn with_signals_blocked<T>(body: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are written before they are read.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let result = body();
    // SAFETY: `pthread_sigmask` filled `before`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    result
}
