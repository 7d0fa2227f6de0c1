//! The pipe that wakes the thread which speaks with the broker: it waits for a socket, too.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::pipe::{PipeFlags, pipe_with};
use wm_sockets::descriptor::Descriptor;

use crate::process::preserve_errno;

/// Both ends.
pub(super) struct TurnWake {
    reader: Descriptor,
    writer: Descriptor,
}

impl TurnWake {
    pub(super) fn new() -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self { reader: Descriptor::adopt(reader)?, writer: Descriptor::adopt(writer)? })
    }

    /// If the pipe is full, the thread has bytes to read already.
    pub(super) fn send(&self) {
        preserve_errno(|| {
            if let Ok(writer) = self.writer.get() {
                let _is_sent = rustix::io::write(writer, &[0]);
            }
        });
    }

    /// To wait for. `None`: the program has closed it.
    pub(super) fn reader(&self) -> Option<BorrowedFd<'_>> {
        self.reader.get().ok()
    }

    pub(super) fn drain(&self) {
        let mut bytes = [0_u8; 64];
        while let Ok(reader) = self.reader.get()
            && rustix::io::read(reader, &mut bytes).is_ok_and(|count| count == bytes.len())
        {}
    }
}
