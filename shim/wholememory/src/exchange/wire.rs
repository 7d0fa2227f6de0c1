//! Frames on a stream socket: a header, the name of a call, bytes, and descriptors. To another
//! machine a frame goes without its descriptors.
//!
//! Every length is checked before it is believed. Descriptors come with a frame's first byte.

use std::io::{self, Error, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use wm_sockets::packet::{self, DESCRIPTORS, ReceivedPacket};

use super::link::{RankLink, UNLESS_ANSWERED};
use crate::error::{Error as Fault, Result};

/// Bytes of a frame, at most.
const LARGEST: usize = 64 << 20;
/// Bytes of the name of a call, at most.
const LONGEST_NAME: usize = 256;
/// Bytes of a frame that are sent with its header.
const SMALL: usize = 4096;
/// Kind, round, code, descriptors, bytes of the name, bytes.
const HEADER: usize = 24;

/// The contribution of one rank.
#[derive(Debug, Default)]
pub struct Part {
    /// Bytes.
    pub bytes: Vec<u8>,
    /// Descriptors, open in this process.
    pub descriptors: Vec<OwnedFd>,
}

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A rank hands in its part of a round.
    Part = 1,
    /// The hub, or a leader, says that a round has failed.
    Refusal = 2,
}

/// One message between a rank and the hub.
#[derive(Debug)]
pub(super) struct RankFrame {
    kind: Kind,
    round: u32,
    /// Of a refusal, the error's code.
    code: u32,
    /// Of a part, the call; of a refusal, the reason.
    name: String,
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl RankFrame {
    pub(super) fn contribution(
        round: u32,
        call: &str,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Self> {
        if descriptors.len() > DESCRIPTORS || bytes.len() > LARGEST || call.len() > LONGEST_NAME {
            return Err(Fault::Value("more than ranks can tell each other at once".to_owned()));
        }
        let descriptors = descriptors.iter().map(|fd| fd.try_clone_to_owned()).collect::<io::Result<_>>()?;
        Ok(Self::of_part(round, call, Part { bytes: bytes.to_vec(), descriptors }))
    }

    /// The frame of a part.
    pub(super) fn of_part(round: u32, call: &str, part: Part) -> Self {
        let Part { bytes, descriptors } = part;
        Self { kind: Kind::Part, round, code: 0, name: call.to_owned(), bytes, descriptors }
    }

    pub(super) fn refusal(round: u32, error: &Fault) -> Self {
        let mut name = error.reason().to_owned();
        while name.len() > LONGEST_NAME {
            name.pop();
        }
        let (bytes, descriptors) = (Vec::new(), Vec::new());
        Self { kind: Kind::Refusal, round, code: error.code(), name, bytes, descriptors }
    }

    /// The error, if it is a refusal.
    pub(super) fn refused(self) -> Result<Self> {
        match self.kind {
            Kind::Part => Ok(self),
            Kind::Refusal => Err(self.reason()),
        }
    }

    fn reason(self) -> Fault {
        match self.code {
            code @ (3 | 6) => Fault::of_code(code, self.name),
            // The state of the exchange is unknown.
            _ => Fault::Communication(self.name),
        }
    }

    /// Its first descriptor.
    pub(super) fn descriptor(&self) -> Option<&OwnedFd> {
        self.descriptors.first()
    }

    pub(super) fn call(&self) -> &str {
        &self.name
    }

    pub(super) fn is_of(&self, round: u32, call: &str) -> bool {
        self.kind == Kind::Part && self.round == round && self.name == call
    }

    /// The part that a rank handed in for a round.
    pub(super) fn into_part(self, round: u32, call: &str) -> Result<Part> {
        match self.kind {
            Kind::Part if self.is_of(round, call) => {
                Ok(Part { bytes: self.bytes, descriptors: self.descriptors })
            }
            Kind::Part => Err(Fault::Communication(format!("an answer to {}, not to {call}", self.name))),
            Kind::Refusal => Err(self.reason()),
        }
    }

    pub(super) fn send(&self, link: &RankLink) -> io::Result<()> {
        self.send_while(link, PollFlags::OUT)
    }

    /// Sends it to a rank that may refuse it before it has read it.
    ///
    /// # Errors
    /// `BrokenPipe` where the other rank has spoken or ended meanwhile.
    pub(super) fn send_unless_answered(&self, link: &RankLink) -> io::Result<()> {
        self.send_while(link, UNLESS_ANSWERED)
    }

    fn send_while(&self, link: &RankLink, flags: PollFlags) -> io::Result<()> {
        let open = if link.is_remote() { &[] } else { &*self.descriptors };
        let descriptors: Vec<_> = open.iter().map(AsFd::as_fd).collect();
        let numbers = [
            self.kind as u32,
            self.round,
            self.code,
            descriptors.len() as u32,
            self.name.len() as u32,
            self.bytes.len() as u32,
        ];
        let mut text: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        text.extend(self.name.as_bytes());
        // A frame without many bytes is one call.
        let (with_text, rest) = self.bytes.split_at(self.bytes.len().min(SMALL));
        text.extend(with_text);
        let send = |to: BorrowedFd<'_>| packet::send(to, &text, &descriptors);
        let sent = link.until_ready(flags, send)?;
        link.send_all(&text[sent..], flags)?;
        link.send_all(rest, flags)
    }

    pub(super) fn receive(link: &RankLink) -> io::Result<Self> {
        let receive = |from: BorrowedFd<'_>| packet::receive(from, HEADER, DESCRIPTORS);
        let first = link.until_ready(PollFlags::IN, receive)?;
        let (mut header, descriptors) = ReceivedPacket::complete(first)?;
        let (read, mut rest) = (header.len(), link);
        header.resize(HEADER, 0);
        rest.read_exact(&mut header[read..])?;
        let (words, _) = header.as_chunks::<4>();
        let number = |at: usize| u32::from_le_bytes(words[at]);
        let kind = match number(0) {
            1 => Kind::Part,
            2 => Kind::Refusal,
            _ => return Err(malformed("a frame of no kind")),
        };
        let (count, name, bytes) = (number(3) as usize, number(4) as usize, number(5) as usize);
        if count != descriptors.len() || name > LONGEST_NAME || bytes > LARGEST {
            return Err(malformed("a frame of the wrong length"));
        }
        let mut text = vec![0; name + bytes];
        rest.read_exact(&mut text)?;
        let content = text.split_off(name);
        let name = String::from_utf8(text).map_err(|_| malformed("a name that is no text"))?;
        Ok(Self { kind, round: number(1), code: number(2), name, bytes: content, descriptors })
    }
}

fn malformed(problem: &str) -> Error {
    Error::new(ErrorKind::InvalidData, problem.to_owned())
}
