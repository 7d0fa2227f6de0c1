//! Answers with the descriptors that come along.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::fs::{AtFlags, FileType, StatxFlags};

use crate::protocol::BrokerAnswer;

/// An open descriptor of a chunk or a segment, of the broker and of answers under way.
pub(super) type SharedDescriptor = Rc<OwnedFd>;

/// A packet for a client.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) bytes: Vec<u8>,
    pub(super) descriptors: Vec<SharedDescriptor>,
    /// The connection ends with it.
    pub(super) is_last: bool,
}

impl From<BrokerAnswer> for Reply {
    fn from(answer: BrokerAnswer) -> Self {
        Self { bytes: answer.encode(), descriptors: Vec::new(), is_last: answer == BrokerAnswer::Refused }
    }
}

/// Devices and files may be memory. Any other kind may block its close, as a socket does, or refer
/// to this connection.
pub(super) fn may_be_memory(descriptor: &OwnedFd) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let status = rustix::fs::statx(descriptor, "", flags, StatxFlags::TYPE);
    let kind = status.map(|status| FileType::from_raw_mode(status.stx_mode.into()));
    kind.is_ok_and(|kind| matches!(kind, FileType::RegularFile | FileType::CharacterDevice))
}
