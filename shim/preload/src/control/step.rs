//! What every change has in common: the time of a step, its terms, and the answer.

use std::time::{Duration, Instant};

use wm_driver::Device;
use wm_memory::Manager;
use wm_schema as schema;

use crate::moves::{StepEnd, StepTerms};
use crate::registry::LimitInForce;
use crate::subsystems::PROCESS;
use crate::{process, registry};

/// How long a step takes, about. What is under way then is ended.
pub(super) const STEP: Duration = Duration::from_millis(300);

/// The calling thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepCaller {
    /// It belongs to the library.
    Endpoint,
    /// It belongs to the program, so it must not hold the program's other calls up until the GPU
    /// has no work left: the work may wait for this very thread.
    Program,
}

pub(super) fn terms<'a>(
    until: Instant,
    caller: StepCaller,
    give_back: &'a dyn Fn(u64) -> u64,
) -> StepTerms<'a> {
    StepTerms { until, drains: caller == StepCaller::Endpoint, give_back }
}

/// Memory that lies elsewhere now is said in the log.
pub(super) fn note_overflow(end: &StepEnd) {
    if end.out > 0 {
        PROCESS.overflow.note();
    }
}

/// The answer, with what `of_device` does for each device that the program has used.
pub(super) fn answer(
    mut of_device: impl FnMut(&'static Manager<Device>, &LimitInForce) -> schema::DeviceChange,
) -> schema::ProcessChange {
    let ready = process::opened().is_some() && !process::forked() && !process::exiting();
    let limits = ready.then(registry::renew_limits).into_iter().flatten();
    schema::ProcessChange {
        schema: schema::ProcessChange::SCHEMA.to_owned(),
        pid: std::process::id(),
        detached: process::detached(),
        devices: limits.map(|(manager, limit)| of_device(manager, &limit)).collect(),
        ..schema::ProcessChange::default()
    }
}

pub(super) fn of_device(
    manager: &Manager<Device>,
    limit: &LimitInForce,
    end: &StepEnd,
) -> schema::DeviceChange {
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
