//! The driver's answers about events. Collected outside the lock, noted in the
//! timeline under it.

use std::sync::Arc;

use crate::ordering::fence::Fence;

/// Fences by their outcome.
#[derive(Debug, Default)]
pub(crate) struct EventResults {
    pub(crate) recorded: Vec<Arc<Fence>>,
    pub(crate) past: Vec<Arc<Fence>>,
    pub(crate) behind: Vec<Arc<Fence>>,
}
