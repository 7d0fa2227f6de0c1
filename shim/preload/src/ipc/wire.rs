//! What exporter and importer say to each other: packets on a `SOCK_SEQPACKET` socket.
//!
//! The importer sends its ticket. The exporter answers a header (status, number of pieces, the block's offset in the first,
//! its size), then packets of up to [`BATCH`] pieces: their sizes, with as many file descriptors. Every length is checked
//! before it is believed; a peer that stops answering is given up after [`PATIENCE`].

use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg, socket_with,
};

/// Pieces a packet: well below the kernel's limit of 253 descriptors a message.
pub(super) const BATCH: usize = 64;

/// More pieces than this are no block: 1 TiB in pieces of 2 MiB.
const MOST_PIECES: u32 = 1 << 19;

const PATIENCE: Duration = Duration::from_secs(30);

/// Words of a ticket and of a header.
pub(super) type Words = [u64; 4];

/// A piece of physical memory: a descriptor, and its size in bytes.
pub(super) type Piece = (OwnedFd, usize);

/// The exporter's address: abstract, so that nothing is left in a file system, and by user and process.
pub(super) fn address(pid: u32) -> Result<SocketAddrUnix> {
    let user = rustix::process::getuid().as_raw();
    Ok(SocketAddrUnix::new_abstract_name(format!("wmshim-ipc-{user}-{pid}").as_bytes())?)
}

pub(super) fn socket() -> Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    be_patient(&socket)?;
    Ok(socket)
}

/// Limits how long a read or write on the socket may take.
pub(super) fn be_patient(socket: &impl AsFd) -> Result<()> {
    set_socket_timeout(socket, Timeout::Recv, Some(PATIENCE))?;
    set_socket_timeout(socket, Timeout::Send, Some(PATIENCE))?;
    Ok(())
}

pub(super) fn send_words(socket: &impl AsFd, words: Words) -> Result<()> {
    send(socket, &words, &[])
}

pub(super) fn receive_words(socket: &impl AsFd) -> Result<Words> {
    let (words, descriptors) = receive(socket)?;
    if !descriptors.is_empty() {
        return Err(malformed("descriptors where none belong"));
    }
    words.try_into().map_err(|_| malformed("a packet of the wrong length"))
}

pub(super) fn send_pieces(socket: &impl AsFd, pieces: &[Piece]) -> Result<()> {
    for batch in pieces.chunks(BATCH) {
        let sizes: Vec<u64> = batch.iter().map(|(_, bytes)| *bytes as u64).collect();
        let descriptors: Vec<_> = batch.iter().map(|(descriptor, _)| descriptor.as_fd()).collect();
        send(socket, &sizes, &descriptors)?;
    }
    Ok(())
}

pub(super) fn receive_pieces(socket: &impl AsFd, count: u64) -> Result<Vec<Piece>> {
    let count = u32::try_from(count).ok().filter(|count| *count <= MOST_PIECES);
    let count = count.ok_or_else(|| malformed("an absurd number of pieces"))? as usize;
    let mut pieces = Vec::new();
    while pieces.len() < count {
        let (sizes, descriptors) = receive(socket)?;
        if sizes.is_empty() || sizes.len() != descriptors.len() || pieces.len() + sizes.len() > count {
            return Err(malformed("sizes and descriptors do not match"));
        }
        pieces.extend(descriptors.into_iter().zip(sizes.into_iter().map(|size| size as usize)));
    }
    Ok(pieces)
}

fn send(socket: &impl AsFd, words: &[u64], descriptors: &[BorrowedFd<'_>]) -> Result<()> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(malformed("too many descriptors for one packet"));
    }
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive(socket: &impl AsFd) -> Result<(Vec<u64>, Vec<OwnedFd>)> {
    let mut bytes = [0; BATCH * 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let length = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?.bytes;
    if length == 0 || length % 8 != 0 {
        return Err(malformed("the other process ended the exchange"));
    }
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors = descriptors.flatten().collect();
    let words =
        bytes[..length].chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
    Ok((words.collect(), descriptors))
}

fn malformed(problem: &str) -> Error {
    Error::new(ErrorKind::InvalidData, problem.to_owned())
}

#[cfg(test)]
mod tests {
    //! Hazard: what arrives is not what was sent, or a broken peer is believed.
    use std::fs::File;
    use std::io::{Read, Seek, Write};

    use rustix::net::socketpair;

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a pair")
    }

    fn piece(text: &str) -> Piece {
        let mut file =
            File::from(rustix::fs::memfd_create("piece", rustix::fs::MemfdFlags::CLOEXEC).expect("memfd"));
        file.write_all(text.as_bytes()).expect("written");
        (file.into(), text.len())
    }

    #[test]
    fn pieces_arrive_in_order_across_packets() {
        let (here, there) = pair();
        let sent: Vec<_> = (0..BATCH * 2 + 5).map(|n| piece(&format!("piece {n}"))).collect();
        let count = sent.len() as u64;
        let sender = std::thread::spawn(move || send_pieces(&here, &sent).expect("sent"));
        let received = receive_pieces(&there, count).expect("received");
        sender.join().expect("joins");
        for (n, (descriptor, bytes)) in received.into_iter().enumerate() {
            let (mut file, mut text) = (File::from(descriptor), String::new());
            file.rewind().expect("rewinds");
            file.read_to_string(&mut text).expect("reads");
            assert_eq!((text.as_str(), text.len()), (format!("piece {n}").as_str(), bytes));
        }
    }

    #[test]
    fn a_vanished_peer_and_absurd_counts_are_errors() {
        let (here, there) = pair();
        assert!(receive_pieces(&there, u64::MAX).is_err());
        send_words(&here, [1, 2, 3, 4]).expect("sent");
        drop(here);
        assert_eq!(receive_words(&there).expect("sent before the end"), [1, 2, 3, 4]);
        assert!(receive_words(&there).is_err());
    }
}
