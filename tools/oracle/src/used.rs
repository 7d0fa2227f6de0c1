//! Streams that no program uses at the moment: later programs get them, because on a GPU it takes
//! longer to make streams than to run a program.

use std::sync::{Mutex, PoisonError};

use wm_abi::CUstream;

use crate::program::{Context, Kind};

/// Idle streams, with their contexts and kinds.
#[derive(Debug, Default)]
pub(crate) struct UsedStreams(Mutex<Vec<(Context, Kind, CUstream)>>);

impl UsedStreams {
    /// A stream of an earlier program.
    pub(crate) fn pop(&self, context: Context, kind: Kind) -> Option<CUstream> {
        let mut streams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let alike = streams.iter().position(|stream| (stream.0, stream.1) == (context, kind))?;
        Some(streams.swap_remove(alike).2)
    }

    pub(crate) fn put(&self, context: Context, kind: Kind, stream: CUstream) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((context, kind, stream));
    }

    /// All of them, to be destroyed.
    pub(crate) fn take_all(&self) -> Vec<CUstream> {
        let streams = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        streams.into_iter().map(|(.., stream)| stream).collect()
    }
}
