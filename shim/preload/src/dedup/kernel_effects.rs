//! The verdicts about the kernels of this process, and the key of each kernel.
//!
//! A kernel is known by its code ([`launches::CODE`]), else by its handle.

use std::sync::OnceLock;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::SystemTime;

use dashmap::DashMap;
use rustc_hash::FxBuildHasher;
use wm_abi::CUfunction;
use wm_dedup::policy::kernel_effects::KernelEffects;
use wm_dedup::readers::{FunctionKey, Readers};
use wm_driver::thread::Uncancelled;

use crate::{launches, settings};

/// The key of a kernel, which is never given back: launches read it without a lock.
#[derive(Debug)]
struct KeyEntry {
    /// Of the kernel in this process.
    identity: (u64, usize),
    key: FunctionKey,
}

/// By the kernel's identity.
type KeysOfKernels = DashMap<(u64, usize), &'static KeyEntry, FxBuildHasher>;

/// Keys that were looked up last, as a power of two.
const RECENT_BITS: u32 = 8;

/// The first two are made at their first use.
#[derive(Debug)]
pub(super) struct ProcessKernels {
    effects: OnceLock<KernelEffects>,
    keys: OnceLock<KeysOfKernels>,
    /// Entries by a part of the handle; null where none was looked up.
    recent: [AtomicPtr<KeyEntry>; 1 << RECENT_BITS],
}

impl ProcessKernels {
    pub(super) const fn new() -> Self {
        Self {
            effects: OnceLock::new(),
            keys: OnceLock::new(),
            recent: [const { AtomicPtr::new(std::ptr::null_mut()) }; 1 << RECENT_BITS],
        }
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
        self.known_key(function).unwrap_or_else(|| self.look_up(function))
    }

    /// The same, if it was looked up lately. Takes no lock.
    #[inline]
    pub(super) fn known_key(&self, function: CUfunction) -> Option<FunctionKey> {
        let identity = launches::CODE.identity(function);
        // SAFETY: null, or an entry that is never given back. The store that the load sees came
        // after the entry was written.
        let entry = unsafe { self.place(function).load(Acquire).as_ref() }?;
        (entry.identity == identity).then_some(entry.key)
    }

    fn place(&self, function: CUfunction) -> &AtomicPtr<KeyEntry> {
        let mixed = (function.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.recent[(mixed >> (u64::BITS - RECENT_BITS)) as usize]
    }

    #[cold]
    #[inline(never)]
    fn look_up(&self, function: CUfunction) -> FunctionKey {
        // The driver is asked.
        let _whole = Uncancelled::new();
        let keys = self.keys.get_or_init(DashMap::default);
        let identity = launches::CODE.identity(function);
        let known = keys.get(&identity).map(|entry| *entry);
        let entry = known.unwrap_or_else(|| {
            let key = key(function, identity);
            *keys.entry(identity).or_insert_with(|| Box::leak(Box::new(KeyEntry { identity, key })))
        });
        self.place(function).store(std::ptr::from_ref(entry).cast_mut(), Release);
        entry.key
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
