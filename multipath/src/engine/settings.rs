//! What a user of the engine can set, and what holds where nothing is set.

use std::path::PathBuf;

use wm_abi::CUdevice;

use crate::vocabulary::sizes::SLOT;

/// What a user can set, and where things are kept.
#[derive(Debug, Clone)]
pub struct EngineSettings {
    /// Devices that may be relays; `None` for all. Without any, nothing is measured and nothing
    /// told to other processes: pageable copies take their target's own link, others are plain.
    pub relays: Option<Vec<CUdevice>>,
    /// Copies below this are plain, whatever calibration says. Bytes.
    pub minimum: Option<usize>,
    /// Bytes that large copies must have moved before the links are measured, or their measurement
    /// is read.
    pub patience: u64,
    /// Relays' contexts are opened at first use, and not only when they have paid.
    pub eager: bool,
    /// The copy that first needs a measurement or a relay's context waits for it: for benches and
    /// tests.
    pub prompt: bool,
    /// Cores that a pageable copy may keep busy, if there are as many.
    pub cores: usize,
    /// What each thread of a pageable copy should have to do, bytes.
    pub portion: usize,
    /// From how many bytes on it is looked how a copy went.
    pub learn: usize,
    /// Largest chunk through a relay, bytes; a slot holds no more than [`SLOT`].
    pub chunk: usize,
    /// Pipelines through each relay that a pinned copy takes, [`crate::vocabulary::sizes::LANES`]
    /// at most.
    pub lanes: usize,
    /// Where measurements are kept.
    pub cache: Option<PathBuf>,
    /// The page where processes share what they use.
    pub page: Option<PathBuf>,
}

/// A program that moves less in large copies is left alone, where the user did not name relays.
/// Bytes.
pub const PATIENCE: u64 = 1 << 30;

/// With less to do, starting a thread costs more than it brings. Bytes.
pub(crate) const PORTION: usize = 4 << 20;

/// A shorter copy tells more of what events take than of links. Bytes.
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
