//! Layer 1, vocabulary: the values that every other layer speaks in. Plain data and arithmetic;
//! nothing here has a state that changes.

pub(crate) mod block;
pub(crate) mod error;
pub mod guard;
pub(crate) mod limits;
pub(crate) mod moves;
pub(crate) mod order;
pub(crate) mod piece;
pub(crate) mod plan;
pub(crate) mod request;
pub(crate) mod settings;
pub(crate) mod share;
pub(crate) mod sizes;
pub(crate) mod tiers;
pub(crate) mod unified;
pub(crate) mod usage;
