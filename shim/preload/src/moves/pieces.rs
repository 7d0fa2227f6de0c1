//! Memory that the program made itself, as far as it takes part in moves.
//!
//! A kernel's pointer names the piece that its first byte is in, and what begins there may go on
//! through many pieces: [`super::spans`] knows how far, or guesses.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use wm_driver::Device;
use wm_memory::{BlockExtent, Manager, MoveRefusal};

use super::Migrations;
use super::predictor::SMALLEST;
use super::spans::SizedKernel;
use super::touched_groups::TouchedGroups;
use crate::launches::{LaunchWord, TouchedBlock};
use crate::{physical, process, registry};

impl Migrations {
    /// Bytes of the smallest piece that moves, as of the smallest block that is recorded.
    pub(crate) fn smallest(&self) -> u64 {
        SMALLEST
    }

    /// The program is about to be given a piece that may take part.
    pub(crate) fn expect_pieces(&self) {
        self.has_pieces.store(true, Relaxed);
    }

    /// May any piece take part in moves?
    #[inline]
    pub(crate) fn has_pieces(&self) -> bool {
        self.has_pieces.load(Relaxed)
    }

    /// Before memory in a range moves: pieces there are mapped nowhere else. Behind the closed gate
    /// that holds until the move has ended. The driver may refuse.
    pub(super) fn make_alone(&self, range: &Range<u64>) -> Result<(), MoveRefusal> {
        if self.has_pieces() {
            physical::cache().make_alone(range).map_err(MoveRefusal::from)
        } else {
            Ok(())
        }
    }

    /// A piece takes part from now on.
    pub(crate) fn piece_came(&self, manager: &Manager<Device>, address: u64) {
        if let Some(piece) = manager.extent(address) {
            self.last_use.forget(piece.address, piece.bytes);
        }
        if self.is_recording() {
            self.record_block(manager, address);
        }
    }

    /// A piece is about to take part no more.
    pub(crate) fn piece_leaves(&self, manager: &Manager<Device>, address: u64) {
        if self.is_recording() {
            self.record_free(manager, address);
        }
    }

    /// The pieces that a range lies in, and their manager. `None`: a part of it is in none.
    pub(crate) fn pieces_in(&self, range: &Range<u64>) -> Option<(&'static Manager<Device>, Vec<u64>)> {
        let manager = registry::existing(piece_at(range.start).filter(|_| self.has_pieces())?.device)?;
        let (mut pieces, mut next) = (Vec::new(), range.start);
        while next < range.end {
            let BlockExtent { address, bytes, .. } = manager.extent(next)?;
            pieces.push(address);
            next = address + bytes;
        }
        Some((manager, pieces))
    }

    /// The program's allocator has made a tensor in its segments.
    pub(crate) fn tensor_made(&self, tensor: Range<u64>) {
        if self.follows_tensors() {
            wm_driver::lock(&self.spans).tensor_made(tensor);
        }
    }

    /// The tensor that begins there is gone.
    pub(crate) fn tensor_freed(&self, start: u64) {
        if self.follows_tensors() {
            wm_driver::lock(&self.spans).tensor_freed(start);
        }
    }

    /// Is it noted where tensors lie? Not in a forked child: another thread may have had the lock.
    fn follows_tensors(&self) -> bool {
        self.is_migrating() && self.has_pieces() && !process::forked()
    }

    /// Adds the pieces that a launch with these words uses, as far as it is guessed.
    #[inline]
    pub(super) fn add_pieces(
        &self,
        words: impl Iterator<Item = u64>,
        by: SizedKernel<'_>,
        used: &mut TouchedGroups,
    ) {
        if self.has_pieces() {
            wm_driver::lock(&self.spans).add_pieces(words, by, piece_at, used);
        }
    }
}

/// The words of a launch as addresses.
pub(super) fn addresses(words: &[LaunchWord]) -> impl Iterator<Item = u64> + '_ {
    words.iter().map(|word| word.address)
}

/// The piece that an address is in, if it takes part. Wait-free.
fn piece_at(address: u64) -> Option<TouchedBlock> {
    if registry::owner(address).is_some() {
        return None;
    }
    registry::all().find_map(|manager| {
        let BlockExtent { id, address, bytes } = manager.extent(address)?;
        Some(TouchedBlock { address, bytes, id, device: manager.gpu().ordinal() })
    })
}
