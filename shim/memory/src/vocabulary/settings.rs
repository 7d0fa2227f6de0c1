//! The user's settings of one GPU's memory.

use wm_driver::Tier;

/// Whether memory that comes from the host keeps its copy there, for as long as fingerprints say
/// that it is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepCopies {
    /// It does not: all that leaves is copied.
    Off,
    /// While fingerprints take less time than the copies that they may save.
    Auto,
    /// Always.
    On,
}

/// Limits and choices, read once. All sizes are bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagerSettings {
    /// Stitched extents that stay mapped while no block lies in them, for the next request of their
    /// size.
    pub stitch_views: usize,
    /// Device memory that the manager may hold; `u64::MAX` for all of it.
    pub device_limit: u64,
    /// Device memory that stays free for the driver's own needs: modules, local memory, libraries'
    /// workspaces. As much stays free on other GPUs.
    pub headroom: u64,
    /// Idle device memory that stays where the program frees without a stream.
    pub keep_idle: u64,
    /// The same where the program comes back for it again and again.
    pub keep_most: u64,
    /// Where blocks go when the device is full, first choice first. Empty: out of memory is
    /// reported instead.
    pub overflow: Vec<Tier>,
    /// Host memory that the manager may pin.
    pub host_limit: u64,
    /// The most that all tiers have together: a request for more is refused without a look.
    /// `u64::MAX` where that is not known.
    pub capacity: u64,
    /// Memory of each other GPU that the manager may hold.
    pub peer_limit: u64,
    /// Live memory moves between tiers: handles have few sizes from the start, however little is
    /// left, so that the memory that one block leaves is the spare of another.
    pub movable: bool,
    /// All handles are of the driver's granularity, and blocks of that size and more begin on one:
    /// then equal blocks have equal chunks wherever they lie, which can be shared between
    /// processes.
    pub chunked: bool,
    /// Memory that comes from the host keeps its copy there.
    pub kept_copies: KeepCopies,
    /// Memory that is not copied since its fingerprints are the same is compared, too.
    pub verify_moves: bool,
}

impl Default for ManagerSettings {
    fn default() -> Self {
        Self {
            stitch_views: 512,
            device_limit: u64::MAX,
            headroom: 512 << 20,
            keep_idle: 512 << 20,
            keep_most: u64::MAX,
            overflow: vec![Tier::Host],
            host_limit: u64::MAX,
            capacity: u64::MAX,
            peer_limit: u64::MAX,
            movable: false,
            chunked: false,
            kept_copies: KeepCopies::On,
            verify_moves: false,
        }
    }
}

/// The user's settings and the driver's unit.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) settings: ManagerSettings,
    pub(crate) granularity: u64,
}
