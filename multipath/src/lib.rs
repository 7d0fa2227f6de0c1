//! Host-device copies over every link of the machine.
//!
//! A plain copy uses one PCIe link: that of the GPU it goes to. Its siblings' links idle meanwhile.
//! A copy that is large enough is therefore cut up: part takes the direct path, the rest goes
//! through siblings as relays (host to relay over the relay's own PCIe link, relay to target over
//! NVLink, and back the same way).
//!
//! | layer | one idea |
//! |---|---|
//! | `vocabulary` | plain values: copies, parts of them, paths, machines, sizes |
//! | `driver` | the driver calls of a copy as one trait; the real one has all `unsafe` code |
//! | `plan` | how a copy is cut. Pure |
//! | `topology` | the links' rates, alone and together, measured once a machine and corrected |
//! | `arbitration` | links, threads and contexts that a copy may use beside other work |
//! | `transfer` | pipelines and their threads: `enqueue` for pinned memory, `pull` for pageable |
//! | `measure` | measures the links, over pipelines as copies use them |
//! | `engine` | the whole, for one process; everything public |
//!
//! Invariants: the user's stream is never left before its bytes have arrived; nothing of ours is
//! ordered behind work of a user's stream that has not been passed yet, unless it belongs to that
//! stream; no lock is held across a driver call; a program's call waits for nothing that the plain
//! call would not wait for: what is no longer needed is given back when its work is over, and what
//! takes long happens beside; what was made in a context of the program is touched by copies in
//! that context alone; in the worst case a copy is the plain copy.

#![deny(unsafe_code)]

mod arbitration;
mod driver;
mod engine;
mod measure;
mod plan;
mod topology;
mod transfer;
mod vocabulary;

pub use arbitration::page::ClaimsPage;
pub use driver::CopyDriver;
pub use driver::table::TableDriver;
pub use engine::Engine;
pub use engine::request::{CopyOutcome, CopyRequest};
pub use engine::settings::{EngineSettings, PATIENCE};
pub use engine::traffic::{CopyRoute, RouteUsage};
pub use transfer::pool::RelayUsage;
pub use vocabulary::copy::{HostDeviceCopy, HostMemory, LinkDirection};
pub use vocabulary::stream::{Home, ProgramStream, StreamOrdering};

/// What links were measured to carry: as it is kept, and drawn.
pub mod measured {
    pub use crate::topology::rates::Rates;
    pub use crate::topology::{Topology, cache, picture};
    pub use crate::vocabulary::machine::{Identity, MachineKey};
    pub use crate::vocabulary::path::Costs;
}

/// For programs that measure links and plain copies by themselves.
pub mod bench {
    pub use crate::measure::{Calibration, calibrate};
    pub use crate::transfer::direct_pipeline::direct_transfer;
    pub use crate::vocabulary::chunk::ChunkAddrs;
    pub use crate::vocabulary::machine::Survey;
}

/// For this crate's own tests: a driver's model implements the contract, and parts are tested
/// alone.
#[doc(hidden)]
pub mod parts {
    pub use crate::arbitration::page::ClaimsRecord;
    pub use crate::driver::{DriverResult, Hop, Transfer, WaitMode};
    pub use crate::plan::{CopyPlan, LEAST_SPLIT, chunks, fillers, split, threshold};
    pub use crate::transfer::chunk_queue::{ChunkQueue, RangeEnd};
    pub use crate::transfer::copy_timer::CopyTimer;
    pub use crate::transfer::direct_pipeline::DirectPipeline;
    pub use crate::transfer::pool::Pool;
    pub use crate::transfer::relay_pipeline::RelayPipeline;
    pub use crate::vocabulary::chunk::Chunk;
    pub use crate::vocabulary::machine::Link;
    pub use crate::vocabulary::path::Path;
    pub use crate::vocabulary::sizes::{EDGE, GRAIN, LANES, SLOT, SMALLEST_CHUNK};
}
