//! One suite of driver checks for three drivers: the simulated one, NVIDIA's, and either of them
//! under the shim.
//!
//! A case asks a driver questions and records every answer; what is documented or was measured on a
//! real driver it also expects. Two uses follow. *Conformance*: an expectation that fails is a
//! fault of the driver at hand. Where simulated and real differ, the simulator is wrong; where shim
//! and bare differ, the shim is wrong. *Transparency*: the recorded answers of two runs are
//! compared row by row, expectations aside.
//!
//! Invariants:
//! * a case runs in a process of its own, because a fault is sticky and the driver's state is
//!   global;
//! * nothing of the shim is imported: the driver is opened and called as any program would;
//! * a recorded answer holds no address, time or handle, so that two runs can be compared.
//!
//! | module | what it holds |
//! |---|---|
//! | [`driver`] | opens a library, looks functions up, calls them |
//! | [`verdict`] | how a case returns |
//! | [`case`] | what a case does: record, expect, stop |
//! | [`cases`] | the table of all cases, and a file for every area |
//! | [`fixture`] | contexts, memory, streams, kernels that clean up after themselves |
//! | [`runner`] | one process a case, with a time limit |
//! | [`report`] | tables and documents |
//! | [`compare`] | the answers that differ between two documents |
//! | [`entrypoints`] | which cases ask about which driver function |

pub mod case;
pub mod cases;
pub mod compare;
pub mod driver;
pub mod entrypoints;
pub mod fixture;
pub mod report;
pub mod runner;
pub mod verdict;
