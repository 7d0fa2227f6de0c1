//! The results, for people and for programs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::judge::{Spent, Verdict};
use crate::outcome::Stay;
use crate::program::{Action, Program};
use crate::told::{Failed, Told};

/// Counts by name.
type Counts = BTreeMap<&'static str, u64>;

/// Programs that were judged, and those that failed.
#[derive(Debug)]
pub(crate) struct Found {
    begin: Instant,
    pub(crate) programs: u64,
    checked: u64,
    /// Calls that were refused on both sides, or with out of memory.
    refused: u64,
    /// Programs that hang on the driver too, by the kind of step.
    open: Counts,
    /// The number of them that hung with all gates open.
    open_for_good: u64,
    /// The places of some of these hangs, by seed, for inspection.
    open_first: BTreeMap<u64, String>,
    /// Seeds of programs that exceeded the limit once, and are not known to have done so again.
    slow: Vec<u64>,
    spent: Spent,
    blocks: u64,
    steps: BTreeMap<String, u64>,
    /// Steps whose copies went through other devices.
    pub(crate) relayed: BTreeMap<String, u64>,
    /// Bytes that moved between the device and the host.
    pub(crate) moved: u64,
    /// Programs of which some did.
    moving: u64,
    /// How often programs have asked for their turns.
    pub(crate) asks: u64,
    pub(crate) failed: Vec<Failed>,
}

impl Found {
    pub(crate) fn new() -> Self {
        Self {
            begin: Instant::now(),
            programs: 0,
            checked: 0,
            refused: 0,
            open: Counts::new(),
            open_for_good: 0,
            open_first: BTreeMap::new(),
            slow: Vec::new(),
            spent: Spent::new(),
            blocks: 0,
            steps: BTreeMap::new(),
            relayed: BTreeMap::new(),
            moved: 0,
            moving: 0,
            asks: 0,
            failed: Vec::new(),
        }
    }

    /// Adds a worker's message.
    pub(crate) fn hear(&mut self, told: Told) {
        match told {
            Told::Judged(_, Verdict::Cut) => {}
            Told::Judged(program, verdict) => self.count(&program, &verdict),
            Told::Spent(spent) => {
                spent.into_iter().for_each(|(part, time)| *self.spent.entry(part).or_default() += time);
            }
            Told::Slow(seed) => self.slow.push(seed),
            Told::Failed(failed) => {
                eprintln!("{}", failed.told());
                self.failed.push(failed);
            }
        }
    }

    fn count(&mut self, program: &Program, verdict: &Verdict) {
        self.programs += 1;
        for step in &program.steps {
            *self.steps.entry(program.name_of(step)).or_default() += 1;
            self.blocks += u64::from(matches!(step.action, Action::Allocate { .. }));
        }
        match verdict {
            Verdict::Right { checked, refused, relayed, moved, asks } => {
                self.checked += checked;
                self.moved += moved;
                self.asks += asks;
                self.moving += u64::from(*moved > 0);
                self.refused += refused;
                for step in relayed.iter().filter_map(|step| program.steps.get(*step)) {
                    *self.relayed.entry(program.name_of(step)).or_default() += 1;
                }
            }
            Verdict::Open(stay) => self.leave_open(program, stay),
            _ => {}
        }
    }

    fn leave_open(&mut self, program: &Program, stay: &Stay) {
        let step = stay.step.and_then(|step| program.steps.get(step));
        let name = step.map_or("before the first step or after the last", |step| step.action.name());
        *self.open.entry(name).or_default() += 1;
        self.open_for_good += u64::from(stay.for_good);
        if self.open_first.len() < SHOWN {
            self.open_first.insert(program.seed, stay.to_string());
        }
    }

    fn opened(&self) -> u64 {
        self.open.values().sum()
    }

    fn made(&self) -> u64 {
        self.steps.values().sum()
    }

    /// A count per second.
    fn rate(&self, count: u64) -> f64 {
        count as f64 / self.begin.elapsed().as_secs_f64().max(1e-3)
    }

    /// The results in one line.
    fn line(&self) -> String {
        format!(
            "{} programs, {} steps, {} blocks, {} MiB checked, {} calls refused, {} left open, {} failed",
            self.programs,
            self.made(),
            self.blocks,
            self.checked >> 20,
            self.refused,
            self.opened(),
            self.failed.len()
        )
    }
}

impl Failed {
    fn side(&self) -> (&'static str, String) {
        match &self.verdict {
            Verdict::Bare(fault) => ("bare", fault.to_string()),
            Verdict::Library(fault) => ("under the library", fault.to_string()),
            Verdict::Right { .. } | Verdict::Open(_) | Verdict::Cut => ("nowhere", String::new()),
        }
    }

    fn told(&self) -> String {
        let (side, fault) = self.side();
        let repeats = match self.repeats {
            Some(true) => "",
            Some(false) => ", but not again",
            None => ", once",
        };
        // More than a few are too many to read.
        let hidden = self.case.len().saturating_sub(4);
        let before = if hidden == 0 { String::new() } else { format!("after {hidden} other programs:\n") };
        let shown = &self.case[hidden..];
        let programs: String = std::iter::once(before).chain(shown.iter().map(Program::to_string)).collect();
        format!("fails {side}{repeats}: {fault}\n{programs}")
    }
}

/// The number of open programs that are printed.
const SHOWN: usize = 16;

/// The interval between progress reports.
pub(crate) const OFTEN: Duration = Duration::from_secs(10);

/// The progress, on standard error.
pub(crate) fn progress(found: &Found) {
    let (seconds, steps) = (found.begin.elapsed().as_secs_f64(), found.rate(found.made()));
    eprintln!("{seconds:>6.0} s  {}, {steps:.0} steps/s", found.line());
}

/// All results.
pub(crate) fn summary(found: &Found, as_json: bool) {
    if as_json {
        return println!("{}", document(found));
    }
    let (programs, steps) = (found.rate(found.programs), found.rate(found.made()));
    println!("{}", found.line());
    println!("{:.1} s: {programs:.1} programs/s, {steps:.0} steps/s", found.begin.elapsed().as_secs_f64());
    found.steps.iter().for_each(|(name, count)| println!("  {count:>8}  {name}"));
    if !found.relayed.is_empty() {
        println!("of which the library carried by threads or over several links:");
        found.relayed.iter().for_each(|(name, count)| println!("  {count:>8}  {name}"));
    }
    if found.moved > 0 {
        println!("memory of {} programs moved: {} MiB", found.moving, found.moved >> 20);
    }
    if found.asks > 0 {
        println!("turns that were asked for: {}", found.asks);
    }
    println!("seconds of all processes:");
    found.spent.iter().for_each(|(part, time)| println!("  {:>8.1}  {part}", time.as_secs_f64()));
    if !found.open.is_empty() {
        println!("left open where the driver alone stayed, {} for good:", found.open_for_good);
        found.open.iter().for_each(|(name, count)| println!("  {count:>8}  {name}"));
        found.open_first.iter().for_each(|(seed, place)| println!("  seed {seed} {place}"));
    }
    if !found.slow.is_empty() {
        println!("slow once, and not known to be again: {:?}", found.slow);
    }
}

fn document(found: &Found) -> serde_json::Value {
    let failed = found.failed.iter().map(|failed| {
        let (side, fault) = failed.side();
        json!({
            "seed": failed.case.last().map(|program| program.seed), "side": side, "fault": fault,
            "repeats": failed.repeats, "programs": failed.case,
        })
    });
    json!({
        "seconds": found.begin.elapsed().as_secs_f64(), "steps_per_second": found.rate(found.made()),
        "programs": found.programs, "blocks": found.blocks, "checked_bytes": found.checked,
        "refused": found.refused, "open": found.opened(), "open_for_good": found.open_for_good,
        "open_at": found.open, "open_first": found.open_first, "slow": found.slow,
        "seconds_in": found.spent.iter().map(|(part, time)| (*part, time.as_secs_f64())).collect::<BTreeMap<_, _>>(),
        "steps": found.steps, "relayed": found.relayed, "moved_bytes": found.moved, "moved_programs": found.moving,
        "asks": found.asks, "failed": failed.collect::<Vec<_>>(),
    })
}
