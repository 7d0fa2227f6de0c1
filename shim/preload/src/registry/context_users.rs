//! Users of contexts beside those that made them (`cuCtxAttach`): a context ends with its last
//! user.

use std::sync::{Mutex, MutexGuard};

use wm_abi::CUcontext;
use wm_driver::lock;

/// A context is in the list once for each of its further users.
#[derive(Debug)]
pub(crate) struct ContextUsers {
    users: Mutex<Vec<CUcontext>>,
}

impl ContextUsers {
    pub(super) const fn new() -> Self {
        Self { users: Mutex::new(Vec::new()) }
    }

    fn users(&self) -> MutexGuard<'_, Vec<CUcontext>> {
        lock(&self.users)
    }

    /// The context has one more user.
    pub(crate) fn attach(&self, context: CUcontext) {
        self.users().push(context);
    }

    /// The context has one user less. `true`: that was its last one.
    pub(crate) fn detach(&self, context: CUcontext) -> bool {
        let mut users = self.users();
        let other = users.iter().position(|user| *user == context);
        other.map(|position| users.swap_remove(position)).is_none()
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (use after free): a context's memory is freed although another user has it.
    use super::*;

    #[test]
    fn a_context_ends_with_its_last_user() {
        let users = ContextUsers::new();
        users.attach(CUcontext(1));
        users.attach(CUcontext(1));
        assert!(users.detach(CUcontext(2)), "only its maker used it");
        assert_eq!([1, 1, 1].map(|context| users.detach(CUcontext(context))), [false, false, true]);
    }
}
