//! What a program does next, turned into what has to leave and what has to come at a stop.
//!
//! Belady's rule, on a future that is a guess: what is used last leaves first, and what is used once and then later than that stays
//! where it is, because reading it over the link once costs what its coming would. A stop serves a part of the future, so that one
//! pays for many launches.

use std::collections::{BTreeSet, HashMap};

use super::repetition::{EventKind, Repetition};
use super::residency::{CHUNK, Residency};

/// The next use of a block that is not used in the next period, or is freed before.
const NEVER: u64 = u64::MAX;

/// What comes next.
enum Demand {
    /// A use of a live block.
    Use(u64),
    /// So many bytes will be allocated.
    Allocate(u64),
    /// A live block will be freed.
    Free(u64),
    /// A block of so many bytes, which will be allocated before, will be freed.
    FreeNew(u64),
}

/// The next period, as the last one tells it.
pub(super) struct Future {
    /// In order, with the distance in events.
    demands: Vec<(u64, Demand)>,
    /// Distances of each live block's uses, nearest last.
    uses: HashMap<u64, Vec<u64>>,
}

impl Future {
    /// `by_birth` gives the live block that an event allocated.
    pub(super) fn of(past: &Repetition, by_birth: &HashMap<u64, u64>) -> Option<Self> {
        let (period, now) = (past.period()?, past.now());
        let (mut demands, mut uses) = (Vec::new(), HashMap::<u64, Vec<u64>>::new());
        for distance in 0..period {
            let event = past.get(now - period + distance)?;
            let demand = match (event.kind, heir(event.born, period, now, by_birth)) {
                (EventKind::Allocate, _) => Demand::Allocate(event.bytes),
                (EventKind::Use, Some(block)) => {
                    uses.entry(block).or_default().push(distance);
                    Demand::Use(block)
                }
                (EventKind::Free, Some(block)) => {
                    // Nothing uses it after that.
                    uses.entry(block).or_default().push(NEVER);
                    Demand::Free(block)
                }
                (EventKind::Free, None) => Demand::FreeNew(event.bytes),
                // Of a block that will be allocated before.
                (EventKind::Use, None) => continue,
            };
            demands.push((distance, demand));
        }
        for distances in uses.values_mut() {
            let again = distances[0].saturating_add(period);
            distances.push(again);
            distances.reverse();
        }
        Some(Self { demands, uses })
    }

    fn next_use(&self, block: u64) -> u64 {
        self.uses.get(&block).and_then(|distances| distances.last().copied()).unwrap_or(NEVER)
    }
}

/// The live block that does now what the block of this birth did a period ago: one that was born a period later, or, of one that lives
/// through periods, itself.
fn heir(born: u64, period: u64, now: u64, by_birth: &HashMap<u64, u64>) -> Option<u64> {
    let later = || by_birth.get(&(born + period)).copied();
    let itself = by_birth.get(&born).copied();
    if born + 2 * period < now { itself } else { later().or(itself) }
}

/// What a stop is to do, and how long it serves.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct StopPlan {
    /// Blocks, and bytes that leave.
    pub(super) leave: Vec<(u64, u64)>,
    /// Blocks, and bytes that come.
    pub(super) come: Vec<(u64, u64)>,
    /// Events from now that need no other plan.
    pub(super) serves: u64,
}

/// A plan under way.
struct Planner<'a> {
    future: Future,
    residency: &'a Residency,
    /// What may leave, by its next use.
    residents: BTreeSet<(u64, u64)>,
    left: HashMap<u64, u64>,
    coming: HashMap<u64, u64>,
    /// Room now, and what frees on the way will add: memory that new blocks can have and that nothing can come to yet.
    room: u64,
    later: u64,
    plan: StopPlan,
}

/// Plans a stop that moves or makes room for up to `batch` bytes.
pub(super) fn plan(future: Future, residency: &Residency, batch: u64) -> StopPlan {
    let on_device = residency.blocks().filter(|(_, block)| block.on_device > 0);
    let residents = on_device.map(|(key, _)| (future.next_use(key), key)).collect();
    let (room, demands) = (residency.room(), future.demands.len());
    let mut planner = Planner {
        future,
        residency,
        residents,
        left: HashMap::new(),
        coming: HashMap::new(),
        room,
        later: 0,
        plan: StopPlan::default(),
    };
    let mut served = 0;
    for index in 0..demands {
        let distance = planner.future.demands[index].0;
        let done = planner.serve(index);
        served += done.unwrap_or(0);
        planner.plan.serves = distance + u64::from(done.is_some());
        if done.is_none() || served > batch {
            break;
        }
    }
    planner.finish()
}

impl Planner<'_> {
    /// Bytes that were moved or made room for; `None` where the next stop has to be.
    fn serve(&mut self, index: usize) -> Option<u64> {
        let distance = self.future.demands[index].0;
        match self.future.demands[index].1 {
            Demand::Allocate(bytes) => {
                let again = self.later.min(bytes);
                self.later -= again;
                let found = self.make_room(bytes - again, distance);
                self.room -= found;
                (found + again == bytes).then_some(found)
            }
            Demand::Free(block) => {
                let on_device = self.residency.get(block).map_or(0, |placed| placed.on_device);
                self.residents.remove(&(self.future.next_use(block), block));
                let left = self.left.get(&block).copied().unwrap_or(0);
                self.later += on_device - left + self.coming.get(&block).copied().unwrap_or(0);
                Some(0)
            }
            Demand::FreeNew(bytes) => {
                self.later += bytes;
                Some(0)
            }
            Demand::Use(block) => self.used(block),
        }
    }

    /// It stays for this use, or comes for it if the one after it is nearer than that of what leaves. What left has to come back by
    /// another stop.
    fn used(&mut self, block: u64) -> Option<u64> {
        if self.left.get(&block).is_some_and(|bytes| *bytes > 0) {
            return None;
        }
        self.residents.remove(&(self.future.next_use(block), block));
        self.future.uses.get_mut(&block).map(Vec::pop);
        let next = self.future.next_use(block);
        let coming = self.coming.get(&block).copied().unwrap_or(0);
        let missing = self.residency.get(block).map_or(0, |placed| placed.elsewhere()) - coming;
        let found = if next == NEVER { 0 } else { self.make_room(missing, next) };
        self.room -= found;
        if found > 0 {
            *self.coming.entry(block).or_default() += found;
        }
        Some(found)
    }

    /// As much of `bytes` as there is room for, after what is used later than `until` has left.
    fn make_room(&mut self, bytes: u64, until: u64) -> u64 {
        while self.room < bytes {
            let Some(&(next, block)) = self.residents.last() else { break };
            if next <= until {
                break;
            }
            let left = self.left.entry(block).or_default();
            let there = self.residency.get(block).map_or(0, |placed| placed.on_device - *left);
            let leaves = there.min((bytes - self.room).next_multiple_of(CHUNK));
            *left += leaves;
            self.room += leaves;
            if leaves == there {
                self.residents.remove(&(next, block));
            }
        }
        bytes.min(self.room)
    }

    fn finish(mut self) -> StopPlan {
        self.plan.leave = self.left.into_iter().filter(|(_, bytes)| *bytes > 0).collect();
        self.plan.come = self.coming.into_iter().collect();
        self.plan.leave.sort_unstable();
        self.plan.come.sort_unstable();
        self.plan
    }
}
