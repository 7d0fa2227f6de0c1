//! Packets through a socket, with descriptors.

use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::bytes::Malformed;
use super::sizes::{BATCH, LONGEST};

/// What arrived at once.
#[derive(Debug)]
pub struct ReceivedPacket {
    /// Never none.
    pub bytes: Vec<u8>,
    /// Close-on-exec.
    pub descriptors: Vec<OwnedFd>,
    /// Descriptors were sent that did not get here: too many, or this process may have no more open.
    pub lost_some: bool,
}

/// Sends a packet with its descriptors, at most [`BATCH`].
///
/// # Errors
/// The system's; `WouldBlock` where there is no room and the socket does not wait.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Error::from(ErrorKind::InvalidInput));
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a packet.
///
/// # Errors
/// The system's; `UnexpectedEof` where the other side is gone, `InvalidData` for what is longer than any packet.
pub fn receive(socket: BorrowedFd<'_>) -> Result<ReceivedPacket> {
    let mut bytes = [0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors: Vec<_> = descriptors.flatten().collect();
    if received.bytes == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    if received.flags.contains(ReturnFlags::TRUNC) || received.bytes > LONGEST {
        return Err(Malformed.into());
    }
    let lost_some = received.flags.contains(ReturnFlags::CTRUNC);
    Ok(ReceivedPacket { bytes: bytes[..received.bytes].to_vec(), descriptors, lost_some })
}
