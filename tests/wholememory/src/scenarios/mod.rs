//! What ranks do together, by name.

mod communicators;
mod memory;
mod misuse;
mod tensors;

use crate::rank::{Rank, Verdict};

/// A scenario.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) play: fn(&Rank) -> Verdict,
    /// Fewest ranks.
    pub(crate) least: usize,
    /// A rank ends on the way: its process does.
    pub(crate) ends_early: bool,
}

impl Scenario {
    const fn new(name: &'static str, play: fn(&Rank) -> Verdict) -> Self {
        Self { name, play, least: 1, ends_early: false }
    }

    const fn of_several(name: &'static str, play: fn(&Rank) -> Verdict) -> Self {
        Self { least: 2, ..Self::new(name, play) }
    }

    /// Can it be played by so many ranks, which are threads, or processes?
    pub(crate) fn fits(&self, ranks: usize, threads: bool) -> bool {
        ranks >= self.least && !(self.ends_early && threads)
    }
}

/// All scenarios.
pub(crate) static ALL: &[Scenario] = &[
    Scenario::new("communicators.ranks_and_parts", communicators::ranks_and_parts),
    Scenario::of_several("communicators.different_calls", communicators::different_calls),
    Scenario { ends_early: true, ..Scenario::of_several("communicators.a_rank_ends", communicators::a_rank_ends) },
    Scenario::new("memory.parts", memory::parts),
    Scenario::new("memory.custom_partition", memory::custom_partition),
    Scenario::new("memory.few_rows", memory::few_rows),
    Scenario::new("memory.what_each_type_shows", memory::what_each_type_shows),
    Scenario::new("memory.does_not_fit", memory::does_not_fit),
    Scenario::new("memory.freed_by_one_rank_first", memory::freed_by_one_rank_first),
    Scenario::new("misuse.arguments", misuse::arguments),
    Scenario::of_several("misuse.arguments_of_one_rank", misuse::arguments_of_one_rank),
    Scenario::new("misuse.handles", misuse::handles),
    Scenario::new("tensors.shapes", tensors::shapes),
    Scenario::new("tensors.parts", tensors::parts),
    Scenario::new("tensors.are_counted", tensors::are_counted),
];
