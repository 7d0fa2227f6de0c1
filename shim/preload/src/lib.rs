//! `libwmshim.so`: the library that stands between a CUDA program and NVIDIA's driver library.
//!
//! Wiring only. Decisions live in wm-memory, driver calls in wm-driver; this crate catches the
//! program's calls, asks, and answers. The walk of a call: an exported symbol
//! ([`entry::trampolines`]) → its slot → the real function, or a row of [`hooks`] → a handler → an
//! answer, or the real call after all.
//!
//! The modules are layers, which ARCHITECTURE.md lists: facts of the process below, subsystems
//! beside each other above them, then the hooks, and [`entry`] on top.
//!
//! Rules that hold everywhere here:
//! * Before the first CUDA call only the steps run that `entry/lifecycle.rs` lists.
//! * Internal driver calls go through [`process::driver`], never through the exports.
//! * No lock is held across a driver call. `errno`, signals and stdout are the host's.
//! * When in doubt, the real call is made, and counted as failed open.
#![cfg(target_os = "linux")]

mod addresses;
mod advice;
mod black_box;
mod control;
mod copies;
mod counters;
mod dedup;
mod endpoint;
mod entry;
mod events;
mod gate;
mod guard;
mod hooks;
mod idle;
mod ipc;
mod jax;
mod late;
mod launches;
mod mark;
mod moves;
mod multipath;
mod operate;
mod overflow;
mod pause_calls;
mod pauses;
mod physical;
mod pluggable;
mod process;
mod profile;
mod recording;
mod registry;
mod report;
mod settings;
mod shortage;
mod subsystems;
mod torch;
mod trace;
mod turns;
