//! Layer 3, policy: decisions as functions of the facts that they are passed. They change nothing,
//! so each can be read and tested alone.

pub(crate) mod attempt;
pub(crate) mod best_fit;
mod cache_span;
pub(crate) mod facts;
pub(crate) mod fingerprint_pace;
pub(crate) mod flight;
pub(crate) mod growth;
pub(crate) mod keep;
pub(crate) mod kept_worth;
pub(crate) mod pool;
pub(crate) mod recipe;
pub(crate) mod reuse;
pub(crate) mod scarcity;
pub(crate) mod shortage;
pub(crate) mod swap;
pub mod tiers;
