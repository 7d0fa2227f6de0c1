//! The statistics endpoint: how other processes look into one that runs under the shim.
//!
//! One background thread answers JSON lines on a Unix socket and writes the same JSON to a file when the statistics
//! signal arrives. It lives in a process that is not ours, so every invariant here is about not being noticed:
//!
//! * Nothing that a client does (garbage, silence, floods, vanishing) costs the host more than the bounded work of
//!   this one thread: no signal, no blocking write, no unbounded buffer, no unbounded rate of questions.
//! * The thread has every signal blocked, so the host's handlers never run on it, and it never ends the process: a
//!   panic in a source becomes an answer.
//! * No lock is held while the [`Source`] is asked, and the source is asked from this thread only.
//! * Descriptors are close-on-exec, have high numbers, and are used and closed only while they still are what we
//!   opened: a host that closes all descriptors and opens its own never finds us reading from one of its files.
//! * The statistics signal is taken only if its disposition is the default.
//! * A forked child has no endpoint: it closes what it inherited and leaves the parent's socket alone.
//! * A problem is one warning in the log. [`start`] never fails the host, and `errno` survives every function here.
//!
//! Parts: [`socket`] binds, [`server`] polls, [`connection`] is one client, [`rate_limit`] bounds the rate, [`request`]
//! understands and answers a line, [`dump`] writes files, [`exit_reply`] is the last answer at exit, to clients and to a file, [`signal`] deals with what is
//! global to the process. The folder and the descriptors are those of [`wm_sockets`].

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

use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::process::keep_errno;
use server::EndpointServer;
use wm_driver::thread;
use wm_sockets::file::{Published, SocketFile};
use wm_sockets::{descriptor, private_folder};

/// Stack of the thread, bytes: it parses short lines and formats JSON.
const STACK: usize = 256 << 10;

/// What the endpoint answers with. Asked from the endpoint's thread, with no lock held.
pub(crate) trait Source: Send + Sync + 'static {
    /// Counters and sizes, in the schema of `docs/wmctl.md`.
    fn stats(&self) -> serde_json::Value;
    /// The same, after a look through the books that takes as long as there are blocks: for dumps and the last answer.
    fn audited(&self) -> serde_json::Value {
        self.stats()
    }
    /// The blocks that are live now.
    fn blocks(&self) -> serde_json::Value;
    /// The settings in force.
    fn config(&self) -> serde_json::Value;
}

/// What the user set.
#[derive(Debug, Clone, Default)]
pub(crate) struct EndpointSettings {
    /// Exact path of the socket (`WMSHIM_STATS_SOCKET`). While another process listens there, the directory is used.
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

/// The process whose endpoint is up; 0 while there is none. A forked child differs from it and owns nothing.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// The socket's file, for [`stop`].
static SOCKET: Published = Published::none();

/// Starts the endpoint: binds the socket, takes the signal, starts the thread. Later calls do nothing.
///
/// Called from the first successful `cuInit`. When it returns, the socket answers.
pub(crate) fn start(settings: EndpointSettings, source: &'static dyn Source) {
    if !settings.enabled || !claim() {
        return;
    }
    keep_errno(|| {
        if let Err(problem) = launch(&settings, source) {
            log::warn!("statistics: {problem}");
        }
    });
}

/// Forgets the endpoint in a forked child. Async-signal-safe: plain system calls and atomics only.
pub(crate) fn forked() {
    keep_errno(|| {
        signal::release();
        descriptor::close_all();
        SOCKET.forget();
        exit_reply::expect(0);
        OWNER.store(0, Ordering::Release);
    });
}

/// Removes the socket's file at exit and lets the thread go. Takes no lock. Pauses only while a client or a setting has asked for
/// the last statistics, and then for seconds at most.
pub(crate) fn stop() {
    let me = std::process::id() as i32;
    if OWNER.compare_exchange(me, 0, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return;
    }
    keep_errno(|| {
        SOCKET.withdraw();
        signal::wake(signal::QUIT);
        exit_reply::wait();
    });
}

/// Makes this process the owner, unless it is already.
fn claim() -> bool {
    let me = std::process::id() as i32;
    OWNER.compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Everything that can go wrong in [`start`]. The signal works without a socket, and the other way round.
fn launch(settings: &EndpointSettings, source: &'static dyn Source) -> Result<(), String> {
    let directory =
        private_folder::directory(settings.directory.as_deref()).map_err(|error| error.to_string())?;
    let wake = signal::pipe().map_err(|error| format!("no pipe for the statistics thread: {error}"))?;
    let bound = socket::bind(settings.socket.as_deref(), &directory);
    let (listener, socket) = match bound {
        Ok(bound) => (Some(bound.listener), Some(bound.file)),
        Err(problem) if settings.signal.is_none() && settings.at_exit.is_none() => return Err(problem),
        Err(problem) => {
            log::warn!("statistics: {problem}");
            (None, None)
        }
    };
    wake.publish();
    let server = EndpointServer::new(listener, wake, dump::Dumps::new(directory), source);
    let server = server.leaving(settings.at_exit.clone());
    publish(socket);
    run(server).map_err(|error| {
        SOCKET.withdraw();
        exit_reply::expect(0);
        format!("no thread for statistics: {error}")
    })?;
    settings.signal.into_iter().for_each(signal::take);
    Ok(())
}

/// Starts the thread.
fn run(server: EndpointServer) -> std::io::Result<()> {
    thread::spawn(c"wmshim-stats", STACK, move || server.run())
}

/// Lets [`stop`] find the socket's file.
fn publish(socket: Option<SocketFile>) {
    if let Some(socket) = socket {
        log::info!("statistics: {}", socket.path().display());
        SOCKET.publish(socket);
    }
}
