//! Our policy: the next events if the program repeats itself, else the blocks that were used
//! lately.

use std::time::Duration;

use smallvec::SmallVec;

use super::arrangement::{ExchangeBudget, HostReads, UsedBlock, back_to, exchange};
use super::groups::Groups;
use super::horizon::Stop;
use super::keys::{BlockKey, BlockKeys};
use super::order::LeavingOrder;
use super::repetition::{EventKind, Repetition};
use super::residency::{PlacedBlock, Residency, TierMove};

/// Events between two arrangements, at least and at most. To look at all blocks takes a millisecond
/// where there are thousands: one event for so many blocks, at least.
const ARRANGED: u64 = 64;
const LONGEST_ARRANGED: u64 = 1 << 16;
const BLOCKS_LOOKED_AT: u64 = 16;

/// The limits that a policy has to observe.
#[derive(Debug, Clone, Copy)]
pub struct TierSettings {
    /// Most bytes on the device.
    pub capacity: u64,
    /// Bytes that one stop moves or makes room for, roughly.
    pub batch: u64,
    /// Bytes that cross the link in the time that a stop costs: so many are used from the host
    /// before one is made.
    pub stop_bytes: u64,
}

impl TierSettings {
    /// A stop for each twentieth part of the device, or for 1 GiB.
    pub fn of_capacity(capacity: u64) -> Self {
        let stop_bytes = STOP_BYTES.min(capacity / 64);
        Self { capacity, batch: (capacity / 20).clamp(super::CHUNK, BATCH), stop_bytes }
    }
}

/// 20 ms at 55 GB/s. To begin and to end a stop takes a few milliseconds, whatever moves.
const BATCH: u64 = 1 << 30;

/// 100 us at 55 GB/s.
const STOP_BYTES: u64 = 5_500_000;

/// Where no next event is known, a stop makes room for so many times the bytes that it costs, so
/// that the next one is not near.
const SLACK: u64 = 8;

/// Events for which a block that was used does not leave for that.
const RECENT: u64 = 256;

/// Blocks by their names, and bytes of each that lie on the device.
#[derive(Debug, Clone)]
pub struct Placement(Vec<(u64, u64)>);

/// The live blocks of a launch.
#[derive(Debug, Default)]
struct Used {
    blocks: SmallVec<[BlockKey; 8]>,
    /// Where each of the neighbours ends that are used as one.
    ends: SmallVec<[usize; 8]>,
}

impl Used {
    fn groups(&self) -> impl Iterator<Item = &[BlockKey]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.blocks[begin..*end])
    }
}

/// Decides which blocks lie on the device. Blocks are named by their users, and a name may come
/// again after its free.
///
/// ```
/// use wm_memory::tiers::{TierMove, TierPlacer, TierSettings};
///
/// const MIB: u64 = 1 << 20;
/// let mut placer = TierPlacer::new(TierSettings::of_capacity(64 * MIB));
/// let mut moves: Vec<TierMove> = Vec::new();
/// assert_eq!(placer.allocate(1, 48 * MIB, &mut moves), 48 * MIB);
/// // The second block does not fit: the policy evicts from the first, or places it on the host.
/// let on_device = placer.allocate(2, 32 * MIB, &mut moves);
/// let evicted: u64 = moves.iter().map(|step| match step {
///     TierMove::Leave { bytes, .. } => *bytes,
///     TierMove::Come { .. } => 0,
/// }).sum();
/// assert!(48 * MIB - evicted + on_device <= 64 * MIB);
/// ```
#[derive(Debug)]
pub struct TierPlacer {
    settings: TierSettings,
    keys: BlockKeys,
    groups: Groups,
    residency: Residency,
    past: Repetition,
    order: LeavingOrder,
    /// Number of the first event that the last stop does not serve.
    planned: u64,
    /// Bytes that were used from the host, or placed there, since the last stop.
    debt: u64,
    is_eager: bool,
    /// Events before the next arrangement, and the number of the event at which it may be.
    rest: u64,
    arranges_at: u64,
    exchanges: ExchangeBudget,
    reads: HostReads,
    /// Bytes that launches have used from the host where nothing moved.
    host_bytes: u64,
    /// Blocks have changed places.
    is_arranged: bool,
    /// At the last look none did.
    is_settled: bool,
}

impl TierPlacer {
    /// Nothing is allocated yet.
    pub fn new(settings: TierSettings) -> Self {
        Self {
            settings,
            keys: BlockKeys::default(),
            groups: Groups::default(),
            residency: Residency::new(settings.capacity),
            past: Repetition::default(),
            order: LeavingOrder::default(),
            planned: 0,
            debt: 0,
            is_eager: false,
            rest: ARRANGED,
            arranges_at: ARRANGED,
            exchanges: ExchangeBudget::default(),
            reads: HostReads::default(),
            host_bytes: 0,
            is_arranged: false,
            is_settled: false,
        }
    }

    /// A block is allocated. Returns its bytes on the device, after the moves.
    pub fn allocate(&mut self, block: u64, bytes: u64, moves: &mut Vec<TierMove>) -> u64 {
        self.free(block);
        let missing = bytes.saturating_sub(self.residency.room());
        if missing > 0 && self.is_due(missing) {
            self.stop(&Used::default(), bytes, moves);
        }
        let block = self.keys.give(block);
        let placed = self.residency.insert(block, bytes, self.past.now());
        self.add(EventKind::Allocate, block, &placed);
        placed.on_device
    }

    /// A kernel is about to be launched that uses these blocks. Those of one group are neighbours
    /// that are used as one.
    #[inline]
    pub fn launch<G: IntoIterator<Item = u64>>(
        &mut self,
        groups: impl IntoIterator<Item = G>,
        moves: &mut Vec<TierMove>,
    ) {
        let mut used = Used::default();
        let events = self.find(groups, &mut used);
        if self.elsewhere(&used.blocks) > 0 {
            self.launch_elsewhere(&used, self.past.now() + events, moves);
        }
        self.add_uses(&used);
    }

    /// The same where some of the blocks are not on the device. `after`: number of the event that
    /// follows the launch.
    fn launch_elsewhere(&mut self, used: &Used, after: u64, moves: &mut Vec<TierMove>) {
        let is_foreseen = !self.is_eager && self.past.position().is_some() && after <= self.planned;
        if !is_foreseen && self.is_due(self.elsewhere(&used.blocks)) {
            self.stop(used, 0, moves);
        }
    }

    /// Adds those of some blocks that live to an empty list, which stays where it is: to move it
    /// costs as much as a look-up. Returns how many groups there are, with those of the others.
    #[inline]
    fn find<G: IntoIterator<Item = u64>>(&self, groups: impl IntoIterator<Item = G>, used: &mut Used) -> u64 {
        let mut count = 0;
        for group in groups {
            count += 1;
            let blocks = group.into_iter().filter_map(|block| self.keys.of(block));
            blocks.for_each(|block| used.blocks.push(block));
            used.ends.push(used.blocks.len());
        }
        count
    }

    /// Bytes of some blocks that are not on the device.
    #[inline]
    fn elsewhere(&self, blocks: &[BlockKey]) -> u64 {
        blocks.iter().filter_map(|block| self.residency.get(*block)).map(|placed| placed.elsewhere()).sum()
    }

    /// Bytes of some blocks that would not be on the device if nothing had moved.
    #[inline]
    fn away_from_home(&self, blocks: &[BlockKey]) -> u64 {
        let placed = blocks.iter().filter_map(|block| self.residency.get(*block));
        placed.map(|placed| placed.bytes.saturating_sub(placed.home)).sum()
    }

    #[inline]
    fn add_uses(&mut self, used: &Used) {
        for group in used.groups() {
            match group {
                [] => {}
                [block] => {
                    if let Some(placed) = self.residency.get(*block) {
                        self.add(EventKind::Use, *block, &placed);
                    }
                }
                blocks => self.add_group_use(blocks),
            }
        }
    }

    /// Neighbours are used as one.
    fn add_group_use(&mut self, blocks: &[BlockKey]) {
        let placed = |block: &BlockKey| self.residency.get(*block);
        let bytes = blocks.iter().filter_map(placed).map(|placed| placed.bytes).sum();
        let Some(group) = self.groups.find(blocks).or_else(|| self.meet(blocks, bytes)) else { return };
        let now = self.past.now();
        let next = self.past.add(EventKind::Use, group, bytes);
        self.groups.foretell(group, next);
        for block in blocks {
            let can_leave = self.residency.get(*block).is_some_and(|placed| placed.can_leave());
            let next = self.groups.next_use(*block, group, next, now);
            self.order.used(*block, now, next, can_leave);
        }
    }

    fn meet(&mut self, blocks: &[BlockKey], bytes: u64) -> Option<BlockKey> {
        if let Some(oldest) = blocks.first().and_then(|first| self.groups.oldest(*first)) {
            self.part(oldest);
        }
        let group = self.groups.add(blocks, &mut self.keys)?;
        self.past.add(EventKind::Meet, group, bytes);
        Some(group)
    }

    fn part(&mut self, group: BlockKey) {
        if self.groups.remove(group) {
            self.past.add(EventKind::Part, group, 0);
            self.keys.take_back_unnamed(group);
        }
    }

    /// Does each block of a kernel come before it, or only those that are used much sooner than the
    /// blocks that leave for them? To read memory over the link once costs as much as its move, if
    /// the kernel reads as fast as the link carries; the driver does not tell which ones do.
    pub fn set_eager(&mut self, is_eager: bool) {
        self.is_eager = is_eager;
    }

    /// A kernel was launched that uses these blocks, and nothing can move.
    #[inline]
    pub fn used<G: IntoIterator<Item = u64>>(&mut self, groups: impl IntoIterator<Item = G>) {
        let mut used = Used::default();
        self.find(groups, &mut used);
        let elsewhere = self.elsewhere(&used.blocks);
        self.debt = self.debt.saturating_add(elsewhere);
        self.reads.add(elsewhere, self.away_from_home(&used.blocks));
        self.host_bytes = self.host_bytes.saturating_add(elsewhere);
        self.add_uses(&used);
    }

    /// Events so far, and those of a period if the program repeats itself.
    pub fn events(&self) -> (u64, Option<u64>) {
        let event = self.past.now();
        (event, self.past.position().map(|position| event - position - 1))
    }

    /// Does all of every block lie on the device?
    #[inline]
    pub fn is_all_on_device(&self) -> bool {
        self.residency.is_all_on_device()
    }

    /// A block was allocated of which so many bytes lie on the device.
    pub fn placed(&mut self, block: u64, bytes: u64, on_device: u64) {
        self.free(block);
        let block = self.keys.give(block);
        let placed = self.residency.insert_as(block, bytes, on_device, self.past.now());
        self.add(EventKind::Allocate, block, &placed);
    }

    /// A block of so many bytes is about to be allocated, and has no room.
    pub fn make_room(&mut self, bytes: u64, moves: &mut Vec<TierMove>) {
        self.stop(&Used::default(), bytes, moves);
    }

    /// Another user of the device needs this many bytes.
    pub fn leave(&mut self, bytes: u64, moves: &mut Vec<TierMove>) {
        let (now, eager) = (self.past.now(), self.is_eager);
        Stop::new(&mut self.residency, &mut self.order, moves, now, eager).make_room(bytes, now);
    }

    /// So many bytes of a block lie on the device, even if a move asked for another number. Is that
    /// news?
    pub fn correct(&mut self, block: u64, on_device: u64) -> bool {
        let Some(block) = self.keys.of(block) else { return false };
        let is_news = self.residency.correct(block, on_device);
        self.list(block);
        is_news
    }

    /// Whether a block cannot move.
    pub fn set_pinned(&mut self, block: u64, is_pinned: bool) {
        if let Some(block) = self.keys.of(block) {
            self.residency.set_pinned(block, is_pinned);
            self.list(block);
        }
    }

    /// Where all blocks lie.
    pub fn placement(&self) -> Placement {
        Placement(self.residency.all().map(|(block, placed)| (block.name, placed.on_device)).collect())
    }

    /// Where they lay when they were allocated.
    pub fn home(&self) -> Placement {
        Placement(self.residency.all().map(|(block, placed)| (block.name, placed.home)).collect())
    }

    /// Blocks go to where they lay: those that came leave, as far as the others need their room.
    /// Then these come.
    pub fn restore(&mut self, before: &Placement, moves: &mut Vec<TierMove>) {
        let (keys, residency) = (&self.keys, &self.residency);
        let lived = |(name, bytes): &(u64, u64)| {
            let block = keys.of(*name)?;
            let used = UsedBlock { block, placed: residency.get(block)?, uses: self.order.uses(block) };
            Some((used, *bytes))
        };
        let exchange = back_to(before.0.iter().filter_map(lived), residency.room());
        Stop::new(&mut self.residency, &mut self.order, moves, self.past.now(), false).exchange(&exchange);
    }

    /// The host has waited, and blocks are to lie where they are used most: those that are used
    /// often change places with those that are not. Ever more seldom where none did. `time`: since
    /// the shortage began.
    pub fn arrange(&mut self, time: Duration, moves: &mut Vec<TierMove>) {
        let now = self.past.now();
        if now < self.arranges_at {
            return;
        }
        let used = |(block, placed)| UsedBlock { block, placed, uses: self.order.uses(block) };
        let blocks: Vec<_> = self.residency.all().map(used).collect();
        let least = ARRANGED.max(blocks.len() as u64 / BLOCKS_LOOKED_AT);
        let most = self.exchanges.left(self.residency.bytes_elsewhere(), time);
        let exchange = exchange(blocks, self.residency.room(), most);
        let is_idle = exchange.leave.is_empty() && exchange.come.is_empty();
        self.rest = if is_idle { (self.rest * 2).min(LONGEST_ARRANGED) } else { 0 }.max(least);
        let period = self.past.position().map_or(0, |position| now - position - 1);
        self.arranges_at = now + self.rest.max(period);
        self.is_settled = is_idle;
        if is_idle {
            // Later uses are to count more, and each difference is to be seen at last.
            return self.order.age_uses();
        }
        self.exchanges.spend(&exchange);
        self.reads = HostReads::default();
        self.is_arranged = true;
        Stop::new(&mut self.residency, &mut self.order, moves, now, false).exchange(&exchange);
    }

    /// Have blocks changed places?
    pub fn is_arranged(&self) -> bool {
        self.is_arranged
    }

    /// Do launches use less from the host, as far as is known, than if nothing had moved? Of those
    /// since the last change of places.
    pub fn reads_less(&self) -> bool {
        self.reads.are_less()
    }

    /// Bytes of all blocks that launches have used from the host so far, where nothing moved for
    /// them: those of a block count at each use.
    pub fn host_bytes(&self) -> u64 {
        self.host_bytes
    }

    /// Did the last look at all blocks find none that are to change places?
    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Bytes of all blocks that are not on the device.
    pub fn bytes_elsewhere(&self) -> u64 {
        self.residency.bytes_elsewhere()
    }

    /// Nothing will be able to move any more: all blocks come that there is room for.
    pub fn come_home(&mut self, moves: &mut Vec<TierMove>) {
        Stop::new(&mut self.residency, &mut self.order, moves, self.past.now(), false).bring_home();
    }

    /// The device has room for so many bytes of blocks beside those that lie there.
    pub fn set_room(&mut self, room: u64) {
        self.set_capacity(self.residency.used().saturating_add(room));
    }

    /// The device holds so many bytes of blocks from now on.
    pub fn set_capacity(&mut self, capacity: u64) {
        self.settings = TierSettings::of_capacity(capacity);
        self.residency.set_capacity(capacity);
    }

    fn list(&mut self, block: BlockKey) {
        if let Some(placed) = self.residency.get(block) {
            self.order.set_can_leave(block, placed.can_leave());
        }
    }

    /// A block is freed.
    pub fn free(&mut self, block: u64) {
        let Some(block) = self.keys.of(block) else { return };
        self.groups.of(block).into_iter().for_each(|group| self.part(group));
        self.groups.forget(block);
        let bytes = self.residency.get(block).map_or(0, |placed| placed.bytes);
        self.past.add(EventKind::Free, block, bytes);
        self.residency.remove(block);
        self.order.remove(block);
        self.keys.take_back(block);
    }

    /// Nothing is in flight, and moves cost only their bytes.
    pub fn quiescent(&mut self, moves: &mut Vec<TierMove>) {
        if self.residency.is_all_on_device() || self.past.now() < self.planned {
            return;
        }
        self.plan(&Used::default(), 0, true, moves);
    }

    #[inline]
    fn add(&mut self, kind: EventKind, block: BlockKey, placed: &PlacedBlock) {
        let now = self.past.now();
        let next = self.past.add(kind, block, placed.bytes);
        self.groups.foretell(block, next);
        let next = self.groups.next_use(block, block, next, now);
        self.order.used(block, now, next, placed.can_leave());
    }

    /// Whether a stop costs less than the bytes that were used from the host since the last one.
    fn is_due(&mut self, missing: u64) -> bool {
        self.debt = self.debt.saturating_add(missing);
        self.debt >= self.settings.stop_bytes
    }

    /// Moves for a launch of these blocks, or for a new one of so many bytes, and for the events
    /// that follow.
    fn stop(&mut self, used: &Used, bytes: u64, moves: &mut Vec<TierMove>) {
        self.plan(used, bytes, false, moves);
    }

    /// The same; `waited`: the host has waited.
    fn plan(&mut self, used: &Used, bytes: u64, waited: bool, moves: &mut Vec<TierMove>) {
        self.debt = 0;
        let (now, eager) = (self.past.now(), self.is_eager);
        let mut stop = Stop::new(&mut self.residency, &mut self.order, moves, now, eager);
        let ages: Vec<_> = used.groups().map(|group| stop.hold(group)).collect();
        let life = self.past.position().map_or(RECENT, |position| self.past.life(position + 1));
        stop.make_room_for_life(bytes, now, now + life);
        ages.iter().for_each(|group| stop.come_used(group));
        if self.past.position().is_none() {
            stop.make_room(SLACK * self.settings.stop_bytes, now + RECENT);
            if waited {
                stop.bring_back();
            }
            return;
        }
        stop.reserve(bytes);
        // The allocation that this stop is for is the first of the next events.
        self.planned = stop.serve(&self.past, &self.groups, u64::from(bytes > 0), self.settings.batch);
    }
}

#[cfg(test)]
mod tests;
