//! The library's own threads, in a host process.
//!
//! This module starts all of them. A thread of ours takes none of the program's signals except
//! those that the thread itself raises by a fault: if a thread blocks such a signal, the kernel
//! ends the process when it is raised. It cannot be cancelled, its name says that it is ours, and
//! its stack has a known size beside the program's own thread-locals. It is created with
//! `pthread_create` rather than the standard library's threads: those leave thread-local state with
//! destructors behind in the spawning thread, and that thread is the host's. A panic ends only the
//! thread and is one line in the log.

use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::departure;

/// The arguments of a new thread.
struct Start<F> {
    name: &'static CStr,
    body: F,
}

/// Runs `body` on a detached thread with `stack` bytes of stack. `name` has at most 15 bytes.
///
/// # Errors
/// Those of `pthread_create`; `body` is dropped.
pub fn spawn(name: &'static CStr, stack: usize, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    departure::thread_starts();
    create(libc::PTHREAD_CREATE_DETACHED, stack, Start { name, body }).map(drop)
}

/// Runs `here` on this thread and each of `others` on one of its own, as [`spawn`] makes them, and
/// returns when all have ended. If a thread cannot be created, its function does not run.
pub fn beside<F: FnOnce() + Send>(
    name: &'static CStr,
    stack: usize,
    others: impl IntoIterator<Item = F>,
    here: impl FnOnce(),
) {
    let make = |body| create(libc::PTHREAD_CREATE_JOINABLE, stack, Start { name, body }).ok();
    let mut threads = Joined(Vec::new());
    for body in others {
        threads.0.extend(make(body));
    }
    here();
}

/// The kernel's number of a thread, which the kernel may reuse once the thread has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelThread(libc::pid_t);

impl KernelThread {
    /// The calling thread.
    #[must_use]
    pub fn current() -> Self {
        // SAFETY: a system call without arguments.
        Self(unsafe { libc::gettid() })
    }

    /// The thread with this number.
    #[must_use]
    pub const fn numbered(number: i32) -> Self {
        Self(number)
    }

    /// The number, which is positive.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0
    }

    /// Is there no thread of this process with the number? A later thread with the same number
    /// hides the end.
    #[must_use]
    pub fn has_ended(self) -> bool {
        // SAFETY: no signal is sent; the call only checks whether one could be.
        let found = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.0, 0) };
        found != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
    }
}

unsafe extern "C" {
    /// A function of the C library; a state is 0 (enabled) or 1 (disabled).
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE`.
const UNCANCELLED: c_int = 1;

/// The calling thread is not cancelled while this lives: a cancellation would unwind from a call of
/// the C library through frames that cannot be unwound. It stays pending until the program's next
/// cancellation point.
pub struct Uncancelled(c_int);

impl Uncancelled {
    /// Disables cancellation from now on.
    #[inline]
    #[allow(clippy::new_without_default, reason = "it acts upon the thread")]
    pub fn new() -> Self {
        let mut before = 0;
        // SAFETY: acts upon the calling thread alone; the out-pointer is to a live local.
        unsafe { pthread_setcancelstate(UNCANCELLED, &mut before) };
        Self(before)
    }
}

impl Drop for Uncancelled {
    #[inline]
    fn drop(&mut self) {
        // If cancellation was disabled before, nothing has changed.
        if self.0 != UNCANCELLED {
            // SAFETY: restores the state that `new` found.
            unsafe { pthread_setcancelstate(self.0, std::ptr::null_mut()) };
        }
    }
}

/// Threads that borrow from their creator, which waits for them on every way out.
struct Joined(Vec<libc::pthread_t>);

impl Drop for Joined {
    fn drop(&mut self) {
        for thread in self.0.drain(..) {
            // SAFETY: made joinable by `beside`, and joined once, here.
            unsafe { libc::pthread_join(thread, std::ptr::null_mut()) };
        }
    }
}

/// Starts a thread. A joinable one must be joined before any value ends that `F` borrows.
fn create<F: FnOnce() + Send>(state: c_int, stack: usize, start: Start<F>) -> io::Result<libc::pthread_t> {
    let argument = Box::into_raw(Box::new(start));
    let mut thread = MaybeUninit::uninit();
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let attributes = attributes.as_mut_ptr();
    // SAFETY: the attributes are initialised before and destroyed after use; `main` takes the box.
    let outcome = unsafe {
        libc::pthread_attr_init(attributes);
        libc::pthread_attr_setdetachstate(attributes, state);
        libc::pthread_attr_setstacksize(attributes, stack + least_stack(attributes));
        let make = || libc::pthread_create(thread.as_mut_ptr(), attributes, main::<F>, argument.cast());
        let outcome = with_signals_blocked(make);
        libc::pthread_attr_destroy(attributes);
        outcome
    };
    if outcome != 0 {
        // SAFETY: no thread was started, so the box is still ours alone.
        drop(unsafe { Box::from_raw(argument) });
        return Err(io::Error::from_raw_os_error(outcome));
    }
    // SAFETY: written by the call that succeeded.
    Ok(unsafe { thread.assume_init() })
}

/// The bytes that the C library takes of a thread's stack: the thread-locals of every library of
/// the process are there.
fn least_stack(attributes: *const libc::pthread_attr_t) -> usize {
    type Least = unsafe extern "C" fn(*const libc::pthread_attr_t) -> usize;
    // SAFETY: a look-up by name; glibc's function has this type.
    let function = unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"__pthread_get_minstack".as_ptr());
        std::mem::transmute::<*mut c_void, Option<Least>>(found)
    };
    // SAFETY: the attributes are initialised.
    function
        .map_or(libc::PTHREAD_STACK_MIN, |function| unsafe { function(attributes) })
        .next_multiple_of(4096)
}

extern "C" fn main<F: FnOnce() + Send>(argument: *mut c_void) -> *mut c_void {
    // SAFETY: `create` boxed it for this thread.
    let Start { name, body } = *unsafe { Box::from_raw(argument.cast::<Start<F>>()) };
    let _whole = Uncancelled::new();
    departure::mark_thread();
    // SAFETY: names the calling thread; a name that is too long is refused.
    unsafe { libc::pthread_setname_np(libc::pthread_self(), name.as_ptr()) };
    // A panic that leaves a thread's first function would abort the host.
    if catch_unwind(AssertUnwindSafe(body)).is_err() {
        log::warn!(
            "a thread of wmshim ({}) panicked and has ended; the program goes on",
            name.to_string_lossy()
        );
    }
    std::ptr::null_mut()
}

/// Signals that an instruction raises in the thread that executes it.
const FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// A new thread inherits the mask of its creator: signals are blocked meanwhile and restored after.
/// A fault that the creator does not block stays unblocked in the new thread.
fn with_signals_blocked<T>(body: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are written before they are read.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), before.as_mut_ptr());
        libc::sigfillset(all.as_mut_ptr());
        for signal in FAULTS {
            if libc::sigismember(before.as_ptr(), signal) == 0 {
                libc::sigdelset(all.as_mut_ptr(), signal);
            }
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
    }
    let result = body();
    // SAFETY: `pthread_sigmask` filled `before`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    result
}

#[cfg(test)]
mod tests {
    //! Hazards: a signal handler of the host runs on a thread of ours, or a fault there kills a
    //! process that would handle it; a borrowed value ends before its thread; a panic of ours ends
    //! the process.
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    const STACK: usize = 64 << 10;

    /// Signals that the calling thread does not block, except the two that cannot be blocked.
    fn unblocked() -> Vec<c_int> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: reads the mask, then each signal of the filled set.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), set.as_mut_ptr());
            let open = |signal: &c_int| libc::sigismember(set.as_ptr(), *signal) == 0;
            (1..32).filter(|signal| ![libc::SIGKILL, libc::SIGSTOP].contains(signal)).filter(open).collect()
        }
    }

    fn name() -> String {
        std::fs::read_to_string("/proc/thread-self/comm").expect("a name").trim_end().to_owned()
    }

    #[test]
    fn a_thread_has_its_name_and_takes_no_signal_but_its_own_faults_and_its_maker_takes_them_again() {
        let mut faults = FAULTS.to_vec();
        faults.sort_unstable();
        let before = unblocked();
        let (send, receive) = mpsc::channel();
        spawn(c"wm-test", STACK, move || send.send((name(), unblocked())).expect("heard")).expect("a thread");
        assert_eq!(receive.recv().expect("it ran"), ("wm-test".to_owned(), faults));
        assert_eq!(unblocked(), before);
    }

    #[test]
    fn threads_beside_may_borrow_and_have_ended_when_it_returns() {
        let (sum, calls) = (Mutex::new(0), AtomicUsize::new(0));
        let others = (1..=5).map(|number| {
            let (sum, calls) = (&sum, &calls);
            move || {
                *sum.lock().expect("no panic") += number;
                calls.fetch_add(1, Ordering::Relaxed);
            }
        });
        beside(c"wm-test", STACK, others, || *sum.lock().expect("no panic") += 100);
        assert_eq!((sum.into_inner().expect("no panic"), calls.into_inner()), (115, 5));
    }

    #[test]
    fn a_panic_ends_its_thread_alone_and_one_here_waits_for_the_others() {
        let ran = AtomicUsize::new(0);
        let others = [(); 3].map(|()| {
            let ran = &ran;
            move || {
                ran.fetch_add(1, Ordering::Relaxed);
                panic!("on purpose");
            }
        });
        let here =
            catch_unwind(AssertUnwindSafe(|| beside(c"wm-test", STACK, others, || panic!("here too"))));
        assert!(here.is_err());
        assert_eq!(ran.into_inner(), 3);
    }

    #[test]
    fn the_stack_is_what_was_asked_for_beside_the_thread_locals() {
        let (send, receive) = mpsc::channel();
        let fill = move || {
            let mut room = [0u8; STACK - (16 << 10)];
            std::hint::black_box(&mut room).fill(1);
            send.send(room.len()).expect("heard");
        };
        spawn(c"wm-test", STACK, fill).expect("a thread");
        assert_eq!(receive.recv().expect("it ran"), STACK - (16 << 10));
    }
}
