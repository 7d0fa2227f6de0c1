//! One thread at a time changes mappings.
//!
//! The driver (580, on H200s) corrupts handles when two threads map and unmap the same ones at
//! once: later maps of such a handle fail with error 999, wherever they go. Locking single calls
//! does not help; a whole sequence of unmap, reserve, map and set-access has to be alone. So one
//! lock covers each such sequence.
//!
//! This is the one lock of the crate that is held across driver calls. The calls that it covers
//! never wait for the GPU, and a thread that holds it takes no other lock: it can neither deadlock
//! nor be held up by a kernel.

use std::ops::Range;

use wm_abi::CUresult;
use wm_driver::Gpu;

use super::remap::{MappedAccess, Remap, RemapFailure};
use super::{Manager, execute};
use crate::sync::MutexGuard;
use crate::vocabulary::plan::{Build, BuildFailure, Built, ExtentPart, Undo};
use crate::vocabulary::settings::Rules;
use crate::vocabulary::sizes::round_up;

impl<G: Gpu> Manager<G> {
    fn lock_mappings(&self) -> MutexGuard<'_, ()> {
        self.mapping_lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Makes an extent, or nothing.
    pub(super) fn build(&self, build: &Build) -> Result<Built, BuildFailure> {
        let Rules { settings, granularity, .. } = &self.rules;
        let headroom = round_up(settings.headroom, *granularity).unwrap_or(u64::MAX);
        let mappings = self.lock_mappings();
        let (built, failed) = execute::build(&self.gpu, build, headroom);
        drop(mappings);
        if !failed.is_empty() {
            self.lock().quarantine(failed);
        }
        built
    }

    /// Maps memory at addresses that are reserved and have none.
    pub(super) fn build_at(
        &self,
        part: ExtentPart,
        places: &[u64],
        access: MappedAccess,
    ) -> Result<Built, BuildFailure> {
        let _mappings = self.lock_mappings();
        execute::build_at(&self.gpu, part, places, access)
    }

    /// Takes things apart; the steps that failed come back.
    pub(super) fn dismantle(&self, steps: &[Undo]) -> Vec<Undo> {
        if steps.is_empty() {
            return Vec::new();
        }
        let _mappings = self.lock_mappings();
        execute::dismantle(&self.gpu, steps)
    }

    /// Maps other memory at the same addresses, or the old one again.
    pub(super) fn remap(&self, remap: &Remap<'_>) -> Result<(), RemapFailure> {
        let _mappings = self.lock_mappings();
        remap.carry_out(&self.gpu)
    }

    /// Unmaps a whole mapping.
    pub(super) fn unmap(&self, address: u64, bytes: usize) -> Result<(), CUresult> {
        let _mappings = self.lock_mappings();
        self.gpu.unmap(address, bytes)
    }

    /// Grants the CPU access to a mapped range of host memory.
    pub(super) fn allow_cpu(&self, range: &Range<u64>) -> Result<(), CUresult> {
        let _mappings = self.lock_mappings();
        self.gpu.allow_cpu(range.start, (range.end - range.start) as usize)
    }

    /// Grants access to a mapped range: full, or to read.
    pub(super) fn allow(&self, address: u64, bytes: usize, full: bool) -> Result<(), CUresult> {
        let _mappings = self.lock_mappings();
        if full { self.gpu.allow(address, bytes) } else { self.gpu.allow_reading(address, bytes) }
    }
}
