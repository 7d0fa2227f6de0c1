//! Room on the device: evictions for a block or a driver call that finds none, blocks that come
//! back at host waits, and all that fit before memory is pinned. [`super::predictor`] chooses them.
//!
//! In doubt a block stays, and a block that finds no room goes to another tier as it would without
//! moves. [`super::waits`] says how long each may wait for the GPU.

use std::time::Instant;

use wm_driver::{Device, Gpu, Tier};
use wm_memory::tiers::TierPlacer;
use wm_memory::{Manager, MoveOrder};

use super::predictor::{Predictor, SMALLEST, range_of};
use super::wait_budget::{WAIT, WaitWorth};
use super::waits::GrantedWait;
use super::{Migrations, pin_reason};
use crate::gate::GATE;
use crate::{process, registry};

impl Migrations {
    /// The driver has no room for what it needs itself: blocks move to the host until so many bytes
    /// of the device are unused or no block is left; bytes that moved. Their memory on the device
    /// is unused then, and still the manager's. Small blocks stay: others lie on the same memory.
    pub(crate) fn leave_device(&self, manager: &Manager<Device>, bytes: u64) -> u64 {
        if !self.is_migrating() || pin_reason::of_process().is_some() {
            return 0;
        }
        let Some(wait) = self.waits.of_rescue() else { return 0 };
        self.start_predictor(manager);
        let bytes = manager.device_room().saturating_add(bytes);
        self.stop_now(manager, &wait, |placer, moves| placer.leave(bytes, moves))
    }

    /// The device has no room for a block of so many bytes: others leave. `false`: there is no more
    /// room than before.
    pub(crate) fn make_for(&self, manager: &Manager<Device>, bytes: u64) -> bool {
        // Asked again behind the closed gate: here it spares a wait without an effect.
        if !self.is_migrating() || pin_reason::of_process().is_some() {
            return false;
        }
        self.start_predictor(manager);
        if !self.gives_way() {
            return false;
        }
        let before = manager.device_room();
        if bytes <= before {
            return false;
        }
        let worth = self.with_predictor(manager, |predictor| predictor.wait_worth());
        let Some(wait) = self.waits.of_allocation(bytes, worth.unwrap_or(WaitWorth::Unknown)) else {
            return false;
        };
        self.stop_now(manager, &wait, |placer, moves| placer.make_room(bytes, moves));
        // Blocks that came for later launches may have taken the room of those that left. Each try
        // has to bring some, for the request asks again.
        manager.device_room() > before
    }

    /// The host has waited: blocks that launches used from the host come back, and later launches
    /// are prepared.
    pub(crate) fn come_back(&self, manager: &Manager<Device>) {
        if !self.is_migrating() || GATE.pin_reason().is_some() || manager.movable_on_host() == 0 {
            return;
        }
        let Some(look) = self.waits.look() else { return };
        self.start_predictor(manager);
        self.end_recess(manager);
        if self.with_predictor(manager, |predictor| predictor.leaves_in_place()) == Some(true) {
            return self.stop_as_before(manager, look);
        }
        // Launches load no code, and what comes before it is loaded is copied out again.
        if self.lacks_code(manager) && manager.gpu().is_settled(look.limit).unwrap_or(false) {
            self.load_code(manager);
        }
        let may_move = self.with_predictor(manager, |predictor| predictor.moves_after_waits());
        // A period without moves is being measured, or moves cost more than they bring. A stop
        // would also show that streams are held no more.
        if may_move.unwrap_or(true) || self.waits.is_held() {
            return self.stop_after_wait(manager, look, TierPlacer::quiescent);
        }
        let room = manager.small_room();
        self.keep_small_room(manager, look, room, room);
    }

    /// Small operands on the host make each kernel slow that reads them, wherever its large ones
    /// lie, and small memory does not come back. So blocks leave until the device has `room` for
    /// it, if it has less than `least`.
    fn keep_small_room(&self, manager: &Manager<Device>, look: GrantedWait<'_>, least: u64, room: u64) {
        let begin = Instant::now();
        let is_short = manager.device_room() < least;
        if !is_short || self.stop_now(manager, &look, |placer, moves| placer.leave(room, moves)) == 0 {
            // The driver was asked for its free memory: that has a share of the time, too.
            look.end(begin.elapsed(), true);
        }
    }

    /// The host has waited, and nothing moves at launches. Blocks change places, if that is tried
    /// or is the best. For a trial, and after one that gained nothing, they go back to their
    /// places before.
    fn stop_as_before(&self, manager: &Manager<Device>, look: GrantedWait<'_>) {
        let (room, left) = (manager.small_room(), manager.device_room());
        // Large pieces do not use this room, so only small ones can have.
        if left < room / 2 && manager.has_small_pieces() {
            return self.keep_small_room(manager, look, room / 2, room);
        }
        // No exchange uses it either.
        self.with_predictor(manager, |predictor| predictor.set_room(left.saturating_sub(room)));
        let arranges = self.with_predictor(manager, |predictor| predictor.arranges()).flatten();
        if let Some(time) = arranges {
            return self.stop_after_wait(manager, look, |placer, moves| placer.arrange(time, moves));
        }
        let due = self.with_predictor(manager, Predictor::take_due_placement).flatten();
        match due {
            Some(due) => self.stop_after_wait(manager, look, |placer, moves| placer.restore(&due, moves)),
            // A stop would also show that streams are held no more.
            None if self.waits.is_held() => self.stop_after_wait(manager, look, |_, _| ()),
            None => {}
        }
    }

    /// The device has no room for a piece. If it is too small to come back later, others leave so
    /// that there is room for later ones, too. `false`: there is no more room than before.
    pub(crate) fn make_for_piece(&self, manager: &Manager<Device>, bytes: u64, is_movable: bool) -> bool {
        match bytes >= SMALLEST {
            true => is_movable && self.make_for(manager, bytes),
            // Where nothing moves, the driver is not asked for the device's size either.
            false => self.is_migrating() && self.make_for(manager, bytes.max(manager.small_room())),
        }
    }

    /// A piece is about to change its place, for a call that fails otherwise: waits for the GPU.
    pub(crate) fn await_idle(&self, manager: &Manager<Device>) {
        let Some(wait) = self.waits.of_rare_rescue() else { return };
        let begin = Instant::now();
        let is_idle = loop {
            let left = wait.limit.saturating_sub(begin.elapsed());
            match manager.gpu().is_settled(left.min(WAIT)) {
                // Meanwhile the host may have come to hold a stream.
                Ok(false) if left > WAIT && !self.waits.is_held() && !process::exiting() => {}
                settled => break settled.unwrap_or(false),
            }
        };
        wait.end(begin.elapsed(), is_idle);
    }

    /// The block that an address is in is about to stay where it is: it comes back if it fits.
    pub(crate) fn come_home_at(&self, address: u64) {
        if !self.is_on() || pin_reason::of_process().is_some() {
            return;
        }
        let found = registry::owner(address).and_then(|manager| Some((manager, manager.block(address)?)));
        let Some((manager, block)) = found
            .filter(|(manager, block)| block.tiers.host > 0 && block.tiers.host <= manager.device_room())
        else {
            return;
        };
        let Some(wait) = self.waits.of_rescue() else { return };
        let begin = Instant::now();
        let is_idle = manager.gpu().is_settled(wait.limit).unwrap_or(false);
        let waited = begin.elapsed();
        let order = MoveOrder::new(range_of(&block), Tier::Device);
        let has_moved = is_idle && self.migrate(manager, &order).is_none();
        wait.end(waited, has_moved);
    }

    /// Memory is about to be pinned where it is for the rest of the process: blocks come back that
    /// there is room for.
    pub(crate) fn come_home(&self) {
        if !self.is_migrating() || !self.is_recording() || pin_reason::of_process().is_some() {
            return;
        }
        let Some(manager) = self.predicted_device().and_then(registry::existing) else { return };
        if manager.movable_on_host() == 0 {
            return;
        }
        if let Some(wait) = self.waits.of_last_stop() {
            self.stop_now(manager, &wait, TierPlacer::come_home);
        }
    }
}
