//! Memory that the program made itself, with `cuMemCreate`: which of it may be shared, and its way
//! back to the program.
//!
//! A piece is tracked as a block is while the manager has adopted it, if it fills a reservation:
//! then its addresses are those of one object, and proofs about blocks hold for it. In a segment of
//! which the allocator tells its objects any piece is: proofs hold for the objects in it. A piece
//! is one physical memory, and all of it is shared or nothing. It is private before the program
//! uses the memory by its handle, unmaps it or changes its rights.

use std::ops::Range;

use wm_dedup::chunk::CHUNK_BYTES;
use wm_dedup::policy::tracked_blocks::Exclusion;
use wm_driver::{Device, lock};
use wm_memory::Manager;

use super::kernels::MOST;
use super::sharing::Sharing;
use super::tracked_blocks::TrackedBlock;
use crate::registry;
use crate::settings::{self, Dedup};

impl Sharing {
    /// Is it worth while to make a piece of so many bytes so that it could be shared, though it is
    /// not to move? Its chunks are compared by one launch. By default sharing takes what moves
    /// take.
    pub(crate) fn asks_for_pieces_of(&self, bytes: u64) -> bool {
        self.is_on() && settings::load().dedup == Dedup::On && is_fit(bytes)
    }

    /// The same of the piece in a range.
    pub(crate) fn asks_for_piece(&self, range: &Range<u64>) -> bool {
        self.asks_for_pieces_of(range.end - range.start) && self.takes_piece(range)
    }

    /// Could the piece in a range be shared?
    fn takes_piece(&self, range: &Range<u64>) -> bool {
        self.is_on() && is_fit(range.end - range.start) && self.objects.holds_whole(range)
    }

    /// Where to reserve so many bytes, if the program names no place. `None`: the driver may
    /// choose.
    pub(crate) fn place_of_segment(&self, bytes: u64) -> Option<u64> {
        if self.is_on() { self.segments.next(bytes) } else { None }
    }

    /// The program has reserved a range. `is_placed`: it had named a place.
    pub(crate) fn reserved(&self, range: Range<u64>, is_placed: bool) {
        if !self.is_on() {
            return;
        }
        let joined = self.objects.reserved(range, is_placed);
        self.recent.changed();
        for piece in joined {
            // Nothing lies in the new range yet, so no kernel reaches the piece from there.
            let _private = self.piece_leaves(piece.start);
        }
    }

    /// The program has given a range back.
    pub(crate) fn unreserved(&self, start: u64) {
        if self.is_on() {
            self.objects.unreserved(start);
            self.recent.changed();
        }
    }

    /// The manager of the adopted piece at an address, if it could be shared.
    pub(super) fn manager_of_piece(&self, address: u64) -> Option<&'static Manager<Device>> {
        registry::all().find(|manager| {
            manager.extent(address).is_some_and(|piece| {
                manager.has_adopted(piece.address)
                    && self.takes_piece(&(piece.address..piece.address + piece.bytes))
            })
        })
    }

    /// The memory of the piece at an address is the program's alone from now on, and the piece is
    /// tracked no more. `false`: there was no time or no room for a private copy.
    pub(crate) fn piece_leaves(&self, address: u64) -> bool {
        let Some(block) = self.blocks.find(address).filter(|block| block.range.start == address) else {
            return true;
        };
        block.facts().exclude(Exclusion::Unmapped);
        // A pass that is under way may have asked before.
        drop(lock(&self.tools));
        if block.is_shared() {
            self.make_private(&block);
        }
        if block.is_shared() {
            return false;
        }
        if let Some(block) = self.blocks.forget(address) {
            self.recent.changed();
            self.mailbox.release(block.facts().freed());
        }
        true
    }

    /// An allocator that tells of all objects in its segments has made one.
    pub(crate) fn object_made(&self, object: Range<u64>) {
        if self.is_on() {
            self.objects.made(object.clone());
            self.recent.object_changed(&object);
        }
    }

    /// The object that begins at an address is freed.
    pub(crate) fn object_freed(&self, start: u64) {
        if self.is_on() {
            let object = self.objects.freed(start);
            object.iter().for_each(|object| self.recent.object_changed(object));
        }
    }

    /// The addresses that a kernel may reach from one, where the allocator tells of objects: those
    /// of the object that it is in. What is freed may be used still: an address in a tracked piece,
    /// but in no object, stands for the whole segment. `None`: it is in neither. Numbers that look
    /// like addresses of a segment, which is larger than the device, mostly are.
    #[inline]
    pub(super) fn reach(&self, address: u64) -> Option<Range<u64>> {
        if !self.objects.is_near(address) {
            return None;
        }
        let is_tracked = || self.blocks.with(address, |_| ()).is_some();
        let object = self.objects.object(address);
        object.or_else(|| is_tracked().then(|| self.objects.around(address)).flatten())
    }

    /// May a kernel reach a block from an address?
    pub(super) fn reaches(&self, address: u64, block: &TrackedBlock) -> bool {
        match self.reach(address) {
            Some(object) => object.start < block.range.end && block.range.start < object.end,
            None => block.reach().contains(&address),
        }
    }
}

fn is_fit(bytes: u64) -> bool {
    bytes > 0 && bytes.is_multiple_of(CHUNK_BYTES) && bytes / CHUNK_BYTES <= MOST as u64
}
