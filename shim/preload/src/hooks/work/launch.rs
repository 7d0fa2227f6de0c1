//! Kernel launches, as whoever has subscribed sees them.
//!
//! A launch is looked at *before* the driver gets it: its blocks are live then, so a trace has it between their allocation and their
//! free, whatever other threads do. The call goes on unchanged, so a launch that the driver refuses has been seen too. A launch into a
//! capture makes a node and is left out; what a graph's launch runs is unknown.

use std::ffi::c_uint;

use wm_abi::{CUfunction, CUgraphExec, CUlaunchConfig, CUstream};

use crate::hooks::call::boundary;
use crate::hooks::call::stream::{DefaultStream, is_captured};
use crate::launches::{self, LaunchArguments, Subscriber, Touched};
use crate::moves::{last_use, predictor};
use crate::process;
use crate::registry;
use crate::subsystems::PROCESS;

type Parameters = *mut *mut std::ffi::c_void;

/// The arguments of one launch function.
pub(in crate::hooks) trait LaunchCall {
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
pub(in crate::hooks) unsafe fn observe<D: DefaultStream>(call: &impl LaunchCall) {
    if launches::has_subscribed(Subscriber::Words)
        && let Some((function, arguments)) = call.kernel()
    {
        let number = last_use::next_number();
        let note = |_, word| last_use::record(word, number);
        // SAFETY: by contract.
        if unsafe { launches::words(function, arguments, note) }.is_none() {
            // The driver is asked for the parameters, under the rules of a handler.
            boundary::look(|| {
                // SAFETY: by contract.
                unsafe { launches::words_asked(function, arguments, note) };
            });
        }
    }
    if predictor::is_recording() {
        // SAFETY: by contract.
        unsafe { follow_launch(call) };
    }
    if launches::has_subscribed(Subscriber::Blocks) {
        // SAFETY: by contract.
        unsafe { trace_launch::<D>(call) };
    }
}

/// Memory may move before the launch, for it and for what comes next.
#[cold]
#[inline(never)]
unsafe fn follow_launch(call: &impl LaunchCall) {
    boundary::look(|| {
        let Some((function, arguments)) = call.kernel().filter(|_| !process::exiting()) else { return };
        // SAFETY: by contract.
        if let Touched::Blocks(blocks) = unsafe { launches::touched(function, arguments) } {
            predictor::launched(&blocks);
        }
    });
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
            PROCESS.trace.launched(site.device, named.id, &call.kernel().map_or(Touched::Unknown, touched));
        }
    });
}
