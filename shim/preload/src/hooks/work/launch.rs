//! Kernel launches and graph launches, shown to the subsystems that have subscribed.
//!
//! A launch is read once, *before* the driver gets it. Its blocks are live then, so a trace has it
//! between their allocation and their free, whatever other threads do. The call goes on unchanged,
//! so a launch that the driver refuses was shown, too.

use std::ffi::{c_uint, c_void};

use wm_abi::{CUfunction, CUgraphExec, CUlaunchConfig, CUstream};
use wm_driver::thread::Uncancelled;

use crate::hooks::call::boundary;
use crate::hooks::call::stream::{DefaultStream, is_any_captured, is_captured};
use crate::launches::{self, Launch, LaunchArguments, LaunchPlace, LaunchedWork, Submission, Subscriber};
use crate::subsystems::PROCESS;

type Parameters = *mut *mut c_void;

type Show = fn(&mut Launch);

/// Each subscriber's function. Sharing is the first: memory that the kernel may write becomes
/// private before another one looks where blocks lie.
const SUBSCRIBERS: [(Subscriber, Show); 4] = [
    (Subscriber::Sharing, |launch| PROCESS.sharing.launched(launch)),
    (Subscriber::LastUse, |launch| PROCESS.moves.record_use(launch)),
    (Subscriber::Predictor, |launch| PROCESS.moves.launched(launch)),
    (Subscriber::Trace, |launch| PROCESS.trace.launched(launch)),
];

/// The arguments of one launch function.
pub(in crate::hooks) trait LaunchCall {
    /// As the program names it.
    fn stream(&self) -> CUstream;

    fn work(&self) -> LaunchedWork;

    /// `None` for a graph.
    fn arguments(&self) -> Option<(CUfunction, LaunchArguments)>;
}

/// `cuLaunchKernel`.
impl LaunchCall
    for (CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, Parameters, Parameters)
{
    #[inline]
    fn stream(&self) -> CUstream {
        self.8
    }

    #[inline]
    fn work(&self) -> LaunchedWork {
        LaunchedWork::Kernel(self.0)
    }

    #[inline]
    fn arguments(&self) -> Option<(CUfunction, LaunchArguments)> {
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

    #[inline]
    fn work(&self) -> LaunchedWork {
        LaunchedWork::Kernel(self.0)
    }

    #[inline]
    fn arguments(&self) -> Option<(CUfunction, LaunchArguments)> {
        Some((self.0, LaunchArguments { parameters: self.9, extra: std::ptr::null_mut() }))
    }
}

/// `cuLaunchKernelEx`.
impl LaunchCall for (*const CUlaunchConfig, CUfunction, Parameters, Parameters) {
    #[inline]
    fn stream(&self) -> CUstream {
        // SAFETY: null, or the program's description of a launch.
        unsafe { self.0.as_ref() }.map_or(CUstream::NULL, |config| config.hStream)
    }

    #[inline]
    fn work(&self) -> LaunchedWork {
        LaunchedWork::Kernel(self.1)
    }

    #[inline]
    fn arguments(&self) -> Option<(CUfunction, LaunchArguments)> {
        Some((self.1, LaunchArguments { parameters: self.2, extra: self.3 }))
    }
}

/// `cuGraphLaunch`.
impl LaunchCall for (CUgraphExec, CUstream) {
    fn stream(&self) -> CUstream {
        self.1
    }

    fn work(&self) -> LaunchedWork {
        LaunchedWork::Graph(self.0)
    }

    fn arguments(&self) -> Option<(CUfunction, LaunchArguments)> {
        None
    }
}

/// Shows a launch to those that have subscribed.
///
/// # Safety
/// They are the arguments of a call of the program that goes on.
#[inline(never)]
pub(in crate::hooks) unsafe fn observe<D: DefaultStream>(call: &impl LaunchCall) {
    boundary::observe_frequent(|| {
        let named = call.stream();
        let stream = if named.is_null() { D::HANDLE } else { named };
        let place = LaunchPlace { stream, submission: submission::<D>(named) };
        let mut launch = Launch::of_work(call.work(), place);
        if let Some((function, arguments)) = call.arguments() {
            // SAFETY: the caller guarantees it.
            unsafe { launch.read_arguments(function, arguments) };
            if launches::has_subscribed(Subscriber::Predictor) {
                // SAFETY: as above.
                unsafe { launch.read_numbers(function, arguments) };
            }
        }
        for (subscriber, show) in SUBSCRIBERS {
            if launches::has_subscribed(subscriber) {
                show(&mut launch);
            }
        }
    });
}

/// When the work of a call in this stream is done. Sharing learns of a call that is not captured
/// while another stream is.
#[inline]
pub(super) fn submission<D: DefaultStream>(stream: CUstream) -> Submission {
    if is_any_captured() { submission_beside_capture::<D>(stream) } else { Submission::Now }
}

#[cold]
#[inline(never)]
fn submission_beside_capture<D: DefaultStream>(stream: CUstream) -> Submission {
    let _whole = Uncancelled::new();
    if is_captured::<D>(stream) {
        return Submission::Captured;
    }
    PROCESS.sharing.submitted_beside();
    Submission::Now
}

#[cfg(test)]
mod tests {
    //! Hazard (silent degradation): a form of launch is read as another one, and a subscriber
    //! misses the blocks that its kernel uses.
    use std::ptr::null_mut;

    use wm_abi::{CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END};

    use super::*;
    use crate::hooks::call::stream::{Legacy, PerThread};
    use crate::launches::{ArgumentsRead, CODE, LaunchWord, ParameterPlace};

    const FUNCTION: CUfunction = CUfunction(0x1230);
    const STREAM: CUstream = CUstream(0x4560);
    const PLACE: LaunchPlace = LaunchPlace { stream: STREAM, submission: Submission::Now };
    /// A pointer, a number of four bytes, and a structure with a pointer behind a number.
    const LAYOUT: [ParameterPlace; 3] = [
        ParameterPlace { offset: 0, size: 8 },
        ParameterPlace { offset: 8, size: 4 },
        ParameterPlace { offset: 16, size: 16 },
    ];
    const ADDRESSES: [u64; 2] = [0x7f00_0000_0000, 0x7f00_1234_5678];
    /// The parameters as a buffer has them.
    static BUFFER: [u64; 4] = [ADDRESSES[0], u64::MAX, 64, ADDRESSES[1]];

    fn read(call: &impl LaunchCall) -> Launch {
        CODE.layouts.tell(FUNCTION, Some(&LAYOUT));
        let mut launch = Launch::of_work(call.work(), PLACE);
        if let Some((function, arguments)) = call.arguments() {
            // SAFETY: the tests' own arguments.
            unsafe { launch.read_arguments(function, arguments) };
        }
        launch
    }

    fn words() -> Vec<LaunchWord> {
        [(0, ADDRESSES[0]), (24, ADDRESSES[1])]
            .map(|(offset, address)| LaunchWord { offset, address })
            .to_vec()
    }

    fn assert_whole(call: &impl LaunchCall) {
        let launch = read(call);
        assert_eq!(launch.work(), LaunchedWork::Kernel(FUNCTION));
        assert_eq!(launch.arguments(), ArgumentsRead::Whole);
        assert_eq!(launch.words(), words());
        assert_eq!(call.stream(), STREAM);
    }

    #[test]
    fn every_form_of_a_kernel_launch_has_the_same_words() {
        let mut pointers = [0, 1, 2].map(|at| (&raw const BUFFER[at]).cast_mut().cast());
        let parameters = pointers.as_mut_ptr();
        assert_whole(&(FUNCTION, 1, 1, 1, 1, 1, 1, 0, STREAM, parameters, null_mut()));
        assert_whole(&(FUNCTION, 1, 1, 1, 1, 1, 1, 0, STREAM, parameters));
        // SAFETY: all-zero is a description.
        let config = CUlaunchConfig { hStream: STREAM, ..unsafe { std::mem::zeroed() } };
        assert_whole(&(&raw const config, FUNCTION, parameters, null_mut()));
        let bytes = size_of_val(&BUFFER);
        let key = |key: usize| std::ptr::without_provenance_mut::<c_void>(key);
        let mut extra = [
            key(CU_LAUNCH_PARAM_BUFFER_POINTER),
            (&raw const BUFFER).cast_mut().cast(),
            key(CU_LAUNCH_PARAM_BUFFER_SIZE),
            (&raw const bytes).cast_mut().cast(),
            key(CU_LAUNCH_PARAM_END),
        ];
        let extra = extra.as_mut_ptr();
        assert_whole(&(FUNCTION, 1, 1, 1, 1, 1, 1, 0, STREAM, null_mut(), extra));
        assert_whole(&(&raw const config, FUNCTION, null_mut(), extra));
    }

    #[test]
    fn a_graph_names_no_kernel_and_uses_unknown_blocks() {
        let mut launch = read(&(CUgraphExec(0x70), STREAM));
        assert_eq!(launch.work(), LaunchedWork::Graph(CUgraphExec(0x70)));
        assert_eq!((launch.arguments(), launch.words()), (ArgumentsRead::Unknown, &[][..]));
        assert!(launch.blocks().is_none());
    }

    #[test]
    fn a_missing_argument_is_refused_and_a_kernel_without_layout_is_unknown() {
        let mut cut = [(&raw const BUFFER[0]).cast_mut().cast::<c_void>(), null_mut(), null_mut()];
        let cut = cut.as_mut_ptr();
        let mut launch = read(&(FUNCTION, 1, 1, 1, 1, 1, 1, 0, STREAM, cut, null_mut()));
        assert_eq!((launch.arguments(), launch.words()), (ArgumentsRead::Refused, &words()[..1]));
        assert!(launch.blocks().is_none(), "the driver refuses it");
        let other = CUfunction(0x9990);
        CODE.layouts.tell(other, None);
        let launch = read(&(other, 1, 1, 1, 1, 1, 1, 0, STREAM, cut, null_mut()));
        assert_eq!((launch.arguments(), launch.words()), (ArgumentsRead::Unknown, &[][..]));
    }

    #[test]
    fn without_a_capture_work_is_done_now_in_either_default_stream() {
        let submissions = [submission::<Legacy>(STREAM), submission::<PerThread>(CUstream::NULL)];
        assert_eq!(submissions, [Submission::Now; 2]);
    }
}
