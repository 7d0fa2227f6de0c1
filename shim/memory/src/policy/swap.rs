//! Where the memory comes from that a handle gets which moves, or is shared no more: an idle handle
//! of its size, or a new one.

use wm_driver::{OomAnswer, Tier};

use crate::books::ledger::{HandleKey, OccupiedHandle};
use crate::policy::attempt::{Attempt, Room};
use crate::policy::facts::Facts;
use crate::policy::recipe::allowance;
use crate::vocabulary::moves::MoveRefusal;
use crate::vocabulary::order::Order;
use crate::vocabulary::request::Request;
use crate::vocabulary::settings::Rules;

/// Memory for a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spare {
    /// A handle without a block, which nothing touches.
    Idle(HandleKey),
    /// A handle to be made.
    New,
}

/// Memory on `to` for a handle. Its own kept copy comes first, because what is clean of it need not
/// be copied. Then an idle handle without the bytes of another one: one of the host's takes long to
/// make, and the one that a swap leaves behind serves the next. Kept copies of others come last,
/// the newest first, behind new memory: where a program uses its memory in turns, the oldest ones
/// are those that it comes to next. `room` is `None` where it was not asked for yet; then a
/// choice that depends on it is [`MoveRefusal::Full`].
pub(crate) fn spare(
    facts: &Facts<'_>,
    handle: &OccupiedHandle,
    to: Tier,
    room: Option<Room>,
    rules: &Rules,
) -> Result<Spare, MoveRefusal> {
    let allowed = to == Tier::Device || rules.settings.overflow.contains(&to);
    // A move may change only one of the words that a reader of the directory sees. That is enough
    // where one end is the device.
    let one_end = to == Tier::Device || handle.tier == Tier::Device;
    if handle.tier == to && !handle.foreign || !allowed || !one_end {
        return Err(MoveRefusal::Unfit);
    }
    let handles = facts.ledger.handles();
    let is_past = |key: &HandleKey| facts.timeline.all_past(&facts.ledger.touching_handle(*key));
    let fits = |key: &HandleKey| {
        handles.get(*key).is_some_and(|idle| (idle.tier, idle.bytes) == (to, handle.bytes()))
    };
    // It comes to be mapped wherever either was, and an extent must not have one handle twice:
    // where they meet, the idle one is unmapped first.
    let is_apart = |key: &HandleKey| !facts.ledger.meets(handle, *key);
    let own = handles.kept().of(handle.key).map(|(own, _)| own).filter(fits).filter(is_past);
    let others = || handles.idle_without_copies(to, handle.bytes()).filter(is_past);
    if let Some(key) = own.or_else(|| others().find(is_apart)).or_else(|| others().next()) {
        return Ok(Spare::Idle(key));
    }
    let room = room.ok_or(MoveRefusal::Full)?;
    if may_make(facts, room, rules, (to, handle.bytes())) {
        return Ok(Spare::New);
    }
    let copies = handles.kept().by_age().rev();
    copies.filter(fits).find(is_past).map(Spare::Idle).ok_or(MoveRefusal::Full)
}

/// Is there room for a handle of so many bytes on a tier? All of the limit counts: what had it
/// before a pause has it again, and the placer leaves room to small memory.
pub(crate) fn may_make(facts: &Facts<'_>, room: Room, rules: &Rules, (tier, bytes): (Tier, u64)) -> bool {
    Request::new(bytes as usize, Order::Device).is_some_and(|request| {
        // As a request that can lie nowhere else, which leaves no room.
        let oom_answer = Some(OomAnswer::Fail);
        let attempt = Attempt { room: Some(room), oom_answer, ..Attempt::new(request) };
        allowance(facts, &attempt, rules, tier) >= bytes
    })
}
