//! The exporting side: one thread that serves every importer, started at the first handle issued.
//!
//! Each round polls the listeners and the peers, and does a bounded piece of work for each: a
//! silent peer delays no other, and each has a deadline of its own. With [`PEER_LIMIT`] peers the
//! listeners are not polled, and later ones wait to be accepted. If accepting fails because
//! descriptors or memory are exhausted, the loop does not poll the listeners for [`PAUSE`].

use std::io;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use wm_driver::thread;
use wm_trust::peer::is_trusted;

use super::key::ExporterKey;
use super::names::{self, Unreachable};
use super::peer::Peer;
use wm_sockets::descriptor::Descriptor;
use wm_sockets::file::Published;

/// Stack of the thread, bytes: it exchanges short packets and looks blocks up.
const STACK: usize = 256 << 10;

/// Importers served at a time.
const PEER_LIMIT: usize = 64;

/// Rest after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);

/// The exporting side of a process.
pub(super) struct Exporter {
    /// Set once the thread runs. A start that failed, as without a free descriptor, is tried again
    /// at the next handle.
    key: OnceCell<ExporterKey>,
    has_ended: AtomicBool,
    /// The socket's file, for the exit handler.
    file: Published,
}

/// Why a process issues no handles.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExportError {
    #[error("no key: {0}")]
    Key(io::Error),
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error("no thread: {0}")]
    Thread(io::Error),
    #[error("its thread has ended; does the program close descriptors that it did not open?")]
    Ended,
}

impl Exporter {
    pub(super) const fn new() -> Self {
        Self { key: OnceCell::new(), has_ended: AtomicBool::new(false), file: Published::none() }
    }

    /// The key that goes into handles. Starts the thread at the first call.
    pub(super) fn start(&'static self) -> Result<ExporterKey, ExportError> {
        let key = *self.key.get_or_try_init(|| self.launch())?;
        if self.has_ended.load(Ordering::Acquire) { Err(ExportError::Ended) } else { Ok(key) }
    }

    /// Is this process the one that issues handles with this key?
    pub(super) fn is_own(&self, key: &ExporterKey) -> bool {
        self.key.get() == Some(key)
    }

    fn launch(&'static self) -> Result<ExporterKey, ExportError> {
        let key = ExporterKey::random().map_err(ExportError::Key)?;
        let listeners = names::listen(&key, &self.file)?;
        let server = ExportServer { exporter: self, key, listeners, peers: Vec::new(), paused_until: None };
        thread::spawn(c"wmshim-ipc", STACK, move || server.run()).map_err(|error| {
            self.file.withdraw();
            ExportError::Thread(error)
        })?;
        Ok(key)
    }

    /// Removes the socket's file. Allocates nothing and locks nothing: exit handlers call it.
    pub(super) fn stop(&self) {
        self.file.withdraw();
    }

    /// In a forked child the file is the parent's. Async-signal-safe.
    pub(super) fn forked(&self) {
        self.file.forget();
    }
}

struct ExportServer {
    exporter: &'static Exporter,
    key: ExporterKey,
    listeners: Vec<Descriptor>,
    peers: Vec<Peer>,
    paused_until: Option<Instant>,
}

impl Drop for ExportServer {
    /// On every way out of the thread, a panic too.
    fn drop(&mut self) {
        self.exporter.has_ended.store(true, Ordering::Release);
    }
}

impl ExportServer {
    /// Serves until the process ends, or has taken the listeners from us.
    fn run(mut self) {
        while self.round().is_continue() {}
        log::warn!("sharing of memory between processes has ended: the program has closed our sockets");
    }

    fn round(&mut self) -> ControlFlow<()> {
        self.listeners.retain(|listener| listener.get().is_ok());
        self.peers.retain(|peer| peer.socket().is_ok());
        if self.listeners.is_empty() && self.peers.is_empty() {
            return ControlFlow::Break(());
        }
        let Ok(ready) = self.wait() else { return ControlFlow::Break(()) };
        let now = Instant::now();
        let (knocked, spoke) = ready.split_at(self.listeners.len());
        self.serve(spoke, now);
        self.paused_until = self.paused_until.filter(|until| *until > now);
        for listener in knocked.iter().enumerate().filter(|(_, knocked)| **knocked).map(|(index, _)| index) {
            self.accept(listener, now);
        }
        ControlFlow::Continue(())
    }

    /// Waits for an event or a deadline. Which descriptors have something to say: listeners, then
    /// peers.
    fn wait(&self) -> io::Result<Vec<bool>> {
        let accepting = self.has_room() && self.paused_until.is_none();
        let listening = if accepting { PollFlags::IN } else { PollFlags::empty() };
        let mut entries = Vec::with_capacity(self.listeners.len() + self.peers.len());
        for listener in &self.listeners {
            entries.push(PollFd::from_borrowed_fd(listener.get()?, listening));
        }
        for peer in &self.peers {
            entries.push(PollFd::from_borrowed_fd(peer.socket()?, PollFlags::IN));
        }
        match poll(&mut entries, self.timeout().as_ref()) {
            Ok(_) => Ok(entries.iter().map(|entry| !entry.revents().is_empty()).collect()),
            Err(Errno::INTR) => Ok(vec![false; entries.len()]),
            Err(error) => Err(error.into()),
        }
    }

    fn has_room(&self) -> bool {
        self.peers.len() < PEER_LIMIT
    }

    /// Time until something must be done without an event; `None` for never.
    fn timeout(&self) -> Option<Timespec> {
        let deadlines = self.peers.iter().map(Peer::deadline).chain(self.paused_until);
        let left = deadlines.min()?.saturating_duration_since(Instant::now());
        Some(Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() })
    }

    /// Answers each peer that sent a packet; drops peers that are gone, finished or past their
    /// deadline.
    fn serve(&mut self, spoke: &[bool], now: Instant) {
        let (key, mut spoke) = (self.key, spoke.iter());
        self.peers.retain_mut(|peer| {
            let outcome = if spoke.next() == Some(&true) { peer.attend(&key, now) } else { Ok(()) };
            if let Err(error) = &outcome {
                log::debug!("a process that opens memory is gone: {error}");
            }
            outcome.is_ok() && peer.deadline() > now
        });
    }

    /// Accepts connections, a bounded number a round: other users' may come faster than they are
    /// refused.
    fn accept(&mut self, listener: usize, now: Instant) {
        for _ in self.peers.len()..PEER_LIMIT {
            let accepted = self.listeners[listener].get().and_then(accept_one);
            match accepted {
                Ok(socket) if socket.get().is_ok_and(is_trusted) => self.peers.push(Peer::new(socket, now)),
                Ok(_) => log::debug!("a process of another user wanted to open memory"),
                Err(error) => {
                    self.paused_until = pause_after(&error).map(|pause| now + pause).or(self.paused_until);
                    return;
                }
            }
        }
    }
}

fn accept_one(listener: BorrowedFd<'_>) -> io::Result<Descriptor> {
    Descriptor::adopt(accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?)
}

/// `None` if no connection waits, or if it is gone again.
fn pause_after(error: &io::Error) -> Option<Duration> {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    let is_absent = matches!(code, Some(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED));
    (!is_absent).then_some(PAUSE)
}
