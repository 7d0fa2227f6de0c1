//! `bench tiers`: how many bytes of a recorded program would cross the link to the host if the
//! device were smaller, under several placement policies.
//!
//! It is a model and opens no driver. Chunks of 2 MiB lie on the device or on the host. A launch
//! that uses a block pays for those of its bytes that lie on the host, once a launch; this is an
//! upper bound, because a pointer names only the block. Consecutive launches of the same blocks
//! count as one operation that a library split because 32 bits do not count its elements: each of
//! them uses a part of the largest block, so the model charges that block once. A move costs its
//! bytes in its direction. Both directions of the link run at once, so the busier one determines
//! the time. Placing a new block costs nothing, because it has no contents.
//!
//! | module | one idea |
//! |---|---|
//! | [`story`] | a trace as a list of steps on blocks that have one number each |
//! | [`board`] | location of blocks and bytes over the link, the same for every policy |
//! | [`policies`] | first fit, least recently used, and ours, of `wm_memory::tiers` |
//! | [`belady`] | policies that know the future: the optimum and the best feasible |
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

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use wm_schema::size;
use wmctl::output;
use wmctl::trace::Trace;

use belady::{Belady, Foresight};
use board::{Board, LinkTraffic};
use policies::{FirstFit, LeastRecentlyUsed, Ours, Placement};
use report::{LimitReport, PolicyReport, TierCosts};
use story::{Story, StoryStep};

/// Peaks over the device's size where no size is given: one that fits, and those of the public
/// benchmark of unified memory.
const FACTORS: [f64; 4] = [1.0, 1.44, 1.72, 2.17];

/// Arguments of `bench tiers`.
#[derive(Debug, clap::Args)]
pub(crate) struct TiersArguments {
    /// A trace with launches, recorded with WMSHIM_TRACE=FILE and WMSHIM_TRACE_LAUNCHES=on; - for
    /// standard input
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// The device's size; default: the trace's peak over 1.0, 1.44, 1.72 and 2.17
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    device_limit: Option<u64>,
    /// Rate of the link to the host in each direction, in GB/s
    #[arg(long, value_name = "GB/S", default_value_t = 55.0, value_parser = rate)]
    link: f64,
    /// Cost of stopping the GPU for moves besides their bytes, in microseconds
    #[arg(long, value_name = "US", default_value_t = 100.0, value_parser = cost)]
    stop_cost: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A size, for the command line.
fn bytes(text: &str) -> Result<u64> {
    size::parse(text).context("write a size such as 24GiB, 512MiB, or a number of bytes")
}

/// Gigabytes a second.
fn rate(text: &str) -> Result<f64> {
    let value = text.parse::<f64>().ok().filter(|value| (0.001..1e6).contains(value));
    value.context("write gigabytes a second, such as 55")
}

/// Microseconds.
fn cost(text: &str) -> Result<f64> {
    let value = text.parse::<f64>().ok().filter(|value| (0.0..1e9).contains(value));
    value.context("write microseconds, such as 100")
}

/// Simulates a trace on a device of the given size, or on several sizes that are fractions of its
/// peak, and prints the figures.
///
/// # Errors
/// A file that is no trace, and a trace without launches.
pub(crate) fn tiers(arguments: &TiersArguments) -> Result<()> {
    let trace = Trace::open(&arguments.trace)?;
    if trace.launches == 0 {
        bail!("no launches in the trace: record it with WMSHIM_TRACE_LAUNCHES=on besides WMSHIM_TRACE=FILE");
    }
    let costs = TierCosts { gigabytes_per_second: arguments.link, stop_microseconds: arguments.stop_cost };
    let story = Story::of(&trace);
    let limits = match arguments.device_limit {
        Some(bytes) => vec![bytes],
        None => FACTORS.iter().map(|factor| (trace.peak_live as f64 / factor) as u64).collect(),
    };
    let limits: Vec<_> = limits.into_iter().map(|limit| compare(&story, limit, costs)).collect();
    if arguments.json {
        let mut json = report::json(&story, &limits, costs)?;
        json["truncated_after_lines"] = trace.whole_lines.into();
        return output::print_json(&json);
    }
    let cut = trace.whole_lines.map_or_else(String::new, |lines| format!(" (cut short after {lines} lines)"));
    let table = report::table(&story, &limits, costs);
    output::print(&format!("{}{cut}: {table}", arguments.trace.display()))
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

/// The best of the variants that copy live victims. Although they know the future they are
/// heuristics, and a policy without that knowledge is better at times. Stops are free.
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
