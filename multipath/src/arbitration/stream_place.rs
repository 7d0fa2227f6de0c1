//! The streams that a copy of several parts shares its order with.

use wm_abi::{CUcontext, CUstream};

use crate::vocabulary::stream::{ProgramStream, StreamOrdering};

/// A stream, with the facts that decide whether another one is the same or waits for its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamPlace {
    pub context: CUcontext,
    pub stream: CUstream,
    pub kind: StreamOrdering,
}

impl StreamPlace {
    pub(crate) fn of(user: &ProgramStream) -> Self {
        Self { context: user.home.context, stream: user.stream, kind: user.kind }
    }

    /// Does work in one wait for work in the other? The handle of the per-thread stream is another
    /// stream in each thread.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        use StreamOrdering::{Blocking, Legacy};
        let is_same = self.stream == other.stream && self.stream != CUstream::PER_THREAD;
        let waits = matches!((self.kind, other.kind), (Legacy, Blocking) | (Blocking, Legacy));
        self.context == other.context && (is_same || waits)
    }

    /// The same for a call of which the context is null if it is not known, and the kind of a
    /// created stream is not known.
    pub(crate) fn meets_call(&self, stream: CUstream, context: CUcontext) -> bool {
        let is_same = self.stream == stream && stream != CUstream::PER_THREAD;
        let may_wait = match self.kind {
            StreamOrdering::Legacy => true,
            StreamOrdering::Blocking => stream == CUstream::LEGACY,
            StreamOrdering::Alone => false,
        };
        (context.is_null() || context == self.context) && (is_same || may_wait)
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (data race): work of another stream comes in between the parts of a copy that the
    //! driver would have put before or behind all of it.
    use super::*;

    #[test]
    fn streams_meet_that_are_one_or_wait_for_each_other() {
        use StreamOrdering::*;
        let meets = |one, other| StreamPlace::of(&one).meets(&StreamPlace::of(&other));
        assert!(meets(ProgramStream::of_test(7, Alone), ProgramStream::of_test(7, Alone)));
        assert!(!meets(ProgramStream::of_test(7, Blocking), ProgramStream::of_test(8, Blocking)));
        assert!(
            meets(ProgramStream::of_test(1, Legacy), ProgramStream::of_test(8, Blocking))
                && meets(ProgramStream::of_test(8, Blocking), ProgramStream::of_test(1, Legacy))
        );
        assert!(!meets(ProgramStream::of_test(1, Legacy), ProgramStream::of_test(8, Alone)));
        let own = ProgramStream::of_test(CUstream::PER_THREAD.0, Blocking);
        assert!(!meets(own, own) && meets(own, ProgramStream::of_test(1, Legacy)));
    }
}
