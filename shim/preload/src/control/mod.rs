//! Changes of the running process that an operator or the program itself asks for: another limit of
//! device memory, unused memory back to the driver, the library's features off ([`detach`]).
//!
//! Invariants: each request is one step of bounded time ([`STEP`]), and any number of them may be
//! made at once; a limit is in force for later allocations before anything moves; what cannot be
//! proven to be unused stays where it is, and the answer says how much, and why.

mod detach;

use std::time::{Duration, Instant};

use wm_driver::Device;
use wm_memory::Manager;
use wm_schema as schema;

use crate::endpoint::{Change, LimitChange};
use crate::moves::{StepEnd, StepTerms};
use crate::registry::LimitInForce;
use crate::subsystems::PROCESS;
use crate::{physical, process, registry};

/// How long a step takes, about. What is under way then is ended.
const STEP: Duration = Duration::from_millis(300);

/// The calling thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// It belongs to the library.
    Endpoint,
    /// It belongs to the program, so it must not hold the program's other calls up until the GPU
    /// has no work left: the work may wait for this very thread.
    Program,
}

/// Makes one step of a change.
pub(crate) fn change(change: &Change, caller: Caller) -> schema::Change {
    match change {
        Change::Limit(change) => limit(change, caller),
        Change::Trim => answer(|manager, limit| of_device(manager, limit, &trim(manager))),
        Change::Detach => detach::detach(caller),
        Change::Attach => detach::attach(),
    }
}

fn limit(change: &LimitChange, caller: Caller) -> schema::Change {
    if let Some(bytes) = change.bytes {
        registry::ask_limit(change.device, bytes);
        log::info!("the limit of device memory is {}", shown(bytes));
    }
    let until = Instant::now() + STEP;
    let mut goes_on = false;
    let answer = answer(|manager, limit| {
        let end = step(manager, until, caller);
        goes_on |= end.goes_on;
        of_device(manager, limit, &end)
    });
    schema::Change { goes_on, ..answer }
}

fn shown(bytes: u64) -> String {
    if bytes == u64::MAX { "lifted".to_owned() } else { format!("{} MiB", bytes >> 20) }
}

/// Towards the limit from either side. Where the library places blocks itself, it brings them back.
fn step(manager: &'static Manager<Device>, until: Instant, caller: Caller) -> StepEnd {
    let give_back = |bytes| physical::give_back(manager, bytes);
    let terms = terms(until, caller, &give_back);
    let end = if manager.bytes_beyond_limit() > 0 || PROCESS.moves.is_automatic() {
        PROCESS.moves.step_to_limit(manager, &terms)
    } else {
        PROCESS.moves.step_home(manager, &terms)
    };
    note_overflow(&end);
    end
}

fn terms<'a>(until: Instant, caller: Caller, give_back: &'a dyn Fn(u64) -> u64) -> StepTerms<'a> {
    StepTerms { until, drains: caller == Caller::Endpoint, give_back }
}

/// Memory that lies elsewhere now is said in the log.
fn note_overflow(end: &StepEnd) {
    if end.out > 0 {
        PROCESS.overflow.note();
    }
}

fn trim(manager: &Manager<Device>) -> StepEnd {
    StepEnd { given: physical::give_back(manager, u64::MAX), ..StepEnd::default() }
}

/// The answer, with what `of_device` does for each device that the program has used.
fn answer(
    mut of_device: impl FnMut(&'static Manager<Device>, &LimitInForce) -> schema::DeviceChange,
) -> schema::Change {
    let ready = process::opened().is_some() && !process::forked() && !process::exiting();
    let limits = ready.then(registry::renew_limits).into_iter().flatten();
    schema::Change {
        schema: schema::Change::SCHEMA.to_owned(),
        pid: std::process::id(),
        detached: process::detached(),
        devices: limits.map(|(manager, limit)| of_device(manager, &limit)).collect(),
        ..schema::Change::default()
    }
}

fn of_device(manager: &Manager<Device>, limit: &LimitInForce, end: &StepEnd) -> schema::DeviceChange {
    let ordinal = manager.gpu().ordinal();
    let held = manager.usage().together.reserved;
    schema::DeviceChange {
        ordinal,
        uuid: registry::label(ordinal).uuid.clone(),
        limit_bytes: (limit.bytes != u64::MAX).then_some(limit.bytes),
        limit_source: limit.source.text().to_owned(),
        held_bytes: held.device,
        beyond_bytes: manager.bytes_beyond_limit(),
        elsewhere_bytes: held.elsewhere(),
        out_bytes: end.out,
        back_bytes: end.back,
        given_bytes: end.given,
        stays: end
            .stays
            .iter()
            .map(|(reason, bytes)| schema::StayingBytes { reason: (*reason).to_owned(), bytes: *bytes })
            .collect(),
    }
}
