//! How parts of copies move: pipelines, the threads that feed them, and the objects that they
//! borrow.
//!
//! `enqueue` makes a copy of pinned memory: all work is enqueued, and no thread waits. `pull` makes
//! one of pageable memory: each `path_worker` takes chunks as fast as its path carries them. A
//! *lane* is a relay pipeline that a copy has borrowed.
//!
//! Invariants: a pipeline is owned by one copy at a time; no lock is held across a driver call.

pub(crate) mod chunk_queue;
pub(crate) mod copy_timer;
pub(crate) mod direct_pipeline;
pub(crate) mod enqueue;
pub(crate) mod path_worker;
pub(crate) mod pool;
pub(crate) mod pull;
pub(crate) mod relay_pipeline;
pub(crate) mod resource_guard;
pub(crate) mod stream_event;
