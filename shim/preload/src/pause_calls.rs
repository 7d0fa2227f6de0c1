//! `wmshim_pause`, `wmshim_pause_prepare` and `wmshim_resume` of wmshim.h, and the same for the
//! statistics socket.
//!
//! The calls of C wait for the thread that pauses and resumes; those of the socket answer at once,
//! and the client asks again.

use std::ffi::{CStr, OsStr, c_char, c_uint};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use wm_abi::CUresult;
use wm_driver::thread::{KernelThread, Uncancelled};
use wm_memory::MoveRefusal;
use wm_schema as schema;

use crate::gate::GATE;
use crate::pauses::{DEADLINE, FileFailure, PauseError, Pauses, StorePlace};
use crate::process::{self, preserve_errno};
use crate::subsystems::PROCESS;

/// `int wmshim_pause(unsigned int milliseconds)`.
#[unsafe(no_mangle)]
extern "C" fn wmshim_pause(milliseconds: c_uint) -> CUresult {
    safely(|| pause_here(None, milliseconds))
}

/// `int wmshim_pause_to(const char *folder, unsigned int milliseconds)`.
///
/// # Safety
/// A string that ends with 0, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn wmshim_pause_to(folder: *const c_char, milliseconds: c_uint) -> CUresult {
    if folder.is_null() {
        return CUresult::INVALID_VALUE;
    }
    // SAFETY: the caller's string, not null.
    let folder = OsStr::from_bytes(unsafe { CStr::from_ptr(folder) }.to_bytes());
    safely(|| pause_here(Some(StorePlace::Folder(folder.into())), milliseconds))
}

fn pause_here(files: Option<StorePlace>, milliseconds: c_uint) -> Result<(), PauseError> {
    let asker = Some(KernelThread::current());
    let deadline = if milliseconds == 0 { DEADLINE } else { Duration::from_millis(milliseconds.into()) };
    Pauses::pause_to(PROCESS.paused_parts(), files, deadline, asker)?;
    PROCESS.pauses.wait()
}

/// `int wmshim_resume(void)`.
#[unsafe(no_mangle)]
extern "C" fn wmshim_resume() -> CUresult {
    safely(|| {
        Pauses::resume(PROCESS.paused_parts())?;
        match PROCESS.pauses.wait() {
            Err(why @ (PauseError::Unread(_) | PauseError::Unmapped(_))) => Err(why),
            // Why an earlier pause failed is not the answer.
            _ => Ok(()),
        }
    })
}

/// `int wmshim_pause_prepare(void)`.
#[unsafe(no_mangle)]
extern "C" fn wmshim_pause_prepare() -> CUresult {
    safely(|| {
        Pauses::prepare(PROCESS.paused_parts())?;
        PROCESS.pauses.wait_prepared()
    })
}

/// A client's request for host memory ahead of a pause. The problem of an earlier pause is not the
/// answer.
pub(crate) fn prepare() -> schema::PauseAnswer {
    let asked = Pauses::prepare(PROCESS.paused_parts());
    let mut told = answer(Ok(()));
    told.pause.problem = asked.err().map(|problem| problem.to_string());
    told
}

/// A client's request for a pause.
pub(crate) fn pause(files: Option<StorePlace>, deadline: Option<Duration>) -> schema::PauseAnswer {
    let asked = Pauses::pause_to(PROCESS.paused_parts(), files, deadline.unwrap_or(DEADLINE), None);
    answer(asked)
}

/// A client's request to be ready for the driver's checkpoint.
pub(crate) fn deep() -> schema::PauseAnswer {
    if PROCESS.sharing.has_shared() || PROCESS.turns.figures().is_some() {
        return answer(Err(PauseError::Beside));
    }
    answer(PROCESS.pauses.go_deep())
}

/// Why the process cannot be changed now, if it cannot.
pub(crate) fn why_no_change() -> Option<String> {
    PROCESS.pauses.is_deep().then(|| PauseError::Deep.to_string())
}

/// A client says that the driver has given all back.
pub(crate) fn restored() -> schema::PauseAnswer {
    PROCESS.pauses.leave_deep();
    answer(Ok(()))
}

/// A client's request for a resume.
pub(crate) fn resume() -> schema::PauseAnswer {
    answer(Pauses::resume(PROCESS.paused_parts()))
}

/// How far the process has come.
pub(crate) fn state() -> schema::PauseAnswer {
    answer(Ok(()))
}

fn answer(asked: Result<(), PauseError>) -> schema::PauseAnswer {
    let off = || schema::PauseStats { state: "off".to_owned(), ..schema::PauseStats::default() };
    let mut pause = PROCESS.pauses.figures().unwrap_or_else(off);
    if let Err(problem) = asked {
        pause.problem = Some(problem.to_string());
    }
    schema::PauseAnswer { schema: schema::PauseAnswer::SCHEMA.to_owned(), pid: std::process::id(), pause }
}

fn code(error: PauseError) -> CUresult {
    match error {
        PauseError::Off | PauseError::NoHost => CUresult::NOT_SUPPORTED,
        PauseError::Exiting => CUresult::DEINITIALIZED,
        PauseError::Files(FileFailure::Full) => CUresult::OUT_OF_MEMORY,
        PauseError::Files(FileFailure::System(_)) | PauseError::Unread(_) => CUresult::OPERATING_SYSTEM,
        PauseError::Unmapped(MoveRefusal::Driver(code)) => code,
        PauseError::Unmapped(_) => CUresult::NOT_READY,
        PauseError::Files(FileFailure::Copy(code)) => code,
        PauseError::Files(FileFailure::Exiting) => CUresult::DEINITIALIZED,
        PauseError::NoRoom => CUresult::NOT_READY,
        PauseError::Inside
        | PauseError::Pinned(_)
        | PauseError::Detached
        | PauseError::NotPaused
        | PauseError::Beside
        | PauseError::HostPinned
        | PauseError::Deep => CUresult::NOT_PERMITTED,
        PauseError::Crowded | PauseError::Held | PauseError::Busy => CUresult::NOT_READY,
        PauseError::Captured => CUresult::STREAM_CAPTURE_UNSUPPORTED,
        PauseError::HostFull | PauseError::NoThread => CUresult::OUT_OF_MEMORY,
        PauseError::Panicked => CUresult::UNKNOWN,
        PauseError::Unknown(code) => code,
    }
}

/// A panic stops here, `errno` is as it was, and the thread is not cancelled inside. A thread whose
/// call is under way would wait for itself.
fn safely(body: impl FnOnce() -> Result<(), PauseError>) -> CUresult {
    if process::opened().is_none() || process::forked() {
        return CUresult::NOT_INITIALIZED;
    }
    if GATE.is_inside() {
        return code(PauseError::Inside);
    }
    let _whole = Uncancelled::new();
    match preserve_errno(|| catch_unwind(AssertUnwindSafe(body))) {
        Ok(done) => done.map_err(code).into(),
        Err(_) => CUresult::UNKNOWN,
    }
}
