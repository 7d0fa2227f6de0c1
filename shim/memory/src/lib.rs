//! Decides where blocks live: the manager of one GPU's memory. Policy and bookkeeping over
//! [`wm_driver::Gpu`].
//!
//! Words: a *handle* is physical memory; a *reservation* a range of addresses; a *mapping* a handle
//! in a reservation; an *extent* a reservation mapped handle after handle; a *block* the memory
//! that the program got from one call; a *tier* the kind of place where a handle is.
//!
//! Handles and extents are many-to-many: a handle may be mapped in several extents, and is *active*
//! in at most one, where its bytes are used or free. So a large block can be *stitched* from free
//! handles of any extents without moving or unmapping anything, and the stitched extent is kept for
//! the next request of its size. `docs/dev/memory.md` walks one allocation through all of it.
//!
//! | layer | one idea |
//! |---|---|
//! | `vocabulary` | plain values: sizes, orders, requests, plans, errors; [`guard`] is the arithmetic of guards |
//! | `containers` | a hash table whose look-up reads one cache line |
//! | `books` | the memory and its places: blocks, the free cache, the directory for readers without the lock, the ledger of handles |
//! | `ordering` | how far the GPU has come in each stream |
//! | `policy` | decisions as functions of their arguments |
//! | `state` | all of it behind one lock: the next step of a request, and its changes; no driver call |
//! | `gate` | the gate that submissions of work pass, and that is closed while memory moves |
//! | `manager` | the loop around decisions and driver calls; everything public |
//!
//! Rules: no lock is held across a call of `Gpu`, except the lock on mappings
//! (`manager/mapping_lock.rs` says why); a failure leaves everything as it was; nothing here panics
//! on bad input.
#![forbid(unsafe_code)]

mod books;
mod containers;
mod gate;
mod manager;
mod ordering;
mod policy;
mod state;
mod sync;
mod vocabulary;

pub use gate::{Closed, Gate, NotClosed, STRIPES};
pub use manager::away::{BorrowedMemory, OccupiedMemory};
pub use manager::backing::Backing;
pub use manager::host_budget::HostBudget;
pub use manager::limit::LimitDescent;
pub use manager::pieces::Charge;
pub use manager::{Manager, Mark};
pub use policy::keep::Keep;
pub use policy::pool::HandlePool;
pub use policy::shortage::{TorchAnswers, TorchPaths, TorchRequest};
pub use policy::tiers;
pub use vocabulary::block::{Block, BlockExtent};
pub use vocabulary::error::{AllocateError, FreeError, OverflowVerdict, ReadableBytes, Shortage};
pub use vocabulary::guard::{self, BlockGuard};
pub use vocabulary::moves::{
    MadeAhead, MoveOrder, MoveRefusal, Moved, MovedRange, Moves, RangeMove, SpareLack, SpareSource,
};
pub use vocabulary::order::Order;
pub use vocabulary::piece::{Disowned, PieceAccount, PieceKind};
pub use vocabulary::request::FirstTier;
pub use vocabulary::settings::{KeepCopies, ManagerSettings};
pub use vocabulary::share::{BlockChunk, Quiet, ShareOutcome, SharedChunks, TakenBack, Unparked};
pub use vocabulary::tiers::{Peaks, TierBytes};
pub use vocabulary::unified::Processor;
pub use vocabulary::usage::{Together, Usage};
