//! What a device asks its process for.

use wm_abi::CUcontext;

use crate::gpu::{KeyedFingerprint, Result};

/// How fingerprints are taken in a context, which is current.
#[derive(Debug, Clone, Copy)]
pub struct Fingerprinting {
    /// Loads what that needs.
    pub prepare: fn(CUcontext),
    /// See [`Gpu::fingerprints`](crate::Gpu::fingerprints).
    pub take: fn(CUcontext, &[u64]) -> Result<Vec<KeyedFingerprint>>,
}

/// Every living context of the process; `None` while that is not known.
pub type ListContexts = fn() -> Option<Vec<CUcontext>>;
