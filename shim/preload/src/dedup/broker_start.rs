//! Starts the broker from inside another program. The program does not notice: it gets no
//! `SIGCHLD`, and `wait(-1)` returns no child.
//!
//! A child is made by `clone` without an exit signal; only a wait with `__WCLONE` sees such
//! children. It makes a grandchild of the same kind, which executes the broker. The child ends at
//! once and is waited for by its number, and the system adopts the broker. Both share the program's
//! memory and stop the calling thread, as `vfork` does, so a program of many gigabytes is not
//! copied. Between `clone` and `exec` nothing is allocated, locked or unwound, and all signals are
//! blocked. The grandchild removes the program's signal handlers before it unblocks the signals.
//!
//! A program that adopts orphans itself (process 1 of a container, or a "subreaper") would see the
//! broker end. There it is not started.

use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use wm_dedup::client::{BrokerHome, StartError, is_ready, program_beside};
use wm_driver::interposer;
use wm_driver::thread::Uncancelled;
use wm_sockets::descriptor::Descriptor;
use wm_sockets::private_folder::{self, FolderError};

use crate::process::preserve_errno;
use crate::settings;

/// Time for the broker to listen, or to find that another one does.
const PATIENCE: Duration = Duration::from_secs(3);

/// Stack of each of the two processes until `exec`, bytes.
const STACK: usize = 64 << 10;

/// The process shares our memory, and this thread stops until the process executes or ends. The
/// lowest byte, the signal at its end, is 0.
const FLAGS: c_int = libc::CLONE_VM | libc::CLONE_VFORK;

/// The arguments of the two processes, made beforehand. They write `error` into the shared memory.
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

/// The folder in which this user's broker listens, and its program, by this process's settings.
pub(crate) fn location() -> Result<BrokerHome, FolderError> {
    let settings = settings::load();
    let folder = private_folder::directory(settings.stats_dir.as_deref())?;
    let folder = std::path::absolute(&folder).unwrap_or(folder);
    let named = settings.broker.as_ref().and_then(|path| std::path::absolute(path).ok());
    let beside = || program_beside(&interposer::own_path()?.canonicalize().ok()?);
    Ok(BrokerHome { folder, program: named.or_else(beside) })
}

/// Starts a broker, and waits until it, or another one, listens.
pub(crate) fn start(home: &BrokerHome) -> Result<(), StartError> {
    let program = home.program.as_ref().ok_or(StartError::NotInstalled)?;
    if adopts_orphans() {
        return Err(StartError::Subreaper);
    }
    let words = [program.as_os_str().as_bytes(), b"--folder", home.folder.as_os_str().as_bytes()];
    launch(&words).map_err(|error| StartError::Failed { program: program.clone(), error })
}

fn launch(words: &[&[u8]]) -> std::io::Result<()> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    let (reader, writer) = (Descriptor::adopt(reader)?, Descriptor::adopt(writer)?);
    let words = words.iter().map(|word| CString::new(*word)).collect::<Result<Vec<_>, _>>()?;
    preserve_errno(|| start_processes(&words, writer.get()?.as_raw_fd()))?;
    drop(writer);
    // The caller connects next, and sees then whether it listens.
    let _ = reader.get().and_then(|reader| is_ready(reader, PollFlags::IN, Instant::now() + PATIENCE));
    Ok(())
}

/// Would a grandchild of this process become its child?
fn adopts_orphans() -> bool {
    let mut subreaper: c_int = 0;
    // SAFETY: writes an int to the given address.
    unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut subreaper) };
    subreaper != 0 || std::process::id() == 1
}

/// Makes the two processes, and returns when one executes the program and the other has ended.
fn start_processes(words: &[CString], output: c_int) -> std::io::Result<()> {
    let arguments: Vec<_> = words.iter().map(|word| word.as_ptr()).chain([ptr::null()]).collect();
    // Not the program's environment: it may hold secrets, and has our own library in LD_PRELOAD.
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
    // SAFETY: the child runs `child` on memory of its own, in our address space; the kernel stops
    // this thread until it has ended, so the errand, the stacks and their targets stay until
    // then. It has copies of our descriptors and handlers (no CLONE_FILES, no CLONE_SIGHAND), and
    // no thread state of its own, which `child` does not need.
    let pid = unsafe { libc::clone(child, outer, FLAGS, (&raw const errand).cast_mut().cast()) };
    let outcome = if pid < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) };
    if pid > 0 {
        reap(pid);
    }
    // SAFETY: restores the mask of this thread that `block_signals` found.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut()) };
    outcome?;
    match errand.error.load(Ordering::Acquire) {
        0 => Ok(()),
        code => Err(std::io::Error::from_raw_os_error(code)),
    }
}

/// Blocks all signals in this thread and in the processes that it makes. Returns the earlier mask.
fn block_signals() -> libc::sigset_t {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigfillset` fills the one set, `pthread_sigmask` the other; both calls act upon this
    // thread alone.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

/// Waits for the child, which has ended already. The program cannot have waited for it, because the
/// child has no exit signal.
fn reap(pid: c_int) {
    let mut status = 0;
    loop {
        // SAFETY: waits for one child of ours, by its number, and writes an int to the given
        // address.
        let outcome = unsafe { libc::waitpid(pid, &raw mut status, libc::__WCLONE) };
        if outcome == pid || std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return;
        }
    }
}

/// The child: makes the grandchild and ends, so that the broker is no child of this process.
extern "C" fn child(errand: *mut c_void) -> c_int {
    // SAFETY: `start_processes` made it, and waits.
    let it = unsafe { &*errand.cast::<Errand>() };
    // SAFETY: as in `start_processes`: `grandchild` runs on the other stack while this process is
    // stopped.
    let pid = unsafe { libc::clone(grandchild, it.stack, FLAGS, errand) };
    if pid < 0 {
        it.error.store(last_error(), Ordering::Release);
    } else if it.error.load(Ordering::Acquire) != 0 {
        // It did not execute, and has ended: it is still this child's to wait for. SAFETY: one
        // child, by its number, without a place for its status.
        unsafe { libc::waitpid(pid, ptr::null_mut(), libc::__WCLONE) };
    }
    0
}

/// The grandchild: brings the process into the state of a fresh one, and executes the broker.
extern "C" fn grandchild(errand: *mut c_void) -> c_int {
    // SAFETY: `start_processes` made it, and waits for the child, which waits for this process.
    let it = unsafe { &*errand.cast::<Errand>() };
    // SAFETY: system calls that change this process only; its descriptors and signal handlers are
    // copies. `rt_sigaction` and `rt_sigprocmask` bypass the C library, which takes locks around
    // some signals. 32 bytes of zeros are the structure of the default action, and 8 the empty set;
    // the kernel refuses signals that have no handler (SIGKILL, unused numbers). Handlers are
    // removed before signals are unblocked: a handler that ran here would run on the program's
    // memory.
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
        // On a kernel without this call the broker closes them itself.
        libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0);
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, zeros.as_ptr(), ptr::null::<u64>(), 8);
        libc::execve(it.program, it.arguments, it.environment);
    }
    it.error.store(last_error(), Ordering::Release);
    127
}

/// `errno`, which the processes share with the thread that waits for them.
fn last_error() -> c_int {
    // SAFETY: the address of `errno` is valid for the life of the thread, which waits for us.
    unsafe { *libc::__errno_location() }
}

#[cfg(test)]
mod tests;
