//! Which manager serves a call: one memory manager a device, and the ways from a call's contexts,
//! streams and addresses to it.
//!
//! | module | one idea |
//! |---|---|
//! | [`tables`] | the registry as a value, and the manager of each device and of each address |
//! | [`managers`], [`peer_rights`] | its tables, as values that tests build |
//! | [`create`], [`budget`] | how a device's manager is made, and within which limits |
//! | [`limits`], [`renewal`] | the limit of a device that is in force, and how a change of it reaches its manager |
//! | [`sites`] | from the calling thread's context to its manager |
//! | [`streams`] | from a stream that a call names to its context and manager |
//! | [`devices`], [`peers`] | the driver's facts about devices, and which of them may access which others' memory |
//! | [`living`] | the living contexts that the program made |
//! | [`contexts`], [`context_blocks`], [`context_users`] | the blocks, streams and users that end with a context |
//!
//! The registry knows managers and the driver, and no other subsystem: a manager asks those through
//! [`Callbacks`].

mod budget;
mod context_blocks;
mod context_users;
mod contexts;
mod create;
mod devices;
mod limits;
mod living;
mod managers;
mod peer_rights;
mod peers;
mod renewal;
mod sites;
mod streams;
mod tables;

pub(crate) use contexts::{count_contexts, end_context, resume_context, retire_streams, suspend_context};
pub(crate) use create::allow_dependencies;
pub(crate) use devices::{
    active_primary, current_device, device_count, device_of, is_active, label, pitch_alignment,
};
pub(crate) use limits::LimitInForce;
pub(crate) use living::ContextKind;
pub(crate) use peers::{can_access_peer, grant};
pub(crate) use renewal::{ask_limit, renew_limits};
pub(crate) use sites::{current_site, existing_site, of_device};
pub(crate) use streams::{
    NamedStream, context_of_stream, existing_device_of_stream, known_stream, site_of_stream,
};
pub(crate) use tables::{Callbacks, REGISTRY, all, any, existing, owner, rest, set_callbacks, withdraw};
