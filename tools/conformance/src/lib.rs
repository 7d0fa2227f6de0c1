//! One suite of driver checks for three drivers: the simulated one, NVIDIA's, and either of them
//! under the shim.
//!
//! A case asks a driver questions and records every answer; documented answers, and those measured
//! on a real driver, are also expected. That has two uses. *Conformance*: a failed expectation is a
//! fault of the driver under test. If simulated and real differ, the simulator is wrong; if shim
//! and bare differ, the shim is wrong. *Transparency*: the recorded answers of two runs are
//! compared row by row, independent of expectations.
//!
//! Invariants:
//! * a case runs in a process of its own, because a fault is sticky and the driver's state is
//!   global;
//! * no shim code is imported: the driver is opened and called as by any program;
//! * a recorded answer holds no address, time or handle, so that two runs can be compared.
//!
//! | module | content |
//! |---|---|
//! | [`driver`] | opens a library, looks functions up, calls them |
//! | [`verdict`] | how a case returns |
//! | [`case`] | a case's operations: record, expect, stop |
//! | [`cases`] | the table of all cases, and a file for every area |
//! | [`fixture`] | contexts, memory, streams, kernels that clean up after themselves |
//! | [`runner`] | one process a case, with a time limit |
//! | [`report`] | tables and documents |
//! | [`compare`] | the answers that differ between two documents |
//! | [`entrypoints`] | the cases of each driver function |

pub mod case;
pub mod cases;
pub mod compare;
pub mod driver;
pub mod entrypoints;
pub mod fixture;
pub mod report;
pub mod runner;
pub mod verdict;
