//! Functions that are not simulated: each has an export that reports that.
//!
//! The build script makes the rows, from the driver's names without those in the `exports!` tables.
//! Such a function reads none of its arguments, so it needs no signature.

use std::sync::atomic::{AtomicBool, Ordering};

use wm_abi::{CUresult, symbol};

use crate::entry::{Call, enter};
use crate::settings::{complain, settings};

/// Reports once that a function is not simulated.
fn refuse(index: usize) -> CUresult {
    static SAID: [AtomicBool; symbol::COUNT] = [const { AtomicBool::new(false) }; symbol::COUNT];
    enter(Call::new(index, false), |_| {
        if !settings().quiet && !SAID[index].swap(true, Ordering::Relaxed) {
            complain(&format!("{} is not simulated", symbol::NAMES[index].to_string_lossy()));
        }
        Err(CUresult::NOT_SUPPORTED)
    })
}

macro_rules! unsimulated {
    ($($name:ident,)*) => {$(
        /// Not simulated.
        ///
        /// # Safety
        /// None is needed: no argument is read.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name() -> CUresult {
            refuse(<symbol::$name as symbol::Symbol>::INDEX)
        }
    )*};
}

include!(concat!(env!("OUT_DIR"), "/unsimulated.rs"));
