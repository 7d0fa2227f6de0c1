//! The verdicts about the kernels of this process, and the key of each kernel.
//!
//! A kernel is known by its code ([`launches::CODE`]), else by its handle.

use std::sync::OnceLock;
use std::time::SystemTime;

use dashmap::DashMap;
use rustc_hash::FxBuildHasher;
use wm_abi::CUfunction;
use wm_dedup::policy::kernel_effects::KernelEffects;
use wm_dedup::readers::{FunctionKey, Readers};

use crate::{launches, settings};

/// By the kernel's identity in this process.
type KeysOfKernels = DashMap<(u64, usize), FunctionKey, FxBuildHasher>;

/// Both are made at their first use.
#[derive(Debug)]
pub(super) struct ProcessKernels {
    effects: OnceLock<KernelEffects>,
    keys: OnceLock<KeysOfKernels>,
}

impl ProcessKernels {
    pub(super) const fn new() -> Self {
        Self { effects: OnceLock::new(), keys: OnceLock::new() }
    }

    pub(super) fn effects(&self) -> &KernelEffects {
        self.effects.get_or_init(|| KernelEffects::new(settings::load().dedup_proof))
    }

    #[inline]
    pub(super) fn readers(&self) -> &Readers {
        self.effects().readers()
    }

    /// The key of a kernel that the program launches.
    #[inline]
    pub(super) fn key(&self, function: CUfunction) -> FunctionKey {
        let keys = self.keys.get_or_init(DashMap::default);
        let identity = launches::CODE.identity(function);
        let known = keys.get(&identity).map(|key| *key);
        known.unwrap_or_else(|| {
            let key = key(function, identity);
            keys.insert(identity, key);
            key
        })
    }
}

fn key(function: CUfunction, (unloads, handle): (u64, usize)) -> FunctionKey {
    launches::CODE.of(function).map_or_else(
        || FunctionKey::of_handle(unloads, handle),
        |code| FunctionKey::of(code.image, &code.name),
    )
}

/// Days since 1970.
pub(super) fn today() -> u32 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (since.as_secs() / (24 * 60 * 60)) as u32
}
