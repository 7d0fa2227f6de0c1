//! Host-device copies over every link of the machine.
//!
//! A plain copy uses one PCIe link: that of the GPU it goes to. Its siblings' links idle meanwhile. A copy that is large
//! enough is therefore cut up: part takes the direct path, the rest goes through siblings as relays (host to relay over
//! the relay's own PCIe link, relay to target over NVLink, and back the same way).
//!
//! * [`topology`]: what the links carry, alone and together, measured once a machine; pure evaluation of it.
//! * [`plan`]: which paths a copy takes, and how it is cut. Pure.
//! * [`work`]: what is left of a copy that several paths pull from.
//! * [`links`]: what all this needs of a driver, as one contract; [`driver`] is the real one and holds all `unsafe` code.
//! * [`user`], [`point`]: whose copy it is, and where in a stream it starts and ends.
//! * [`lane`], [`wire`]: one pipeline through a relay, and one on the target's own link.
//! * [`enqueue`]: a copy of pinned memory: everything is put into streams, nothing waits.
//! * [`pull`]: a copy of pageable memory: [`courier`]s pull pieces as fast as their paths are.
//! * [`making`]: streams, events and memory of what is not whole yet.
//! * [`pool`]: what copies borrow, and when it is given back; [`spare`]: how many threads.
//! * [`gauge`], [`trim`]: how cut copies went, and what is learned from it.
//! * [`opening`]: when a sibling's context pays.
//! * [`share`]: which links other processes use now; [`crossing`]: which targets copy in both directions at once.
//! * [`engine`]: the whole, for one process.
//!
//! Invariants: the user's stream is never left before its bytes have arrived; nothing of ours is ordered behind work of
//! a user's stream that has not been passed yet, unless it belongs to that stream; no lock is held across a driver call;
//! a program's call waits for nothing that the plain call would not wait for: what is no longer needed is given back when its work
//! is over, and what takes long happens beside; what was made in a context of the program is touched by copies in that context
//! alone; in the worst case a copy is the plain copy.

#![deny(unsafe_code)]

pub mod courier;
pub mod crossing;
#[allow(unsafe_code, reason = "the one file that calls the driver")]
pub mod driver;
pub mod engine;
pub mod enqueue;
pub mod gauge;
pub mod lane;
pub mod links;
pub mod making;
pub mod opening;
pub mod plan;
pub mod point;
pub mod pool;
pub mod pull;
pub mod share;
pub mod spare;
pub mod topology;
pub mod traffic;
pub mod trim;
pub mod user;
pub mod wire;
pub mod work;

pub use driver::TableDriver;
pub use engine::{CopyOutcome, Engine, EngineSettings};
pub use links::CopyDriver;
pub use plan::{HostMemory, LinkDirection};
pub use user::{Home, ProgramStream, StreamOrdering};
