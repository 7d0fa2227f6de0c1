//! The settings of an engine, and their defaults.

use std::path::PathBuf;

use wm_abi::CUdevice;

use crate::vocabulary::sizes::SLOT;

/// The settings of an engine, and the places of its files.
#[derive(Debug, Clone)]
pub struct EngineSettings {
    /// Devices that may be relays; `None` for all. If the list is empty, nothing is measured or
    /// published to other processes: pageable copies use their target's own link, others are plain.
    pub relays: Option<Vec<CUdevice>>,
    /// Copies below this are plain, even if calibration would split them. Bytes.
    pub minimum: Option<usize>,
    /// The links are measured, or their measurement is read, only after large copies have moved
    /// this many bytes.
    pub patience: u64,
    /// Relays' contexts are opened at first use, and not only when they pay.
    pub eager: bool,
    /// The copy that first needs a measurement or a relay's context waits for it: for benchmarks
    /// and tests.
    pub prompt: bool,
    /// Cores that a pageable copy may keep busy, if there are as many.
    pub cores: usize,
    /// The bytes that each thread of a pageable copy should have to copy.
    pub portion: usize,
    /// Copies of at least this many bytes are timed.
    pub learn: usize,
    /// Largest chunk through a relay, bytes; a slot holds at most [`SLOT`].
    pub chunk: usize,
    /// Pipelines through each relay that a pinned copy uses, [`crate::vocabulary::sizes::LANES`] at
    /// most.
    pub lanes: usize,
    /// The folder of the measurements.
    pub cache: Option<PathBuf>,
    /// The page where processes publish their claims.
    pub page: Option<PathBuf>,
}

/// The copies of a program that moves fewer bytes in large copies stay plain, unless the user names
/// relays. Bytes.
pub const PATIENCE: u64 = 1 << 30;

/// A thread with less to copy costs more than it gains. Bytes.
pub(crate) const PORTION: usize = 4 << 20;

/// The time of a shorter copy depends more on events than on links. Bytes.
pub(crate) const LEARN: usize = 128 << 20;

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            relays: None,
            minimum: None,
            patience: PATIENCE,
            eager: false,
            prompt: false,
            cores: usize::MAX,
            portion: PORTION,
            learn: LEARN,
            chunk: SLOT,
            lanes: 1,
            cache: None,
            page: None,
        }
    }
}

/// A pageable copy below this is the driver's: starting threads costs more than they gain. Measured
/// on two H200s, into the device: 0.60 of plain at 16 MiB, 0.88 at 32, 1.46 at 64. Bytes.
pub(crate) const LEAST_PAGEABLE: usize = 48 << 20;
