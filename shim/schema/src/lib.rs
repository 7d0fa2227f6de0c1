//! The answers of the statistics endpoint of a process under the library, as types. The library
//! fills them in, `wmctl` reads them, and `docs/schema.md` has them as tables, written by `cargo
//! xtask schema` from the comments here.
//!
//! A program that reads `wmctl stats PID --json` takes the `answer` of a process as a [`Stats`]:
//!
//! ```
//! let answer = r#"{ "schema": "wmshim-stats/2", "pid": 4711, "devices": [
//!     { "ordinal": 0, "tiers": { "host": { "live_bytes": 1073741824 } } } ] }"#;
//! let stats: wm_schema::Stats = serde_json::from_str(answer)?;
//! let on_host: u64 = stats.devices.iter().map(|device| device.tiers.host.live_bytes).sum();
//! assert_eq!(on_host, 1 << 30);
//! // A field that an older library left out has its default.
//! assert_eq!(stats.devices[0].tiers.device.live_bytes, 0);
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! Its answer to `blocks` is a [`BlockList`]:
//!
//! ```
//! # let answer = r#"{ "devices": [ { "blocks": [ { "bytes": 10 }, { "bytes": 30 } ] } ] }"#;
//! let list: wm_schema::BlockList = serde_json::from_str(answer)?;
//! let blocks = list.devices.iter().flat_map(|device| &device.blocks);
//! assert_eq!(blocks.map(|block| block.bytes).max(), Some(30));
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! Invariants: within one version fields are only added, and every field has a default in case an
//! older library left it out. Sizes are bytes; a time has its unit in its name.

pub mod black_box;
mod blocks;
mod change;
mod config;
mod out_of_memory;
mod pause;
pub mod profile;
pub mod size;
mod stats;

pub use blocks::{BlockEntry, BlockList, DeviceBlocks, PieceEntry, PieceRange};
pub use change::{DeviceChange, ProcessChange, StayingBytes};
pub use config::{Config, DeviceBudget};
pub use out_of_memory::{FullDevice, Holder, HolderFrame, ObjectPlace, OutOfMemory};
pub use pause::{ArenaStats, PauseAnswer, PauseStats, StayedBytes, TurnStats};
pub use stats::{
    Bucket, BytesByTier, CallCount, CopyStats, Counters, DedupStats, DeviceStats, DriverCall, DriverInfo,
    FailOpen, GuardStats, MoveStats, PieceStats, Reason, RelayStats, Stats, TierUsage, Tiers,
};
