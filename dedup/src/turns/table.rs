//! All members and their asks.
//!
//! Invariants:
//! * Asks are served in the order in which they came. Two are served at once only if their members
//!   share no GPU, so none waits for one that waits for it.
//! * A member gives way only for bytes that a GPU lacks, and no two members for the same ones.
//! * A member whose ask is being served does not give way for another one on its GPUs.
//! * Each wait for a member has an end ([`TurnTable::next_due`]), whatever it does.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::ask::{Ask, AskService, Giver, ToldRoom};
use super::member::{Member, MemberNumber};
use super::message::{GpuId, TurnOrder, TurnPhase, TurnReport, TurnTask};

/// The state. Times are since any moment, the same one for all.
#[derive(Debug, Default)]
pub struct TurnTable {
    members: BTreeMap<MemberNumber, Member>,
    /// The oldest first; one for each member at most.
    asks: Vec<Ask>,
    last: u64,
}

impl TurnTable {
    /// A new member.
    pub fn join(&mut self, now: Duration) -> MemberNumber {
        self.last += 1;
        let number = MemberNumber(self.last);
        self.members.insert(number, Member::new(now));
        number
    }

    /// Members that are connected.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// A member is gone, and its memory is free. An unknown one has no effect.
    pub fn gone(&mut self, number: MemberNumber, now: Duration) {
        let Some(gone) = self.members.remove(&number) else { return };
        self.end_ask(number, now);
        let present = || gone.report.gpus.iter().map(|gpu| (gpu.gpu, gpu.present));
        for service in self.asks.iter_mut().filter_map(|ask| ask.service.as_mut()) {
            service.ended(number, present());
        }
        for member in self.members.values_mut() {
            let report = &member.report;
            let is_short = report.gpus.iter().any(|gpu| gpu.missing > 0 && gone.present(&gpu.gpu) > 0);
            if is_short && report.ask == 0 && report.phase == TurnPhase::Running {
                member.order(TurnTask::Come { ask: 0, is_last: true }, now);
            }
        }
        self.advance(now);
    }

    /// A member has spoken. An unknown one has no effect.
    pub fn report(&mut self, number: MemberNumber, report: TurnReport, now: Duration) {
        let Some(member) = self.members.get_mut(&number) else { return };
        let asked = report.ask;
        member.hears(report, now);
        let report = &member.report;
        let givers = self.asks.iter_mut().filter_map(|ask| ask.service.as_mut()?.givers.get_mut(&number));
        for giver in givers {
            let was_over = giver.is_over;
            giver.note(report);
            if giver.is_over && !was_over {
                member.turn_until = Duration::ZERO;
            }
        }
        self.asks_now(number, asked, now);
        self.advance(now);
        if let Some(member) = self.members.get_mut(&number).filter(|_| asked > 0) {
            member.assure(now);
        }
    }

    /// The time has come to look at members that say nothing, or take too long.
    pub fn tick(&mut self, now: Duration) {
        let silent = self.waited_for().filter(|(_, due)| *due <= now).map(|(number, _)| number);
        for number in silent.collect::<BTreeSet<_>>() {
            self.give_up(number, now);
        }
        for service in self.asks.iter_mut().filter_map(|ask| ask.service.as_mut()) {
            service
                .givers
                .values_mut()
                .filter(|giver| giver.due <= now)
                .for_each(|giver| giver.is_over = true);
        }
        let late =
            self.asks.iter().filter(|ask| ask.late_at().is_some_and(|at| at <= now)).map(|ask| ask.member);
        for number in late.collect::<Vec<_>>() {
            self.end_ask(number, now);
        }
        self.advance(now);
    }

    /// When [`TurnTable::tick`] is to be called at the latest, unless something happens before.
    pub fn next_due(&self) -> Option<Duration> {
        let services = || self.asks.iter().filter_map(|ask| ask.service.as_ref());
        let givers = services().flat_map(|service| service.givers.values());
        let givers = givers.filter(|giver| !giver.is_over).map(|giver| giver.due);
        let asks = self.asks.iter().filter_map(Ask::late_at);
        self.waited_for().map(|(_, due)| due).chain(givers).chain(asks).min()
    }

    /// Has a member orders that were not taken?
    pub fn has_order(&self, number: MemberNumber) -> bool {
        self.members.get(&number).is_some_and(Member::has_order)
    }

    /// The next order to send.
    pub fn take_order(&mut self, number: MemberNumber) -> Option<TurnOrder> {
        self.members.get_mut(&number)?.take_order()
    }

    /// Members that have to speak, and until when.
    fn waited_for(&self) -> impl Iterator<Item = (MemberNumber, Duration)> + '_ {
        let open = self.members.iter().filter_map(|(number, member)| {
            let open = member.open.filter(|_| !member.is_silent)?;
            Some((*number, member.silent_at(open.since)))
        });
        let asking = self.asks.iter().filter_map(|ask| {
            let service = ask.service.as_ref()?;
            Some((ask.member, self.members.get(&ask.member)?.silent_at(service.told_at)))
        });
        open.chain(asking)
    }

    /// A member says nothing: no other one waits for it.
    fn give_up(&mut self, number: MemberNumber, now: Duration) {
        if let Some(member) = self.members.get_mut(&number) {
            (member.is_silent, member.open) = (true, None);
        }
        for service in self.asks.iter_mut().filter_map(|ask| ask.service.as_mut()) {
            service.givers.get_mut(&number).into_iter().for_each(|giver| giver.is_over = true);
        }
        self.end_ask(number, now);
    }

    /// A member's ask is that of its report.
    fn asks_now(&mut self, number: MemberNumber, asked: u64, now: Duration) {
        let known = self.asks.iter().find(|ask| ask.member == number).map(|ask| ask.number);
        if known == Some(asked) {
            return;
        }
        if known.is_some() {
            self.end_ask(number, now);
        }
        if asked > 0 {
            self.asks.push(Ask { member: number, number: asked, service: None });
        }
    }

    /// An ask is over: the member's turn begins, and others need not give way for it.
    fn end_ask(&mut self, number: MemberNumber, now: Duration) {
        let Some(at) = self.asks.iter().position(|ask| ask.member == number) else { return };
        let Some(service) = self.asks.remove(at).service else { return };
        if let Some(member) = self.members.get_mut(&number) {
            let cost = service.cost().max(member.report.moved);
            member.begin_turn(cost, now);
        }
        for (giver, of) in service.givers.iter().filter(|(_, of)| !of.is_over) {
            let member = self.members.get_mut(giver);
            if let Some(member) =
                member.filter(|member| member.open.is_some_and(|open| open.number == of.order))
            {
                member.order(TurnTask::Stay, now);
            }
        }
    }

    /// All that can be done now.
    fn advance(&mut self, now: Duration) {
        let mut taken = BTreeSet::new();
        for at in 0..self.asks.len() {
            let Some(member) = self.members.get(&self.asks[at].member) else { continue };
            let gpus: Vec<GpuId> = member.gpus().collect();
            let is_next = gpus.iter().all(|gpu| !taken.contains(gpu));
            taken.extend(gpus);
            if is_next {
                self.serve(at, now);
            }
        }
    }

    /// Finds givers for an ask, and tells its member how much room there is.
    fn serve(&mut self, at: usize, now: Duration) {
        let ask = &mut self.asks[at];
        let Some(asking) = self.members.get_mut(&ask.member) else { return };
        if ask.service.is_none() {
            // What was free when it asked may be another's now, and it may be giving way itself.
            let is_leaving = asking.open.is_some() || asking.report.phase == TurnPhase::Leaving;
            if is_leaving || !asking.is_fresh(now) {
                asking.question(now);
                return;
            }
            ask.service = Some(AskService::begin(&asking.report, now));
        }
        if ask.service.as_ref().is_some_and(AskService::is_last) {
            return;
        }
        let is_last = self.find_givers(at, now) && self.is_short(at) && self.begin_round(at, now);
        self.tell_room(at, is_last, now);
    }

    /// Has the asking member taken all that others give, and lacks more?
    fn is_short(&self, at: usize) -> bool {
        let ask = &self.asks[at];
        let (Some(service), Some(asking)) = (&ask.service, self.members.get(&ask.member)) else {
            return false;
        };
        service.are_givers_over() && service.is_short(&asking.report)
    }

    /// Finds givers for what is still lacking. `true`: no more is given.
    fn begin_round(&mut self, at: usize, now: Duration) -> bool {
        let ask = &mut self.asks[at];
        let (Some(service), Some(asking)) = (&mut ask.service, self.members.get(&ask.member)) else {
            return true;
        };
        if !service.begin_round(&asking.report) {
            return true;
        }
        let is_settled = self.find_givers(at, now);
        is_settled && self.asks[at].service.as_ref().is_none_or(AskService::are_givers_over)
    }

    /// Tells the asking member of more room, or that there will be none.
    fn tell_room(&mut self, at: usize, is_last: bool, now: Duration) {
        let ask = &mut self.asks[at];
        let (Some(service), Some(asking)) = (&mut ask.service, self.members.get_mut(&ask.member)) else {
            return;
        };
        let told = ToldRoom { given: service.given(), is_last };
        if service.told != Some(told) {
            (service.told, service.told_at) = (Some(told), now);
            service.come = asking.order(TurnTask::Come { ask: ask.number, is_last }, now);
        }
    }

    /// Lets members give way until what is missing is promised. `false`: a member has to speak
    /// before it is known which.
    fn find_givers(&mut self, at: usize, now: Duration) -> bool {
        let Ask { member: asking, service: Some(service), .. } = &mut self.asks[at] else { return true };
        let mut short = service.short();
        if short.is_empty() {
            return true;
        }
        let may_give = |number: &MemberNumber, member: &Member| {
            let is_there = member.gpus().any(|gpu| short.contains_key(&gpu));
            number != asking && is_there && !member.is_silent && !service.givers.contains_key(number)
        };
        let candidates = self.members.iter().filter(|(number, member)| may_give(number, member));
        let candidates: Vec<MemberNumber> = candidates.map(|(number, _)| *number).collect();
        self.question(at, &candidates, now);
        // One that has another order may be about to leave.
        let is_open =
            |number: &MemberNumber| self.members.get(number).is_some_and(|member| member.open.is_some());
        if candidates.iter().any(is_open) {
            return false;
        }
        let mut candidates = candidates;
        candidates.sort_by_key(|number| Reverse(self.members.get(number).map(|member| member.idle(now))));
        for number in candidates {
            if short.is_empty() {
                break;
            }
            self.let_give(at, number, &mut short, now);
        }
        true
    }

    /// Asks members for a report that have not spoken just now.
    fn question(&mut self, at: usize, candidates: &[MemberNumber], now: Duration) {
        let Some(service) = &mut self.asks[at].service else { return };
        for number in candidates {
            let Some(member) = self.members.get_mut(number) else { continue };
            if !member.is_fresh(now) && service.questioned.insert(*number) {
                member.question(now);
            }
        }
    }

    /// A member gives what it has of what is short.
    fn let_give(&mut self, at: usize, number: MemberNumber, short: &mut BTreeMap<GpuId, u64>, now: Duration) {
        let (Some(service), Some(member)) = (&mut self.asks[at].service, self.members.get_mut(&number))
        else {
            return;
        };
        let mut promised = BTreeMap::new();
        for (gpu, lacks) in &mut *short {
            let bytes = member.present(gpu).min(*lacks);
            *lacks -= bytes;
            if bytes > 0 {
                promised.insert(*gpu, bytes);
            }
        }
        short.retain(|_, lacks| *lacks > 0);
        if promised.is_empty() {
            return;
        }
        let after = member.rest(now);
        let bytes = promised.iter().map(|(gpu, bytes)| (*gpu, *bytes)).collect();
        let order = member.order(TurnTask::GiveWay { after, bytes }, now);
        service.givers.insert(number, Giver::new(order, promised, after, now));
    }
}
