//! Where each function's parameters lie, as the driver tells it.
//!
//! Launch functions take two kinds of handle in one type: functions of a module, and kernels of a library. Each kind has its own
//! question, and asking the wrong one is outside what the driver documents. So the handles of kernels are noted where the program
//! gets them ([`note_kernel`]); any other handle is a function.
//!
//! Handles come again: whatever unloads code, or ends a context, calls [`forget`] or [`forget_library`] before the driver does it.
//! A launch that asks meanwhile is of a function that stays, so what it notes is right.

use std::sync::{Arc, OnceLock};

use dashmap::DashMap;
use wm_abi::symbol::{cuFuncGetParamInfo, cuKernelGetParamInfo};
use wm_abi::{CUfunction, CUkernel, CUlibrary, CUresult};

use super::words::ParameterPlace;
use crate::process::driver;

/// Parameters, or `None` where the driver does not tell them. It is asked once.
type Known = Option<Arc<[ParameterPlace]>>;

/// More parameters than a kernel can have.
const MOST: usize = 1 << 15;

/// By handle.
fn layouts() -> &'static DashMap<usize, Known> {
    static LAYOUTS: OnceLock<DashMap<usize, Known>> = OnceLock::new();
    LAYOUTS.get_or_init(DashMap::new)
}

/// Handles of kernels, and their libraries.
fn kernels() -> &'static DashMap<usize, CUlibrary> {
    static KERNELS: OnceLock<DashMap<usize, CUlibrary>> = OnceLock::new();
    KERNELS.get_or_init(DashMap::new)
}

/// The program got a kernel of a library.
pub(crate) fn note_kernel(kernel: CUkernel, library: CUlibrary) {
    kernels().insert(kernel.0, library);
}

/// Code is about to be unloaded, or a context to end: their handles may come again for other functions.
pub(crate) fn forget() {
    layouts().clear();
}

/// A library is about to be unloaded, and its kernels with it.
pub(crate) fn forget_library(library: CUlibrary) {
    kernels().retain(|_, of| *of != library);
    forget();
}

/// The parameters of what a launch names.
pub(super) fn of(function: CUfunction) -> Known {
    if let Some(known) = layouts().get(&function.0) {
        return known.clone();
    }
    let known = if kernels().contains_key(&function.0) {
        let kernel = CUkernel(function.0);
        // SAFETY: the program launches the kernel, so it lives; out-pointers are to live locals.
        places(|index, place| unsafe {
            driver().get::<cuKernelGetParamInfo>()(kernel, index, &mut place.offset, &mut place.size)
        })
    } else {
        // SAFETY: as above.
        places(|index, place| unsafe {
            driver().get::<cuFuncGetParamInfo>()(function, index, &mut place.offset, &mut place.size)
        })
    };
    layouts().insert(function.0, known.clone());
    known
}

/// Asks for one parameter after the other, until there is no such parameter. Any other error: they are unknown.
fn places(ask: impl Fn(usize, &mut ParameterPlace) -> CUresult) -> Known {
    let mut places = Vec::new();
    for index in 0..MOST {
        let mut place = ParameterPlace { offset: 0, size: 0 };
        match ask(index, &mut place) {
            CUresult::SUCCESS => places.push(place),
            CUresult::INVALID_VALUE => return Some(places.into()),
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    //! Hazard: a driver that does not know the question is taken for one whose kernels have no parameters.
    use super::*;

    /// A handle that comes again must be asked about again, and as what it is now.
    #[test]
    fn what_is_unloaded_is_forgotten() {
        let (kernel, library, other) = (CUkernel(0x10), CUlibrary(0x20), CUlibrary(0x30));
        note_kernel(kernel, library);
        layouts().insert(kernel.0, None);
        forget_library(other);
        assert!(kernels().contains_key(&kernel.0) && layouts().is_empty());
        layouts().insert(0x40, None);
        forget_library(library);
        assert!(kernels().is_empty() && layouts().is_empty());
    }

    #[test]
    fn a_driver_without_the_question_leaves_parameters_unknown() {
        for code in [CUresult::NOT_SUPPORTED, CUresult::INVALID_HANDLE, CUresult::CONTEXT_IS_DESTROYED] {
            assert_eq!(places(|_, _| code), None);
            assert_eq!(places(|index, _| if index < 2 { CUresult::SUCCESS } else { code }), None);
        }
        assert_eq!(places(|_, _| CUresult::SUCCESS), None, "it never ends");
        let two = places(|index, place| {
            (place.offset, place.size) = (8 * index, 8);
            if index < 2 { CUresult::SUCCESS } else { CUresult::INVALID_VALUE }
        });
        let wanted = [0, 8].map(|offset| ParameterPlace { offset, size: 8 });
        assert_eq!(two.as_deref(), Some(&wanted[..]));
    }
}
