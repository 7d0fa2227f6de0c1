//! One connection to another rank: the messages that wait to be sent, and those that are expected.
//!
//! A network that drops silently (`SIMNCCL_DROP`) tells the other side so in a frame of its own:
//! from there on neither side reads, writes, or believes a closed connection, because a real
//! network would not report it either.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::time::Instant;

use rustix::event::PollFlags;

use crate::abi::{Code, Outcome};
use crate::report::error;
use crate::wire::is_transient;

const HEADER: usize = 16;
/// The tag of the frame after which a network is silent.
const SILENCE: u64 = u64::MAX;

/// One message between this rank and another one. The bytes are a part of the group's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) peer: usize,
    /// The operation that it belongs to, in the low eight bits, and the place of a collective.
    pub(crate) tag: u64,
    pub(crate) bytes: Range<usize>,
}

fn header(tag: u64, length: usize) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(&tag.to_le_bytes());
    bytes[8..].copy_from_slice(&(length as u64).to_le_bytes());
    bytes
}

fn parsed(bytes: &[u8; HEADER]) -> (u64, u64) {
    let (words, _) = bytes.as_chunks::<8>();
    (u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]))
}

#[derive(Debug)]
struct Outgoing {
    message: Message,
    due: Instant,
    begun: bool,
    /// Bytes that are sent, of the header and the message.
    moved: usize,
}

#[derive(Debug)]
struct Incoming {
    message: Message,
    header: [u8; HEADER],
    moved: usize,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Link {
    peer: usize,
    socket: TcpStream,
    outgoing: VecDeque<Outgoing>,
    incoming: VecDeque<Incoming>,
    /// Does this side drop everything, but what it has begun to send?
    dropping: bool,
    /// Has the network become silent?
    silent: bool,
}

impl Link {
    pub(crate) fn new(peer: usize, socket: TcpStream) -> Outcome<Self> {
        let set = socket.set_nonblocking(true);
        set.map_err(|reason| error(Code::SYSTEM, &format!("rank {peer}: {reason}")))?;
        let (outgoing, incoming) = (VecDeque::new(), VecDeque::new());
        Ok(Self { peer, socket, outgoing, incoming, dropping: false, silent: false })
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.silent || self.dropping
    }

    /// Has it unfinished messages? Those of a silent link never finish.
    pub(crate) fn is_busy(&self) -> bool {
        !self.outgoing.is_empty() || !self.incoming.is_empty()
    }

    pub(crate) fn send_later(&mut self, message: Message, due: Instant) {
        self.outgoing.push_back(Outgoing { message, due, begun: false, moved: 0 });
    }

    pub(crate) fn expect(&mut self, message: Message) {
        self.incoming.push_back(Incoming { message, header: [0; HEADER], moved: 0 });
    }

    /// The next message's length, if it may begin.
    pub(crate) fn due(&self, now: Instant) -> Option<usize> {
        let next =
            self.outgoing.front().filter(|next| !self.is_silent() && !next.begun && next.due <= now)?;
        Some(next.message.bytes.len())
    }

    /// When the next message may begin, if it has not.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.outgoing.front().filter(|next| !self.is_silent() && !next.begun).map(|next| next.due)
    }

    pub(crate) fn begin(&mut self) {
        self.outgoing.front_mut().into_iter().for_each(|next| next.begun = true);
    }

    /// Ends the network behind the message that is being sent, without closing the connection.
    pub(crate) fn drop_silently(&mut self) {
        self.dropping = true;
        let behind = usize::from(self.outgoing.front().is_some_and(|first| first.begun));
        let message = Message { peer: self.peer, tag: SILENCE, bytes: 0..0 };
        self.outgoing.insert(behind, Outgoing { message, due: Instant::now(), begun: true, moved: 0 });
    }

    fn is_sending(&self) -> bool {
        !self.silent && self.outgoing.front().is_some_and(|first| first.begun)
    }

    fn is_receiving(&self) -> bool {
        !self.is_silent() && !self.incoming.is_empty()
    }

    /// What a wait for this link waits for.
    pub(crate) fn interest(&self) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::OUT, self.is_sending());
        flags.set(PollFlags::IN, self.is_receiving());
        flags
    }

    /// Moves as many bytes as the socket takes and has, without waiting.
    pub(crate) fn step(&mut self, out: &[u8], into: &mut [u8]) -> Outcome {
        while self.is_receiving() && self.receive(into)? {}
        while self.is_sending() && self.send(out)? {}
        Ok(())
    }

    /// Sends a part of the first message. Did any byte move?
    fn send(&mut self, out: &[u8]) -> Outcome<bool> {
        let Some(first) = self.outgoing.front_mut() else { return Ok(false) };
        let bytes = &out[first.message.bytes.clone()];
        let sent = match first.moved.checked_sub(HEADER) {
            None => self.socket.write(&header(first.message.tag, bytes.len())[first.moved..]),
            Some(past) => self.socket.write(&bytes[past..]),
        };
        let sent = match sent {
            Err(reason) if !is_transient(reason.kind()) => return self.closed(&reason.to_string()),
            other => other.unwrap_or_default(),
        };
        first.moved += sent;
        if first.moved == HEADER + bytes.len() {
            self.silent |= first.message.tag == SILENCE;
            self.outgoing.pop_front();
        }
        Ok(sent > 0)
    }

    /// Receives a part of the first message. Did any byte move?
    fn receive(&mut self, into: &mut [u8]) -> Outcome<bool> {
        let Some(first) = self.incoming.front_mut() else { return Ok(false) };
        let bytes = &mut into[first.message.bytes.clone()];
        let received = match first.moved.checked_sub(HEADER) {
            None => self.socket.read(&mut first.header[first.moved..]),
            Some(past) => self.socket.read(&mut bytes[past..]),
        };
        let received = match received {
            Ok(0) => return self.closed("the connection was closed"),
            Err(reason) if is_transient(reason.kind()) => return Ok(false),
            Err(reason) => return self.closed(&reason.to_string()),
            Ok(count) => count,
        };
        first.moved += received;
        if first.moved == HEADER {
            self.silent |= matching(&first.message, parsed(&first.header))?;
        }
        if first.moved == HEADER + first.message.bytes.len() && !self.silent {
            self.incoming.pop_front();
        }
        Ok(true)
    }

    /// A closed connection is an error, except behind the frame after which nothing is reported.
    fn closed(&mut self, reason: &str) -> Outcome<bool> {
        let mut bytes = [0; HEADER];
        let frame = matches!(self.socket.peek(&mut bytes), Ok(HEADER));
        if frame && parsed(&bytes).0 == SILENCE {
            self.silent = true;
            return Ok(false);
        }
        Err(error(Code::REMOTE, &format!("rank {}: {reason}", self.peer)))
    }
}

/// Compares a header with the message that is expected. Is it the frame of a silent network?
fn matching(message: &Message, (tag, length): (u64, u64)) -> Outcome<bool> {
    if tag == SILENCE {
        return Ok(true);
    }
    if (tag, length) == (message.tag, message.bytes.len() as u64) {
        return Ok(false);
    }
    let (peer, expected) = (message.peer, message.bytes.len());
    let [sent, wanted] = [tag, message.tag].map(|tag| (tag & 0xff, tag >> 8));
    let text = format!(
        "rank {peer} sent {length} bytes of operation {} (collective {}), and {expected} bytes of operation {} \
         (collective {}) are to be received",
        sent.0, sent.1, wanted.0, wanted.1
    );
    Err(error(Code::INVALID_USAGE, &text))
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a message ends early, or another one's bytes are taken for it.
    use super::*;

    fn expected() -> Message {
        Message { peer: 1, tag: 4, bytes: 100..200 }
    }

    #[test]
    fn only_the_expected_operation_and_length_match() {
        assert_eq!(parsed(&header(4, 1 << 40)), (4, 1 << 40));
        assert_eq!(matching(&expected(), (4, 100)), Ok(false));
        assert_eq!(matching(&expected(), (SILENCE, 0)), Ok(true));
        for wrong in [(4, 99), (4, 101), (5, 100)] {
            assert_eq!(matching(&expected(), wrong), Err(Code::INVALID_USAGE));
        }
    }
}
