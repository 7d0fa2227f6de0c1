//! The trampolines as hooks see them: where each one jumps, and the address that a program calls.
//!
//! `entry/install.rs` hands them over when it installs the hooks, before any of them can run.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use wm_abi::symbol::COUNT;

use crate::process::driver;

/// The trampolines, by the index of their function.
pub(crate) struct Exports {
    /// Where each trampoline jumps.
    pub(crate) slots: &'static [AtomicPtr<()>; COUNT],
    /// The exported functions themselves.
    pub(crate) addresses: &'static [unsafe extern "C" fn(); COUNT],
}

static EXPORTS: OnceLock<&'static Exports> = OnceLock::new();

impl Exports {
    /// Makes a trampoline jump there.
    pub(crate) fn connect(&self, index: usize, target: *const ()) {
        self.slots[index].store(target.cast_mut(), Ordering::Release);
    }

    /// Where a trampoline jumps.
    pub(crate) fn target(&self, index: usize) -> *const () {
        self.slots[index].load(Ordering::Acquire)
    }
}

/// Functions that are hooked for the sake of a second device only.
static COPIES: OnceLock<(Vec<usize>, Around)> = OnceLock::new();

/// What a function's slot leads to, by its index and what is behind.
type Around = fn(usize, *const ()) -> *const ();

/// Once, before the first hook is connected. `copies` are the functions of [`withdraw_copies`], and
/// `around` is what they keep.
pub(in crate::hooks) fn set(exports: &'static Exports, copies: impl Iterator<Item = usize>, around: Around) {
    COPIES.get_or_init(|| (copies.collect(), around));
    EXPORTS.get_or_init(|| exports);
}

/// `None` where no hook has been installed, as in tests of single functions.
pub(in crate::hooks) fn get() -> Option<&'static Exports> {
    EXPORTS.get().copied()
}

/// There is one device: connects the trampolines of such copies with the real functions.
pub(in crate::hooks) fn withdraw_copies() {
    let Some(exports) = get() else { return };
    let Some((copies, around)) = COPIES.get() else { return };
    for index in copies {
        if let Some(real) = driver().address(*index) {
            exports.connect(*index, around(*index, real.cast()));
        }
    }
}
