//! The scenarios of ranks, by name.

mod cache_policies;
mod caches;
mod communicators;
mod crossings;
mod dealt;
mod deaths;
mod drawn;
mod embeddings;
mod environment;
mod files;
mod folder;
mod graph;
mod graph_across;
mod islands;
mod kept_training;
mod memory;
mod misuse;
mod narrow_training;
mod nodes;
mod ordered;
mod properties;
mod random;
mod repeats;
mod rows;
mod shared;
mod tensors;
mod training;

use crate::Arguments;
use crate::rank::{Rank, Verdict};

/// A scenario.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) play: fn(&Rank) -> Verdict,
    /// Fewest ranks, and most: ranks that share few cores take long.
    pub(crate) least: usize,
    pub(crate) most: usize,
    /// It ends the whole process of a rank.
    pub(crate) ends_early: bool,
    /// A call of one rank fails, as the command line says.
    pub(crate) needs_fault: bool,
    /// It can be played by ranks of several islands.
    pub(crate) spans: bool,
}

impl Scenario {
    const fn new(name: &'static str, play: fn(&Rank) -> Verdict) -> Self {
        Self { name, play, least: 1, most: usize::MAX, ends_early: false, needs_fault: false, spans: false }
    }

    const fn of_several(name: &'static str, play: fn(&Rank) -> Verdict) -> Self {
        Self { least: 2, ..Self::new(name, play) }
    }

    const fn of_few(name: &'static str, play: fn(&Rank) -> Verdict) -> Self {
        Self { most: 4, ..Self::new(name, play) }
    }

    /// The same, and it can be played by ranks of several islands.
    const fn spanning(self) -> Self {
        Self { spans: true, ..self }
    }

    /// Can it be played with these ranks?
    pub(crate) fn fits(&self, arguments: &Arguments) -> bool {
        let fits_form = !(self.ends_early && arguments.threads);
        let fits_ranks = (self.least..=self.most).contains(&arguments.ranks);
        let fits_islands = self.spans || arguments.islands == 1;
        fits_ranks && fits_form && fits_islands && self.needs_fault == arguments.fault.is_some()
    }
}

/// All scenarios.
pub(crate) static ALL: &[Scenario] = &[
    Scenario::new("communicators.ranks_and_parts", communicators::ranks_and_parts),
    Scenario::of_several("communicators.different_calls", communicators::different_calls).spanning(),
    Scenario {
        ends_early: true,
        ..Scenario::of_several("communicators.a_rank_ends", communicators::a_rank_ends)
    },
    Scenario { ends_early: true, ..Scenario::new("communicators.begins", communicators::begins) },
    Scenario { ends_early: true, ..Scenario::new("communicators.finalized", communicators::finalized) },
    Scenario { ends_early: true, ..Scenario::of_several("deaths.in_splits", deaths::in_splits) }.spanning(),
    Scenario {
        ends_early: true,
        ..Scenario::of_several("deaths.while_ranks_meet", deaths::while_ranks_meet)
    }
    .spanning(),
    Scenario { ends_early: true, ..Scenario::of_several("deaths.in_hierarchy", deaths::in_hierarchy) },
    Scenario { ends_early: true, ..Scenario::of_several("deaths.with_a_small_child", deaths::with_a_child) }
        .spanning(),
    Scenario {
        ends_early: true,
        ..Scenario::of_several("deaths.with_a_whole_child", deaths::with_a_whole_child)
    },
    Scenario { ends_early: true, ..Scenario::of_several("deaths.in_any_call", deaths::in_any_call) },
    Scenario { ends_early: true, ..Scenario::of_several("deaths.leaves", deaths::leaves_with_a_child) }
        .spanning(),
    Scenario { ends_early: true, ..Scenario::new("deaths.calls_of_a_child", deaths::calls_of_a_child) },
    Scenario { ends_early: true, ..Scenario::new("deaths.elsewhere", deaths::elsewhere) },
    Scenario::new("deaths.split_by_mistake", deaths::split_by_mistake).spanning(),
    Scenario { ends_early: true, ..Scenario::new("deaths.no_context", deaths::split_without_a_context) },
    Scenario::new("deaths.without_peers", deaths::without_peers),
    Scenario::new("files.loads", files::loads).spanning(),
    Scenario::new("files.more_than_a_buffer", files::more_than_a_buffer),
    Scenario::new("files.longer_than_ranks_wait", files::longer_than_ranks_wait),
    Scenario::new("files.stores", files::stores).spanning(),
    Scenario::new("files.misuse", files::misuse),
    Scenario::new("files.wrong_files", files::wrong_files).spanning(),
    Scenario::of_several("files.misuse_of_one_rank", files::misuse_of_one_rank),
    Scenario::new("files.a_store_fails", files::a_store_fails),
    Scenario { ends_early: true, ..Scenario::new("files.no_room", files::no_room) },
    Scenario { needs_fault: true, ..Scenario::new("files.a_copy_fails", files::a_copy_fails) },
    Scenario::new("dealt.rows", dealt::rows).spanning(),
    Scenario::new("drawn.tables", drawn::tables).spanning(),
    Scenario::new("environment.tested", environment::tested),
    // Ranks that are threads share a context, in which no rank may wait while another one captures.
    Scenario { ends_early: true, ..Scenario::new("environment.captured", environment::captured) },
    Scenario::new("environment.fails", environment::fails),
    Scenario::new("environment.lacks_functions", environment::lacks_functions),
    Scenario::new("graph.sampled_uniformly", graph::sampled_uniformly).spanning(),
    Scenario::new("graph.sampled_by_weight", graph::sampled_by_weight).spanning(),
    Scenario::new("graph.what_is_not_wanted", graph::what_is_not_wanted),
    Scenario::new("graph.misused", graph::misused),
    Scenario::new("graph.of_all_places", graph_across::of_all_places).spanning(),
    Scenario::new("graph.not_as_the_others", graph_across::not_as_the_others).spanning(),
    Scenario::new("graph.one_rank_fails", graph_across::one_rank_fails).spanning(),
    Scenario::new("graph.different_calls", graph_across::different_calls).spanning(),
    Scenario { needs_fault: true, ..Scenario::new("graph.a_launch_fails", graph_across::a_launch_fails) }
        .spanning(),
    Scenario { ends_early: true, ..Scenario::new("graph.network_fails", graph_across::network_fails) }
        .spanning(),
    Scenario { ends_early: true, ..Scenario::of_several("graph.a_rank_ends", graph_across::a_rank_ends) }
        .spanning(),
    Scenario::new("islands.ranks", islands::ranks).spanning(),
    Scenario::new("islands.memory", islands::memory).spanning(),
    Scenario::of_several("islands.calls", islands::calls).spanning(),
    Scenario { ends_early: true, ..Scenario::of_several("islands.a_rank_ends", islands::a_rank_ends) }
        .spanning(),
    Scenario {
        ends_early: true,
        ..Scenario::of_several("islands.a_machine_is_lost", islands::a_machine_is_lost)
    }
    .spanning(),
    Scenario::new("crossings.many_steps", crossings::many_steps).spanning(),
    Scenario::new("crossings.counted", crossings::counted).spanning(),
    Scenario::new("crossings.repeated", crossings::repeated).spanning(),
    Scenario::new("crossings.others_leave", crossings::others_leave).spanning(),
    Scenario::new("crossings.others_end", crossings::others_end).spanning(),
    Scenario::new("crossings.a_call_returns_early", crossings::a_call_returns_early).spanning(),
    Scenario::new("crossings.narrow_rows", crossings::narrow_rows).spanning(),
    Scenario::new("crossings.different_calls", crossings::different_calls).spanning(),
    Scenario { needs_fault: true, ..Scenario::new("crossings.a_launch_fails", crossings::a_launch_fails) }
        .spanning(),
    Scenario::new("crossings.refused", crossings::refused).spanning(),
    Scenario::new("crossings.beside_an_island", crossings::beside_an_island).spanning(),
    Scenario::new("crossings.without_nccl", crossings::without_nccl).spanning(),
    Scenario { ends_early: true, ..Scenario::new("crossings.network_fails", crossings::network_fails) }
        .spanning(),
    Scenario {
        ends_early: true,
        ..Scenario::new("crossings.a_machine_is_lost", crossings::a_machine_is_lost)
    }
    .spanning(),
    Scenario { ends_early: true, ..Scenario::new("crossings.a_rank_ends", crossings::a_rank_ends) }
        .spanning(),
    Scenario::new("memory.parts", memory::parts).spanning(),
    Scenario::new("memory.custom_partition", memory::custom_partition).spanning(),
    Scenario::new("memory.few_rows", memory::few_rows).spanning(),
    Scenario::new("memory.what_each_type_shows", memory::what_each_type_shows).spanning(),
    Scenario::new("memory.does_not_fit", memory::does_not_fit).spanning(),
    Scenario::new("memory.freed_by_one_rank_first", memory::freed_by_one_rank_first).spanning(),
    Scenario { needs_fault: true, ..Scenario::new("memory.a_call_fails", memory::a_call_fails) },
    Scenario::new("misuse.arguments", misuse::arguments),
    Scenario::of_several("misuse.arguments_of_one_rank", misuse::arguments_of_one_rank),
    Scenario::new("misuse.handles", misuse::handles),
    Scenario::new("embeddings.gathered", embeddings::gathered).spanning(),
    Scenario::new("embeddings.misused", embeddings::misused),
    Scenario::of_few("caches.gathered", caches::gathered).spanning(),
    Scenario::of_few("caches.taken_while_read", caches::taken_while_read).spanning(),
    Scenario::of_few("caches.ordered", caches::ordered).spanning(),
    Scenario::of_few("caches.holds_all_rows", caches::holds_all_rows).spanning(),
    Scenario::of_few("caches.holds_hot_rows", caches::holds_hot_rows).spanning(),
    Scenario::new("caches.loaded", caches::loaded).spanning(),
    Scenario::new("caches.counted", caches::counted).spanning(),
    Scenario { needs_fault: true, ..Scenario::new("caches.a_launch_fails", caches::a_launch_fails) }
        .spanning(),
    Scenario { ends_early: true, ..Scenario::new("caches.a_rank_ends", caches::a_rank_ends) }.spanning(),
    // As `environment.captured`.
    Scenario { ends_early: true, ..Scenario::new("caches.captured", caches::captured) },
    Scenario::new("caches.misused", cache_policies::misused),
    Scenario { needs_fault: true, ..Scenario::new("caches.a_call_fails", cache_policies::a_call_fails) },
    Scenario::new("training.steps", training::steps).spanning(),
    Scenario::new("training.steps_of_16_bits", narrow_training::steps_of_16_bits).spanning(),
    Scenario::new("training.kept_in_files", kept_training::kept_in_files).spanning(),
    Scenario { ends_early: true, ..Scenario::new("training.captured", training::captured) }.spanning(),
    Scenario::of_few("training.through_a_cache", training::through_a_cache).spanning(),
    Scenario { ends_early: true, ..Scenario::new("training.network_fails", training::network_fails) }
        .spanning(),
    Scenario { ends_early: true, ..Scenario::of_several("training.a_rank_ends", training::a_rank_ends) }
        .spanning(),
    Scenario::new("training.misused", training::misused).spanning(),
    Scenario::new("nodes.unique", nodes::unique),
    Scenario::new("nodes.self_loops", nodes::self_loops),
    Scenario::new("rows.gathered", rows::gathered).spanning(),
    Scenario::new("rows.of_part_of_a_table", rows::of_part_of_a_table).spanning(),
    Scenario::new("rows.scattered", rows::scattered).spanning(),
    Scenario::new("rows.converted", rows::converted).spanning(),
    Scenario::new("rows.misused", rows::misused).spanning(),
    Scenario::of_few("repeats.gathered", repeats::gathered).spanning(),
    // More ranks than the other ones of few: two or three on each of two or three islands.
    Scenario { most: 6, ..Scenario::of_several("shared.gathered", shared::gathered) }.spanning(),
    Scenario { most: 6, ..Scenario::of_several("shared.many_chunks", shared::many_chunks) }.spanning(),
    Scenario { most: 6, ..Scenario::of_several("shared.behind_an_error", shared::behind_an_error) }
        .spanning(),
    Scenario { needs_fault: true, ..Scenario::of_several("shared.a_launch_fails", shared::a_launch_fails) }
        .spanning(),
    Scenario::of_several("shared.counted", shared::counted).spanning(),
    Scenario { ends_early: true, ..Scenario::of_several("shared.a_rank_ends", shared::a_rank_ends) }
        .spanning(),
    Scenario::of_few("ordered.gathered", ordered::gathered),
    Scenario { ends_early: true, ..Scenario::new("ordered.captured", ordered::captured) },
    Scenario::of_few("ordered.scattered", ordered::scattered),
    Scenario::new("properties.described", properties::described),
    Scenario::new("random.draws", random::draws),
    Scenario::new("random.misuse", random::misuse),
    Scenario::new("tensors.shapes", tensors::shapes),
    Scenario::new("tensors.parts", tensors::parts),
    Scenario::new("tensors.are_counted", tensors::are_counted),
];
