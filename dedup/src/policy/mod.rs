//! The rules of sharing inside one process, without a driver: events go in, decisions come out.
//!
//! | module | one idea |
//! |---|---|
//! | [`tracked_blocks`] | the facts about a block: its chunks, its launches, its writes |
//! | [`eligibility`] | which blocks may be shared, and which need fingerprints |
//! | [`graphs`] | which kernels the graphs have, and which of them certainly ran |
//! | [`kernel_effects`] | which kernels only read, and when that is exchanged with other processes |
//! | [`reservations`] | which memory of the program's own is one object by itself |
//! | [`schedule`] | when the next pass runs, and how long each of its parts may take |
//! | [`status`] | whether the process shares, and why not |
//! | [`advice`] | the bytes that sharing would save |
//! | [`backoff`] | when a question that found nothing is asked again |
//!
//! The caller passes the clock in. In doubt every rule says that a block stays private.

pub mod advice;
pub mod backoff;
pub mod eligibility;
pub mod graphs;
pub mod kernel_effects;
pub mod reservations;
pub mod schedule;
pub mod status;
pub mod tracked_blocks;
