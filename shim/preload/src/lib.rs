//! `libwmshim.so`: the library that stands between a CUDA program and NVIDIA's driver library.
//!
//! Wiring only. What is decided lives in wm-memory, how it is done in wm-driver; this crate catches the program's
//! calls, asks, and answers. The walk of a call: [`trampolines`] (an exported symbol) → its slot → the real function,
//! or a row of [`hooks`] → [`boundary`] → a handler → an answer, or the real call after all.
//!
//! Rules that hold everywhere here:
//! * Nothing happens before the first CUDA call but what [`lifecycle::at_load`] lists.
//! * Internal driver calls go through [`state::driver`], never through the exports.
//! * No lock is held across a driver call. `errno`, signals and stdout are the host's.
//! * When in doubt, the real call is made, and counted as failed open.
#![cfg(target_os = "linux")]

mod boundary;
mod budget;
mod callers;
mod counters;
mod cut;
mod endpoint;
mod figures;
mod glance;
mod guard;
mod health;
mod hooks;
mod ipc;
mod lifecycle;
mod loader;
mod logger;
mod managers;
mod multipath;
mod named;
mod owners;
mod physical;
mod pluggable;
mod report;
mod settings;
mod shortage;
mod sockets;
mod state;
mod torch;
mod trace;
mod trampolines;
