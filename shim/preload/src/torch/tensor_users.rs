//! Streams besides its own that have used a tensor's memory (`Tensor.record_stream`), for the
//! pluggable allocator.

use std::sync::OnceLock;

use dashmap::DashMap;
use wm_abi::{CUcontext, CUdeviceptr, CUstream};

/// A stream, and the context that it is of: a default stream's handle alone names none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TensorUser {
    pub(crate) stream: CUstream,
    pub(crate) context: CUcontext,
}

/// By the address of live memory.
#[derive(Debug)]
pub(crate) struct TensorUsers {
    users: OnceLock<DashMap<CUdeviceptr, Vec<TensorUser>>>,
}

impl TensorUsers {
    pub(super) const fn new() -> Self {
        Self { users: OnceLock::new() }
    }

    fn users(&self) -> &DashMap<CUdeviceptr, Vec<TensorUser>> {
        self.users.get_or_init(DashMap::new)
    }

    /// The stream uses the memory from now on.
    pub(crate) fn insert(&self, address: CUdeviceptr, user: TensorUser) {
        let mut users = self.users().entry(address).or_default();
        if !users.contains(&user) {
            users.push(user);
        }
    }

    /// The memory is freed: removes and returns its users.
    pub(crate) fn remove(&self, address: CUdeviceptr) -> Vec<TensorUser> {
        self.users().remove(&address).map(|(_, users)| users).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (use after free): a stream's use of a tensor is forgotten before the tensor is freed.
    use super::*;

    #[test]
    fn each_user_is_there_once_until_the_memory_is_freed() {
        let user = |context| TensorUser { stream: CUstream::LEGACY, context: CUcontext(context) };
        let users = TensorUsers::new();
        for (address, context) in [(64, 1), (64, 2), (64, 1), (128, 1)] {
            users.insert(address, user(context));
        }
        assert_eq!(users.remove(64), [user(1), user(2)], "two contexts' default streams are two");
        assert_eq!((users.remove(64), users.remove(128)), (vec![], vec![user(1)]));
    }
}
