//! Kernel launches, as whoever has subscribed sees them, and what makes and ends the handles that they name.
//!
//! A launch is looked at *before* the driver gets it: its blocks are live then, so a trace has it between their allocation and their
//! free, whatever other threads do. The call goes on unchanged, so a launch that the driver refuses has been seen too. A launch into a
//! capture makes a node and is left out; what a graph's launch runs is unknown.

use std::ffi::{c_char, c_uint};

use wm_abi::symbol::{cuLibraryEnumerateKernels, cuLibraryGetKernel, cuLibraryGetKernelCount};
use wm_abi::{CUfunction, CUgraphExec, CUkernel, CUlaunchConfig, CUlibrary, CUmodule, CUresult, CUstream};

use super::boundary::{self, Outcome};
use super::stream::{DefaultStream, is_captured};
use crate::launches::{self, LaunchArguments, Subscriber, Touched, layouts};
use crate::moves::recency;
use crate::process::{self, driver};
use crate::{registry, trace};

type Parameters = *mut *mut std::ffi::c_void;

/// The arguments of one launch function.
pub(super) trait LaunchCall {
    fn stream(&self) -> CUstream;

    /// What is launched with which arguments; `None` for a graph, whose kernels are not named here.
    fn kernel(&self) -> Option<(CUfunction, LaunchArguments)>;
}

/// `cuLaunchKernel`.
impl LaunchCall
    for (CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, Parameters, Parameters)
{
    fn stream(&self) -> CUstream {
        self.8
    }

    fn kernel(&self) -> Option<(CUfunction, LaunchArguments)> {
        Some((self.0, LaunchArguments { parameters: self.9, extra: self.10 }))
    }
}

/// `cuLaunchCooperativeKernel`.
impl LaunchCall
    for (CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, Parameters)
{
    fn stream(&self) -> CUstream {
        self.8
    }

    fn kernel(&self) -> Option<(CUfunction, LaunchArguments)> {
        Some((self.0, LaunchArguments { parameters: self.9, extra: std::ptr::null_mut() }))
    }
}

/// `cuLaunchKernelEx`.
impl LaunchCall for (*const CUlaunchConfig, CUfunction, Parameters, Parameters) {
    fn stream(&self) -> CUstream {
        // SAFETY: null, or the program's description of a launch.
        unsafe { self.0.as_ref() }.map_or(CUstream::NULL, |config| config.hStream)
    }

    fn kernel(&self) -> Option<(CUfunction, LaunchArguments)> {
        Some((self.1, LaunchArguments { parameters: self.2, extra: self.3 }))
    }
}

/// `cuGraphLaunch`.
impl LaunchCall for (CUgraphExec, CUstream) {
    fn stream(&self) -> CUstream {
        self.1
    }

    fn kernel(&self) -> Option<(CUfunction, LaunchArguments)> {
        None
    }
}

/// Shows a launch to those that have subscribed.
///
/// # Safety
/// They are the arguments of a call of the program that goes on.
#[inline(never)]
pub(super) unsafe fn observe<D: DefaultStream>(call: &impl LaunchCall) {
    if launches::has_subscribed(Subscriber::Words)
        && let Some((function, arguments)) = call.kernel()
    {
        let number = recency::launch();
        let note = |_, word| recency::note(word, number);
        // SAFETY: by contract.
        if unsafe { launches::words(function, arguments, note) }.is_none() {
            // The driver is asked for the parameters, under the rules of a handler.
            boundary::look(|| {
                // SAFETY: by contract.
                unsafe { launches::words_asked(function, arguments, note) };
            });
        }
    }
    if launches::has_subscribed(Subscriber::Blocks) {
        // SAFETY: by contract.
        unsafe { trace_launch::<D>(call) };
    }
}

#[cold]
#[inline(never)]
unsafe fn trace_launch<D: DefaultStream>(call: &impl LaunchCall) {
    boundary::look(|| {
        if process::exiting() || is_captured::<D>(call.stream()) {
            return;
        }
        if let Some((site, named)) = registry::existing_site_of_stream(call.stream(), D::HANDLE) {
            // SAFETY: by contract.
            let touched = |(function, arguments)| unsafe { launches::touched(function, arguments) };
            trace::launched(site.device, named.id, &call.kernel().map_or(Touched::Unknown, touched));
        }
    });
}

/// `cuLibraryGetKernel`. The runtime launches such kernels without a function of any module.
pub(super) unsafe fn library_get_kernel(
    place: *mut CUkernel,
    library: CUlibrary,
    name: *const c_char,
) -> Outcome {
    if !launches::is_observed() {
        return Outcome::Forward;
    }
    // SAFETY: the program's arguments.
    let result = unsafe { driver().get::<cuLibraryGetKernel>()(place, library, name) };
    // SAFETY: after a success, a kernel has been written there.
    unsafe { note_kernels(result, place, 1, library) }
}

/// `cuLibraryEnumerateKernels`. The driver writes as many as there are, up to `count`.
pub(super) unsafe fn library_enumerate_kernels(
    kernels: *mut CUkernel,
    count: c_uint,
    library: CUlibrary,
) -> Outcome {
    if !launches::is_observed() {
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

/// Notes what a call has answered. One that was short of memory did nothing, and is made again after some was given back.
///
/// # Safety
/// After a success, `count` kernels stand at `place`.
unsafe fn note_kernels(result: CUresult, place: *mut CUkernel, count: usize, library: CUlibrary) -> Outcome {
    if result == CUresult::OUT_OF_MEMORY {
        return Outcome::Forward;
    }
    if result == CUresult::SUCCESS && !place.is_null() {
        // SAFETY: by contract.
        (0..count).for_each(|index| layouts::note_kernel(unsafe { place.add(index).read() }, library));
    }
    result.into()
}

/// `cuLibraryUnload`.
pub(super) fn library_unload(library: CUlibrary) -> Outcome {
    if launches::is_observed() {
        layouts::forget_library(library);
    }
    Outcome::Forward
}

/// `cuModuleUnload`.
pub(super) fn module_unload(_module: CUmodule) -> Outcome {
    if launches::is_observed() {
        layouts::forget();
    }
    Outcome::Forward
}
