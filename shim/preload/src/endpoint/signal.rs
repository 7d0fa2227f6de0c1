//! The statistics signal and the pipe that wakes the thread.
//!
//! The handler may interrupt any thread of the host anywhere, so it does nothing but write one byte to a non-blocking
//! pipe. A full pipe means that the thread has been told already.

use std::ffi::c_int;
use std::io;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use rustix::pipe::{PipeFlags, pipe_with};

use crate::process::keep_errno;
use wm_sockets::descriptor;
use wm_sockets::descriptor::Descriptor;

/// Written to the pipe: write a dump.
pub(super) const DUMP: u8 = b'd';
/// Written to the pipe: the process exits.
pub(super) const QUIT: u8 = b'q';

/// Slot of the pipe's writing end.
static WRITER: AtomicUsize = AtomicUsize::new(usize::MAX);
/// The signal that we took; 0 for none.
static TAKEN: AtomicI32 = AtomicI32::new(0);

/// Both ends of the pipe. The writing end is kept so that it lives as long as the thread.
#[derive(Debug)]
pub(super) struct Wake {
    pub(super) reader: Descriptor,
    writer: Descriptor,
}

impl Wake {
    /// Makes this the pipe that [`wake`] writes to.
    pub(super) fn publish(&self) {
        WRITER.store(self.writer.slot(), Ordering::Release);
    }

    /// Empties the pipe. Returns the bytes that were in it.
    pub(super) fn drain(&self) -> Vec<u8> {
        let mut buffer = [0_u8; 64];
        let Ok(reader) = self.reader.get() else { return Vec::new() };
        let count = rustix::io::read(reader, &mut buffer).unwrap_or(0);
        buffer[..count].to_vec()
    }
}

/// Makes the pipe.
pub(super) fn pipe() -> io::Result<Wake> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    Ok(Wake { reader: Descriptor::adopt(reader)?, writer: Descriptor::adopt(writer)? })
}

/// Tells the thread something. Async-signal-safe.
pub(super) fn wake(message: u8) {
    if let Some(writer) = descriptor::in_slot(WRITER.load(Ordering::Acquire)) {
        // The pipe does not block; a byte that is lost means that it is full of them.
        let _ = rustix::io::write(writer, &[message]);
    }
}

/// Takes the signal if nobody else has it. SA_RESTART: the host's interrupted calls go on by themselves.
pub(super) fn take(number: c_int) {
    if disposition(number) != Some(libc::SIG_DFL) {
        log::info!("statistics: signal {number} is in use by the program; ask the socket instead");
        return;
    }
    if install(number, on_signal as *const () as libc::sighandler_t) {
        TAKEN.store(number, Ordering::Release);
    }
}

/// Gives the signal back, if we have it and the host has not replaced our handler. Async-signal-safe.
pub(super) fn release() {
    let number = TAKEN.swap(0, Ordering::AcqRel);
    if number != 0 && disposition(number) == Some(on_signal as *const () as libc::sighandler_t) {
        install(number, libc::SIG_DFL);
    }
}

extern "C" fn on_signal(_number: c_int) {
    keep_errno(|| wake(DUMP));
}

fn disposition(number: c_int) -> Option<libc::sighandler_t> {
    // SAFETY: an all-zero `sigaction` is a valid value to overwrite.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only reads the disposition; a number that is no signal is refused.
    let outcome = unsafe { libc::sigaction(number, std::ptr::null(), &raw mut action) };
    (outcome == 0).then_some(action.sa_sigaction)
}

fn install(number: c_int, handler: libc::sighandler_t) -> bool {
    // SAFETY: an all-zero `sigaction` is valid: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the handler is `SIG_DFL`, or `on_signal`, which is async-signal-safe and has the type of a handler.
    unsafe { libc::sigaction(number, &raw const action, std::ptr::null_mut()) == 0 }
}
