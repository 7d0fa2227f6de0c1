//! Messages with descriptors (`SCM_RIGHTS`), on packet sockets and at the start of a stream's
//! frame.
//!
//! Invariants: a descriptor that arrives is close-on-exec; sending raises no `SIGPIPE`. A call that
//! a signal interrupts fails with `Interrupted`, because the caller knows how much time is left.

use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The most descriptors that the kernel takes in one message (`SCM_MAX_FD`).
pub const DESCRIPTORS: usize = 253;

/// Bytes of control data for [`DESCRIPTORS`] descriptors.
const SPACE: usize = rustix::cmsg_space!(ScmRights(DESCRIPTORS));

/// One message as it arrived.
#[derive(Debug)]
pub struct ReceivedPacket {
    /// At least one byte.
    pub bytes: Vec<u8>,
    /// Close-on-exec, in the order in which they were sent.
    pub descriptors: Vec<OwnedFd>,
    /// The kernel dropped descriptors: the sender sent too many, or this process may not open more.
    pub lost_some: bool,
}

impl ReceivedPacket {
    /// The bytes and all descriptors.
    ///
    /// # Errors
    /// The kernel dropped descriptors.
    pub fn complete(self) -> Result<(Vec<u8>, Vec<OwnedFd>)> {
        if self.lost_some {
            return Err(lost());
        }
        Ok((self.bytes, self.descriptors))
    }
}

/// The error for a message whose descriptors did not all arrive.
pub fn lost() -> Error {
    Error::other("descriptors were lost; is the limit on open files reached (ulimit -n)?")
}

/// Sends bytes with their descriptors, at most [`DESCRIPTORS`].
///
/// ```
/// use std::os::fd::AsFd;
/// use std::os::unix::net::UnixStream;
/// use wm_sockets::packet;
///
/// let (sender, receiver) = UnixStream::pair()?;
/// let shared = std::fs::File::open("/dev/zero")?;
/// packet::send(sender.as_fd(), b"zeros", &[shared.as_fd()])?;
/// let (bytes, descriptors) = packet::receive(receiver.as_fd(), 64, 1)?.complete()?;
/// assert_eq!((&bytes[..], descriptors.len()), (&b"zeros"[..], 1));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// Returns the number of bytes sent, which on a stream may be fewer than `bytes` has.
///
/// # Errors
/// The system's, `WouldBlock` if the socket does not block and is full, and `InvalidInput` for too
/// many descriptors.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<usize> {
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fits = descriptors.len() <= DESCRIPTORS
        && (descriptors.is_empty() || control.push(SendAncillaryMessage::ScmRights(descriptors)));
    if !fits {
        return Err(ErrorKind::InvalidInput.into());
    }
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

/// Receives at most `longest` bytes and `most` descriptors, in one call.
///
/// # Errors
/// The system's, `UnexpectedEof` if the peer has closed its end, and `InvalidData` for a packet of
/// more than `longest` bytes.
pub fn receive(socket: BorrowedFd<'_>, longest: usize, most: usize) -> Result<ReceivedPacket> {
    let mut bytes = vec![0; longest];
    let mut space = [MaybeUninit::uninit(); SPACE];
    let room = rustix::cmsg_space!(ScmRights(most.clamp(1, DESCRIPTORS)));
    let mut control = RecvAncillaryBuffer::new(&mut space[..room]);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    // Collected before any error is returned: descriptors left in the buffer would count against
    // the limit until the buffer closes them.
    let descriptors = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    if received.bytes == 0 {
        return Err(Error::new(ErrorKind::UnexpectedEof, "the peer has closed its socket"));
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(Error::new(ErrorKind::InvalidData, "a packet that is longer than any"));
    }
    bytes.truncate(received.bytes);
    let lost_some = received.flags.contains(ReturnFlags::CTRUNC);
    Ok(ReceivedPacket { bytes, descriptors, lost_some })
}

#[cfg(test)]
mod tests {
    //! Hazard (corrupt input): bytes or descriptors arrive that were not sent, or are lost
    //! unseen.
    use std::os::fd::AsFd;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair(kind: SocketType) -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("a pair")
    }

    fn file(text: &str) -> OwnedFd {
        let file = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).expect("memfd");
        rustix::io::pwrite(&file, text.as_bytes(), 0).expect("written");
        file
    }

    fn text(file: &OwnedFd) -> String {
        let mut bytes = [0; 16];
        let count = rustix::io::pread(file, &mut bytes, 0).expect("read");
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }

    #[test]
    fn descriptors_arrive_in_order_and_close_on_exec() {
        for kind in [SocketType::SEQPACKET, SocketType::STREAM] {
            let (here, there) = pair(kind);
            let files: Vec<_> = (0..DESCRIPTORS).map(|number| file(&format!("{number}"))).collect();
            let open: Vec<_> = files.iter().map(AsFd::as_fd).collect();
            assert_eq!(send(here.as_fd(), b"bytes", &open).expect("sent"), 5);
            let (bytes, got) =
                receive(there.as_fd(), 64, DESCRIPTORS).and_then(ReceivedPacket::complete).expect("all");
            assert_eq!((&bytes[..], got.len()), (&b"bytes"[..], DESCRIPTORS));
            for (number, one) in got.iter().enumerate() {
                assert_eq!(text(one), number.to_string());
                let flags = rustix::io::fcntl_getfd(one).expect("open");
                assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
            }
        }
    }

    #[test]
    fn descriptors_beyond_what_is_asked_for_are_reported_as_lost() {
        let (here, there) = pair(SocketType::SEQPACKET);
        let files: Vec<_> = (0..8).map(|number| file(&format!("{number}"))).collect();
        let open: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        send(here.as_fd(), b"x", &open).expect("sent");
        let packet = receive(there.as_fd(), 64, 4).expect("received");
        assert!(packet.lost_some && packet.descriptors.len() < 8);
        assert!(packet.complete().is_err());
    }

    #[test]
    fn too_many_descriptors_are_refused_before_anything_is_sent() {
        let (here, there) = pair(SocketType::SEQPACKET);
        let one = file("x");
        let open = vec![one.as_fd(); DESCRIPTORS + 1];
        assert_eq!(send(here.as_fd(), b"x", &open).expect_err("many").kind(), ErrorKind::InvalidInput);
        send(here.as_fd(), b"y", &[]).expect("sent");
        assert_eq!(receive(there.as_fd(), 64, 0).expect("received").bytes, b"y");
    }

    #[test]
    fn a_long_packet_and_a_closed_socket_are_errors() {
        let (here, there) = pair(SocketType::SEQPACKET);
        send(here.as_fd(), &[1; 65], &[]).expect("sent");
        assert_eq!(receive(there.as_fd(), 64, 0).expect_err("long").kind(), ErrorKind::InvalidData);
        drop(here);
        assert_eq!(receive(there.as_fd(), 64, 0).expect_err("closed").kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn sending_to_a_closed_socket_raises_no_signal() {
        let (here, there) = pair(SocketType::STREAM);
        drop(there);
        assert_eq!(send(here.as_fd(), b"x", &[]).expect_err("closed").kind(), ErrorKind::BrokenPipe);
    }
}
