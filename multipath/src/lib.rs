//! Host-device copies over every link of the machine.
//!
//! A plain copy uses one PCIe link, that of its GPU, while the links of the sibling GPUs idle. A
//! large copy is therefore split: a part takes the direct path, the other parts go through siblings
//! as relays (host to relay over the relay's own PCIe link, relay to target over NVLink, and back
//! the same way).
//!
//! | layer | one idea |
//! |---|---|
//! | `vocabulary` | plain values: copies, parts of them, paths, machines, sizes |
//! | `driver` | the driver calls of a copy as one trait; the real one has all `unsafe` code |
//! | `plan` | how a copy is split. Pure |
//! | `topology` | the links' rates, alone and together, measured once a machine and corrected |
//! | `arbitration` | links, threads and contexts that a copy may use beside other work |
//! | `transfer` | pipelines and their threads: `enqueue` for pinned memory, `pull` for pageable |
//! | `measure` | measures the links, over pipelines as copies use them |
//! | `engine` | the copies of one process; the public interface |
//!
//! Invariants:
//! * The call of an asynchronous copy orders the user's stream behind the copy's last byte.
//! * Work of ours is ordered behind pending work of a user's stream only if it belongs to that
//!   stream.
//! * No lock is held across a driver call.
//! * A call of the program waits for nothing that the plain call would not wait for: unused
//!   resources are released when their work is over, and slow work runs on a thread of ours.
//! * Only copies in a context of the program touch the objects that were made in that context.
//! * In the worst case a copy is the plain copy.

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
pub use arbitration::plain_calls::PlainCall;
pub use driver::CopyDriver;
pub use driver::table::TableDriver;
pub use engine::Engine;
pub use engine::request::{CopyOutcome, CopyRequest};
pub use engine::settings::{EngineSettings, PATIENCE};
pub use engine::traffic::{CopyRoute, RouteUsage};
pub use transfer::pool::RelayUsage;
pub use vocabulary::copy::{HostDeviceCopy, HostMemory, LinkDirection};
pub use vocabulary::stream::{Home, ProgramStream, StreamOrdering};

/// The measured rates of links: as stored, and as drawn.
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

/// For this crate's own tests, in which a model of a driver implements the contract.
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
