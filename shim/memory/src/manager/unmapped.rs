//! Memory of the host that is not mapped at the addresses of its blocks, because nothing uses them:
//! a driver takes as long to map memory of the host as to copy it.
//!
//! Moves with [`MoveOrder::unmaps`](crate::MoveOrder) leave it so, and moves to the device end it.
//! The caller sees to it that meanwhile no thread of the process submits work to the GPU. Frees do
//! no harm.

use std::time::Duration;

use wm_driver::Gpu;

use super::Manager;
use super::remap::{Mappable, Remap, RemapFailure};
use super::shared_pieces::own_access;
use crate::books::ledger::OccupiedHandle;
use crate::vocabulary::moves::MoveRefusal;

/// How often other threads' changes are waited for, and for how long each time.
const TRIES: usize = 200;
const CHANGE: Duration = Duration::from_millis(5);

impl<G: Gpu> Manager<G> {
    /// Maps all such memory at its addresses.
    ///
    /// # Errors
    /// Why some of it is not mapped still; `Slow` where copies that were to fill such addresses
    /// have not ended.
    pub fn map_unmapped(&self) -> Result<(), MoveRefusal> {
        let mut refusal = MoveRefusal::Busy;
        for _ in 0..TRIES {
            // In a statement of its own, so that the lock is not held meanwhile.
            let unmapped = self.lock().unmapped();
            if unmapped.is_empty() {
                return Ok(());
            }
            for key in unmapped {
                let draft = self.lock().draft_mapping(key);
                match draft {
                    Ok(Some(handle)) => self.map_handle(&handle)?,
                    Err(MoveRefusal::InUse) => {
                        let is_over = self.unmap_left_memory();
                        refusal = if is_over { MoveRefusal::Busy } else { MoveRefusal::Slow };
                    }
                    // Another thread has it, or changes mappings.
                    Ok(None) | Err(_) => self.await_changes(CHANGE),
                }
            }
        }
        Err(refusal)
    }

    /// Memory was to come to such addresses, and did not. It is mapped there until its copies are
    /// over, or a try to unmap it succeeds. Are the copies over?
    fn unmap_left_memory(&self) -> bool {
        let is_over = self.see_over(|gpu| gpu.is_settled(CHANGE)).is_ok();
        self.take_left_steps();
        is_over
    }

    fn map_handle(&self, handle: &OccupiedHandle) -> Result<(), MoveRefusal> {
        let (places, bytes) = (handle.places(), handle.bytes());
        let new = Some(Mappable { handle: handle.raw, access: own_access(handle) });
        let mapped = self.remap(&Remap { places: &places, bytes, old: None, new, is_unmapped: false });
        self.lock().commit_mapping(handle, mapped.is_ok());
        self.waiters.notify();
        mapped.map_err(|failure| match failure {
            RemapFailure::Undone(code) | RemapFailure::Lost(code) => code.into(),
        })
    }
}
