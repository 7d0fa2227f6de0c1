//! `wmctl replay --tiers`: what would cross the link to the host if the device were smaller, under several policies.
//!
//! A model, without a driver: chunks of 2 MiB lie on the device or on the host. A launch that uses a block of which some is on the
//! host costs those bytes over the link, once a launch: an upper bound, since a pointer says only the block. Launches of the same blocks one behind the other are parts of one
//! operation, which libraries divide where 32 bits do not count its elements: each uses a part of the largest block, so that is used once. A move costs its bytes in
//! its direction; both directions of the link run at once, so the busier one tells the time. A new block has no contents: to place it
//! costs nothing.
//!
//! | module | one idea |
//! |---|---|
//! | [`story`] | a trace as a list of steps on blocks that have one number each |
//! | [`board`] | what lies where and what was paid: the same accounts for every policy, and checks on it |
//! | [`policies`] | first fit, least recently used, and ours, of `wm_memory::tiers` |
//! | [`belady`] | those that know the future: the optimum, a bound that no driver reaches, and what is feasible |
//! | [`report`] | figures, as a table and as JSON |

mod belady;
mod board;
mod policies;
mod report;
mod story;
#[cfg(test)]
mod synthetic;
#[cfg(test)]
mod tests;

use anyhow::{Result, bail};
use serde_json::Value;

use super::trace::Trace;
use belady::{Belady, Foresight};
use board::{Board, LinkTraffic};
use policies::{FirstFit, LeastRecentlyUsed, Ours, Placement};
pub(super) use report::TierCosts;
use report::{LimitReport, PolicyReport};
use story::{Story, StoryStep};

/// Peaks over the device's size where no size is given: one that fits, and those of the public benchmark of unified memory.
const FACTORS: [f64; 4] = [1.0, 1.44, 1.72, 2.17];

/// The figures of a trace, for each size of device.
pub(super) struct TierReport {
    story: Story,
    limits: Vec<LimitReport>,
    costs: TierCosts,
}

/// Simulates a trace on a device of so many bytes, or on several that are parts of its peak.
///
/// # Errors
/// A trace without launches.
pub(super) fn simulate(trace: &Trace, device_limit: Option<u64>, costs: TierCosts) -> Result<TierReport> {
    if trace.launches == 0 {
        bail!("no launches in the trace: record it with WMSHIM_TRACE_LAUNCHES=on besides WMSHIM_TRACE=FILE");
    }
    let story = Story::of(trace);
    let limits = match device_limit {
        Some(bytes) => vec![bytes],
        None => FACTORS.iter().map(|factor| (trace.peak_live as f64 / factor) as u64).collect(),
    };
    let limits = limits.into_iter().map(|limit| compare(&story, limit, costs)).collect();
    Ok(TierReport { story, limits, costs })
}

impl TierReport {
    pub(super) fn json(&self) -> Result<Value> {
        report::json(&self.story, &self.limits, self.costs)
    }

    pub(super) fn table(&self) -> String {
        report::table(&self.story, &self.limits, self.costs)
    }
}

/// Every policy on a device of this size.
fn compare(story: &Story, limit: u64, costs: TierCosts) -> LimitReport {
    let known = |foresight| run(story, limit, &mut Belady::new(story, foresight));
    let lru = run(story, limit, &mut LeastRecentlyUsed::default());
    let ours = run(story, limit, &mut Ours::new(limit));
    let feasible = feasible(story, limit, &Foresight::VARIANTS, [lru, ours]);
    let optimum = known(Foresight::OPTIMUM);
    let traffic = [
        ("first-fit", run(story, limit, &mut FirstFit)),
        ("lru", lru),
        ("ours", ours),
        ("belady", known(Foresight::COPIES)),
        ("feasible", feasible),
        ("optimum", optimum),
    ];
    let bests = [optimum, feasible].map(|traffic| costs.link_seconds(traffic));
    let report = |(name, traffic)| PolicyReport::new(name, traffic, bests, costs);
    LimitReport {
        device_limit_bytes: limit,
        peak_factor: story.peak as f64 / limit as f64,
        policies: traffic.into_iter().map(report).collect(),
    }
}

/// The best known of those that copy what lives. Even with the future known they are rules of thumb, and now and then one that does
/// not know it is better. Stops are free.
fn feasible(story: &Story, limit: u64, variants: &[Foresight], others: [LinkTraffic; 2]) -> LinkTraffic {
    let known = |foresight: &Foresight| run(story, limit, &mut Belady::new(story, *foresight));
    let best = variants.iter().map(known).fold(others[0].fewer(others[1]), LinkTraffic::fewer);
    LinkTraffic { stops: 0, ..best }
}

/// One policy, from the first step to the last.
fn run(story: &Story, limit: u64, policy: &mut dyn Placement) -> LinkTraffic {
    let mut board = Board::new(limit, &story.sizes);
    for (now, step) in story.steps.iter().enumerate() {
        match *step {
            StoryStep::Allocate { block } => {
                board.begin(block);
                policy.allocate(&mut board, now, block);
            }
            StoryStep::Free { block } => {
                policy.free(&mut board, block);
                board.end(block);
            }
            StoryStep::Launch { set } => {
                policy.launch(&mut board, &story.sets[set as usize]);
                for block in story.used(now) {
                    policy.touch(&mut board, now, block);
                    board.touch(block);
                }
            }
            StoryStep::Wait => policy.wait(&mut board),
        }
    }
    board.traffic()
}
