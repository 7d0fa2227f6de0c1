//! The loop that serves all clients from one thread.
//!
//! Each round polls the wake-up pipe, the listener and the connections, and does a bounded piece of
//! work for each. With [`CONNECTION_LIMIT`] clients the listener is not polled: later ones wait in
//! its backlog. If accepting fails because descriptors or memory are exhausted, the loop does not
//! poll the listener for [`PAUSE`] instead of spinning.

use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use wm_trust::peer::is_trusted;

use super::connection::{Connection, Disconnected};
use super::dump::Dumps;
use super::exit_reply::ExitReply;
use super::rate_limit::RateLimit;
use super::request::Answer;
use super::signal::{DUMP, QUIT, Wake};
use super::{Source, dump, request};
use wm_sockets::descriptor::Descriptor;

/// Clients served at a time.
pub(super) const CONNECTION_LIMIT: usize = 32;
/// Of these, clients that may wait for the process's end.
const PARKED_LIMIT: usize = 8;
/// Rest after a failed accept.
const PAUSE: Duration = Duration::from_secs(1);
/// Rest between dumps that a signal asks for.
const BETWEEN_DUMPS: Duration = Duration::from_secs(1);

/// The descriptors that have data, its end, or an error.
struct Ready {
    wake: bool,
    listener: bool,
    connections: Vec<bool>,
}

/// The server's state; owned by its thread.
pub(super) struct EndpointServer {
    listener: Option<Descriptor>,
    wake: Wake,
    connections: Vec<Connection>,
    dumps: Dumps,
    source: &'static dyn Source,
    exit_reply: &'static ExitReply,
    rate_limit: RateLimit,
    paused_until: Option<Instant>,
    parked: usize,
    /// When the dump that a signal asked for is written.
    dump_due: Option<Instant>,
    dumped: Option<Instant>,
    /// Where the final statistics go.
    at_exit: Option<PathBuf>,
}

impl EndpointServer {
    pub(super) fn new(
        listener: Option<Descriptor>,
        wake: Wake,
        dumps: Dumps,
        source: &'static dyn Source,
        exit_reply: &'static ExitReply,
    ) -> Self {
        Self {
            listener,
            wake,
            connections: Vec::new(),
            dumps,
            source,
            exit_reply,
            rate_limit: RateLimit::new(Instant::now()),
            paused_until: None,
            parked: 0,
            dump_due: None,
            dumped: None,
            at_exit: None,
        }
    }

    /// The same, with a file for the final statistics.
    pub(super) fn with_final_file(mut self, at_exit: Option<PathBuf>) -> Self {
        self.at_exit = at_exit;
        self.expect();
        self
    }

    /// Serves until the process exits or the host has taken all our descriptors. An exit waits for
    /// nothing then.
    pub(super) fn run(mut self) {
        while self.round().is_continue() {}
        self.exit_reply.done();
    }

    /// Tells the exit how many answers are due.
    fn expect(&self) {
        self.exit_reply.expect(self.parked + usize::from(self.at_exit.is_some()));
    }

    fn round(&mut self) -> ControlFlow<()> {
        let Some(ready) = self.wait() else { return ControlFlow::Break(()) };
        let now = Instant::now();
        if ready.wake {
            self.wake_up(now)?;
        }
        if self.dump_due.is_some_and(|due| due <= now) {
            self.dump(now);
        }
        self.serve(&ready.connections, now);
        self.paused_until = self.paused_until.filter(|&until| until > now);
        if ready.listener {
            self.accept(now);
        }
        ControlFlow::Continue(())
    }

    /// Waits for an event, or for the next deadline. `None` if the host has taken both pipe and
    /// listener, or if polling is impossible here (a limit on open files below the number that we
    /// have): trying again would spin.
    fn wait(&self) -> Option<Ready> {
        let accepting = self.has_room() && self.paused_until.is_none();
        let listener = self.listener.as_ref().filter(|_| accepting).and_then(|listener| listener.get().ok());
        let wake = self.wake.reader.get().ok();
        if accepting && wake.is_none() && listener.is_none() {
            return None;
        }
        let fixed = [wake, listener].map(|fd| fd.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let entries = fixed.into_iter().chain(self.connections.iter().map(Connection::poll_entry));
        let mut ready = polled(entries.collect(), self.timeout().as_ref())?.into_iter();
        let (wake, listener) = (ready.next()?, ready.next()?);
        Some(Ready { wake, listener, connections: ready.collect() })
    }

    fn has_room(&self) -> bool {
        self.connections.len() < CONNECTION_LIMIT
    }

    /// Time until something must be done without an event; `None` for never.
    fn timeout(&self) -> Option<Timespec> {
        let waiting = self.connections.iter().any(Connection::has_pending_request);
        let turn = waiting.then(|| self.rate_limit.refill().unwrap_or_else(Instant::now));
        let patience = self.connections.iter().map(Connection::deadline).min();
        let earliest = [turn, patience, self.paused_until, self.dump_due].into_iter().flatten().min();
        let left = earliest?.saturating_duration_since(Instant::now());
        Some(Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() })
    }

    fn wake_up(&mut self, now: Instant) -> ControlFlow<()> {
        let messages = self.wake.drain();
        if messages.contains(&QUIT) {
            self.answer_at_exit();
            return ControlFlow::Break(());
        }
        if messages.contains(&DUMP) && self.dump_due.is_none() {
            let rested = self.dumped.map_or(now, |last| last + BETWEEN_DUMPS);
            self.dump_due = Some(rested.max(now));
        }
        ControlFlow::Continue(())
    }

    fn dump(&mut self, now: Instant) {
        (self.dump_due, self.dumped) = (None, Some(now));
        match request::dump(self.source, &mut self.dumps) {
            Ok(path) => log::info!("statistics: wrote {}", path.display()),
            Err(problem) => log::warn!("statistics: {problem}"),
        }
    }

    /// Serves each ready connection; drops those that are gone, finished or out of patience.
    fn serve(&mut self, ready: &[bool], now: Instant) {
        let mut ready = ready.iter();
        let mut connections = std::mem::take(&mut self.connections);
        connections.retain_mut(|connection| {
            let ready = ready.next() == Some(&true);
            self.serve_one(connection, ready, now).is_ok() && connection.deadline() > now
        });
        self.connections = connections;
        self.parked = self.connections.iter().filter(|connection| connection.is_parked()).count();
        self.expect();
    }

    fn serve_one(
        &mut self,
        connection: &mut Connection,
        ready: bool,
        now: Instant,
    ) -> Result<(), Disconnected> {
        if ready && connection.is_parked() {
            return Err(Disconnected);
        } else if ready && connection.is_sending() {
            connection.send(now)?;
        } else if ready {
            connection.receive(now)?;
        }
        // One request a round and connection: no client waits for another that sends many.
        if connection.has_pending_request() && self.rate_limit.admit(now) {
            self.reply(connection, now)?;
        }
        if connection.is_finished() { Err(Disconnected) } else { Ok(()) }
    }

    fn reply(&mut self, connection: &mut Connection, now: Instant) -> Result<(), Disconnected> {
        let Some(line) = connection.next_line() else { return Ok(()) };
        match request::answer(&line, self.source, &mut self.dumps) {
            Answer::Now(answer) => connection.answer(answer, now),
            Answer::AtExit if self.parked == PARKED_LIMIT => connection.answer(request::crowded(), now),
            Answer::AtExit => {
                self.parked += 1;
                connection.park(now);
                Ok(())
            }
        }
    }

    /// Answers the clients that wait for the exit, and lets the process go on with it.
    fn answer_at_exit(&mut self) {
        let now = Instant::now();
        for connection in self.connections.iter_mut().filter(|connection| connection.is_parked()) {
            // A client that is gone by now has missed it.
            let _ = connection.answer(request::final_statistics(self.source), now);
        }
        if let Some(template) = self.at_exit.take()
            && let Err(problem) = dump::write_final(&template, &request::final_statistics(self.source))
        {
            log::warn!("WMSHIM_STATS_AT_EXIT: {problem}");
        }
        self.exit_reply.done();
    }

    fn accept(&mut self, now: Instant) {
        while self.has_room() {
            match self.listener.as_ref().and_then(|listener| listener.get().ok()).map(accept_one) {
                Some(Ok(descriptor)) => self.connections.push(Connection::new(descriptor, now)),
                Some(Err(AcceptError::NoClient)) | None => return,
                Some(Err(AcceptError::WrongUser)) => {}
                Some(Err(AcceptError::Resources)) => {
                    self.paused_until = Some(now + PAUSE);
                    return;
                }
            }
        }
    }
}

/// Why there is no new connection.
enum AcceptError {
    NoClient,
    WrongUser,
    Resources,
}

fn accept_one(listener: BorrowedFd<'_>) -> Result<Descriptor, AcceptError> {
    let accepted = accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
    let socket = accepted.map_err(|error| match error {
        Errno::AGAIN | Errno::INTR | Errno::CONNABORTED => AcceptError::NoClient,
        _ => AcceptError::Resources,
    })?;
    if !is_trusted(socket.as_fd()) {
        return Err(AcceptError::WrongUser);
    }
    Descriptor::adopt(socket).map_err(|_| AcceptError::Resources)
}

/// Polls the entries that are there. For each, there or not: has it something to say? `None` if
/// polling is impossible.
fn polled(wanted: Vec<Option<PollFd<'_>>>, timeout: Option<&Timespec>) -> Option<Vec<bool>> {
    let is_polled: Vec<bool> = wanted.iter().map(Option::is_some).collect();
    let mut entries: Vec<_> = wanted.into_iter().flatten().collect();
    match poll(&mut entries, timeout) {
        Ok(_) => {}
        Err(Errno::INTR) => entries.iter_mut().for_each(PollFd::clear_revents),
        Err(_) => return None,
    }
    let mut said = entries.iter().map(|entry| !entry.revents().is_empty());
    Some(is_polled.into_iter().map(|is_polled| is_polled && said.next() == Some(true)).collect())
}
