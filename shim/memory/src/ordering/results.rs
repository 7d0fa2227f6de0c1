//! What calls of the driver have told about events. Collected outside the lock, noted in the
//! timeline under it.

use std::sync::Arc;

use crate::ordering::fence::Fence;

/// Fences by what became of them.
#[derive(Debug, Default)]
pub(crate) struct EventResults {
    pub(crate) recorded: Vec<Arc<Fence>>,
    pub(crate) past: Vec<Arc<Fence>>,
    pub(crate) behind: Vec<Arc<Fence>>,
}
