//! The users that may be served.

use std::io;
use std::os::fd::BorrowedFd;

pub use wm_trust::peer::PeerIdentity;

/// Asks the kernel which user's process is at the other end. Tests hand over answers of their own.
pub type AskPeer = fn(BorrowedFd<'_>) -> io::Result<PeerIdentity>;

/// May this user's processes be served? Our own user may, and root, which has every right here
/// anyway.
pub(super) fn is_trusted(peer: u32, own: u32) -> bool {
    peer == own || peer == 0
}

#[cfg(test)]
mod tests {
    //! Hazard: another user's process gets descriptors of memory.
    use super::is_trusted;

    #[test]
    fn only_the_user_and_root_are_served() {
        assert!(is_trusted(1000, 1000) && is_trusted(0, 1000) && is_trusted(0, 0));
        assert!(!is_trusted(1001, 1000) && !is_trusted(1000, 0) && !is_trusted(u32::MAX, 1000));
    }
}
