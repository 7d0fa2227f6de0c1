//! Checkpoints of a process by another one: `SIMCUDA_CHECKPOINTS` names the folder in which
//! processes can be found by their numbers.
//!
//! The states are those of NVIDIA's driver: running, locked, checkpointed. In a process that is not
//! running no call begins; one that has begun ends first, or the lock is not taken. A process that
//! has been checkpointed keeps its memory here: the tests' programs have left nothing on the
//! device. One that had memory of `cuMemCreate` on the host is lost at its restore, as NVIDIA's
//! driver (580, on H200s) loses it.
//!
//! Invariant: a call counts itself before it looks at the state, and a lock changes the state
//! before it looks at the count. One of the two sees the other.

use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use wm_abi::symbol;
use wm_abi::{
    CU_PROCESS_STATE_CHECKPOINTED, CU_PROCESS_STATE_FAILED, CU_PROCESS_STATE_LOCKED,
    CU_PROCESS_STATE_RUNNING, CUcheckpointLockArgs, CUresult,
};

use crate::entry::{Outcome, exports, get, put, require};
use crate::memory::store::created_on_host;
use crate::settings::{complain, settings};
use crate::state;

/// What processes share about one of them. Zeroes are a process that runs.
#[repr(C)]
struct ProcessWords {
    /// `CU_PROCESS_STATE_*`.
    state: AtomicU32,
    /// Threads inside calls.
    inside: AtomicU32,
    /// Not 0: it had memory of `cuMemCreate` on the host after its last call.
    has_host_memory: AtomicU32,
}

thread_local! {
    /// Calls inside each other, as where an exit handler runs in one.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// A call that has begun; it is over when this is dropped.
pub(crate) struct Begun(&'static ProcessWords);

impl Begun {
    /// The calling thread enters a function, once the process runs. `None` without the setting, in
    /// a forked child, and for the functions about checkpoints.
    pub(crate) fn begin(index: usize) -> Option<Self> {
        let words = own().filter(|_| !is_about_checkpoints(index) && !state::is_forked())?;
        if DEPTH.replace(DEPTH.get() + 1) == 0 {
            words.enter();
        }
        Some(Self(words))
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if DEPTH.replace(DEPTH.get() - 1) == 1 {
            self.0.has_host_memory.store(has_memory_on_host().into(), SeqCst);
            self.0.leave();
        }
    }
}

impl ProcessWords {
    fn enter(&self) {
        loop {
            self.inside.fetch_add(1, SeqCst);
            let state = self.state.load(SeqCst);
            if state == CU_PROCESS_STATE_RUNNING {
                return;
            }
            self.leave();
            wait(&self.state, state, None);
        }
    }

    fn leave(&self) {
        if self.inside.fetch_sub(1, SeqCst) == 1 {
            wake(&self.inside);
        }
    }

    /// From one state to another.
    fn change(&self, from: c_uint, to: c_uint) -> Outcome {
        let changed = self.state.compare_exchange(from, to, SeqCst, SeqCst);
        wake(&self.state);
        changed.map(drop).map_err(|_| CUresult::ILLEGAL_STATE)
    }

    /// Waits until no thread is inside a call; forever without a limit.
    fn await_calls(&self, limit: Option<Duration>) -> bool {
        let until = limit.map(|limit| Instant::now() + limit);
        loop {
            let inside = self.inside.load(SeqCst);
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if inside == 0 || left.is_some_and(|left| left.is_zero()) {
                return inside == 0;
            }
            wait(&self.inside, inside, left);
        }
    }
}

/// Is there memory of `cuMemCreate` on the host, mapped or not?
fn has_memory_on_host() -> bool {
    let mut memory = created_on_host();
    memory.retain(|one| one.strong_count() > 0);
    !memory.is_empty()
}

fn is_about_checkpoints(index: usize) -> bool {
    symbol::NAMES[index].to_bytes().starts_with(b"cuCheckpoint")
}

/// This process's words; `None` without the setting.
fn own() -> Option<&'static ProcessWords> {
    static OWN: OnceLock<Option<&'static ProcessWords>> = OnceLock::new();
    let open = || {
        let path = place(std::process::id() as c_int)?;
        let opened = words(&path, true);
        opened.inspect_err(|error| complain(&format_args!("SIMCUDA_CHECKPOINTS: {path:?}: {error}"))).ok()
    };
    *OWN.get_or_init(open)
}

/// Those of another process, or of this one.
fn of(pid: c_int) -> Outcome<&'static ProcessWords> {
    let path = place(pid).ok_or(CUresult::NOT_SUPPORTED)?;
    // SAFETY: signal 0 is a query.
    let is_alive = pid > 0 && unsafe { libc::kill(pid, 0) } == 0;
    require(is_alive, CUresult::INVALID_VALUE)?;
    words(&path, false).map_err(|_| CUresult::INVALID_VALUE)
}

fn place(pid: c_int) -> Option<PathBuf> {
    Some(settings().checkpoints.as_ref()?.join(pid.to_string()))
}

/// The words in a file. A process makes its own anew: another one may have had its number.
fn words(path: &Path, is_new: bool) -> std::io::Result<&'static ProcessWords> {
    let file = OpenOptions::new().read(true).write(true).create(is_new).truncate(is_new).open(path)?;
    if is_new {
        file.set_len(size_of::<ProcessWords>() as u64)?;
    }
    map(&file)
}

fn map(file: &File) -> std::io::Result<&'static ProcessWords> {
    // SAFETY: a mapping of its own, which lives as long as the process.
    let start = unsafe {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let (bytes, shared) = (size_of::<ProcessWords>(), libc::MAP_SHARED);
        libc::mmap(std::ptr::null_mut(), bytes, rights, shared, file.as_raw_fd(), 0)
    };
    if start == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the file has this length, the mapping begins at a page, and any bits are words.
    Ok(unsafe { &*start.cast::<ProcessWords>() })
}

/// Waits while a word has a value, up to a limit.
fn wait(word: &AtomicU32, value: u32, limit: Option<Duration>) {
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: limit.as_secs().cast_signed(),
        tv_nsec: limit.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the kernel reads a live word and a live time. Other processes use the word too, so
    // the operation is not the private one.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, limit) };
}

fn wake(word: &AtomicU32) {
    // SAFETY: the kernel reads no memory here; the word's address is a name.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, c_int::MAX) };
}

exports! {
    /// `cuCheckpointProcessGetState`.
    fn cuCheckpointProcessGetState(pid: c_int, state: *mut c_uint) |_call| {
        put(state, of(pid)?.state.load(SeqCst))
    }

    /// `cuCheckpointProcessLock`.
    fn cuCheckpointProcessLock(pid: c_int, args: *mut c_void) |_call| {
        let given = if args.is_null() { None } else { Some(get(args.cast::<CUcheckpointLockArgs>())?) };
        let limit = given.filter(|given| given.timeoutMs > 0);
        let limit = limit.map(|given| Duration::from_millis(given.timeoutMs.into()));
        let words = of(pid)?;
        words.change(CU_PROCESS_STATE_RUNNING, CU_PROCESS_STATE_LOCKED)?;
        if words.await_calls(limit) {
            return Ok(());
        }
        words.change(CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_RUNNING)?;
        Err(CUresult::NOT_READY)
    }

    /// `cuCheckpointProcessCheckpoint`.
    fn cuCheckpointProcessCheckpoint(pid: c_int, args: *mut c_void) |_call| {
        of(pid)?.change(CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_CHECKPOINTED)
    }

    /// `cuCheckpointProcessRestore`.
    fn cuCheckpointProcessRestore(pid: c_int, args: *mut c_void) |_call| {
        let words = of(pid)?;
        let is_lost = words.has_host_memory.load(SeqCst) != 0;
        let after = if is_lost { CU_PROCESS_STATE_FAILED } else { CU_PROCESS_STATE_LOCKED };
        words.change(CU_PROCESS_STATE_CHECKPOINTED, after)?;
        require(!is_lost, CUresult::UNKNOWN)
    }

    /// `cuCheckpointProcessUnlock`.
    fn cuCheckpointProcessUnlock(pid: c_int, args: *mut c_void) |_call| {
        of(pid)?.change(CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_RUNNING)
    }
}
