//! Which manager serves a call: one memory manager a device, and the ways from a call's contexts,
//! streams and addresses to it.
//!
//! | module | one idea |
//! |---|---|
//! | [`managers`] | the manager of each device, and of each address |
//! | [`create`], [`budget`] | how one is made, and within which limits |
//! | [`sites`] | from the calling thread's context to its manager |
//! | [`streams`] | from a stream that a call names to its context and manager |
//! | [`devices`], [`peers`] | what the driver says of devices, and which of them may access which others' memory |
//! | [`contexts`], [`context_blocks`] | what ends with a context |
//!
//! The registry knows managers and the driver, and no other subsystem: what a manager asks of those
//! it gets as [`Callbacks`].

mod budget;
pub(crate) mod context_blocks;
mod contexts;
mod create;
mod devices;
mod managers;
mod peers;
mod sites;
mod streams;

pub(crate) use contexts::{end_context, resume_context, retire_streams, suspend_context};
pub(crate) use create::{Callbacks, allow_dependencies, set_callbacks};
pub(crate) use devices::{
    active_primary, current_device, device_count, device_of, is_active, label, pitch_alignment,
};
pub(crate) use managers::{all, any, existing, owner, rest, take};
pub(crate) use peers::{can_access_peer, grant};
pub(crate) use sites::{current_site, existing_site, of_device};
pub(crate) use streams::{
    NamedStream, context_of_stream, existing_site_of_stream, known_stream, site_of_stream,
};
