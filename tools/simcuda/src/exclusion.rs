//! A call that lets no other one into the driver while it waits for a device. With
//! `SIMCUDA_FREE_LOCKS=1` `cuMemFree` is one, as NVIDIA's driver may have it: then a thread that
//! watches a device by calls of the driver sees nothing as long as another thread frees memory.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use wm_abi::symbol::{self, Symbol};

use crate::settings::settings;
use crate::state;

static CALLS: RwLock<()> = RwLock::new(());

/// A call in flight, beside others or alone.
pub(crate) enum Turn {
    Beside { _others: RwLockReadGuard<'static, ()> },
    Alone { _all: RwLockWriteGuard<'static, ()> },
}

impl Turn {
    /// The calling thread enters a function. `None` without the setting, and in a forked child.
    pub(crate) fn begin(index: usize) -> Option<Self> {
        if !settings().free_locks || state::is_forked() {
            return None;
        }
        Some(if index == symbol::cuMemFree_v2::INDEX {
            Self::Alone { _all: CALLS.write().unwrap_or_else(PoisonError::into_inner) }
        } else {
            Self::Beside { _others: CALLS.read().unwrap_or_else(PoisonError::into_inner) }
        })
    }
}
