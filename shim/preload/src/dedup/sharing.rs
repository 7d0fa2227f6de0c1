//! The state of sharing in one process, as one value.

use std::sync::{Arc, Mutex, Once};

use wm_dedup::policy::graphs::GraphFacts;
use wm_dedup::policy::schedule::PassTimes;
use wm_dedup::policy::status::SharingStatus;

use super::captured::CaptureStart;
use super::company::Company;
use super::counts::SharingCounts;
use super::kernel_effects::ProcessKernels;
use super::mailbox::Mailbox;
use super::pass_tools::PassTools;
use super::pending::PendingBlocks;
use super::prepared::ReadingPlaces;
use super::recent_words::RecentWords;
use super::segment_places::SegmentPlaces;
use super::told_objects::ToldObjects;
use super::tracked_blocks::{TrackedBlock, TrackedBlocks};
use crate::process;

/// See above. Each field has its own lock. That of `tools` is held for a whole pass, the others for
/// moments.
pub(crate) struct Sharing {
    pub(super) status: SharingStatus,
    pub(super) blocks: TrackedBlocks,
    pub(super) kernels: ProcessKernels,
    pub(super) recent: RecentWords,
    pub(super) graphs: GraphFacts,
    pub(super) mailbox: Mailbox,
    pub(super) pending: PendingBlocks,
    pub(super) captured: CaptureStart,
    pub(super) counts: SharingCounts,
    pub(super) company: Company,
    /// When the next pass is due.
    pub(super) times: PassTimes,
    /// Held by the thread that runs a pass.
    pub(super) tools: Mutex<Option<PassTools>>,
    /// Addresses at which chunks of other processes are read.
    pub(super) places: ReadingPlaces,
    /// Places for the program's next segments.
    pub(super) segments: SegmentPlaces,
    /// The addresses that the program has reserved, and the objects in them.
    pub(super) objects: ToldObjects,
    /// Completed when the background thread was started.
    pub(super) started: Once,
}

impl Sharing {
    /// Off.
    pub(crate) const fn new() -> Self {
        Self {
            status: SharingStatus::new(),
            blocks: TrackedBlocks::new(),
            kernels: ProcessKernels::new(),
            recent: RecentWords::new(),
            graphs: GraphFacts::new(),
            mailbox: Mailbox::new(),
            pending: PendingBlocks::new(),
            captured: CaptureStart::new(),
            counts: SharingCounts::new(),
            company: Company::new(),
            times: PassTimes::new(),
            tools: Mutex::new(None),
            places: ReadingPlaces::new(),
            segments: SegmentPlaces::new(),
            objects: ToldObjects::new(),
            started: Once::new(),
        }
    }

    /// Has this process memory that other processes use, too?
    pub(crate) fn has_shared(&self) -> bool {
        let is_shared = |block: &Arc<TrackedBlock>| !block.manager.shared_in(block.range.clone()).is_empty();
        self.is_on() && self.blocks.shared().iter().any(is_shared)
    }

    /// Does any method below look at the call that it is told of?
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.status.is_on() && !process::forked()
    }
}

#[cfg(test)]
mod tests;
