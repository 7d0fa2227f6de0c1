//! Starts the broker from inside somebody else's program, which sees nothing of it: no `SIGCHLD`, no child in `wait(-1)`.
//!
//! A child by `clone` with no signal for its end (such children are seen by `__WCLONE` only) makes a grandchild of the same kind, which
//! executes the broker; the child ends at once and is waited for by its number, and the system adopts the broker. Both share the
//! program's memory and stop the calling thread, as `vfork` does: a program of many gigabytes is not copied. So between `clone` and
//! `exec` nothing is allocated, locked or unwound, all signals are blocked, and the program's handlers are gone before they are not.
//!
//! A program that adopts orphans itself (process 1 of a container, or a "subreaper") would see the broker end: there it is not started.

use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use wm_driver::thread::Uncancelled;

use super::home::BrokerHome;
use super::link::is_ready;
use crate::process::keep_errno;
use wm_sockets::descriptor::Descriptor;

/// For the broker to listen, or to find that another one does.
const PATIENCE: Duration = Duration::from_secs(3);

/// Bytes of stack of each of the two processes until the broker's own begins.
const STACK: usize = 64 << 10;

/// Shares memory, stops this thread until the other process executes or ends; the lowest byte, the signal at its end, is none.
const FLAGS: c_int = libc::CLONE_VM | libc::CLONE_VFORK;

/// What the two processes are to do, made beforehand. They write `error` into the memory that is shared.
struct Errand {
    program: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
    /// Becomes the broker's standard output, which it closes when it listens.
    output: c_int,
    /// Top of the grandchild's stack.
    stack: *mut c_void,
    error: AtomicI32,
}

/// Starts a broker, and waits until it, or another one, listens.
///
/// # Errors
/// A sentence for the log.
pub(super) fn broker(home: &BrokerHome) -> Result<(), String> {
    let Some(program) = &home.program else {
        return Err("there is no wmshimd beside the library; set WMSHIM_BROKER to its path".into());
    };
    if adopts_orphans() {
        return Err(
            "this process adopts orphans, and would see the broker end: start wmshimd before it".into()
        );
    }
    let failed = |error: std::io::Error| format!("{} cannot be started: {error}", program.display());
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    let reader = Descriptor::adopt(reader).map_err(failed)?;
    let writer = Descriptor::adopt(writer).map_err(failed)?;
    let words = [program.as_os_str().as_bytes(), b"--folder", home.folder.as_os_str().as_bytes()];
    let words = words.map(CString::new).into_iter().collect::<Result<Vec<_>, _>>();
    let words = words.map_err(|error| failed(error.into()))?;
    keep_errno(|| start(&words, writer.get()?.as_raw_fd())).map_err(failed)?;
    drop(writer);
    // Whether it listens is seen by whoever connects.
    let _ = reader.get().and_then(|reader| is_ready(reader, PollFlags::IN, Instant::now() + PATIENCE));
    Ok(())
}

/// Would a grandchild of this process become its child?
fn adopts_orphans() -> bool {
    let mut subreaper: c_int = 0;
    // SAFETY: writes an int to where it is told to.
    unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut subreaper) };
    subreaper != 0 || std::process::id() == 1
}

/// Makes the two processes, and returns when one executes the program and the other has ended.
fn start(words: &[CString], output: c_int) -> std::io::Result<()> {
    let arguments: Vec<_> = words.iter().map(|word| word.as_ptr()).chain([ptr::null()]).collect();
    // Nothing of the program's: it may have secrets in its environment, and our own library in LD_PRELOAD.
    let environment = [c"WMSHIM_DISABLE=1".as_ptr(), ptr::null()];
    let mut stacks = vec![MaybeUninit::<u128>::uninit(); 2 * STACK / size_of::<u128>()];
    let [inner, outer] = [1, 2].map(|count| stacks.as_mut_ptr().wrapping_byte_add(count * STACK).cast());
    let errand = Errand {
        program: arguments[0],
        arguments: arguments.as_ptr(),
        environment: environment.as_ptr(),
        output,
        stack: inner,
        error: AtomicI32::new(0),
    };
    let _uncancelled = Uncancelled::new();
    let before = block_signals();
    // SAFETY: the child runs `child` on memory of its own, in our address space; the kernel stops this thread until it has ended, so
    // the errand, the stacks and what they point to stay until then. It has copies of our descriptors and handlers (no CLONE_FILES,
    // no CLONE_SIGHAND), and no thread state of its own, which `child` does not need.
    let pid = unsafe { libc::clone(child, outer, FLAGS, (&raw const errand).cast_mut().cast()) };
    let outcome = if pid < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) };
    if pid > 0 {
        reap(pid);
    }
    // SAFETY: puts this thread's mask back to what `block_signals` found.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut()) };
    outcome?;
    match errand.error.load(Ordering::Acquire) {
        0 => Ok(()),
        code => Err(std::io::Error::from_raw_os_error(code)),
    }
}

/// Blocks all signals in this thread, and with it in the processes that it makes. What was blocked before.
fn block_signals() -> libc::sigset_t {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigfillset` fills the one set, `pthread_sigmask` the other; both calls act upon this thread alone.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

/// Waits for the child, which has ended already. The program cannot have waited for it: it has no signal for its end.
fn reap(pid: c_int) {
    let mut status = 0;
    loop {
        // SAFETY: waits for one child of ours, by its number, and writes an int to where it is told to.
        let outcome = unsafe { libc::waitpid(pid, &raw mut status, libc::__WCLONE) };
        if outcome == pid || std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return;
        }
    }
}

/// The child: makes the grandchild and ends, so that the broker is nobody's child here.
extern "C" fn child(errand: *mut c_void) -> c_int {
    // SAFETY: `start` made it, and waits.
    let it = unsafe { &*errand.cast::<Errand>() };
    // SAFETY: as in `start`: `grandchild` runs on the other stack while this process is stopped.
    let pid = unsafe { libc::clone(grandchild, it.stack, FLAGS, errand) };
    if pid < 0 {
        it.error.store(last_error(), Ordering::Release);
    } else if it.error.load(Ordering::Acquire) != 0 {
        // It did not execute, and has ended: nobody else needs to wait for it.
        // SAFETY: one child, by its number, without a place for its status.
        unsafe { libc::waitpid(pid, ptr::null_mut(), libc::__WCLONE) };
    }
    0
}

/// The grandchild: a process like one that was just started, then the broker.
extern "C" fn grandchild(errand: *mut c_void) -> c_int {
    // SAFETY: `start` made it, and waits for the child, which waits for this process.
    let it = unsafe { &*errand.cast::<Errand>() };
    // SAFETY: system calls that change this process only. Its descriptors and signal handlers are copies. `rt_sigaction` and
    // `rt_sigprocmask` are called without the C library, which takes locks around some signals; 32 bytes of zeros are its
    // structure for the default action, 8 are the empty set, and what it refuses (SIGKILL, numbers that are none) has none.
    // Handlers go before the mask does: one that ran here would run on the program's memory.
    unsafe {
        let zeros = [0_u64; 4];
        for signal in 1..=64 {
            libc::syscall(libc::SYS_rt_sigaction, signal, zeros.as_ptr(), ptr::null::<u64>(), 8);
        }
        libc::setsid();
        libc::chdir(c"/".as_ptr());
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        libc::dup2(it.output, 1);
        libc::dup2(null, 0);
        libc::dup2(null, 2);
        // Where the kernel has no such call, the broker does this itself.
        libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0);
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, zeros.as_ptr(), ptr::null::<u64>(), 8);
        libc::execve(it.program, it.arguments, it.environment);
    }
    it.error.store(last_error(), Ordering::Release);
    127
}

/// `errno`, which the processes share with the thread that waits for them.
fn last_error() -> c_int {
    // SAFETY: the address of the thread's `errno` is valid as long as the thread, which waits.
    unsafe { *libc::__errno_location() }
}
