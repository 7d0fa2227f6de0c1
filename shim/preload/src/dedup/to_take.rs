//! Memory of another process that can be read: a chunk, or the memory of a piece, which is as large
//! as the program made it.
//!
//! Chunks are many and small, so their addresses are kept ([`ReadingPlaces`]). A larger memory gets
//! addresses of its own for as long as it is compared.

use wm_dedup::chunk::CHUNK_BYTES;
use wm_dedup::client::Lease;
use wm_driver::{Device, Gpu, Handle};
use wm_sockets::descriptor::Descriptor;

use super::prepared::{ChunkToTake, ReadingPlaces};

/// See above.
pub(super) enum MemoryToTake {
    Chunk(ChunkToTake),
    Piece(PieceToTake),
}

/// Memory of several chunks, mapped for reading at addresses of its own.
pub(super) struct PieceToTake {
    lease: Lease,
    device: &'static Device,
    bytes: u64,
    /// `None`: it was passed on.
    handle: Option<Handle>,
    /// What was done to make it readable.
    place: ReadablePlace,
}

#[derive(Default)]
struct ReadablePlace {
    reserved: Option<u64>,
    is_mapped: bool,
}

impl MemoryToTake {
    /// The memory of a descriptor. `None`: the driver refuses, and the lease stays the caller's.
    pub(super) fn import(
        places: &'static ReadingPlaces,
        device: &'static Device,
        lease: Lease,
        open: &Descriptor,
        bytes: u64,
    ) -> Option<Self> {
        if bytes == CHUNK_BYTES {
            return ChunkToTake::import(places, device, lease, open).map(Self::Chunk);
        }
        PieceToTake::import(device, lease, open, bytes).map(Self::Piece)
    }

    pub(super) fn lease(&self) -> Lease {
        match self {
            Self::Chunk(chunk) => chunk.lease,
            Self::Piece(piece) => piece.lease,
        }
    }

    /// The address at which it can be read.
    pub(super) fn address(&self) -> u64 {
        match self {
            Self::Chunk(chunk) => chunk.address(),
            Self::Piece(piece) => piece.place.reserved.unwrap_or_default(),
        }
    }

    /// The memory, until it is [passed on](Self::pass_on).
    pub(super) fn handle(&self) -> Option<Handle> {
        match self {
            Self::Chunk(chunk) => chunk.handle(),
            Self::Piece(piece) => piece.handle,
        }
    }

    /// The use of it is the manager's from now on.
    pub(super) fn pass_on(&mut self) {
        match self {
            Self::Chunk(chunk) => chunk.pass_on(),
            Self::Piece(piece) => piece.handle = None,
        }
    }
}

impl PieceToTake {
    fn import(device: &'static Device, lease: Lease, open: &Descriptor, bytes: u64) -> Option<Self> {
        let handle = device.import_handle(open.get().ok()?).ok()?;
        // Dropped at a failure, with all that was done before.
        let mut piece = Self { lease, device, bytes, handle: Some(handle), place: ReadablePlace::default() };
        let at = device.reserve(bytes as usize).ok()?;
        piece.place.reserved = Some(at);
        device.map(at, bytes as usize, handle).ok()?;
        piece.place.is_mapped = true;
        device.allow_reading(at, bytes as usize).ok()?;
        Some(piece)
    }
}

impl Drop for PieceToTake {
    fn drop(&mut self) {
        let (bytes, ReadablePlace { reserved, is_mapped }) = (self.bytes as usize, &self.place);
        if let Some(at) = *reserved {
            // Addresses that cannot be unmapped stay reserved until the process ends.
            let is_bare = !is_mapped || self.device.unmap(at, bytes).is_ok();
            let _unreserved = is_bare.then(|| self.device.unreserve(at, bytes));
        }
        // As above: memory that is not released ends with the process.
        let _released = self.handle.map(|handle| self.device.release(handle));
    }
}
