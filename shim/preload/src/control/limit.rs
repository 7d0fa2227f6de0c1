//! `limit` and `trim`: another limit of device memory, and unused memory back to the driver.

use std::time::Instant;

use wm_driver::Device;
use wm_memory::Manager;
use wm_schema as schema;

use super::step::{STEP, StepCaller, answer, note_overflow, of_device, terms};
use crate::endpoint::LimitRequest;
use crate::moves::StepEnd;
use crate::subsystems::PROCESS;
use crate::{physical, registry};

/// One step towards a limit.
pub(super) fn limit(request: &LimitRequest, caller: StepCaller) -> schema::ProcessChange {
    if let Some(bytes) = request.bytes {
        registry::ask_limit(request.device, bytes);
        log::info!("the limit of device memory is {}", shown(bytes));
    }
    let until = Instant::now() + STEP;
    let mut goes_on = false;
    let answer = answer(|manager, limit| {
        let end = step(manager, until, caller);
        goes_on |= end.goes_on;
        of_device(manager, limit, &end)
    });
    schema::ProcessChange { goes_on, ..answer }
}

fn shown(bytes: u64) -> String {
    if bytes == u64::MAX { "lifted".to_owned() } else { format!("{} MiB", bytes >> 20) }
}

/// Towards the limit from either side. Where the library places blocks itself, it brings them back.
fn step(manager: &'static Manager<Device>, until: Instant, caller: StepCaller) -> StepEnd {
    let give_back = |bytes| physical::give_back(manager, bytes);
    let terms = terms(until, caller, &give_back);
    let end = if manager.bytes_beyond_limit() > 0 || PROCESS.moves.brings_back() {
        PROCESS.moves.step_to_limit(manager, &terms)
    } else {
        PROCESS.moves.step_home(manager, &terms)
    };
    note_overflow(&end);
    end
}

/// Gives all unused memory to the driver, that of the host too. What was made ahead of a pause is
/// not made again by itself.
pub(super) fn trim() -> schema::ProcessChange {
    PROCESS.pauses.let_arena_go();
    PROCESS.pauses.let_common_copies_go();
    answer(|manager, limit| {
        let given = physical::give_back(manager, u64::MAX);
        manager.give_back_elsewhere();
        of_device(manager, limit, &StepEnd { given, ..StepEnd::default() })
    })
}
