//! Sampling from a graph whose arrays may span islands, where it is a collective call.
//!
//! Hazards: an array of another island that is read at an address; ranks that wait for one whose
//! request is another one, or is wrong; an error that one rank alone gets; a rank that ends while
//! others sample.

use std::ffi::c_uint;
use std::ptr::null_mut;
use std::thread;
use std::time::Duration;

use super::deaths::{end_now, seed, until_the_end};
use super::graph::{Arrays, Call, Graph, some_centers};
use crate::environment::{Caller, Memory};
use crate::rank::{
    CUDA_ERROR, INVALID_INPUT, LOGIC_ERROR, Local, OUT_OF_MEMORY, Rank, SUCCESS, Verdict, local, must,
    unpacked,
};

/// `WHOLEMEMORY_DT_INT`
const INT: c_uint = 5;

/// Does memory of all ranks span islands?
fn spans(rank: &Rank) -> bool {
    rank.islands.min(rank.size) > 1
}

/// Each array in memory of all ranks, or of this one: only those that span are collective.
pub(super) fn of_all_places(rank: &Rank) -> Verdict {
    let (graph, centers) = (Graph::new(1), some_centers(rank));
    let (far, near) = (graph.spread(rank, rank.kinds()[0], false)?, graph.local(rank)?);
    let near = Arrays::of(&near);
    for mask in 0..8 {
        let pick = |bit: u32, far, near| if mask >> bit & 1 == 1 { far } else { near };
        let arrays = Arrays {
            row_ptr: pick(0, far.row_ptr, near.row_ptr),
            col: pick(1, far.col, near.col),
            weights: pick(2, far.weights, near.weights),
        };
        for by_weight in [false, true] {
            let found = arrays.sample(rank, by_weight, &centers, 9, 4)?;
            found.is(&graph.wanted(by_weight, &centers, 9, 4), &format!("places {mask:03b}"))?;
        }
    }
    far.close(rank)
}

/// Each rank has a number of centers, of samples, a seed and outputs of its own; one has no
/// centers.
pub(super) fn not_as_the_others(rank: &Rank) -> Verdict {
    let graph = Graph::new(2);
    let arrays = graph.spread(rank, rank.kinds()[0], true)?;
    for round in 0..2 * rank.size {
        let own = (rank.number + round) % rank.size;
        let centers: Vec<_> = some_centers(rank).into_iter().cycle().take(own * 20).collect();
        let (most, seed) = ([-1, 3, 400, 0, 1100][own % 5], own as u64);
        let by_weight = round % 2 == 1;
        let wanted = graph.wanted(by_weight, &centers, most, seed);
        let found = arrays.sample(rank, by_weight, &centers, most, seed)?;
        found.is(&wanted, &format!("{most} samples of {} centers", centers.len()))?;

        let (nodes, offsets) = (local(rank, &centers, INT)?, local(rank, &vec![-7; centers.len() + 1], INT)?);
        let (caller, output) = (Caller::new(rank), Memory::new(rank));
        let mut outputs = [null_mut(); 3];
        // Of four ranks one wants nothing.
        if let Some(context) = outputs.get_mut(own % 4) {
            *context = output.context();
        }
        let call = Call { by_weight, centers: &nodes, most, offsets: &offsets, outputs, seed };
        let code = arrays.call(rank, &call, &caller.functions());
        must(code == SUCCESS, || format!("one output or none gave {code}"))?;
        must(unpacked(&offsets.read()?, INT) == wanted.offsets, || "other offsets".to_owned())?;
        if let Some(shape) = output.shape.get() {
            let all = [&wanted.nodes, &wanted.centers, &wanted.edges];
            let found = unpacked(&output.read()?, shape.dtype);
            must(found == *all[own % 4], || format!("output {} alone is another", own % 4))?;
        }
        caller.is_even()?;
    }
    arrays.close(rank)
}

/// A sampling of some centers, and what it leaves.
struct Attempt<'a> {
    rank: &'a Rank,
    centers: Local<'a>,
    offsets: Local<'a>,
}

impl<'a> Attempt<'a> {
    fn new(rank: &'a Rank, centers: &[i64]) -> Verdict<Self> {
        let offsets = local(rank, &vec![0; centers.len() + 1], INT)?;
        Ok(Self { rank, centers: local(rank, centers, INT)?, offsets })
    }

    /// Its code, where so many requests of the caller's functions are granted.
    fn code(&self, arrays: Arrays, by_weight: bool, granted: Option<usize>) -> Verdict<c_uint> {
        self.code_of(arrays, by_weight, granted, &self.centers)
    }

    fn code_of(
        &self,
        arrays: Arrays,
        by_weight: bool,
        granted: Option<usize>,
        centers: &Local<'_>,
    ) -> Verdict<c_uint> {
        let (caller, outputs) = (Caller::new(self.rank), [(); 3].map(|()| Memory::new(self.rank)));
        if let Some(granted) = granted {
            caller.fail(granted);
        }
        let contexts = outputs.each_ref().map(Memory::context);
        let call = Call { by_weight, centers, most: 9, offsets: &self.offsets, outputs: contexts, seed: 1 };
        let code = arrays.call(self.rank, &call, &caller.functions());
        let left = if code == SUCCESS { 3 } else { 0 };
        must(caller.outputs.get() == left, || format!("{} outputs of code {code}", caller.outputs.get()))?;
        caller.is_even()?;
        Ok(code)
    }
}

/// A wrong argument of one rank, and memory that it does not get, are errors of all ranks that wait
/// for it. They go on.
pub(super) fn one_rank_fails(rank: &Rank) -> Verdict {
    let graph = Graph::new(2);
    let (arrays, attempt) =
        (graph.spread(rank, rank.kinds()[0], false)?, Attempt::new(rank, &some_centers(rank))?);
    for (failing, by_weight) in [(0, false), (rank.size - 1, true)] {
        let fails = rank.number == failing;
        let is_told = |code: c_uint, wanted: c_uint, what: &str| {
            let wanted = if fails || spans(rank) { wanted } else { SUCCESS };
            must(code == wanted, || format!("{what} of rank {failing} gave {code}, not {wanted}"))
        };
        let wrong = [
            Arrays { row_ptr: null_mut(), ..arrays },
            Arrays { col: null_mut(), ..arrays },
            Arrays { row_ptr: arrays.col, ..arrays },
            Arrays { col: arrays.weights, ..arrays },
            Arrays { weights: null_mut(), ..arrays },
            Arrays { weights: arrays.col, ..arrays },
        ];
        // A sampling without weights does not look at them.
        let wrong = if by_weight { &wrong[..] } else { &wrong[..4] };
        for (number, wrong) in wrong.iter().enumerate() {
            let code = attempt.code(if fails { *wrong } else { arrays }, by_weight, None)?;
            is_told(code, INVALID_INPUT, &format!("array {number}"))?;
        }
        let few = if fails { &attempt.offsets } else { &attempt.centers };
        let code = attempt.code_of(arrays, by_weight, None, few)?;
        is_told(code, INVALID_INPUT, "centers that are one too many")?;

        for granted in 0.. {
            let code = attempt.code(arrays, by_weight, fails.then_some(granted))?;
            // Within an island the other ranks do not hear of it.
            if code == SUCCESS && (fails || spans(rank)) {
                must(granted > 4, || format!("success with {granted} requests"))?;
                break;
            }
            is_told(code, OUT_OF_MEMORY, &format!("request {granted}"))?;
            if !fails && !spans(rank) {
                break;
            }
        }
    }
    let centers = some_centers(rank);
    arrays.sample(rank, true, &centers, 9, 8)?.is(&graph.wanted(true, &centers, 9, 8), "after errors")?;
    arrays.close(rank)
}

/// One rank samples by weight, and the others do not; or one samples from another graph.
pub(super) fn different_calls(rank: &Rank) -> Verdict {
    let (graph, attempt) = (Graph::new(3), Attempt::new(rank, &some_centers(rank))?);
    let kind = rank.kinds()[0];
    let (arrays, other) = (graph.spread(rank, kind, false)?, graph.spread(rank, kind, true)?);
    let wanted = if spans(rank) && rank.size > 1 { LOGIC_ERROR } else { SUCCESS };
    for odd in 0..rank.size {
        let is_odd = rank.number == odd;
        let code = attempt.code(arrays, is_odd, None)?;
        must(code == wanted, || format!("weighted beside unweighted gave {code}"))?;
        for mixed in [Arrays { col: other.col, ..arrays }, Arrays { weights: other.weights, ..arrays }] {
            let code = attempt.code(if is_odd { mixed } else { arrays }, true, None)?;
            must(code == wanted, || format!("another array gave {code}"))?;
        }
        let code = attempt.code(arrays, true, None)?;
        must(code == SUCCESS, || format!("the ranks do not go on: {code}"))?;
    }
    other.close(rank)?;
    arrays.close(rank)
}

/// The test lets a launch of the first sampling fail at one rank.
pub(super) fn a_launch_fails(rank: &Rank) -> Verdict {
    let graph = Graph::new(1);
    let (arrays, attempt) =
        (graph.spread(rank, rank.kinds()[0], false)?, Attempt::new(rank, &some_centers(rank))?);
    let code = attempt.code(arrays, true, None)?;
    must(code == CUDA_ERROR, || format!("the first sampling gave {code}"))?;
    rank.barrier()?;
    let code = attempt.code(arrays, true, None)?;
    must(code == SUCCESS, || format!("the ranks do not go on: {code}"))?;
    arrays.close(rank)
}

/// Samples, until it fails. `begin` is called when the graph is there.
fn until_one_fails(rank: &Rank, begin: impl FnOnce()) -> Verdict {
    let graph = Graph::new(0);
    let (arrays, attempt) = (graph.spread(rank, rank.kinds()[0], false)?, Attempt::new(rank, &[7, 2, -1])?);
    begin();
    let mut round = 0;
    until_the_end(rank, || {
        round += 1;
        attempt.code(arrays, round % 2 == 0, None)
    })
}

/// The test lets NCCL fail.
pub(super) fn network_fails(rank: &Rank) -> Verdict {
    if ["SIMNCCL_FAIL", "SIMNCCL_DROP"].iter().all(|name| std::env::var(name).is_err()) {
        return Ok(());
    }
    until_one_fails(rank, || ())
}

/// A rank ends at a random moment.
pub(super) fn a_rank_ends(rank: &Rank) -> Verdict {
    if !spans(rank) {
        return Ok(());
    }
    let random = &mut fastrand::Rng::with_seed(seed());
    let (victim, moment) = (random.usize(..rank.size), Duration::from_millis(random.u64(..400)));
    until_one_fails(rank, || {
        if rank.number == victim {
            thread::spawn(move || {
                thread::sleep(moment);
                end_now()
            });
        }
    })
}
