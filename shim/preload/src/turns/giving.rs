//! An order to give way, on its way: memory that is idle goes at once; if that is not enough, the
//! process is paused when its turn is over or it does nothing.

use std::time::{Duration, Instant};

use wm_abi::CUdevice;
use wm_dedup::turns::message::GpuId;
use wm_dedup::turns::pace::{self, GivingPace};
use wm_driver::Gpu;

use super::holdings;
use super::state::TurnParts;
use crate::gate::GATE;
use crate::pauses::{PausePhase, Pauses};
use crate::{physical, process, registry};

/// How long the GPU is looked at to see whether it works.
const LOOK: Duration = Duration::from_millis(1);

/// See above.
#[derive(Debug)]
pub(super) struct Giving {
    bytes: Vec<(CUdevice, u64)>,
    /// The process's turn is over then.
    until: Instant,
    is_leaving: bool,
}

/// What is to be done next about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GivingNext {
    /// It is looked at again after that time, or when something happens.
    Wait(Option<Duration>),
    /// No more is given.
    Over,
}

impl Giving {
    /// Begins by giving what is idle.
    pub(super) fn begin(parts: TurnParts, after: Duration, bytes: &[(GpuId, u64)]) -> Self {
        parts.turns.lock().begin_giving();
        let known = bytes.iter().filter_map(|(gpu, bytes)| Some((holdings::device_of(gpu)?, *bytes)));
        let giving = Self { bytes: known.collect(), until: Instant::now() + after, is_leaving: false };
        for (device, bytes) in &giving.bytes {
            let given = registry::existing(*device).map_or(0, |manager| physical::give_back(manager, *bytes));
            parts.turns.lock().gave(*device, given);
        }
        giving
    }

    /// Does its memory leave already?
    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Goes on as far as possible without a wait.
    pub(super) fn go_on(&mut self, parts: TurnParts) -> GivingNext {
        let state = parts.paused.pauses.turn_state();
        if self.is_leaving {
            return if state.is_working { GivingNext::Wait(None) } else { GivingNext::Over };
        }
        let lacks = self.lacks(parts);
        if lacks.is_empty() || process::detached() {
            return GivingNext::Over;
        }
        if state.is_working {
            return GivingNext::Wait(None);
        }
        let left = match state.phase {
            // It was asked to pause: all that can has left.
            PausePhase::Paused if !state.is_for_others => return GivingNext::Over,
            PausePhase::Paused => Duration::ZERO,
            _ => self.until.saturating_duration_since(Instant::now()),
        };
        match pace::of(left, GATE.since_last_call(), is_any_gpu_working) {
            GivingPace::Later(time) => GivingNext::Wait(Some(time)),
            GivingPace::Now => match Pauses::give_way(parts.paused, lacks) {
                Ok(()) => {
                    self.is_leaving = true;
                    GivingNext::Wait(None)
                }
                Err(_) => GivingNext::Over,
            },
        }
    }

    /// What was not given yet.
    fn lacks(&self, parts: TurnParts) -> Vec<(CUdevice, u64)> {
        let book = parts.turns.lock();
        let lacks =
            self.bytes.iter().map(|(device, bytes)| (*device, bytes.saturating_sub(book.given.of(*device))));
        lacks.filter(|(_, bytes)| *bytes > 0).collect()
    }
}

fn is_any_gpu_working() -> bool {
    registry::all().any(|manager| manager.gpu().is_settled(LOOK) == Ok(false))
}
