//! Drafts of moves: a handle with blocks on it, and the memory of another tier that it gets.
//!
//! Invariant: while a move is under way the handle is held and its spare is taken, so that no other
//! plan chooses either; the context's end waits for it. The blocks on the handle may change
//! meanwhile: a commit looks anew.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use wm_driver::{Event, Handle, KeyedFingerprint, LinkWay, Tier};

use crate::books::free_cache::FlushScope;
use crate::books::ledger::{FormerMemory, HandleKey, KeptNumber, OccupiedHandle, TakenHandle};
use crate::books::staying::Stay;
use crate::ordering::fence::{Fence, Numbered};
use crate::policy::attempt::Room;
use crate::policy::swap::{Spare, spare};
use crate::state::State;
use crate::vocabulary::moves::{MoveOrder, MoveRefusal, Moved};
use crate::vocabulary::order::{Order, Point};
use crate::vocabulary::plan::{Build, Built, ExtentPart, Steps, Undo};
use crate::vocabulary::settings::Rules;
use crate::vocabulary::tiers::only;

/// More copies than this for one handle are made as one: the memory between blocks is copied with
/// them.
const COPIES: usize = 16;

/// A move that was given up while its copies still run.
#[derive(Debug)]
pub(crate) struct StrandedSwap {
    pub(crate) swap: Swap,
    pub(crate) copies: Vec<Event>,
    /// The steps that take the spare's range apart.
    pub(crate) undo: Vec<Undo>,
}

/// Which way copies to a tier go.
pub(crate) fn way(to: Tier) -> LinkWay {
    if to == Tier::Device { LinkWay::In } else { LinkWay::Out }
}

/// The fingerprints of handles' chunks as they are now, by the records of their kept copies. They
/// hold as long as the caller's gate is closed.
pub(crate) type TakenFingerprints = HashMap<KeptNumber, Vec<KeyedFingerprint>>;

/// A move under way.
#[derive(Debug)]
pub(crate) struct Swap {
    pub(crate) handle: OccupiedHandle,
    pub(super) to: Tier,
    /// `None`: it is to be made.
    pub(super) spare: Option<TakenHandle>,
    /// The handle gets no memory: see [`super::away`].
    pub(super) is_away: bool,
    /// The spare is not mapped where the handle was: see [`super::unmapped`].
    pub(super) unmaps: bool,
    /// The ranges whose bytes the spare is to have, by address.
    pub(super) occupied: Vec<Range<u64>>,
    /// Those of them to copy: the spare may have the others.
    pub(crate) parts: Vec<Range<u64>>,
    /// Steps that unmap the spare where it would come to be mapped twice. They come first.
    pub(crate) unmap_first: Vec<Undo>,
}

impl Swap {
    /// The spare as it is mapped already, to be filled there.
    pub(crate) fn staged(&self) -> Option<Built> {
        let taken = self.spare.as_ref()?;
        Some(Built { base: taken.staging?, handles: vec![taken.raw], undo: Vec::new() })
    }

    /// The memory that is mapped at the handle's addresses before the swap, and after it with the
    /// spare.
    pub(crate) fn mapped(&self, spare: Handle) -> [Option<Handle>; 2] {
        [self.handle.has_mapping().then_some(self.handle.raw), (!self.unmaps).then_some(spare)]
    }

    /// Is the spare filled at the handle's own addresses? Nothing is mapped there.
    pub(crate) fn fills_in_place(&self) -> bool {
        self.to == Tier::Device && !self.handle.has_mapping()
    }

    /// Where the bytes of an address of the handle are read.
    pub(crate) fn source(&self, address: u64) -> u64 {
        self.handle.unmapped.map_or(address, |base| base + (address - self.handle.range.start))
    }

    /// Bytes to copy.
    pub(crate) fn copied(&self) -> u64 {
        self.parts.iter().map(|part| part.end - part.start).sum()
    }

    /// The ranges that the spare has.
    pub(crate) fn clean(&self) -> Vec<Range<u64>> {
        self.parts.iter().fold(self.occupied.clone(), without)
    }

    /// The spare does not have a range that it was to have.
    pub(crate) fn copy_too(&mut self, range: Range<u64>) {
        let at = self.parts.partition_point(|part| part.start < range.start);
        self.parts.insert(at, range);
    }

    /// Which way its copies go.
    pub(crate) fn way(&self) -> LinkWay {
        way(self.to)
    }

    /// Does the spare stay mapped where it was filled?
    pub(crate) fn stays_staged(&self) -> bool {
        self.to != Tier::Device && !self.is_away
    }

    /// The extent in which the spare is filled otherwise.
    pub(crate) fn scratch(&self) -> Build {
        Build { parts: vec![self.part()], gap: 0 }
    }

    /// The spare, to be mapped.
    pub(crate) fn part(&self) -> ExtentPart {
        let (tier, bytes) = (self.to, self.handle.bytes());
        let new = ExtentPart::New { tier, bytes };
        let existing = |taken: &TakenHandle| ExtentPart::Existing { handle: taken.raw, bytes };
        self.spare.as_ref().map_or(new, existing)
    }
}

impl State {
    /// The addresses of the handle that a live block lies on, and its tier.
    pub(crate) fn occupied_range(&self, address: u64) -> Option<(Range<u64>, Tier)> {
        self.holdings.ledger.occupied_handle(address).map(|handle| (handle.range, handle.tier))
    }

    /// Chooses the spare that the handle at an address gets, and takes it. Nothing changes where
    /// the handle stays. `own` moves of the caller's are under way.
    pub(crate) fn draft_swap(
        &mut self,
        address: u64,
        order: &MoveOrder,
        own: usize,
        room: Option<Room>,
        rules: &Rules,
        taken: &TakenFingerprints,
    ) -> Result<Swap, MoveRefusal> {
        if self.fixed {
            return Err(MoveRefusal::Fixed);
        }
        if !self.under_way.is_none_but(own) {
            return Err(MoveRefusal::Busy);
        }
        let handle = self.occupied_handle(address)?;
        if handle.away {
            return Err(MoveRefusal::Unfit);
        }
        let parts = self.holdings.ledger.occupied_parts(&handle.range);
        if handle.foreign && !order.unshares
            || order.alone && !parts.iter().all(|part| contains(&order.range, part))
        {
            return Err(MoveRefusal::Shared);
        }
        let parts = if order.discards { without(parts, &order.range) } else { parts };
        self.may_change(&handle, order.to, false)?;
        let mut swap = self.begin_swap(handle, order.to, parts, room, rules, taken)?;
        swap.unmaps = order.unmaps && order.to == Tier::Host;
        if let (true, Some(spare)) = (swap.unmaps, &swap.spare) {
            // What is mapped nowhere else counts as mapped nowhere.
            swap.unmap_first.extend(self.holdings.ledger.detach_everywhere(spare.key));
        }
        Ok(swap)
    }

    /// Takes the spare of a handle that [may change](State::may_change), of which `parts` are to be
    /// copied.
    pub(super) fn begin_swap(
        &mut self,
        handle: OccupiedHandle,
        to: Tier,
        parts: Vec<Range<u64>>,
        room: Option<Room>,
        rules: &Rules,
        taken: &TakenFingerprints,
    ) -> Result<Swap, MoveRefusal> {
        if !handle.has_mapping() && self.holdings.is_left_mapped_at(&handle.places()) {
            return Err(MoveRefusal::InUse);
        }
        let chosen = spare(&self.facts(), &handle, to, room, rules)?;
        let occupied = joined(parts);
        let parts = match chosen {
            Spare::Idle(key) => joined(self.not_in_copy(&handle, key, &occupied, taken)),
            Spare::New => occupied.clone(),
        };
        let (spare, unmap_first) = match chosen {
            Spare::Idle(key) => {
                let ledger = &mut self.holdings.ledger;
                let taken = ledger.take_for_plan(key).ok_or(MoveRefusal::Busy)?;
                // A piece's memory is mapped where the program has it mapped, and nowhere else.
                let adopted = handle.adopted;
                let steps = if adopted { ledger.detach_everywhere(key) } else { ledger.detach(&handle, key) };
                (Some(taken), steps)
            }
            Spare::New => {
                self.holdings.plan(&only(to, handle.bytes()));
                (None, Vec::new())
            }
        };
        self.holdings.ledger.hold(handle.key, true);
        self.under_way.begin_move();
        Ok(Swap { handle, to, spare, is_away: false, unmaps: false, occupied, parts, unmap_first })
    }

    /// Nothing is in the way of other memory for a handle. `is_for_write`: it is shared, and this
    /// process is about to write it. No other device was given its place then, and a graph that
    /// names it has it on the device as before.
    pub(super) fn may_change(
        &mut self,
        handle: &OccupiedHandle,
        to: Tier,
        is_for_write: bool,
    ) -> Result<(), MoveRefusal> {
        if handle.adopted && matches!(to, Tier::Peer(_)) {
            return Err(MoveRefusal::Unfit);
        }
        match self.stay_in(&handle.range) {
            Some(Stay::OnDevice) if to != Tier::Device => return Err(MoveRefusal::Pinned),
            Some(Stay::InPlace) if !is_for_write => return Err(MoveRefusal::InPlace),
            _ => {}
        }
        let stays_on_device = is_for_write && to == Tier::Device;
        if !stays_on_device && self.in_graphs.overlaps(&handle.range) {
            return Err(MoveRefusal::InGraph);
        }
        if self.unified.may_be_on_cpu(&handle.range) {
            return Err(MoveRefusal::OnCpu);
        }
        // A handle that is held moves already: two ranges of a swap may name it.
        if self.holdings.ledger.is_held(handle.key)
            || !self.timeline.all_past(&self.holdings.ledger.touching_occupied(handle))
        {
            return Err(MoveRefusal::InUse);
        }
        Ok(())
    }

    /// The ranges of `parts` of a handle that its spare does not have yet.
    fn not_in_copy(
        &self,
        handle: &OccupiedHandle,
        spare: HandleKey,
        parts: &[Range<u64>],
        taken: &TakenFingerprints,
    ) -> Vec<Range<u64>> {
        let own = self.holdings.ledger.handles().kept().of(handle.key).filter(|(own, _)| *own == spare);
        let Some((copy, now)) = own.and_then(|(_, copy)| Some((copy, taken.get(&copy.number)?))) else {
            return parts.to_vec();
        };
        let begin = handle.range.start;
        let moved = |part: &Range<u64>, by: u64| part.start.wrapping_add(by)..part.end.wrapping_add(by);
        let within: Vec<_> = parts.iter().map(|part| moved(part, begin.wrapping_neg())).collect();
        copy.stale(&within, now).iter().map(|part| moved(part, begin)).collect()
    }

    /// How the live blocks in a range stay.
    pub(crate) fn stay_in(&mut self, range: &Range<u64>) -> Option<Stay> {
        let directory = self.program.directory();
        let live = |address, id| directory.look_up(address).filter(|block| block.id == id);
        self.staying.within(range, |address, id| live(address, id).map(|block| address + block.tiers.total()))
    }

    /// The live blocks of which bytes lie in a range stay where they are.
    pub(crate) fn keep_in_place(&mut self, range: &Range<u64>) {
        for block in self.program.blocks().within(range) {
            if let Some(live) = self.program.directory().look_up(block.address) {
                self.staying.insert(live.address, live.id, Stay::InPlace);
            }
        }
    }

    /// The handle at an address. The blocks of it in the free cache become free first: they are not
    /// worth a copy.
    pub(super) fn occupied_handle(&mut self, address: u64) -> Result<OccupiedHandle, MoveRefusal> {
        let handle = self.holdings.ledger.occupied_handle(address).ok_or(MoveRefusal::NoBlock)?;
        if !self.program.has_cached(&handle.range) {
            return Ok(handle);
        }
        self.flush(FlushScope::All);
        self.holdings.ledger.occupied_handle(address).ok_or(MoveRefusal::NoBlock)
    }

    /// The spare, which was filled at `base`, has the handle's bytes, and is mapped wherever the
    /// handle was. The second value is the step that gives up the memory that other processes use
    /// too.
    pub(crate) fn commit_swap(&mut self, swap: &Swap, made: Handle, base: u64) -> (Moved, Option<Undo>) {
        let (range, bytes) = (&swap.handle.range, swap.handle.bytes());
        // A cached block would be given out with its part elsewhere, although the device may have
        // room.
        if !swap.handle.foreign && self.program.has_cached(range) {
            self.flush(FlushScope::All);
        }
        let ledger = &mut self.holdings.ledger;
        let spare = match &swap.spare {
            Some(taken) => taken.key,
            None => {
                let key = ledger.insert_handle(made, swap.to, bytes);
                ledger.hold(key, true);
                self.holdings.made(&only(swap.to, bytes));
                key
            }
        };
        if swap.stays_staged() {
            self.holdings.ledger.stage(spare, Some(base));
        }
        let former = self.holdings.ledger.swap(swap.handle.key, spare);
        let former = self.commit_away(swap, former);
        self.holdings.ledger.set_unmapped(swap.handle.key, swap.unmaps);
        if let (FormerMemory::Idle(idle), Tier::Host, Tier::Device) = (former, swap.handle.tier, swap.to) {
            let within = swap.parts.iter().map(|part| part.start - range.start..part.end - range.start);
            self.holdings.ledger.keep(idle, swap.handle.key, within.collect());
        }
        if swap.handle.tier != swap.to {
            self.program.move_to(range, [swap.handle.tier, swap.to]);
        }
        match (swap.handle.adopted, swap.handle.foreign) {
            (true, true) => self.count_private_piece(range.start, bytes, swap.to),
            (true, false) if swap.handle.tier != swap.to => {
                self.count_moved_piece(range.start, bytes, [swap.handle.tier, swap.to]);
            }
            _ => {}
        }
        self.let_go(swap.handle.key);
        let copied = swap.copied();
        let occupied: u64 = swap.occupied.iter().map(|part| part.end - part.start).sum();
        let clean = occupied.saturating_sub(copied);
        self.count_away(swap);
        let foreign = match former {
            FormerMemory::Foreign(raw) => Some(give_up(raw)),
            FormerMemory::Idle(_) | FormerMemory::None => None,
        };
        (Moved { address: range.start, bytes, copied, clean }, foreign)
    }

    pub(super) fn let_go(&mut self, key: HandleKey) {
        self.holdings.ledger.hold(key, false);
        self.under_way.end_move();
    }

    /// The move was not made. Its steps were undone, except those given.
    pub(crate) fn roll_back_swap(&mut self, swap: &Swap, not_undone: Vec<Undo>) {
        match &swap.spare {
            Some(taken) => self.holdings.ledger.put_back(taken),
            None => self.holdings.drop_plan(&only(swap.to, swap.handle.bytes())),
        }
        self.let_go(swap.handle.key);
        self.quarantine_uncommitted(not_undone);
    }

    /// The end of the copies into these spares is unknown. Until then no request gets a spare, and
    /// nothing is unmapped that the copies read or write. All of them have one point and one fence:
    /// copies of two ways end in any order, and a point that is past tells that all before it are.
    /// Returns a fence that is given up for that one; its events are to be recycled.
    #[must_use]
    pub(crate) fn strand_swaps(&mut self, swaps: Vec<StrandedSwap>) -> Option<Arc<Fence>> {
        let Numbered { number, life, .. } = self.timeline.freed(Order::Device, 0, true);
        let mut events = Vec::new();
        for StrandedSwap { swap, copies, undo } in swaps {
            events.extend(copies);
            self.strand_swap(&swap, undo, (Order::Device, number));
        }
        let fence = Fence { events, order: Order::Device, upto: number, exact: true, life };
        self.timeline.add_fence(&Arc::new(fence))
    }

    /// `steps` are taken once the point is past. Other mappings of the spare are unmapped when
    /// memory is next given back, behind the steps that failed before: a reservation may go with it
    /// in which one of them left a mapping.
    fn strand_swap(&mut self, swap: &Swap, mut steps: Vec<Undo>, until: Point) {
        match &swap.spare {
            Some(taken) => {
                let mut spare = Steps::default();
                self.holdings.ledger.put_back(taken);
                let staging = self.holdings.ledger.stage(taken.key, None);
                steps.extend(
                    staging.into_iter().flat_map(|at| Undo::of_lone_mapping(at, taken.bytes, taken.raw)),
                );
                self.holdings.ledger.take_handle(taken.key, &mut spare);
                steps.append(&mut spare.release);
                self.holdings.quarantine(spare.in_order());
            }
            None => {
                self.holdings.drop_plan(&only(swap.to, swap.handle.bytes()));
                self.holdings.hold(&steps);
            }
        }
        self.holdings.ledger.note_use(&swap.handle, until);
        self.holdings.strand(until, steps);
        self.let_go(swap.handle.key);
    }
}

/// The step that gives up this process's part in memory of others.
fn give_up(raw: Handle) -> Undo {
    Undo::Release { handle: raw, tier: Tier::Device, bytes: 0 }
}

fn contains(outer: &Range<u64>, inner: &Range<u64>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// The sections of the parts outside a range.
pub(super) fn without(parts: Vec<Range<u64>>, range: &Range<u64>) -> Vec<Range<u64>> {
    let sides =
        |part: Range<u64>| [part.start..part.end.min(range.start), part.start.max(range.end)..part.end];
    parts.into_iter().flat_map(sides).filter(|part| part.start < part.end).collect()
}

fn joined(parts: Vec<Range<u64>>) -> Vec<Range<u64>> {
    match (parts.first(), parts.last()) {
        (Some(first), Some(last)) if parts.len() > COPIES => std::iter::once(first.start..last.end).collect(),
        _ => parts,
    }
}
