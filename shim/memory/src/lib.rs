//! Decides where blocks live: the manager of one GPU's memory. Policy and bookkeeping over [`wm_driver::Gpu`].
//!
//! Words: a *handle* is physical memory; a *reservation* a range of addresses; a *mapping* a handle in a reservation; an
//! *extent* a reservation mapped handle after handle; a *block* what the program got; a *tier* where a handle is.
//!
//! Handles and extents are many-to-many: a handle may be mapped in several extents, and is *active* in at most one, where
//! its bytes are used or free. So a large block can be *stitched* from free handles of any extents without moving or
//! unmapping anything, and the stitched extent is kept for the next request of its size. `docs/memory.md` walks one
//! allocation through all of it.
//!
//! | module | one idea |
//! |---|---|
//! | `sizes` | every size that decides a policy |
//! | `order`, `timeline` | when memory may be used again, as data |
//! | `ledger` | handles, mappings, extents, free runs, as data |
//! | `blocks`, `front` | what the program got; freed blocks kept whole |
//! | `table`, `fast_map` | how they are found: by one cache line where that counts |
//! | `directory` | the live blocks, for readers without the lock |
//! | `state`, `decide`, `fit`, `recipe`, `draft`, `scarcity` | one request, one decision, under the lock, no driver call |
//! | `growth` | which memory is used last |
//! | `keep` | how much idle memory stays |
//! | [`guard`] | room behind a block that shows when a program writes past its end |
//! | `joint` | blocks from what others leave free of their handles |
//! | `idle` | what can be given back |
//! | `plan` | extents are made and taken apart, outside the lock, with rollback |
//! | `manager` | the loop around decisions and plans; everything public |
//!
//! Rules: no lock is held across a call of `Gpu`, but for the turn in which mappings change (`manager/turn.rs` says why); a
//! failure leaves everything as it was; nothing here panics on bad input.
#![forbid(unsafe_code)]

mod blocks;
mod decide;
mod directory;
mod draft;
mod error;
mod fast_map;
mod fit;
mod front;
mod growth;
pub mod guard;
mod idle;
mod joint;
mod keep;
mod ledger;
mod manager;
mod order;
mod plan;
mod recipe;
mod scarcity;
mod settings;
mod sizes;
mod state;
mod sync;
mod table;
mod tiers;
mod timeline;
mod usage;

pub use blocks::Block;
pub use error::{AllocateError, FreeError, Overflow, Shortage};
pub use guard::Guard;
pub use keep::Keep;
pub use manager::{Backing, Manager, Mark};
pub use order::Order;
pub use settings::Settings;
pub use tiers::TierBytes;
pub use usage::{BlockReport, Counters, Usage};
