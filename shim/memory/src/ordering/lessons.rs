//! What calls of the driver taught, from the call until it is noted under the lock.

use std::sync::Arc;

use crate::ordering::fence::Fence;

/// What calls of the driver taught.
#[derive(Debug, Default)]
pub(crate) struct Lessons {
    pub(crate) recorded: Vec<Arc<Fence>>,
    pub(crate) past: Vec<Arc<Fence>>,
    pub(crate) behind: Vec<Arc<Fence>>,
}
