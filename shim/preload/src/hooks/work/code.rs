//! Code: which handles launches name, what they were loaded from, and when handles may come again.
//! Nothing is noted unless something subscribes to launches, or may do so later.

use std::ffi::{c_char, c_uint, c_void};

use wm_abi::symbol::{
    cuKernelGetFunction, cuLibraryEnumerateKernels, cuLibraryGetKernel, cuLibraryGetKernelCount,
    cuLibraryGetModule, cuLibraryLoadData, cuModuleLoadData, cuModuleLoadDataEx, cuModuleLoadFatBinary,
};
use wm_abi::{CUfunction, CUkernel, CUlibrary, CUmodule, CUresult};

use crate::hooks::call::boundary::Outcome;
use crate::launches::{self, CODE, Subscriber};
use crate::process::driver;

/// `cuLibraryGetKernel`. The runtime launches such kernels without a function of any module.
pub(in crate::hooks) unsafe fn library_get_kernel(
    place: *mut CUkernel,
    library: CUlibrary,
    name: *const c_char,
) -> Outcome {
    if !CODE.layouts.notes_kernels() {
        return Outcome::Forward;
    }
    // SAFETY: the program's arguments.
    let result = unsafe { driver().get::<cuLibraryGetKernel>()(place, library, name) };
    // SAFETY: after a success, a kernel has been written there.
    unsafe { note_kernels(result, place, 1, library) }
}

/// `cuLibraryEnumerateKernels`. The driver writes as many as there are, up to `count`.
pub(in crate::hooks) unsafe fn library_enumerate_kernels(
    kernels: *mut CUkernel,
    count: c_uint,
    library: CUlibrary,
) -> Outcome {
    if !CODE.layouts.notes_kernels() {
        return Outcome::Forward;
    }
    let mut there: c_uint = 0;
    // SAFETY: a live local.
    let counted = unsafe { driver().get::<cuLibraryGetKernelCount>()(&mut there, library) };
    let known = if counted == CUresult::SUCCESS { count.min(there) } else { 0 };
    // SAFETY: the program's arguments.
    let result = unsafe { driver().get::<cuLibraryEnumerateKernels>()(kernels, count, library) };
    // SAFETY: after a success, that many have been written.
    unsafe { note_kernels(result, kernels, known as usize, library) }
}

/// Records a call's answer.
///
/// # Safety
/// After a success, `count` kernels stand at `place`.
unsafe fn note_kernels(result: CUresult, place: *mut CUkernel, count: usize, library: CUlibrary) -> Outcome {
    if result == CUresult::SUCCESS && !place.is_null() {
        // SAFETY: by contract.
        (0..count).for_each(|index| CODE.layouts.note_kernel(unsafe { place.add(index).read() }, library));
    }
    answered(result)
}

/// `cuModuleLoadData`.
pub(in crate::hooks) unsafe fn module_load_data(module: *mut CUmodule, image: *const c_void) -> Outcome {
    // SAFETY: the program's arguments.
    unsafe { load_module(module, image, || driver().get::<cuModuleLoadData>()(module, image)) }
}

/// `cuModuleLoadFatBinary`.
pub(in crate::hooks) unsafe fn module_load_fat_binary(
    module: *mut CUmodule,
    image: *const c_void,
) -> Outcome {
    // SAFETY: the program's arguments.
    unsafe { load_module(module, image, || driver().get::<cuModuleLoadFatBinary>()(module, image)) }
}

/// `cuModuleLoadDataEx`.
pub(in crate::hooks) unsafe fn module_load_data_ex(
    module: *mut CUmodule,
    image: *const c_void,
    count: c_uint,
    options: *mut c_uint,
    values: *mut *mut c_void,
) -> Outcome {
    // SAFETY: the program's arguments.
    unsafe {
        load_module(module, image, || {
            driver().get::<cuModuleLoadDataEx>()(module, image, count, options, values)
        })
    }
}

/// Notes the code of a module that a call loads.
///
/// # Safety
/// The call writes a module to its place, from this image.
unsafe fn load_module(
    module: *mut CUmodule,
    image: *const c_void,
    load: impl FnOnce() -> CUresult,
) -> Outcome {
    // SAFETY: after a success, a module has been written there.
    noted(load, || unsafe { CODE.images.note_module(module.read(), image) })
}

/// Makes a call, and notes what it has given, where memory is shared.
fn noted(call: impl FnOnce() -> CUresult, note: impl FnOnce()) -> Outcome {
    if !launches::has_subscribed(Subscriber::Sharing) {
        return Outcome::Forward;
    }
    let result = call();
    if result == CUresult::SUCCESS {
        note();
    }
    answered(result)
}

/// A call that was short of memory did nothing, and is made again after some was given back.
fn answered(result: CUresult) -> Outcome {
    if result == CUresult::OUT_OF_MEMORY { Outcome::Forward } else { result.into() }
}

/// `cuLibraryLoadData`.
#[allow(clippy::too_many_arguments, reason = "the driver's")]
pub(in crate::hooks) unsafe fn library_load_data(
    library: *mut CUlibrary,
    image: *const c_void,
    jit_options: *mut c_uint,
    jit_values: *mut *mut c_void,
    jit_count: c_uint,
    options: *mut c_uint,
    values: *mut *mut c_void,
    count: c_uint,
) -> Outcome {
    let load = driver().get::<cuLibraryLoadData>();
    // SAFETY: the program's arguments; after a success, a library has been written there.
    noted(
        || unsafe { load(library, image, jit_options, jit_values, jit_count, options, values, count) },
        || unsafe { CODE.images.note_library(library.read(), image) },
    )
}

/// `cuKernelGetFunction`. The function belongs to a module that is the library in one context.
pub(in crate::hooks) unsafe fn kernel_get_function(place: *mut CUfunction, kernel: CUkernel) -> Outcome {
    // SAFETY: the program's arguments; after a success, a function has been written there.
    noted(
        || unsafe { driver().get::<cuKernelGetFunction>()(place, kernel) },
        || CODE.note_function(unsafe { place.read() }, kernel),
    )
}

/// `cuLibraryGetModule`.
pub(in crate::hooks) unsafe fn library_get_module(module: *mut CUmodule, library: CUlibrary) -> Outcome {
    // SAFETY: the program's arguments; after a success, a module has been written there.
    noted(
        || unsafe { driver().get::<cuLibraryGetModule>()(module, library) },
        || CODE.images.note_module_of(unsafe { module.read() }, library),
    )
}

/// `cuLibraryUnload`.
pub(in crate::hooks) fn library_unload(library: CUlibrary) -> Outcome {
    if launches::is_observed() {
        CODE.forget_library(library);
    }
    Outcome::Forward
}

/// `cuModuleUnload`.
pub(in crate::hooks) fn module_unload(module: CUmodule) -> Outcome {
    if launches::is_observed() {
        CODE.forget_module(module);
    }
    Outcome::Forward
}
