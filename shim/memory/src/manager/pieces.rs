//! Pieces of the program, counted beside the blocks: one limit a tier, one headroom and one amount
//! of idle memory for both.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use wm_driver::{Gpu, Tier};

use super::Manager;
use crate::policy::pool::HandlePool;
use crate::vocabulary::error::{OverflowVerdict, Shortage};
use crate::vocabulary::piece::{PieceKind, PiecePlace};
use crate::vocabulary::sizes::{SMALL_MEMORY, headroom_for_small, small_room_in_limit};
use crate::vocabulary::tiers::{TierBytes, only};

/// A piece's bytes, which count against the device's limits until this is dropped.
#[derive(Debug)]
pub struct Charge<'m, G: Gpu> {
    manager: &'m Manager<G>,
    /// Moves change it.
    place: Arc<PiecePlace>,
    bytes: u64,
    /// The piece was made: a request that the driver refuses was never live.
    is_made: Cell<bool>,
}

impl<G: Gpu> Charge<'_, G> {
    /// The piece was made. `is_cached`: its handle becomes idle when the program gives it up.
    pub fn made(&self, is_cached: bool) {
        let mut state = self.manager.lock();
        let tier = self.tier();
        state.pool.made(tier, self.bytes, is_cached, Instant::now());
        if !self.is_made.replace(true) {
            state.piece_made(tier, self.bytes);
        }
        drop(state);
        self.manager.gpu.changed();
    }

    /// The piece's size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where its bytes are.
    pub fn tiers(&self) -> TierBytes {
        only(self.tier(), self.bytes)
    }

    /// Where it is.
    pub fn tier(&self) -> Tier {
        self.place.tier()
    }

    pub(super) fn place(&self) -> &Arc<PiecePlace> {
        &self.place
    }
}

impl<'m, G: Gpu> Charge<'m, G> {
    fn new(manager: &'m Manager<G>, tier: Tier, bytes: u64, is_made: bool) -> Self {
        Self { manager, place: Arc::new(PiecePlace::new(tier)), bytes, is_made: Cell::new(is_made) }
    }

    /// The manager of the device on whose account it is.
    pub fn manager(&self) -> &'m Manager<G> {
        self.manager
    }
}

impl<G: Gpu> Drop for Charge<'_, G> {
    fn drop(&mut self) {
        let mut state = self.manager.lock();
        let tier = self.tier();
        state.pool.discharge(tier, self.bytes);
        if self.is_made.get() {
            state.piece_gone(tier, self.bytes);
        }
        drop(state);
        self.manager.gpu.changed();
    }
}

impl<G: Gpu> Manager<G> {
    /// The idle memory of the device, under the manager's lock: `change` makes no call.
    pub fn pool<T>(&self, change: impl FnOnce(&mut HandlePool) -> T) -> T {
        let mut state = self.lock();
        let (idle, refused) = (state.pool.idle_bytes(), state.pool.account().refused);
        let result = change(&mut state.pool);
        if state.pool.idle_bytes().total() < idle.total() {
            state.count_idle_pieces();
        } else if state.pool.idle_bytes() != idle || state.pool.account().refused > refused {
            state.show();
        }
        result
    }

    /// Bytes of all pieces of the program, idle ones not included.
    pub fn bytes_of_pieces(&self) -> u64 {
        self.lock().pool.account().held.total()
    }

    /// Charges a piece that is about to be made; `None`: it `is_limited`, and the user's limit
    /// leaves no room for it.
    pub fn charge(&self, tier: Tier, bytes: u64, is_limited: bool) -> Option<Charge<'_, G>> {
        if !is_limited {
            return self.charge_within(tier, bytes, u64::MAX);
        }
        if tier != Tier::Host || !self.is_host_limited() {
            return self.charge_within(tier, bytes, self.limit(tier));
        }
        let mut plans = self.host_budget.lock();
        loop {
            let charge = self.charge_within(tier, bytes, self.limit(tier));
            let Some(seen) = plans.awaited().filter(|_| charge.is_none()) else { return charge };
            plans = self.host_budget.wait(plans, seen);
        }
    }

    fn charge_within(&self, tier: Tier, bytes: u64, limit: u64) -> Option<Charge<'_, G>> {
        let mut state = self.lock();
        let blocks = state.holdings.held().on(tier);
        state.pool.charge(tier, bytes, blocks, limit).then(|| Charge::new(self, tier, bytes, false))
    }

    /// Does the user limit the host memory of the process?
    pub(super) fn is_host_limited(&self) -> bool {
        self.rules.settings.host_limit != u64::MAX
    }

    /// Reserves an idle handle for a piece, and charges the piece. `None`: none is idle.
    pub fn reserve(&self, kind: PieceKind) -> Option<Charge<'_, G>> {
        let PieceKind { tier, bytes, .. } = kind;
        self.lock().reserve_piece(kind).then(|| Charge::new(self, tier, bytes, true))
    }

    /// The most that blocks and pieces may have of a tier, by the user's limits. That of the host
    /// is one for all devices of the process.
    pub(super) fn limit(&self, tier: Tier) -> u64 {
        let settings = &self.rules.settings;
        match tier {
            Tier::Device => self.lock().limits.in_force(),
            Tier::Peer(_) => settings.peer_limit,
            Tier::Host if !self.is_host_limited() => u64::MAX,
            Tier::Host => settings.host_limit.saturating_sub(self.gpu.external_usage()),
        }
    }

    /// Bytes of the host that blocks and pieces hold, those included that plans under way will
    /// make.
    pub fn held_on_host(&self) -> u64 {
        self.lock().held().host
    }

    /// The bytes that the host lacks for so many, by the user's limit and by its free memory.
    pub fn lacks_on_host(&self, bytes: u64) -> u64 {
        let left = self.limit(Tier::Host).saturating_sub(self.held_on_host());
        bytes.saturating_sub(left.min(self.gpu.host_available()))
    }

    /// Where memory lies when a piece finds no room.
    pub fn shortage_of_piece(&self, bytes: u64, overflow: OverflowVerdict) -> Shortage {
        let (usage, limits, device_limit) = (self.usage(), &self.rules.settings, self.device_limit());
        let reserved = usage.together.reserved;
        let free = self.gpu.memory_info().map_or(0, |(free, _)| free);
        Shortage {
            asked: bytes,
            live: usage.together.live,
            reserved,
            idle: usage.idle.plus(usage.pieces.idle),
            largest_free_run: usage.largest_free_run,
            device_left: free
                .saturating_sub(limits.headroom)
                .min(device_limit.saturating_sub(reserved.device)),
            device_limit,
            host_left: self.gpu.host_available().min(limits.host_limit.saturating_sub(reserved.host)),
            overflow,
        }
    }

    /// Is the headroom left when a piece of so many bytes has been made on the device? Where the
    /// driver does not tell, it is. A small piece may use a part of it: a kernel with a small
    /// operand on the host is slow however much of the rest is on the device.
    pub fn leaves_headroom(&self, bytes: u64) -> bool {
        if self.pool(|pool| pool.is_unasked(bytes)) {
            return true;
        }
        let Ok((free, _)) = self.gpu.memory_info() else { return true };
        let headroom = self.rules.settings.headroom;
        if self.pool(|pool| pool.is_beside_headroom(free.saturating_sub(headroom), bytes)) {
            return true;
        }
        let kept = headroom_for_small(headroom, self.rules.granularity);
        bytes < SMALL_MEMORY && free.saturating_sub(kept) >= bytes
    }

    /// Does a piece of so many bytes leave room on the device, within the user's limit, for small
    /// ones? A small piece need not.
    pub fn leaves_small_room(&self, bytes: u64) -> bool {
        let limit = self.lock().limits.in_force();
        if bytes < SMALL_MEMORY || limit == u64::MAX {
            return true;
        }
        let left = limit.saturating_sub(self.lock().held().device);
        left.saturating_sub(small_room_in_limit(limit, self.rules.granularity)) >= bytes
    }

    /// The bytes of the device that large memory leaves to small memory; 0 where the driver does
    /// not tell the device's size. To make them free takes five milliseconds at most.
    pub fn small_room(&self) -> u64 {
        let total = self.gpu.memory_info().map_or(0, |(_, total)| total);
        small_room_in_limit(total.min(self.device_limit()), self.rules.granularity)
    }

    /// Bytes of pieces that are idle on a tier beyond the stated amount. `is_learned`: and beyond
    /// the bytes that the program soon made again when they were given back.
    pub fn excess_of_pieces(&self, tier: Tier, is_learned: bool) -> u64 {
        let (settings, state) = (&self.rules.settings, self.lock());
        let blocks = if tier == Tier::Device { state.idle_on_device() } else { 0 };
        if !state.limits.keeps_idle {
            return state.pool.idle(tier);
        }
        let most = if is_learned { settings.keep_most } else { 0 };
        state.pool.excess(state.pool.idle(tier), blocks, settings.keep_idle, most)
    }

    /// So many bytes of pieces were given back.
    pub fn gave_pieces_back(&self, bytes: u64) {
        self.pool(|pool| pool.keep.gave(bytes, Instant::now()));
    }

    /// Has `give_back` release pieces that were idle on the device throughout a period, beyond the
    /// stated amount. Returns when to look again, if more than that is left.
    pub fn give_back_unused(&self, give_back: impl FnOnce(u64)) -> Option<Instant> {
        let stated = self.rules.settings.keep_idle;
        let mut state = self.lock();
        state.end_period(&self.rules, Instant::now());
        let blocks = state.idle_on_device();
        let unused = state.pool.take_unused(blocks, stated);
        drop(state);
        give_back(unused);
        let is_left = self.excess_of_pieces(Tier::Device, false) > 0;
        self.pool(|pool| pool.keep.next_look().filter(|_| is_left))
    }
}
