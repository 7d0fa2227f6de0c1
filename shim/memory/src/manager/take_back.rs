//! Shared chunks that no other process uses any more are taken back: they can be written again,
//! where they are and with the bytes that they have.
//!
//! Nothing is copied and no memory is needed, only the access changes. Whether the driver changes
//! it beside work that reads the memory is not known, so that this, too, is done where nothing is
//! in flight.

use std::time::{Duration, Instant};

use wm_driver::Gpu;

use super::Manager;
use super::remap::{Mappable, MappedAccess, Remap, RemapFailure};
use super::shared_pieces::own_access;
use crate::books::ledger::OccupiedHandle;
use crate::vocabulary::moves::MoveRefusal;
use crate::vocabulary::share::{BlockChunk, Quiet, TakenBack};

impl<G: Gpu> Manager<G> {
    /// Takes shared chunks of live blocks back. Each is whole, and one shared handle. No chunk is
    /// begun once `limit` is over. Returns one outcome a chunk.
    ///
    /// The caller sees to it that no other process uses the memory or can come to use it, and, from
    /// before it looked until this returns, that no thread of the process submits work to the GPU.
    pub fn take_back_chunks(&self, chunks: &[BlockChunk], quiet: Quiet, limit: Duration) -> Vec<TakenBack> {
        let until = Instant::now() + limit;
        let settled = self.see_quiet(quiet);
        let take_back = |chunk: &BlockChunk| match settled {
            Err(refusal) => TakenBack::Refused(refusal),
            Ok(()) if Instant::now() >= until => TakenBack::NotTried,
            Ok(()) => self.take_back(*chunk).map_or_else(TakenBack::Refused, |()| TakenBack::Private),
        };
        chunks.iter().map(take_back).collect()
    }

    fn take_back(&self, chunk: BlockChunk) -> Result<(), MoveRefusal> {
        let handle = self.lock().draft_take_back(chunk)?;
        let remapped = self.allow_writing(&handle);
        let mut state = self.lock();
        let ended = match remapped {
            Ok(()) => {
                state.commit_take_back(&handle);
                Ok(())
            }
            Err(RemapFailure::Undone(code)) => {
                state.roll_back_take_back(&handle, false);
                Err(code.into())
            }
            Err(RemapFailure::Lost(code)) => {
                state.roll_back_take_back(&handle, true);
                Err(MoveRefusal::Lost(code))
            }
        };
        state.show();
        drop(state);
        self.waiters.notify();
        ended
    }

    pub(super) fn allow_writing(&self, handle: &OccupiedHandle) -> Result<(), RemapFailure> {
        let [old, new] = [MappedAccess::Reading, own_access(handle)]
            .map(|access| Some(Mappable { handle: handle.raw, access }));
        self.remap(&Remap { places: &handle.places(), bytes: handle.bytes(), old, new, is_unmapped: false })
    }
}
