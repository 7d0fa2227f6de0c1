//! The trampolines as hooks see them: where each one jumps, and the address that a program calls.
//!
//! `entry/install.rs` hands them over when it installs the hooks, before any of them can run.

use std::ffi::CString;
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

/// The address for a function's slot, by its index and the function that it would lead to alone.
type Around = fn(usize, *const ()) -> *const ();

/// The trampolines and the driver's exports as hooks need them, each made at its first use.
pub(in crate::hooks) struct HookTables {
    exports: OnceLock<&'static Exports>,
    /// Functions that are hooked only for programs with several devices.
    copies: OnceLock<(Vec<usize>, Around)>,
    /// The driver's exports by address, without the functions that it lacks.
    pub(super) by_address: OnceLock<Vec<(usize, usize)>>,
    /// The rows as JSON.
    pub(in crate::hooks) json: OnceLock<CString>,
}

/// The process's tables, in the lowest layer of the hooks.
pub(in crate::hooks) static TABLES: HookTables = HookTables {
    exports: OnceLock::new(),
    copies: OnceLock::new(),
    by_address: OnceLock::new(),
    json: OnceLock::new(),
};

/// Once, before the first hook is connected. `copies` are the functions of [`withdraw_copies`];
/// `around` gives the entries that stay in their slots.
pub(in crate::hooks) fn set(exports: &'static Exports, copies: impl Iterator<Item = usize>, around: Around) {
    TABLES.copies.get_or_init(|| (copies.collect(), around));
    TABLES.exports.get_or_init(|| exports);
}

/// `None` where no hook has been installed, as in tests of single functions.
pub(in crate::hooks) fn get() -> Option<&'static Exports> {
    TABLES.exports.get().copied()
}

/// There is one device: connects the trampolines of such copies with the real functions.
pub(in crate::hooks) fn withdraw_copies() {
    let Some(exports) = get() else { return };
    let Some((copies, around)) = TABLES.copies.get() else { return };
    for index in copies {
        if let Some(real) = driver().address(*index) {
            exports.connect(*index, around(*index, real.cast()));
        }
    }
}
