//! A kernel has faulted while memory was shared: perhaps it wrote there, against its verdict.
//!
//! The driver tells neither the address nor the kernel. So each parameter that pointed into a
//! shared block counts as a writer from now on, in every process of the user: the next run shares
//! less, and faults no more. The file is written at once, because the program probably ends.

use std::collections::BTreeSet;

use wm_dedup::cache::WriterCache;
use wm_dedup::readers::ParameterKey;
use wm_multipath::measured::cache;

use super::kernel_effects::today;
use super::sharing::Sharing;

impl Sharing {
    /// The first error after which the driver answers every call with it was returned. A call of
    /// the program waits for a file, once.
    pub(crate) fn faulted(&self) {
        if !self.is_on() {
            return;
        }
        let suspects: BTreeSet<ParameterKey> = self
            .blocks
            .shared()
            .iter()
            .flat_map(|block| {
                let of_graphs = self.graphs.reaching(&block.range);
                block.facts().parameters().copied().chain(of_graphs).collect::<Vec<_>>()
            })
            .collect();
        if suspects.is_empty() {
            return;
        }
        let count = suspects.len();
        let effects = self.kernels.effects();
        effects.publish(&effects.readers().accuse(suspects));
        let kept = cache::folder().map(|folder| effects.keep(&WriterCache::new(&folder), today()));
        let lasts = if matches!(kept, Some(Ok(()))) { "also in later runs" } else { "in this process only" };
        log::warn!(
            "a kernel has faulted while memory was shared with other processes, which can only be read: \
             {count} kernel parameters that pointed there count as writers from now on, {lasts}; if the \
             program faults again, set WMSHIM_DEDUP=off"
        );
    }
}
