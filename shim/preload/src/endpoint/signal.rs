//! The statistics signal and the pipe that wakes the thread.
//!
//! The handler may interrupt any thread of the host anywhere, so it only writes one byte to a
//! non-blocking pipe. If the pipe is full, the thread has bytes to read already. A handler has no
//! argument, so it finds the pipe in a static.

use std::ffi::c_int;
use std::io;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use rustix::pipe::{PipeFlags, pipe_with};

use crate::process::preserve_errno;
use wm_sockets::descriptor;
use wm_sockets::descriptor::Descriptor;

/// Written to the pipe: write a dump.
pub(super) const DUMP: u8 = b'd';
/// Written to the pipe: the process exits.
pub(super) const QUIT: u8 = b'q';

/// Slot of the pipe's end that the handler writes to.
static HANDLER_PIPE: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Both ends of the pipe. The writing end is kept so that it lives as long as the thread.
#[derive(Debug)]
pub(super) struct Wake {
    pub(super) reader: Descriptor,
    writer: Descriptor,
}

impl Wake {
    /// Name of the writing end for [`send`].
    pub(super) fn slot(&self) -> usize {
        self.writer.slot()
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

/// Writes a message to the pipe whose writing end is in a slot. Async-signal-safe.
pub(super) fn send(slot: usize, message: u8) {
    if let Some(writer) = descriptor::in_slot(slot) {
        // The pipe does not block; a byte that is lost means that it is full of them.
        let _ = rustix::io::write(writer, &[message]);
    }
}

/// The signal that the endpoint has a handler for.
#[derive(Debug)]
pub(super) struct StatisticsSignal(AtomicI32);

/// No signal.
const NONE: c_int = 0;

impl StatisticsSignal {
    pub(super) const fn new() -> Self {
        Self(AtomicI32::new(NONE))
    }

    /// Installs the handler, which writes to the pipe in a slot, if the signal's disposition is the
    /// default. SA_RESTART: the host's interrupted calls go on by themselves.
    pub(super) fn install(&self, number: c_int, slot: usize) {
        if disposition(number) != Some(libc::SIG_DFL) {
            log::info!("statistics: signal {number} is in use by the program; ask the socket instead");
            return;
        }
        HANDLER_PIPE.store(slot, Ordering::Release);
        if set_handler(number, on_signal as *const () as libc::sighandler_t) {
            self.0.store(number, Ordering::Release);
        }
    }

    /// Restores the default disposition, unless the host has replaced our handler.
    /// Async-signal-safe.
    pub(super) fn release(&self) {
        let number = self.0.swap(NONE, Ordering::AcqRel);
        if number != NONE && disposition(number) == Some(on_signal as *const () as libc::sighandler_t) {
            set_handler(number, libc::SIG_DFL);
        }
    }
}

extern "C" fn on_signal(_number: c_int) {
    preserve_errno(|| send(HANDLER_PIPE.load(Ordering::Acquire), DUMP));
}

fn disposition(number: c_int) -> Option<libc::sighandler_t> {
    // SAFETY: an all-zero `sigaction` is a valid value to overwrite.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only reads the disposition; a number that is no signal is refused.
    let outcome = unsafe { libc::sigaction(number, std::ptr::null(), &raw mut action) };
    (outcome == 0).then_some(action.sa_sigaction)
}

fn set_handler(number: c_int, handler: libc::sighandler_t) -> bool {
    // SAFETY: an all-zero `sigaction` is valid: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the handler is `SIG_DFL`, or `on_signal`, which is async-signal-safe and has the type
    // of a handler.
    unsafe { libc::sigaction(number, &raw const action, std::ptr::null_mut()) == 0 }
}
