//! The exported driver symbols: one untyped jump each, through a slot.
//!
//! A trampoline needs no signature: it leaves every argument where it is and jumps. Interception is
//! one write to a slot; so is switching it off. Until the first call every slot points to
//! [`first_call`], which opens the driver, fills all slots and goes on to the function that was
//! asked for, arguments untouched.
//!
//! The first 16 bytes of each trampoline do nothing, in instructions that UCX's patcher knows how
//! to move: it rewrites the start of fifteen memory functions of the driver, and refuses code that
//! it does not understand.

use std::arch::naked_asm;
use std::sync::atomic::AtomicPtr;

use wm_abi::symbol::{COUNT, Symbol};

use super::install;
use crate::hooks::Exports;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the trampolines are written for x86-64");

/// Where each trampoline jumps: `first_call` from load time, the real function or a hook
/// afterwards.
static SLOTS: [AtomicPtr<()>; COUNT] = [const { AtomicPtr::new(first_call as *mut ()) }; COUNT];

/// Declares code that a slot may point to before its function is known: it asks `$resolver` for the
/// address, with the function's index, which is in r11, and goes there.
///
/// Saves all that may carry arguments (six integer and eight vector registers, `rax`, `r10`),
/// resolves, restores and jumps to the function as if nothing had been.
macro_rules! resolving {
    ($(#[$doc:meta])+ $name:ident, $resolver:path) => {
        $(#[$doc])+
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax", "push r10",
                "sub rsp, 136",
                "movups [rsp], xmm0", "movups [rsp + 16], xmm1", "movups [rsp + 32], xmm2", "movups [rsp + 48], xmm3",
                "movups [rsp + 64], xmm4", "movups [rsp + 80], xmm5", "movups [rsp + 96], xmm6", "movups [rsp + 112], xmm7",
                "mov rdi, r11",
                "call {resolve}",
                "mov r11, rax",
                "movups xmm0, [rsp]", "movups xmm1, [rsp + 16]", "movups xmm2, [rsp + 32]", "movups xmm3, [rsp + 48]",
                "movups xmm4, [rsp + 64]", "movups xmm5, [rsp + 80]", "movups xmm6, [rsp + 96]", "movups xmm7, [rsp + 112]",
                "add rsp, 136",
                "pop r10", "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                "jmp r11",
                resolve = sym $resolver,
            )
        }
    };
}

resolving! {
    /// The end of every trampoline before the driver is open.
    first_call, resolve
}

resolving! {
    /// The end of a trampoline whose function works in per-thread default streams, before its first
    /// call.
    first_per_thread_call, resolve_per_thread
}

/// Declares the exports, and the table of their addresses by index.
macro_rules! trampolines {
    ($($index:literal $name:ident,)*) => {
        /// The exported functions. Never called from within: internal calls use the driver's own
        /// table.
        #[allow(non_snake_case, reason = "the driver's names")]
        mod exports {
            use super::*;
            $(
                #[unsafe(naked)]
                #[unsafe(no_mangle)]
                unsafe extern "C" fn $name() {
                    naked_asm!(
                        "sub rsp, 8", "sub rsp, -8", "sub rsp, 8", "sub rsp, -8",
                        "mov r11d, {index}",
                        "jmp qword ptr [rip + {slots} + {index} * 8]",
                        index = const $index,
                        slots = sym SLOTS,
                    )
                }
            )*
            pub(super) const ADDRESSES: &[unsafe extern "C" fn(); COUNT] = &[$($name,)*];
        }
    };
}

include!("generated/trampolines.rs");

/// The trampolines as a value, for the code that connects them.
static EXPORTS: Exports = Exports { slots: &SLOTS, addresses: exports::ADDRESSES };

extern "C" fn resolve(index: usize) -> *const () {
    install::resolve(index, &EXPORTS, first_per_thread_call as *const ())
}

extern "C" fn resolve_per_thread(index: usize) -> *const () {
    install::resolve_per_thread(index, &EXPORTS)
}

/// The function that we export under a driver function's name: our functions on the program's side
/// call these.
pub(crate) fn exported<S: Symbol>() -> S::Function {
    let address = EXPORTS.addresses[S::INDEX] as *const ();
    const { assert!(size_of::<S::Function>() == size_of::<*const ()>()) };
    // SAFETY: `Symbol` promises that `Function` is the pointer type of the export of its name.
    unsafe { std::mem::transmute_copy(&address) }
}
