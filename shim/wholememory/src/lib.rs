//! WholeMemory: the memory of all GPUs of a job as one, under the C API of libwholegraph.
//!
//! A *rank* is a process, or a thread, with a GPU. Ranks meet in a *communicator* and make calls
//! together (collective calls), each with its own handles. Memory is divided into *rows*; each rank
//! has a part, and operations reach all parts.
//!
//! Invariants:
//! * A collective call gives the same code on every rank, leaves nothing behind where it fails, and
//!   leaves the communicator usable, unless a rank has ended.
//! * A handle is a number that is looked up: one that was closed, or never given, is an error.
//! * No file is left by a process that is killed.
//!
//! Layers: [`error`], [`vocabulary`]; [`exchange`] between ranks, [`nccl`] and [`spanning`] between
//! islands of ranks, [`kernels`] and [`stream`], [`environment`]; [`communicator`]; [`storage`];
//! [`memory`]; [`tensor`]; [`files`], [`operations`]; [`embedding`]; [`capi`].

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "the C boundary")]
pub mod capi;
pub mod communicator;
pub mod embedding;
#[allow(unsafe_code, reason = "calls of the caller's functions")]
pub mod environment;
pub mod error;
pub mod exchange;
pub mod files;
#[allow(unsafe_code, reason = "kernels are launched")]
pub mod kernels;
pub mod memory;
pub mod nccl;
pub mod operations;
pub mod spanning;
pub mod storage;
pub mod stream;
pub mod tensor;
pub mod vocabulary;
