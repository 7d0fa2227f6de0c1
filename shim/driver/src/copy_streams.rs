//! The streams in which a device's own copies run, one a direction. A stream belongs to the
//! device's eldest context and goes with it.

use std::sync::{Mutex, MutexGuard};

use wm_abi::*;

use crate::gpu::LinkWay;
use crate::lock::lock;

/// The streams of a device's own copies, one for each direction.
#[derive(Debug, Default)]
pub(crate) struct CopyStreams {
    inwards: CopyStream,
    outwards: CopyStream,
}

impl CopyStreams {
    /// The stream for copies in one direction.
    pub(crate) fn of(&self, way: LinkWay) -> &CopyStream {
        match way {
            LinkWay::In => &self.inwards,
            LinkWay::Out => &self.outwards,
        }
    }

    /// The context is gone, and its streams with it.
    pub(crate) fn forget(&self, context: CUcontext) {
        [&self.inwards, &self.outwards].into_iter().for_each(|stream| stream.forget(context));
    }
}

/// The stream of a device's own copies, once it has been created.
#[derive(Debug, Default)]
pub(crate) struct CopyStream(Mutex<Option<(CUcontext, CUstream)>>);

impl CopyStream {
    fn lock(&self) -> MutexGuard<'_, Option<(CUcontext, CUstream)>> {
        lock(&self.0)
    }

    /// The stream, if it belongs to this context.
    pub(crate) fn of(&self, context: CUcontext) -> Option<CUstream> {
        self.lock().filter(|(owner, _)| *owner == context).map(|(_, stream)| stream)
    }

    /// Stores a stream that was just made, unless another thread stored one first. Returns the
    /// stream to use, and the surplus one to destroy.
    pub(crate) fn set(&self, context: CUcontext, made: CUstream) -> (CUstream, Option<CUstream>) {
        let mut stored = self.lock();
        match *stored {
            Some((owner, stream)) if owner == context => (stream, Some(made)),
            _ => {
                *stored = Some((context, made));
                (made, None)
            }
        }
    }

    fn forget(&self, context: CUcontext) {
        let mut stored = self.lock();
        *stored = stored.filter(|(owner, _)| *owner != context);
    }
}
