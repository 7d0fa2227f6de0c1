//! `detach` and `attach`: the library's features off, and on again.
//!
//! Detached, the program's new memory is the driver's, its copies are the driver's, nothing is
//! shared, and nothing moves by itself. What it has of the library's stays where the program knows
//! it: its addresses are the library's, so queries, copies and frees of it are served as before.

use std::time::{Duration, Instant};

use wm_driver::Device;
use wm_memory::Manager;
use wm_schema as schema;
use wm_schema::size::rounded;

use super::step::{STEP, StepCaller, answer, note_overflow, of_device, terms};
use crate::gate::GATE;
use crate::moves::StepEnd;
use crate::subsystems::PROCESS;
use crate::{black_box, physical, process, registry, settings};

/// How long parked memory is given up for, in a step.
const UNPARK: Duration = Duration::from_millis(20);

/// What the log and the statistics give as the end of sharing.
const WHY: &str = "the library was detached";

/// One step towards a process that the library serves no more.
pub(super) fn detach(caller: StepCaller) -> schema::ProcessChange {
    let until = Instant::now() + STEP;
    turn_off();
    let shared = PROCESS.sharing.end_step(WHY, until);
    // In a paused process nothing is made private before it is resumed.
    let mut goes_on = shared > 0 && !GATE.is_kept();
    let answer = answer(|manager, limit| {
        let end = leave(manager, until, caller);
        goes_on |= end.goes_on;
        of_device(manager, limit, &end)
    });
    schema::ProcessChange { goes_on, remains: remains(shared), ..answer }
}

/// The library serves the process again. What was allocated meanwhile stays the driver's.
pub(super) fn attach() -> schema::ProcessChange {
    if process::detached() {
        log::warn!("attached: wmshim serves this process again");
    }
    registry::all().for_each(|manager| manager.keep_idle(true));
    PROCESS.moves.resume(settings::load());
    PROCESS.pauses.set_arena_again();
    process::set_detached(false);
    black_box::set_detached(false);
    let ended = PROCESS.sharing.end_reason().filter(|why| *why == WHY);
    let remains =
        ended.map(|_| "equal memory is not shared any more, until the program starts again".to_owned());
    let answer = answer(|manager, limit| of_device(manager, limit, &StepEnd::default()));
    schema::ProcessChange { remains: remains.into_iter().collect(), ..answer }
}

fn turn_off() {
    if !process::detached() {
        log::warn!("detached: wmshim serves no new memory of this process; `wmctl attach` undoes it");
    }
    process::set_detached(true);
    black_box::set_detached(true);
    PROCESS.moves.rest();
    PROCESS.pauses.let_arena_go();
    PROCESS.pauses.let_common_copies_go();
}

/// Blocks come to the device as far as there is room; the rest of its memory is the driver's.
fn leave(manager: &'static Manager<Device>, until: Instant, caller: StepCaller) -> StepEnd {
    manager.keep_idle(false);
    manager.unpark(UNPARK);
    let give_back = |bytes| physical::give_back(manager, bytes);
    let mut end = PROCESS.moves.step_home(manager, &terms(until, caller, &give_back));
    end.given += give_back(u64::MAX);
    manager.give_back_elsewhere();
    note_overflow(&end);
    end
}

/// What of the library goes on, and why.
fn remains(shared: u64) -> Vec<String> {
    let calls =
        "calls of the program still pass through the library to the driver, for some nanoseconds each";
    let usages: Vec<_> = registry::all().map(Manager::usage).collect();
    let sum = |part: fn(&wm_memory::Usage) -> u64| usages.iter().map(part).sum::<u64>();
    let lines = [
        (
            sum(|usage| usage.live.total()),
            "in blocks that were allocated before: their addresses are the library's",
        ),
        (
            sum(|usage| usage.pieces.held.total()),
            "of cuMemCreate that was made before: its handles are the library's",
        ),
        (sum(|usage| usage.together.live.elsewhere()), "of these lie elsewhere than on their device"),
        (shared, "are still shared with other processes"),
    ];
    let lines = lines.into_iter().filter(|(bytes, _)| *bytes > 0);
    let told = lines.map(|(bytes, what)| format!("{} {what}", rounded(bytes)));
    told.chain([calls.to_owned()]).collect()
}
