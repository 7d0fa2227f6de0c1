//! One client: lines in, lines out, nothing waited for.
//!
//! At most one answer is in flight: the next request is read when the last answer is gone. So a
//! client can make us keep one request line and one answer, and no more. A client that neither asks
//! nor reads for [`PATIENCE`] is dropped, unless it is parked: a parked client has asked for the
//! process's final statistics and waits for them in silence.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use wm_sockets::descriptor::Descriptor;

/// Longest request line, without its end.
pub(super) const LINE_LIMIT: usize = 4 << 10;
/// How long a client may stand still.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Longer than any process lives.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// A line from the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line, without its end.
    Request(Vec<u8>),
    /// More than [`LINE_LIMIT`] bytes and no end in sight.
    TooLong,
}

/// The client is gone, or must go.
#[derive(Debug)]
pub(super) struct Disconnected;

/// One client.
#[derive(Debug)]
pub(super) struct Connection {
    descriptor: Descriptor,
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    input_ended: bool,
    parked: bool,
    deadline: Instant,
}

impl Connection {
    pub(super) fn new(descriptor: Descriptor, now: Instant) -> Self {
        let deadline = now + PATIENCE;
        let (input, output) = (Vec::new(), Vec::new());
        Self { descriptor, input, output, sent: 0, input_ended: false, parked: false, deadline }
    }

    /// Keeps the client until the process exits.
    pub(super) fn park(&mut self, now: Instant) {
        self.parked = true;
        self.deadline = now + FOREVER;
    }

    pub(super) fn is_parked(&self) -> bool {
        self.parked
    }

    /// Does a request wait to be paid for?
    pub(super) fn has_pending_request(&self) -> bool {
        self.has_line() && !self.is_sending() && !self.parked
    }

    /// The events to poll for. A connection with a request that waits for the rate limit is not
    /// polled at all, nor one that the host has closed.
    pub(super) fn poll_entry(&self) -> Option<PollFd<'_>> {
        let events = match (self.parked, self.is_sending()) {
            // That the client hangs up is reported without being asked for.
            (true, _) => PollFlags::empty(),
            (_, true) => PollFlags::OUT,
            (_, false) => PollFlags::IN,
        };
        let polled = self.descriptor.get().ok().filter(|_| !self.has_pending_request());
        polled.map(|socket| PollFd::from_borrowed_fd(socket, events))
    }

    /// When the client has stood still for too long.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(super) fn is_sending(&self) -> bool {
        self.sent < self.output.len()
    }

    /// Is there a request (or the proof that none will come) in the input?
    fn has_line(&self) -> bool {
        self.input.contains(&b'\n')
            || self.input.len() > LINE_LIMIT
            || (self.input_ended && !self.input.is_empty())
    }

    /// Everything said and everything sent.
    pub(super) fn is_finished(&self) -> bool {
        self.input_ended && self.input.is_empty() && !self.is_sending() && !self.parked
    }

    /// Reads the bytes that are there, up to one line's limit.
    pub(super) fn receive(&mut self, now: Instant) -> Result<(), Disconnected> {
        let mut buffer = [0_u8; LINE_LIMIT + 1];
        let socket = self.descriptor.get().map_err(|_| Disconnected)?;
        match recv(socket, &mut buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => self.input_ended = true,
            Ok((count, _)) => self.input.extend_from_slice(&buffer[..count]),
            Err(error) => return not_now(error),
        }
        self.deadline = now + PATIENCE;
        Ok(())
    }

    /// Takes the next request out of the input.
    pub(super) fn next_line(&mut self) -> Option<Line> {
        let end = self.input.iter().position(|&byte| byte == b'\n');
        if end.unwrap_or(self.input.len()) > LINE_LIMIT {
            self.end_input();
            return Some(Line::TooLong);
        }
        match end {
            Some(end) => {
                let rest = self.input.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.input, rest);
                line.truncate(end);
                Some(Line::Request(line))
            }
            None if self.input_ended && !self.input.is_empty() => {
                Some(Line::Request(std::mem::take(&mut self.input)))
            }
            None => None,
        }
    }

    /// Queues an answer and sends as much of it as the socket accepts at once.
    pub(super) fn answer(&mut self, answer: Vec<u8>, now: Instant) -> Result<(), Disconnected> {
        (self.output, self.sent) = (answer, 0);
        self.send(now)
    }

    /// Sends as much as the socket accepts now. A peer that is gone raises no SIGPIPE.
    pub(super) fn send(&mut self, now: Instant) -> Result<(), Disconnected> {
        let rest = &self.output[self.sent..];
        let socket = self.descriptor.get().map_err(|_| Disconnected)?;
        match send(socket, rest, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(count) => self.sent += count,
            Err(error) => return not_now(error),
        }
        self.deadline = now + PATIENCE;
        if !self.is_sending() {
            (self.output, self.sent) = (Vec::new(), 0);
        }
        Ok(())
    }

    fn end_input(&mut self) {
        self.input = Vec::new();
        self.input_ended = true;
    }
}

/// A call that would have waited, or that a signal interrupted, is made again in a later round.
fn not_now(error: Errno) -> Result<(), Disconnected> {
    match error {
        Errno::AGAIN | Errno::INTR => Ok(()),
        _ => Err(Disconnected),
    }
}
