//! A forked child lets go of the ranks' sockets.
//!
//! A child that keeps them would keep the names and the connections of a rank that has ended. In
//! the child each registered descriptor is replaced by `/dev/null`, not closed: the objects that
//! own the descriptors exist in the child, too, and may close them later.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};

/// Descriptors of this process, at most. One beyond that stays open in children.
const MOST: usize = 4096;
const NONE: i32 = -1;

/// All of them. A fork handler takes no lock and allocates nothing.
static OPEN: [AtomicI32; MOST] = [const { AtomicI32::new(NONE) }; MOST];

/// The registration of a descriptor; it ends before the descriptor is closed.
#[derive(Debug)]
pub(super) struct ClosedInChild {
    slot: Option<usize>,
}

impl ClosedInChild {
    pub(super) fn new(descriptor: &impl AsFd) -> Self {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(|| {
            // SAFETY: the handler stays valid, because a library with this code is never unloaded.
            // If the call fails, children keep descriptors open, as without it.
            let _error = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        let raw = descriptor.as_fd().as_raw_fd();
        let enter =
            |slot: &AtomicI32| slot.compare_exchange(NONE, raw, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        Self { slot: OPEN.iter().position(enter) }
    }
}

impl Drop for ClosedInChild {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            OPEN[slot].store(NONE, Ordering::Release);
        }
    }
}

extern "C" fn in_child() {
    if OPEN.iter().all(|slot| slot.load(Ordering::Acquire) == NONE) {
        return;
    }
    // SAFETY: the calls have numbers and a terminated path as arguments, and are safe after a fork.
    // Each descriptor is open: its registration ends before it is closed.
    unsafe {
        let nothing = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if nothing < 0 {
            return;
        }
        for open in OPEN.iter().map(|slot| slot.load(Ordering::Acquire)).filter(|open| *open != NONE) {
            libc::dup3(nothing, open, libc::O_CLOEXEC);
        }
        libc::close(nothing);
    }
}
