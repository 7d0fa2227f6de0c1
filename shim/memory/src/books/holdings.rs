//! The driver's side of memory: the ledger of handles, the bytes held in all, and the driver
//! objects that could not be given back.
//!
//! Invariant: `reserved` sums the handles in the ledger, those in quarantine, and those that plans
//! under way will make, so that two plans cannot spend one budget twice.

use wm_driver::Tier;

use crate::books::ledger::Ledger;
use crate::vocabulary::order::Point;
use crate::vocabulary::plan::{Steps, Undo};
use crate::vocabulary::tiers::{Gauge, PastPeaks, TierBytes, only};

#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Holdings {
    pub(crate) ledger: Ledger,
    reserved: Gauge,
    past: PastPeaks,
    /// The part of `reserved` that plans under way have yet to make.
    planned: TierBytes,
    /// Steps that failed, kept for another try.
    quarantine: Vec<Undo>,
    /// Steps that release memory to which a copy may still be writing.
    stranded: Vec<Stranded>,
}

/// Steps that wait for a point.
#[derive(Debug)]
struct Stranded {
    until: Point,
    steps: Vec<Undo>,
}

impl Holdings {
    /// Handles held, those included that plans under way will make.
    pub(crate) fn held(&self) -> TierBytes {
        self.reserved.now
    }

    /// The bytes of pieces beside the held ones change from `pieces`.
    pub(crate) fn fold_peaks(&mut self, pieces: &TierBytes) {
        self.past.fold(&mut self.reserved, pieces);
    }

    /// Held bytes at most, beside so many of pieces now.
    pub(crate) fn peaks(&self, pieces: &TierBytes) -> PastPeaks {
        self.past.read(self.reserved, pieces)
    }

    pub(crate) fn planned(&self) -> TierBytes {
        self.planned
    }

    pub(crate) fn reset_peak(&mut self, pieces: &TierBytes) {
        self.past.reset(&mut self.reserved, pieces);
    }

    /// A plan will make so much.
    pub(crate) fn plan(&mut self, bytes: &TierBytes) {
        self.reserved.add(bytes);
        self.planned.add(bytes);
    }

    /// A plan has made the handles that it was to make.
    pub(crate) fn made(&mut self, bytes: &TierBytes) {
        self.planned.subtract(bytes);
    }

    /// A plan failed, or its context has gone: the handles that it was to make do not count.
    pub(crate) fn drop_plan(&mut self, bytes: &TierBytes) {
        self.planned.subtract(bytes);
        self.reserved.subtract(bytes);
    }

    /// A handle's memory is not this process's alone any more.
    pub(crate) fn drop_held(&mut self, bytes: &TierBytes) {
        self.reserved.subtract(bytes);
    }

    /// A handle's memory is this process's alone again.
    pub(crate) fn add_held(&mut self, bytes: &TierBytes) {
        self.reserved.add(bytes);
    }

    /// A piece's memory of one tier is a handle of ours now, and memory of another tier is the
    /// piece's. `pieces` are the bytes beside which the peaks count until now.
    pub(crate) fn exchange_with_piece(&mut self, bytes: u64, [from, to]: [Tier; 2], pieces: &TierBytes) {
        self.fold_peaks(pieces);
        self.reserved.subtract(&only(to, bytes));
        self.reserved.add(&only(from, bytes));
        self.reserved.forget_recent();
    }

    /// A piece has memory of other processes now, and the memory that it had is a handle of ours.
    pub(crate) fn took_from_piece(&mut self, bytes: u64, pieces: &TierBytes) {
        self.fold_peaks(pieces);
        self.reserved.add(&only(Tier::Device, bytes));
        self.reserved.forget_recent();
    }

    /// A piece has a handle of ours now in place of memory of other processes.
    pub(crate) fn gave_to_piece(&mut self, tier: Tier, bytes: u64, pieces: &TierBytes) {
        self.fold_peaks(pieces);
        self.reserved.subtract(&only(tier, bytes));
        self.reserved.forget_recent();
    }

    /// A handle was given back.
    pub(crate) fn released(&mut self, tier: Tier, bytes: u64) {
        self.reserved.subtract(&only(tier, bytes));
    }

    /// Keeps steps that failed for another try.
    pub(crate) fn quarantine(&mut self, failed: Vec<Undo>) {
        self.quarantine.extend(failed);
    }

    /// Counts handles as held that a plan made and could not release. The plan was never committed,
    /// so nothing else counts them.
    pub(crate) fn hold(&mut self, failed: &[Undo]) {
        for step in failed {
            if let Undo::Release { tier, bytes, .. } = step {
                self.reserved.add(&only(*tier, *bytes));
            }
        }
    }

    pub(crate) fn quarantined(&self) -> usize {
        self.quarantine.len() + self.stranded.len()
    }

    /// Keeps steps until a point is past. The memory that they release is counted as held already.
    pub(crate) fn strand(&mut self, until: Point, steps: Vec<Undo>) {
        self.stranded.push(Stranded { until, steps });
    }

    /// Does anything wait for a point?
    pub(crate) fn has_stranded(&self) -> bool {
        !self.stranded.is_empty()
    }

    /// Steps whose point is past are tried whenever memory is given back.
    pub(crate) fn free_stranded(&mut self, is_past: impl Fn(Point) -> bool) {
        let over = self.stranded.extract_if(.., |stranded| is_past(stranded.until));
        self.quarantine.extend(over.flat_map(|stranded| stranded.steps));
    }

    fn unreleased(&self) -> impl Iterator<Item = &Undo> {
        self.quarantine.iter().chain(self.stranded.iter().flat_map(|stranded| &stranded.steps))
    }

    /// Is memory left mapped at one of these addresses, by a step that has yet to be taken?
    pub(crate) fn is_left_mapped_at(&self, addresses: &[u64]) -> bool {
        let is_there =
            |step: &Undo| matches!(step, Undo::Unmap { address, .. } if addresses.contains(address));
        self.unreleased().any(is_there)
    }

    /// Steps that failed before are tried once more, whenever memory is given back.
    pub(crate) fn take_quarantined(&mut self) -> Vec<Undo> {
        std::mem::take(&mut self.quarantine)
    }

    /// Is the address in a reservation, one in quarantine included?
    pub(crate) fn owns(&self, address: u64) -> bool {
        let is_in_step = |step: &Undo| match step {
            Undo::Unreserve { address: base, bytes } => (*base..base + bytes).contains(&address),
            _ => false,
        };
        self.ledger.extents().at(address).is_some() && !self.ledger.has_adopted(address)
            || self.unreleased().any(is_in_step)
    }

    /// Forgets everything except the handles that plans under way will make. Returns the steps that
    /// take the memory apart.
    pub(crate) fn forget_all(&mut self) -> Vec<Undo> {
        self.free_stranded(|_| true);
        let mut steps = Steps { release: self.take_quarantined(), ..Steps::default() };
        std::mem::take(&mut self.ledger).everything(&mut steps);
        self.reserved.now = self.planned;
        steps.in_order()
    }

    /// `pieces` are the addresses and sizes of everything that is not free.
    pub(crate) fn audit(&self, pieces: &[(u64, u64)]) -> Result<(), String> {
        self.ledger.audit(pieces)?;
        let mut held = self.planned;
        self.ledger.handles().all().for_each(|(_, memory)| held.add(&only(memory.tier, memory.counted())));
        for step in self.unreleased() {
            if let Undo::Release { tier, bytes, .. } = step {
                held.add(&only(*tier, *bytes));
            }
        }
        if held == self.reserved.now {
            Ok(())
        } else {
            Err(format!("{held:?} held, {:?} noted", self.reserved.now))
        }
    }
}
