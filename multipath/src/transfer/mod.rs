//! How parts of copies move: pipelines, the threads that feed them, and what they borrow.

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
