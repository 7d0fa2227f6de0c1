//! What a process under the library tells about itself: the answers of the statistics endpoint, as
//! types. The library fills them in, `wmctl` reads them, and `docs/wmctl.md` has them as
//! tables, written by `cargo xtask schema` from the comments here.
//!
//! Invariants: within one version fields are only added, and every field has a value where an older
//! library left it out. Sizes are bytes; a time carries its unit in its name.

mod blocks;
mod config;
pub mod size;
mod stats;

pub use blocks::{BlockEntry, BlockList, DeviceBlocks};
pub use config::{Config, DeviceBudget};
pub use stats::{
    Bucket, BytesByTier, CallCount, CopyStats, Counters, DedupStats, DeviceStats, DriverCall, DriverInfo,
    FailOpen, GuardStats, MoveStats, PieceStats, Reason, RelayStats, Stats, TierUsage, Tiers,
};
