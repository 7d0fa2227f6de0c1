//! Joints: an extent for one block that is made of what other blocks leave free at the end of one handle, of idle
//! handles, and of what is free at the beginning of another.
//!
//! ```text
//! handle A   [ block ][ block ][ free ]          handle B   [ free ][ block ]
//! joint      [ A ....................free ][ free .... B ]
//!                                 [ the new block ]
//! ```
//! Mapping two handles side by side is dear beside a cut of a free run, and cheap beside having no memory: so joints are
//! made where the device is full, and only there. Neither handle is idle meanwhile, and both are active where they were:
//! `ledger/loans.rs` keeps the books. A joint that its block has left is an idle view as any stitched extent, and serves again
//! where the same ends are free again.

use wm_driver::{Handle, Tier};

use crate::books::ledger::{Key, Run, Stretch};
use crate::policy::attempt::Attempt;
use crate::state::decide::Decision;
use crate::state::{Grant, State};
use crate::vocabulary::order::Pending;
use crate::vocabulary::plan::{Build, Built, Failure, Part, Undo};
use crate::vocabulary::request::Request;
use crate::vocabulary::sizes::{Class, JOINT_VISITS};
use crate::vocabulary::tiers::TierBytes;

/// A joint under way: its bytes are lent to it.
#[derive(Debug)]
pub(crate) struct Joint {
    row: Vec<(Key, Handle, u64)>,
    /// Where the block begins in it.
    lead: u64,
    stretches: Vec<Stretch>,
    tiers: TierBytes,
    pending: Pending,
    epoch: u64,
}

impl Joint {
    pub(crate) fn build(&self) -> Build {
        let part =
            |(_, handle, bytes): &(Key, Handle, u64)| Part::Existing { handle: *handle, bytes: *bytes };
        Build { parts: self.row.iter().map(part).collect(), gap: 0 }
    }
}

/// What is free at one end of a handle.
#[derive(Debug, Clone, Copy)]
struct End {
    key: Key,
    bytes: u64,
}

impl End {
    /// `None` where nothing is free.
    fn of(key: Key, bytes: u64) -> Option<Self> {
        (bytes > 0).then_some(Self { key, bytes })
    }
}

/// A tail and a head that lie side by side in a joint, or one of them alone.
type Pair = (Option<End>, Option<End>);

/// The free ends of handles that are used in part.
#[derive(Debug, Default)]
struct Ends {
    tails: Vec<End>,
    heads: Vec<End>,
}

impl State {
    /// A block from the free ends of handles: in a joint that exists, or in a new one.
    pub(crate) fn join(&mut self, attempt: &Attempt) -> Option<Decision> {
        if attempt.request.class == Class::Guarded {
            return None;
        }
        self.rejoin(attempt).or_else(|| self.join_anew(attempt))
    }

    /// A joint without a block whose handles have enough free at the right ends: no driver call.
    fn rejoin(&mut self, attempt: &Attempt) -> Option<Decision> {
        let bytes = attempt.request.bytes;
        let joints = self.ledger.extents.unused(Class::Joint, bytes).take(JOINT_VISITS);
        let (address, stretches) = joints.filter_map(|base| self.room_in(attempt, base)).next()?;
        let (tiers, pending) = self.ledger.lend(&stretches);
        self.ledger.hand_over(&stretches, address);
        self.counters.reuses += 1;
        Some(Decision::Grant(self.set_aside(address, &attempt.request, tiers, pending)))
    }

    /// Where the request's block could lie in a joint, and where its bytes are booked.
    fn room_in(&self, attempt: &Attempt, base: u64) -> Option<(u64, Vec<Stretch>)> {
        let (extents, memories) = (&self.ledger.extents, &self.ledger.memories);
        let range = extents.range(base)?;
        let row: Vec<Key> = extents.mappings(range.clone()).map(|(_, mapping)| mapping.key).collect();
        let length = |keys: &[Key]| keys.iter().map(|key| memories.bytes(*key)).sum::<u64>();
        let [first, between @ .., last] = &row[..] else { return None };
        let whole = length(&row) == range.end - range.start;
        if !whole || !between.iter().all(|key| self.can_take(attempt, *key)) {
            return None;
        }
        let (tail, head) = (self.free_tail(attempt, *first), self.free_head(attempt, *last));
        let (lead, bytes) = (memories.bytes(*first) - tail, attempt.request.bytes);
        let enough = tail + length(between) + head >= bytes;
        Some((base + lead, self.ledger.booked(&row, lead, bytes).filter(|_| enough)?))
    }

    /// Bytes that are free for the request at a handle's end.
    fn free_tail(&self, attempt: &Attempt, key: Key) -> u64 {
        let free = || {
            let memory = self.ledger.memories.get(key)?;
            let (start, end) = (memory.active?, memory.active? + memory.bytes);
            let (from, run) = self.ledger.runs.at(end - 1)?;
            let usable = |pending: &Pending| self.is_usable(attempt, pending);
            may_lend(attempt, run)
                .then(|| run.segments.usable_upto(end - from, usable).min(end - from.max(start)))
        };
        free().unwrap_or(0)
    }

    /// Bytes that are free for the request at a handle's beginning.
    fn free_head(&self, attempt: &Attempt, key: Key) -> u64 {
        let free = || {
            let memory = self.ledger.memories.get(key)?;
            let start = memory.active?;
            let (from, run) = self.ledger.runs.at(start)?;
            let usable = |pending: &Pending| self.is_usable(attempt, pending);
            may_lend(attempt, run).then(|| run.segments.usable_from(start - from, usable).min(memory.bytes))
        };
        free().unwrap_or(0)
    }

    fn join_anew(&mut self, attempt: &Attempt) -> Option<Decision> {
        let (row, lead) = self.row(attempt)?;
        let stretches = self.ledger.booked(&row, lead, attempt.request.bytes)?;
        let with_handle = |key| self.ledger.memories.get(key).map(|memory| (key, memory.raw, memory.bytes));
        let row = row.into_iter().map(with_handle).collect::<Option<Vec<_>>>()?;
        let (tiers, pending) = self.ledger.lend(&stretches);
        self.begin();
        Some(Decision::Join(Joint { row, lead, stretches, tiers, pending, epoch: self.epoch }))
    }

    /// The handles of a new joint, and where the block begins in it. Better long ends and one idle handle fewer: whole
    /// handles are what larger requests will want.
    fn row(&self, attempt: &Attempt) -> Option<(Vec<Key>, u64)> {
        let mut between = Vec::new();
        let missing = match attempt.request.class {
            Class::Large => self.gather(attempt, Tier::Device, attempt.request.bytes, 0, &mut between),
            _ => attempt.request.bytes,
        };
        let spared = between.pop();
        let long = spared.and_then(|key| self.ends(attempt, missing + self.ledger.memories.bytes(key)));
        between.extend(spared.filter(|_| long.is_none()));
        let (tail, head) = long.or_else(|| self.ends(attempt, missing))?;
        let lead = tail.map_or(0, |tail| self.ledger.memories.bytes(tail.key) - tail.bytes);
        let key = |end: Option<End>| end.map(|end| end.key);
        Some((key(tail).into_iter().chain(between).chain(key(head)).collect(), lead))
    }

    /// The free ends that make up `missing` bytes, as far as a look at the longest runs finds them.
    fn ends(&self, attempt: &Attempt, missing: u64) -> Option<Pair> {
        let mut ends = Ends::default();
        let mut longest = 0;
        let runs = self.ledger.runs.longest_first(attempt.request.class, Tier::Device);
        for (start, run) in runs.take(JOINT_VISITS) {
            longest = longest.max(run.bytes);
            if longest + run.bytes < missing {
                break;
            }
            if may_lend(attempt, run) {
                self.note_ends(attempt, start, run, &mut ends);
            }
        }
        ends.best(missing)
    }

    fn note_ends(&self, attempt: &Attempt, start: u64, run: &Run, ends: &mut Ends) {
        let (end, usable) = (start + run.bytes, |pending: &Pending| self.is_usable(attempt, pending));
        if let Some((from, to, key)) = self.ledger.extents.mapping_of(start)
            && from < start
            && to <= end
        {
            ends.tails.extend(End::of(key, run.segments.usable_upto(to - start, usable).min(to - start)));
        }
        if let Some((from, to, key)) = self.ledger.extents.mapping_of(end - 1)
            && start <= from
            && end < to
        {
            ends.heads.extend(End::of(key, run.segments.usable_from(from - start, usable)));
        }
    }

    /// The joint was made: its block is set aside in it. If the context went meanwhile, returns the steps that take it
    /// apart.
    pub(crate) fn commit_joint(
        &mut self,
        joint: Joint,
        built: Built,
        request: &Request,
    ) -> Result<Grant, Vec<Undo>> {
        self.end();
        if joint.epoch != self.epoch {
            return Err(built.undo);
        }
        let bytes = joint.row.iter().map(|(_, _, bytes)| bytes).sum();
        self.ledger.extents.insert(built.base, bytes, Class::Joint, true, false);
        let mut address = built.base;
        for (key, _, bytes) in &joint.row {
            self.ledger.map(*key, address);
            address += bytes;
        }
        self.counters.joints += 1;
        self.ledger.hand_over(&joint.stretches, built.base + joint.lead);
        Ok(self.set_aside(built.base + joint.lead, request, joint.tiers, joint.pending))
    }

    /// The joint could not be made: what was lent is free again.
    pub(crate) fn call_off(&mut self, joint: &Joint, failure: Failure) {
        self.end();
        self.counters.rollbacks += 1;
        if joint.epoch == self.epoch {
            self.ledger.call_in(&joint.stretches, &joint.pending);
        }
        self.strand_held(failure.stranded);
    }
}

fn may_lend(attempt: &Attempt, run: &Run) -> bool {
    run.class == attempt.request.class && run.tier == Tier::Device
}

impl Ends {
    /// The tail and the head, or the one of them, that are together at least `missing` bytes and as little more as can be.
    fn best(mut self, missing: u64) -> Option<Pair> {
        self.heads.sort_unstable_by_key(|end| end.bytes);
        let length = |end: Option<End>| end.map_or(0, |end| end.bytes);
        let partner = |tail: Option<End>| {
            let rest = missing.saturating_sub(length(tail));
            let fitting = &self.heads[self.heads.partition_point(|head| head.bytes < rest)..];
            let other = |head: &&End| tail.is_none_or(|tail| tail.key != head.key);
            if rest == 0 { Some(None) } else { fitting.iter().find(other).map(|head| Some(*head)) }
        };
        let tails = self.tails.iter().map(|tail| Some(*tail)).chain([None]);
        let pairs = tails.filter_map(|tail| Some((tail, partner(tail)?)));
        pairs.min_by_key(|(tail, head)| length(*tail) + length(*head))
    }
}
