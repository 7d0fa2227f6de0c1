//! Pieces: physical memory that the program makes itself, with `cuMemCreate`.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use wm_abi::CUdevice;
use wm_driver::{Handle, Tier};

use crate::vocabulary::tiers::{Peaks, TierBytes};

/// The properties in which idle memory must be equal to the memory that a piece asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PieceKind {
    /// The device that the program named.
    pub device: CUdevice,
    /// The device, or the host where that was full.
    pub tier: Tier,
    /// Its size.
    pub bytes: u64,
    /// `CU_MEM_HANDLE_TYPE_*` by which it can be shared.
    pub handle_types: u32,
    /// `gpuDirectRDMACapable`.
    pub rdma: bool,
}

impl PieceKind {
    /// The same on another tier. Memory of the host takes no part in RDMA to devices.
    #[must_use]
    pub fn on(self, tier: Tier) -> Self {
        Self { tier, rdma: self.rdma && tier == Tier::Device, ..self }
    }
}

/// The pieces of a device. Sizes are bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PieceAccount {
    /// Held by the program, by where they are.
    pub held: TierBytes,
    /// Given up by the program, and reserved for no piece.
    pub idle: TierBytes,
    /// The most that was held.
    pub peaks: Peaks,
    /// Pieces that were made on another tier, because the device was full.
    pub overflows: u64,
    /// Pieces that were not made, as no tier had room.
    pub refused: u64,
}

/// Bytes of pieces, as the peaks count them.
#[derive(Debug, Default)]
pub(crate) struct PieceBytes {
    /// In pieces that were made and are not gone.
    pub(crate) held: TierBytes,
    /// The same with idle memory, as of the last change. A piece that is given up is idle and held
    /// for a moment, and counts once.
    pub(crate) physical: TierBytes,
}

/// Where a piece is now, for its charge and for the manager that moves it. Changed under the
/// manager's lock, read without it.
#[derive(Debug)]
pub(crate) struct PiecePlace(AtomicI64);

const ON_DEVICE: i64 = -1;
const ON_HOST: i64 = -2;

impl PiecePlace {
    pub(crate) fn new(tier: Tier) -> Self {
        let place = Self(AtomicI64::new(ON_DEVICE));
        place.set(tier);
        place
    }

    pub(crate) fn tier(&self) -> Tier {
        match self.0.load(Relaxed) {
            ON_DEVICE => Tier::Device,
            ON_HOST => Tier::Host,
            // An ordinal, as it was stored.
            peer => Tier::Peer(i32::try_from(peer).unwrap_or(0)),
        }
    }

    pub(crate) fn set(&self, tier: Tier) {
        let stored = match tier {
            Tier::Device => ON_DEVICE,
            Tier::Host => ON_HOST,
            Tier::Peer(ordinal) => i64::from(ordinal),
        };
        self.0.store(stored, Relaxed);
    }
}

/// The memory of a piece that the manager moves no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disowned {
    /// It is mapped at the piece's address, and nowhere else.
    pub memory: Handle,
    /// Where it is.
    pub tier: Tier,
}
