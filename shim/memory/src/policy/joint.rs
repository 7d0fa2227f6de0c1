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

use wm_driver::Tier;

use crate::books::ledger::{HandleKey, Run, Stretch};
use crate::policy::attempt::Attempt;
use crate::policy::facts::Facts;
use crate::policy::recipe::gather;
use crate::vocabulary::order::Pending;
use crate::vocabulary::sizes::{Class, JOINT_VISITS};

/// What is free at one end of a handle.
#[derive(Debug, Clone, Copy)]
struct HandleEnd {
    key: HandleKey,
    bytes: u64,
}

impl HandleEnd {
    /// `None` where nothing is free.
    fn of(key: HandleKey, bytes: u64) -> Option<Self> {
        (bytes > 0).then_some(Self { key, bytes })
    }
}

/// A tail and a head that lie side by side in a joint, or one of them alone.
type Pair = (Option<HandleEnd>, Option<HandleEnd>);

/// The free ends of handles that are used in part.
#[derive(Debug, Default)]
struct Ends {
    tails: Vec<HandleEnd>,
    heads: Vec<HandleEnd>,
}

/// A joint without a block whose handles have enough free at the right ends: where the request's block begins in it, and
/// where its bytes are booked. No driver call.
pub(crate) fn existing(facts: &Facts<'_>, attempt: &Attempt) -> Option<(u64, Vec<Stretch>)> {
    let joints = facts.ledger.extents().unused(Class::Joint, attempt.request.bytes).take(JOINT_VISITS);
    joints.filter_map(|base| room_in(facts, attempt, base)).next()
}

/// Where the request's block could lie in a joint, and where its bytes are booked.
fn room_in(facts: &Facts<'_>, attempt: &Attempt, base: u64) -> Option<(u64, Vec<Stretch>)> {
    let (extents, handles) = (facts.ledger.extents(), facts.ledger.handles());
    let range = extents.range(base)?;
    let row: Vec<HandleKey> = extents.mappings(range.clone()).map(|(_, mapping)| mapping.key).collect();
    let length = |keys: &[HandleKey]| keys.iter().map(|key| handles.bytes(*key)).sum::<u64>();
    let [first, between @ .., last] = &row[..] else { return None };
    let whole = length(&row) == range.end - range.start;
    if !whole || !between.iter().all(|key| facts.can_take(attempt, *key)) {
        return None;
    }
    let (tail, head) = (free_tail(facts, attempt, *first), free_head(facts, attempt, *last));
    let (block_offset, bytes) = (handles.bytes(*first) - tail, attempt.request.bytes);
    let enough = tail + length(between) + head >= bytes;
    Some((base + block_offset, facts.ledger.where_booked(&row, block_offset, bytes).filter(|_| enough)?))
}

/// Bytes that are free for the request at a handle's end.
fn free_tail(facts: &Facts<'_>, attempt: &Attempt, key: HandleKey) -> u64 {
    let free = || {
        let memory = facts.ledger.handles().get(key)?;
        let (start, end) = (memory.active?, memory.active? + memory.bytes);
        let (from, run) = facts.ledger.runs().at(end - 1)?;
        let usable = |pending: &Pending| facts.is_usable(attempt, pending);
        may_lend(attempt, run)
            .then(|| run.segments.usable_upto(end - from, usable).min(end - from.max(start)))
    };
    free().unwrap_or(0)
}

/// Bytes that are free for the request at a handle's beginning.
fn free_head(facts: &Facts<'_>, attempt: &Attempt, key: HandleKey) -> u64 {
    let free = || {
        let memory = facts.ledger.handles().get(key)?;
        let start = memory.active?;
        let (from, run) = facts.ledger.runs().at(start)?;
        let usable = |pending: &Pending| facts.is_usable(attempt, pending);
        may_lend(attempt, run).then(|| run.segments.usable_from(start - from, usable).min(memory.bytes))
    };
    free().unwrap_or(0)
}

/// The handles of a new joint, and where the block begins in it. Better long ends and one idle handle fewer: whole
/// handles are what larger requests will want.
pub(crate) fn row(facts: &Facts<'_>, attempt: &Attempt) -> Option<(Vec<HandleKey>, u64)> {
    let mut between = Vec::new();
    let missing = match attempt.request.class {
        Class::Large => gather(facts, attempt, Tier::Device, attempt.request.bytes, 0, &mut between),
        _ => attempt.request.bytes,
    };
    let spared = between.pop();
    let long = spared.and_then(|key| ends(facts, attempt, missing + facts.ledger.handles().bytes(key)));
    between.extend(spared.filter(|_| long.is_none()));
    let (tail, head) = long.or_else(|| ends(facts, attempt, missing))?;
    let block_offset = tail.map_or(0, |tail| facts.ledger.handles().bytes(tail.key) - tail.bytes);
    let key = |end: Option<HandleEnd>| end.map(|end| end.key);
    Some((key(tail).into_iter().chain(between).chain(key(head)).collect(), block_offset))
}

/// The free ends that make up `missing` bytes, as far as a look at the longest runs finds them.
fn ends(facts: &Facts<'_>, attempt: &Attempt, missing: u64) -> Option<Pair> {
    let mut ends = Ends::default();
    let mut longest = 0;
    let runs = facts.ledger.runs().longest_first(attempt.request.class, Tier::Device);
    for (start, run) in runs.take(JOINT_VISITS) {
        longest = longest.max(run.bytes);
        if longest + run.bytes < missing {
            break;
        }
        if may_lend(attempt, run) {
            note_ends(facts, attempt, start, run, &mut ends);
        }
    }
    ends.best(missing)
}

fn note_ends(facts: &Facts<'_>, attempt: &Attempt, start: u64, run: &Run, ends: &mut Ends) {
    let (end, usable) = (start + run.bytes, |pending: &Pending| facts.is_usable(attempt, pending));
    if let Some((from, to, key)) = facts.ledger.extents().mapping_of(start)
        && from < start
        && to <= end
    {
        ends.tails.extend(HandleEnd::of(key, run.segments.usable_upto(to - start, usable).min(to - start)));
    }
    if let Some((from, to, key)) = facts.ledger.extents().mapping_of(end - 1)
        && start <= from
        && end < to
    {
        ends.heads.extend(HandleEnd::of(key, run.segments.usable_from(from - start, usable)));
    }
}

fn may_lend(attempt: &Attempt, run: &Run) -> bool {
    run.class == attempt.request.class && run.tier == Tier::Device
}

impl Ends {
    /// The tail and the head, or the one of them, that are together at least `missing` bytes and as little more as can be.
    fn best(mut self, missing: u64) -> Option<Pair> {
        self.heads.sort_unstable_by_key(|end| end.bytes);
        let length = |end: Option<HandleEnd>| end.map_or(0, |end| end.bytes);
        let partner = |tail: Option<HandleEnd>| {
            let rest = missing.saturating_sub(length(tail));
            let fitting = &self.heads[self.heads.partition_point(|head| head.bytes < rest)..];
            let other = |head: &&HandleEnd| tail.is_none_or(|tail| tail.key != head.key);
            if rest == 0 { Some(None) } else { fitting.iter().find(other).map(|head| Some(*head)) }
        };
        let tails = self.tails.iter().map(|tail| Some(*tail)).chain([None]);
        let pairs = tails.filter_map(|tail| Some((tail, partner(tail)?)));
        pairs.min_by_key(|(tail, head)| length(*tail) + length(*head))
    }
}
