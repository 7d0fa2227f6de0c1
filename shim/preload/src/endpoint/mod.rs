//! The statistics endpoint: how other processes look into one that runs under the shim.
//!
//! One background thread answers JSON lines on a Unix socket and writes the same JSON to a file
//! when the statistics signal arrives. It lives in a process that is not ours, so every invariant
//! here is about not being noticed:
//!
//! * Nothing that a client does (garbage, silence, floods, vanishing) costs the host more than the
//!   bounded work of this one thread: no signal, no blocking write, no unbounded buffer, no
//!   unbounded rate of questions.
//! * The thread has every signal blocked, so the host's handlers never run on it, and it never ends
//!   the process: a panic in a source becomes an answer.
//! * No lock is held while the [`Source`] is asked, and the source is asked from this thread only.
//! * Descriptors are close-on-exec, have high numbers, and are used and closed only while they
//!   still refer to the files that we opened: if a host closes all descriptors and opens its own,
//!   we read from none of its files.
//! * The statistics signal is taken only if its disposition is the default.
//! * A forked child has no endpoint: it closes the inherited descriptors and leaves the parent's
//!   socket as it is.
//! * A problem is one warning in the log. [`StatisticsEndpoint::start`] never fails the host, and
//!   `errno` survives every function here.
//!
//! Parts: [`socket`] binds, [`server`] polls, [`connection`] is one client, [`rate_limit`] bounds
//! the rate, [`request`] parses and answers a line, [`changes`] are the requests that change the
//! process, [`dump`] writes files, [`exit_reply`] is the last answer at exit, to clients and to a
//! file, [`signal`] is the signal's handler and the pipe that wakes the thread. The folder and the
//! descriptors are those of [`wm_sockets`].

mod changes;
mod connection;
mod dump;
mod exit_reply;
mod rate_limit;
mod request;
mod server;
mod signal;
mod socket;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use crate::process::preserve_errno;
pub(crate) use changes::{ChangeRequest, LimitRequest};
use dump::Dumps;
pub(crate) use dump::store as write_new_file;
use exit_reply::ExitReply;
pub(crate) use request::{PauseRequest, RequestedPlace};
use server::EndpointServer;
use signal::StatisticsSignal;
use socket::BindError;
use wm_driver::thread;
use wm_sockets::file::{OwnFile, Published};
use wm_sockets::private_folder::FolderError;
use wm_sockets::{descriptor, private_folder};

/// Stack of the thread, bytes: it parses short lines and formats JSON.
const STACK: usize = 256 << 10;

/// The source of the endpoint's answers. Asked from the endpoint's thread, with no lock held.
pub(crate) trait Source: Send + Sync + 'static {
    /// Counters and sizes, in the schema of `docs/wmctl.md`.
    fn stats(&self) -> serde_json::Value;
    /// The same, after a look through the books that takes as long as there are blocks: for dumps
    /// and the last answer.
    fn audited(&self) -> serde_json::Value {
        self.stats()
    }
    /// The blocks that are live now.
    fn blocks(&self) -> serde_json::Value;
    /// The settings in force.
    fn config(&self) -> serde_json::Value;
    /// The process is to be paused: its state, at once.
    fn pause(&self, pause: PauseRequest) -> serde_json::Value;
    /// Host memory for a pause is to be made ahead: its state, at once.
    fn pause_prepare(&self) -> serde_json::Value;
    /// The driver is about to take the rest of the paused process: its state.
    fn pause_deep(&self) -> serde_json::Value;
    /// The driver has given it back: its state.
    fn pause_restored(&self) -> serde_json::Value;
    /// The same for the end of a pause.
    fn resume(&self) -> serde_json::Value;
    /// Whether the process is paused.
    fn pause_state(&self) -> serde_json::Value;
    /// Makes one step of a change of the process, of bounded time.
    fn change(&self, change: &ChangeRequest) -> serde_json::Value;
}

/// The user's settings.
#[derive(Debug, Clone, Default)]
pub(crate) struct EndpointSettings {
    /// Exact path of the socket (`WMSHIM_STATS_SOCKET`). While another process listens there, the
    /// directory is used.
    pub(crate) socket: Option<PathBuf>,
    /// Directory for the socket and for dumps (`WMSHIM_STATS_DIR`).
    pub(crate) directory: Option<PathBuf>,
    /// False: no socket, no signal, no thread.
    pub(crate) enabled: bool,
    /// The file that the last statistics go to (`WMSHIM_STATS_AT_EXIT`).
    pub(crate) at_exit: Option<PathBuf>,
    /// The signal that writes a dump; `None` leaves all signals alone.
    pub(crate) signal: Option<i32>,
}

/// The endpoint of a process.
///
/// A forked child inherits the value and owns nothing of it: [`StatisticsEndpoint::forked`] makes
/// it empty.
pub(crate) struct StatisticsEndpoint {
    /// The process whose endpoint is up; 0 while there is none. A forked child differs from it.
    owner: AtomicI32,
    /// The socket's file, for [`StatisticsEndpoint::stop`].
    socket: Published,
    /// Slot of the pipe that wakes the thread.
    wake: AtomicUsize,
    exit_reply: ExitReply,
    signal: StatisticsSignal,
}

/// Why there is no endpoint.
#[derive(Debug, thiserror::Error)]
enum EndpointError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("no pipe for the statistics thread: {0}")]
    Pipe(io::Error),
    #[error(transparent)]
    Socket(#[from] BindError),
    #[error("no thread for statistics: {0}")]
    Thread(io::Error),
}

impl StatisticsEndpoint {
    pub(crate) const fn new() -> Self {
        Self {
            owner: AtomicI32::new(0),
            socket: Published::none(),
            wake: AtomicUsize::new(usize::MAX),
            exit_reply: ExitReply::new(),
            signal: StatisticsSignal::new(),
        }
    }

    /// Starts the endpoint: binds the socket, takes the signal, starts the thread. Later calls do
    /// nothing.
    ///
    /// Called from the first successful `cuInit`. When it returns, the socket answers.
    pub(crate) fn start(&'static self, settings: EndpointSettings, source: &'static dyn Source) {
        if !settings.enabled || !self.claim() {
            return;
        }
        preserve_errno(|| {
            if let Err(problem) = self.launch(&settings, source) {
                log::warn!("statistics: {problem}");
            }
        });
    }

    /// Forgets the endpoint in a forked child. Async-signal-safe: plain system calls and atomics
    /// only.
    pub(crate) fn forked(&self) {
        preserve_errno(|| {
            self.signal.release();
            descriptor::close_all();
            self.socket.forget();
            self.exit_reply.expect(0);
            self.owner.store(0, Ordering::Release);
        });
    }

    /// Removes the socket's file at exit and lets the thread go. Takes no lock. Pauses only while
    /// an answer is due at the exit, and then for seconds at most.
    pub(crate) fn stop(&self) {
        let me = std::process::id() as i32;
        if self.owner.compare_exchange(me, 0, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return;
        }
        preserve_errno(|| {
            self.socket.withdraw();
            signal::send(self.wake.load(Ordering::Acquire), signal::QUIT);
            self.exit_reply.wait();
        });
    }

    /// Makes this process the owner, unless it is already.
    fn claim(&self) -> bool {
        let me = std::process::id() as i32;
        self.owner.compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Everything that can go wrong in [`StatisticsEndpoint::start`]. The signal works without a
    /// socket, and the other way round.
    fn launch(
        &'static self,
        settings: &EndpointSettings,
        source: &'static dyn Source,
    ) -> Result<(), EndpointError> {
        let directory = private_folder::directory(settings.directory.as_deref())?;
        let wake = signal::pipe().map_err(EndpointError::Pipe)?;
        let slot = wake.slot();
        let (listener, socket) = match socket::bind(settings.socket.as_deref(), &directory) {
            Ok(bound) => (Some(bound.listener), Some(bound.file)),
            Err(problem) if settings.signal.is_none() && settings.at_exit.is_none() => {
                return Err(problem.into());
            }
            Err(problem) => {
                log::warn!("statistics: {problem}");
                (None, None)
            }
        };
        self.wake.store(slot, Ordering::Release);
        let server = EndpointServer::new(listener, wake, Dumps::new(directory), source, &self.exit_reply);
        let server = server.with_final_file(settings.at_exit.clone());
        self.publish(socket);
        run(server).map_err(|error| {
            self.socket.withdraw();
            self.exit_reply.expect(0);
            EndpointError::Thread(error)
        })?;
        settings.signal.into_iter().for_each(|number| self.signal.install(number, slot));
        Ok(())
    }

    /// Lets [`StatisticsEndpoint::stop`] find the socket's file.
    fn publish(&self, socket: Option<OwnFile>) {
        if let Some(socket) = socket {
            log::info!("statistics: {}", socket.path().display());
            self.socket.publish(socket);
        }
    }
}

/// Starts the thread.
fn run(server: EndpointServer) -> io::Result<()> {
    thread::spawn(c"wmshim-stats", STACK, move || server.run())
}
