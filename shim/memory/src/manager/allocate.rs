//! The way of a request that the free cache could not answer: decide, call the driver, note the
//! result, until the request is met.

use wm_abi::CUresult;
use wm_driver::thread::Uncancelled;
use wm_driver::{Gpu, OomAnswer, Tier};

use super::Manager;
use super::events::GrantError;
use super::host_budget::{HostPlan, HostPlans};
use crate::ordering::results::EventResults;
use crate::policy::attempt::{Attempt, HostFigure, Room};
use crate::state::decide::{Decision, Question};
use crate::state::draft::Draft;
use crate::state::grant::Grant;
use crate::sync::MutexGuard;
use crate::vocabulary::error::AllocateError;
use crate::vocabulary::moves::MoveRefusal;
use crate::vocabulary::plan::{BuildFailure, Undo};
use crate::vocabulary::request::Request;
use crate::vocabulary::sizes::headroom_for_small;

impl<G: Gpu> Manager<G> {
    /// Here one may sleep, for the GPU and for other threads, which acts upon a cancellation of the
    /// calling thread: a hit does not.
    pub(super) fn miss(&self, request: Request) -> Result<u64, AllocateError> {
        let _whole = Uncancelled::new();
        let may_be_held = self.gpu.may_be_held();
        let met = self.meet(Attempt { may_be_held, ..Attempt::new(request) });
        self.gpu.changed();
        met
    }

    fn meet(&self, mut attempt: Attempt) -> Result<u64, AllocateError> {
        loop {
            let met = match self.next(&mut attempt) {
                Decision::Met(address) => Some(address),
                Decision::Grant(grant) => self.make_usable(&mut attempt, grant)?,
                Decision::Build(draft) => self.construct(&mut attempt, draft)?,
                Decision::FindOut(question) => {
                    self.find_out(&mut attempt, question)?;
                    None
                }
                Decision::Full(shortage) => return Err(AllocateError::OutOfMemory(shortage)),
            };
            if let Some(address) = met {
                if attempt.oom_answer == Some(OomAnswer::Spill) {
                    self.gpu.overflowed();
                }
                return Ok(address);
            }
        }
    }

    /// The next thing to do. A grant for which no call has to be made is the program's already.
    fn next(&self, attempt: &mut Attempt) -> Decision {
        let mut plans = attempt.room.as_mut().and_then(|room| self.claim_host(room));
        let mut state = self.lock();
        let decision = state.decide(attempt, &self.rules);
        if let (Some(plans), Decision::Build(draft)) = (&mut plans, &decision) {
            plans.under_way += usize::from(draft.created_on(Tier::Host) > 0);
        }
        let Decision::Grant(grant) = decision else { return decision };
        if grant.needs.as_ref().is_none_or(|needs| !needs.is_empty()) {
            return Decision::Grant(grant);
        }
        state.confirm(&grant, &attempt.request);
        state.show();
        drop(state);
        self.waiters.notify();
        Decision::Met(grant.address)
    }

    /// Answers a question, in the attempt or in the timeline.
    fn find_out(&self, attempt: &mut Attempt, question: Question) -> Result<(), AllocateError> {
        match question {
            Question::Progress(queries) => self.run_queries(queries),
            Question::Wait(fences) => self.wait_for_one(attempt, fences),
            Question::Room => attempt.room = Some(self.room()?),
            Question::Host(figure) => attempt.room = attempt.room.map(|room| self.beside_host(room, figure)),
            Question::Caller => match self.gpu.oom_answer(attempt.request.shortfall()) {
                OomAnswer::Retry => {
                    attempt.start_over();
                    attempt.is_relieved = true;
                }
                known => attempt.oom_answer = Some(known),
            },
            Question::Busy(seen) => {
                drop(
                    self.wait_until(|state| {
                        state.under_way.generation() != seen || state.under_way.is_none()
                    }),
                );
                attempt.start_over();
            }
            Question::HostPlan(seen) => {
                drop(self.host_budget.wait(self.host_budget.lock(), seen));
                attempt.start_over();
            }
        }
        Ok(())
    }

    /// From here to the plan no other device takes of the host, where a limit binds them all: the
    /// limit that they leave is asked for under the lock.
    fn claim_host(&self, room: &mut Room) -> Option<MutexGuard<'_, HostPlans>> {
        if room.host_figure == HostFigure::Unasked || !self.is_host_limited() {
            return None;
        }
        let plans = self.host_budget.lock();
        (room.host_limit, room.host_plans) = (self.limit(Tier::Host), plans.awaited());
        Some(plans)
    }

    /// Makes granted memory usable for the request's order.
    fn make_usable(&self, attempt: &mut Attempt, grant: Grant) -> Result<Option<u64>, AllocateError> {
        let (results, error) = match &grant.needs {
            Some(needs) => self.order_behind_all(needs, attempt.request.order),
            None => (EventResults::default(), Some(GrantError::Lost)),
        };
        let mut state = self.lock();
        let told = state.note_results(&results, attempt.request.order);
        let met = match error {
            None => state.confirm(&grant, &attempt.request),
            Some(_) => state.withdraw(&grant),
        };
        state.show();
        drop(state);
        self.waiters.notify();
        self.recycle(results.into_iter().chain(told).chain(grant.needs.into_iter().flatten()));
        match error {
            None if met => Ok(Some(grant.address)),
            None => Err(CUresult::CONTEXT_IS_DESTROYED.into()),
            Some(error) => {
                attempt.note_error(error);
                Ok(None)
            }
        }
    }

    /// Makes an extent, and the request's block at its start.
    fn construct(&self, attempt: &mut Attempt, draft: Draft) -> Result<Option<u64>, AllocateError> {
        let is_counted = self.is_host_limited() && draft.created_on(Tier::Host) > 0;
        let _plan = is_counted.then(|| HostPlan(&self.host_budget));
        let built = match self.build(&draft.build()) {
            Ok(built) => built,
            Err(failure) => return self.fall_back(attempt, draft, failure),
        };
        let committed = self.lock().commit(&draft, built, &attempt.request);
        self.finish_commit(attempt, committed)
    }

    fn finish_commit(
        &self,
        attempt: &mut Attempt,
        committed: Result<Grant, Vec<Undo>>,
    ) -> Result<Option<u64>, AllocateError> {
        match committed {
            Ok(grant) => {
                let met = self.make_usable(attempt, grant);
                self.evict();
                met
            }
            Err(undo) => {
                let failed = self.dismantle(&undo);
                self.lock().quarantine_uncommitted(failed);
                self.show();
                self.waiters.notify();
                Err(CUresult::CONTEXT_IS_DESTROYED.into())
            }
        }
    }

    /// A plan failed and was undone. If a tier proved full, there may be another way.
    fn fall_back(
        &self,
        attempt: &mut Attempt,
        draft: Draft,
        failure: BuildFailure,
    ) -> Result<Option<u64>, AllocateError> {
        let (code, tier) = (failure.code, failure.tier);
        let wanted = tier.map_or(0, |tier| draft.created_on(tier));
        self.lock().roll_back(draft, failure);
        self.show();
        self.waiters.notify();
        match tier {
            Some(Tier::Device) if code != CUresult::OUT_OF_MEMORY => Err(code.into()),
            Some(tier @ Tier::Peer(_)) => {
                attempt.has_less(tier, wanted, self.rules.granularity);
                Ok(None)
            }
            Some(tier) => {
                attempt.full.push(tier);
                Ok(None)
            }
            None => Err(code.into()),
        }
    }

    /// How far blocks and pieces on the device may grow, without regard to the user's limit; the
    /// host was not asked. Memory that plans under way will make is not in the driver's figure yet.
    pub(super) fn room(&self) -> Result<Room, CUresult> {
        let (free, headroom) = (self.gpu.memory_info()?.0, self.rules.settings.headroom);
        let for_small = headroom_for_small(headroom, self.rules.granularity);
        let made = self.made_on(Tier::Device);
        let beside = |headroom: u64| made.saturating_add(free.saturating_sub(headroom));
        let host_limit = self.rules.settings.host_limit;
        let (device, device_for_small) = (beside(headroom), beside(for_small));
        Ok(Room { device, device_for_small, host_limit, ..Room::default() })
    }

    /// A draft of memory on a tier, by the room that is left there.
    pub(super) fn draft_on<T>(
        &self,
        tier: Tier,
        draft: impl FnOnce(Room) -> Result<T, MoveRefusal>,
    ) -> Result<T, MoveRefusal> {
        let mut room = self.room()?;
        if tier == Tier::Host {
            room = self.beside_host(room, HostFigure::Current);
        }
        let _plans = self.claim_host(&mut room);
        draft(room)
    }

    /// The same with the host's free memory. Where the user's limit leaves nothing, the host is not
    /// asked.
    fn beside_host(&self, room: Room, figure: HostFigure) -> Room {
        let host_limit = self.limit(Tier::Host);
        if self.held_on_host() >= host_limit {
            return Room { host: host_limit, host_figure: HostFigure::Current, host_limit, ..room };
        }
        let available = match figure {
            HostFigure::Recent => self.gpu.host_estimate(),
            _ => self.gpu.host_available(),
        };
        let host = self.made_on(Tier::Host).saturating_add(available);
        Room { host, host_figure: figure, host_limit, ..room }
    }

    /// The bytes that are held on a tier and were made.
    fn made_on(&self, tier: Tier) -> u64 {
        let state = self.lock();
        state.held().on(tier).saturating_sub(state.holdings.planned().on(tier))
    }
}
