//! The packets between exporter and importer on a `SOCK_SEQPACKET` socket.
//!
//! | from | words | |
//! |---|---|---|
//! | importer | nonce (2) | |
//! | exporter | nonce (2), tag (2) | it knows the key |
//! | importer | id, address, bytes, tag (2) | it does too, and asks for that allocation |
//! | exporter | status, pieces, their bytes, the block's offset in them, its bytes | |
//! | importer | number of a piece | again and again |
//! | exporter | status, bytes of each of the next pieces, and as many descriptors | up to [`BATCH`] |
//!
//! A status that is not 0 is the driver's error code for the importer's program. The importer asks
//! for the next batch after it has closed the last one, so neither side has more than a batch of
//! descriptors open, and an answer always fits into the socket. Every length is checked before it
//! is believed.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::BorrowedFd;

use wm_abi::CUresult;
use wm_sockets::descriptor::Descriptor;
use wm_sockets::packet::{self, ReceivedPacket};

/// Pieces a packet.
pub(super) const BATCH: usize = 32;

/// Words of the longest packet.
const WORDS: usize = 1 + BATCH;

/// Why memory is not passed on.
#[derive(Debug)]
pub(super) enum Failure {
    /// The driver's code, for the importer's program.
    Answer(CUresult),
    /// The exchange cannot go on.
    Lost(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Lost(error)
    }
}

impl From<CUresult> for Failure {
    fn from(code: CUresult) -> Self {
        Self::Answer(code)
    }
}

/// One packet as it arrived.
#[derive(Debug)]
pub(super) struct Packet {
    words: Vec<u64>,
    descriptors: Vec<Descriptor>,
}

impl Packet {
    /// The words of a packet without descriptors.
    pub(super) fn words<const COUNT: usize>(self) -> Result<[u64; COUNT]> {
        if !self.descriptors.is_empty() {
            return Err(malformed("a packet that may have no descriptors"));
        }
        self.words.try_into().map_err(|_| malformed("a packet of the wrong length"))
    }

    /// The status of a batch, and its pieces.
    pub(super) fn pieces(self) -> Result<(u64, Vec<(Descriptor, usize)>)> {
        let (status, sizes) = self.words.split_first().ok_or_else(|| malformed("an empty packet"))?;
        if sizes.len() != self.descriptors.len() || sizes.contains(&0) {
            return Err(malformed("sizes and descriptors do not match"));
        }
        Ok((*status, self.descriptors.into_iter().zip(sizes.iter().map(|bytes| *bytes as usize)).collect()))
    }
}

pub(super) fn send(socket: BorrowedFd<'_>, words: &[u64], descriptors: &[Descriptor]) -> Result<()> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let descriptors = descriptors.iter().map(Descriptor::get).collect::<Result<Vec<_>>>()?;
    packet::send(socket, &bytes, &descriptors).map(drop)
}

pub(super) fn receive(socket: BorrowedFd<'_>) -> Result<Packet> {
    let received = packet::receive(socket, WORDS * 8, BATCH);
    let (bytes, descriptors) = received.and_then(ReceivedPacket::complete)?;
    let descriptors = descriptors.into_iter().map(Descriptor::adopt).collect::<Result<Vec<_>>>()?;
    let (words, rest) = bytes.as_chunks();
    if !rest.is_empty() {
        return Err(malformed("a packet of the wrong length"));
    }
    Ok(Packet { words: words.iter().map(|word| u64::from_le_bytes(*word)).collect(), descriptors })
}

pub(super) fn malformed(problem: &str) -> Error {
    Error::new(ErrorKind::InvalidData, problem.to_owned())
}

#[cfg(test)]
mod tests {
    //! Hazard (corrupt input): a packet differs from the one that was sent, or a broken peer is
    //! believed.
    use std::os::fd::AsFd;
    use std::os::fd::OwnedFd;

    use rustix::net::{AddressFamily, SendFlags, SocketFlags, socketpair};

    use super::*;
    use crate::ipc::names::KIND;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, KIND, SocketFlags::CLOEXEC, None).expect("a pair")
    }

    fn piece(text: &str) -> Descriptor {
        let file = rustix::fs::memfd_create("piece", rustix::fs::MemfdFlags::CLOEXEC).expect("memfd");
        rustix::io::pwrite(&file, text.as_bytes(), 0).expect("written");
        Descriptor::adopt(file).expect("a place")
    }

    #[test]
    fn a_whole_batch_arrives_in_order() {
        let (here, there) = pair();
        let texts: Vec<String> = (0..BATCH).map(|n| format!("piece {n}")).collect();
        let sizes = texts.iter().map(|text| text.len() as u64);
        let words: Vec<u64> = std::iter::once(0).chain(sizes).collect();
        let sent: Vec<_> = texts.iter().map(|text| piece(text)).collect();
        send(here.as_fd(), &words, &sent).expect("sent");
        let (status, received) = receive(there.as_fd()).and_then(Packet::pieces).expect("received");
        assert_eq!((status, received.len()), (0, BATCH));
        for (text, (descriptor, bytes)) in texts.iter().zip(received) {
            let mut read = vec![0; bytes];
            rustix::io::pread(descriptor.get().expect("open"), &mut read, 0).expect("read");
            assert_eq!(text.as_bytes(), read);
        }
    }

    #[test]
    fn a_vanished_peer_and_packets_that_do_not_fit_are_errors() {
        let (here, there) = pair();
        send(here.as_fd(), &[0, 5], &[]).expect("sent");
        assert!(receive(there.as_fd()).and_then(Packet::pieces).is_err(), "a size without a descriptor");
        send(here.as_fd(), &[0, 0], &[piece("")]).expect("sent");
        assert!(receive(there.as_fd()).and_then(Packet::pieces).is_err(), "a piece of no bytes");
        send(here.as_fd(), &[1, 2], &[piece("x")]).expect("sent");
        assert!(receive(there.as_fd()).and_then(Packet::words::<2>).is_err(), "a descriptor too many");
        send(here.as_fd(), &[1, 2, 3], &[]).expect("sent");
        assert!(receive(there.as_fd()).and_then(Packet::words::<2>).is_err(), "a word too many");
        rustix::net::send(&here, &[1, 2, 3], SendFlags::empty()).expect("sent");
        assert!(receive(there.as_fd()).is_err(), "no whole words");
        rustix::net::send(&here, &[1; WORDS * 8 + 8], SendFlags::empty()).expect("sent");
        assert!(receive(there.as_fd()).is_err(), "longer than any packet");
        send(here.as_fd(), &[1, 2], &[]).expect("sent");
        drop(here);
        assert_eq!(receive(there.as_fd()).and_then(Packet::words).expect("sent before the end"), [1, 2]);
        assert_eq!(receive(there.as_fd()).expect_err("gone").kind(), ErrorKind::UnexpectedEof);
    }
}
