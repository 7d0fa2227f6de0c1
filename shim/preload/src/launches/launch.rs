//! One launch of the program, or one kernel node of a graph, read once for all subscribers.
//!
//! Invariants: the arguments are read when the value is made and not again. The blocks that they
//! point into are looked up at most once, and only if a subscriber asks.

use smallvec::SmallVec;
use wm_abi::{CUdevice, CUfunction, CUgraphExec, CUstream};
use wm_driver::StreamId;

use super::code::CODE;
use super::numbers::LaunchNumbers;
use super::touched::{self, BlockSet, TouchedBlock, is_address};
use super::words::{ArgumentsRead, LaunchArguments, LaunchWord};
use crate::registry;

/// The function that a launch runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaunchedWork {
    Kernel(CUfunction),
    /// Its kernels were named when their nodes were made.
    Graph(CUgraphExec),
}

/// When a call's work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Submission {
    /// It is in a stream, or done when the call returns.
    Now,
    /// Whenever a graph is launched that the call is captured into.
    Captured,
    /// Whenever a graph is launched of which the call makes or changes a node.
    Node,
}

/// Where and when a launch's work runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaunchPlace {
    /// Never the null handle, except for a node, which has no stream.
    pub(crate) stream: CUstream,
    pub(crate) submission: Submission,
}

impl LaunchPlace {
    /// Of a graph's node.
    pub(crate) const NODE: Self = Self { stream: CUstream::NULL, submission: Submission::Node };
}

type Words = SmallVec<[LaunchWord; 8]>;

/// See above.
#[derive(Debug)]
pub(crate) struct Launch {
    work: LaunchedWork,
    place: LaunchPlace,
    read: ArgumentsRead,
    words: Words,
    numbers: LaunchNumbers,
    blocks: BlockSet,
    /// The blocks were looked up.
    has_blocks: bool,
}

impl Launch {
    /// Reads a kernel's arguments. Asks the driver for its parameters if they are not known yet.
    ///
    /// # Safety
    /// The arguments are those of a driver's launch function or node, and the call goes on.
    pub(crate) unsafe fn of_kernel(
        function: CUfunction,
        arguments: LaunchArguments,
        place: LaunchPlace,
    ) -> Self {
        let mut launch = Self::of_work(LaunchedWork::Kernel(function), place);
        // SAFETY: the caller guarantees it.
        unsafe { launch.read_arguments(function, arguments) };
        launch
    }

    /// Reads a kernel's arguments into a launch that has none yet, where it lies: to move a launch
    /// costs as much as to read it.
    ///
    /// # Safety
    /// As of [`Launch::of_kernel`].
    pub(crate) unsafe fn read_arguments(&mut self, function: CUfunction, arguments: LaunchArguments) {
        let Some(layout) = CODE.layouts.of(function) else { return };
        let words = &mut self.words;
        // SAFETY: the caller guarantees it, and the layout is the function's.
        self.read = unsafe {
            arguments.read(layout, |offset, address| {
                if is_address(address) {
                    words.push(LaunchWord { offset, address });
                }
            })
        };
    }

    /// Reads the numbers among a kernel's arguments, into a launch that has none yet.
    ///
    /// # Safety
    /// As of [`Launch::of_kernel`].
    pub(crate) unsafe fn read_numbers(&mut self, function: CUfunction, arguments: LaunchArguments) {
        let Some(layout) = CODE.layouts.of(function) else { return };
        // SAFETY: the caller guarantees it, and the layout is the function's.
        unsafe { arguments.read_numbers(layout, |number| self.numbers.note(number)) };
    }

    /// Its arguments are unknown.
    #[inline(always)]
    pub(crate) fn of_work(work: LaunchedWork, place: LaunchPlace) -> Self {
        Self {
            work,
            place,
            read: ArgumentsRead::Unknown,
            words: Words::new(),
            numbers: LaunchNumbers::default(),
            blocks: BlockSet::new(),
            has_blocks: false,
        }
    }

    pub(crate) fn work(&self) -> LaunchedWork {
        self.work
    }

    pub(crate) fn submission(&self) -> Submission {
        self.place.submission
    }

    pub(crate) fn arguments(&self) -> ArgumentsRead {
        self.read
    }

    /// The words that may be addresses, in the order of the parameters.
    #[inline]
    pub(crate) fn words(&self) -> &[LaunchWord] {
        &self.words
    }

    /// The numbers among the arguments, if they were read.
    pub(crate) fn numbers(&self) -> &[u32] {
        self.numbers.as_slice()
    }

    /// The blocks that the words lie in, lowest address first, each once. `None`: the launch may
    /// use any block, or the driver refuses it. Takes no lock that an allocation takes.
    #[inline]
    pub(crate) fn blocks(&mut self) -> Option<&[TouchedBlock]> {
        if self.read != ArgumentsRead::Whole {
            return None;
        }
        if !std::mem::replace(&mut self.has_blocks, true) {
            touched::add_blocks(&mut self.blocks, &self.words, touched::block_at);
        }
        Some(&self.blocks)
    }

    /// The device and the stream of the launch, if the device has a manager.
    #[inline]
    pub(crate) fn device_and_stream(&self) -> Option<(CUdevice, StreamId)> {
        registry::existing_device_of_stream(self.place.stream)
    }
}
