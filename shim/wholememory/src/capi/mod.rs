//! The C API: numbers and pointers in, a code out.
//!
//! Each function checks its arguments, carries out the operation of its page of the API by the safe
//! layers, and turns their errors into codes. [`call`] logs a reason once and stops panics: none
//! goes through to C.
//!
//! A rank makes a table and gathers three rows (the whole program: `docs/wholememory.md`):
//!
//! ```c
//! wholememory_comm_t comm;
//! wholememory_create_communicator(&comm, id, rank, size);       // collective
//! wholememory_tensor_t table;                                   // shape: [1000, 16], float
//! wholememory_create_tensor(&table, &shape, comm, WHOLEMEMORY_MT_CHUNKED, WHOLEMEMORY_ML_DEVICE);
//! wholememory_communicator_barrier(comm);                       // the other ranks' rows are there
//! wholememory_gather(table, indices, output, NULL, stream);     // not collective
//! wholememory_destroy_tensor(table);
//! ```

mod call;
pub mod communicators;
pub mod descriptions;
pub mod embeddings;
mod exports;
pub mod files;
pub mod graphs;
#[cfg(test)]
mod headers;
mod logger;
pub mod memories;
pub mod names;
pub mod operations;
pub mod process;
pub mod properties;
pub mod random;
pub mod reasons;
mod registry;
pub mod tensors;

/// All functions that C calls, by file.
pub const EXPORTS: &[&[&str]] = &[
    communicators::NAMES,
    descriptions::NAMES,
    embeddings::NAMES,
    files::NAMES,
    graphs::NAMES,
    memories::NAMES,
    operations::NAMES,
    process::NAMES,
    properties::NAMES,
    random::NAMES,
    reasons::NAMES,
    tensors::NAMES,
];
