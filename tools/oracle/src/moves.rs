//! Programs under a library that moves their memory: the room that it leaves them, and the time
//! that their calls may take.

use std::process::Command;
use std::time::Duration;

use random::{Choices, Random};

use crate::model::Model;
use crate::program::Program;

/// By how much a call may take longer under the library than on the driver alone: docs/overflow.md
/// states it.
const BOUND: Duration = Duration::from_millis(20);

/// Runs of one program after which a call counts as late: another process delays each run, and none
/// delays the same call in all.
pub(crate) const RUNS: usize = 6;

/// One program in so many is moved with care.
const CAREFUL: u64 = 4;

/// The least room that a program gets.
const LEAST: u64 = 8 << 20;

/// Calls that fail in a process, and among how many of each function.
const FAILURES: usize = 12;
const MOST_CALLS: usize = 300;

/// The time of each step; of several runs the shortest.
pub(crate) type Times = Vec<Duration>;

/// The most bytes that a program holds at once.
pub(crate) fn peak(program: &Program) -> u64 {
    let mut model = Model::new(&program.shape);
    let held = program.steps.iter().map(|step| {
        // An illegal program runs only at the user's explicit request.
        let _legal = model.apply(step);
        model.live().map(|(_, block)| block.bytes).sum()
    });
    held.max().unwrap_or(0)
}

/// The library moves memory, and has half of the device memory that the program holds at once.
pub(crate) fn furnish(command: &mut Command, program: &Program) {
    let room = (peak(program) / 2).next_multiple_of(2 << 20).max(LEAST);
    // With `auto` nothing moves at first, as where a program is as quick with its memory in place.
    let migrate = if program.seed.is_multiple_of(CAREFUL) { "auto" } else { "on" };
    command.args(["--moves"]).envs([("WMSHIM_MIGRATE", migrate), ("WMSHIM_HEADROOM", "0")]);
    // A size without a unit is none.
    command.env("WMSHIM_DEVICE_LIMIT", format!("{room}B"));
}

/// Calls that the library makes to move memory fail now and then. A program that makes none of
/// them itself has the answers of the driver alone. `cuMemCreate` is not among them: where it fails
/// on the host, memory is out by definition. Nor are copies, which programs make.
pub(crate) fn let_fail(command: &mut Command, program: &Program) {
    const CALLS: [&str; 3] = ["cuMemMap", "cuMemSetAccess", "cuMemUnmap"];
    let mut random = Random::with_seed(program.seed ^ 0x6661_696c);
    let mut one = || format!("{}:{}", CALLS[random.below(CALLS.len())], 1 + random.below(MOST_CALLS));
    command.env("SIMCUDA_FAIL", (0..FAILURES).map(|_| one()).collect::<Vec<_>>().join(","));
}

/// The shorter time of each step.
pub(crate) fn shorter(one: &Times, other: &Times) -> Times {
    one.iter().zip(other).map(|(one, other)| *one.min(other)).collect()
}

/// The step that exceeds its time on the driver alone by most, if one does by more than it may.
pub(crate) fn late(program: &Program, bare: &Times, library: &Times) -> Option<String> {
    let over = |(step, (bare, library)): (usize, (&Duration, &Duration))| {
        let more = library.saturating_sub(*bare);
        (more > BOUND).then_some((more, step))
    };
    let (more, step) = bare.iter().zip(library).enumerate().filter_map(over).max()?;
    let told = program.steps.get(step).map(ToString::to_string).unwrap_or_default();
    Some(format!("step {step}: {told}: {:.1} ms more than on the driver alone", more.as_secs_f64() * 1e3))
}

#[cfg(test)]
mod tests {
    //! Hazard (vacuous test): a call that waits for long is in time, or one slow run condemns it.
    use super::*;
    use crate::program::{Rules, Shape};

    fn times(milliseconds: &[u64]) -> Times {
        milliseconds.iter().map(|time| Duration::from_millis(*time)).collect()
    }

    #[test]
    fn a_call_is_late_if_it_is_in_every_run() {
        let rules = Rules { allocation_is_action: true, free_is_action: true, short: false, lawless: false };
        let shape = Shape { threads: 1, streams: vec![], keep: true, internal: true, rules, hosts: vec![] };
        let program = Program { seed: 0, shape, steps: Vec::new() };
        let late = |bare: &Times, library: &Times| late(&program, bare, library).is_some();
        let bare = times(&[1, 100]);
        assert!(!late(&bare, &times(&[21, 120])), "the bound");
        assert!(late(&bare, &times(&[1, 121])) && late(&bare, &times(&[22, 1])));
        let again = shorter(&times(&[900, 110]), &times(&[5, 900]));
        assert!(!late(&bare, &again), "each call was in time once");
    }
}
