//! The owner of a GPU's idle memory: the handles of pieces that the program has given up, and how
//! much stays idle of them and of the blocks' handles together.
//!
//! A piece gets a handle of its own kind only, the longest idle one. A handle that is *reserved* is
//! for a piece that the program has made and not mapped yet, so it is not given back. Blocks find
//! their idle handles in the ledger, by size: the pool is told how many bytes these are.
//!
//! Invariants: a handle is idle once; of each kind at least as many handles are idle as are
//! reserved; bytes are either held by the program or idle, and both count against one limit.
//!
//! A plain value: the caller passes in the time and the memory that the driver has left.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use wm_driver::Tier;

use crate::policy::keep::{Keep, KeepElsewhere};
use crate::vocabulary::piece::{PieceAccount, PieceKind};
use crate::vocabulary::tiers::TierBytes;

/// Idle memory, and the rules for its release.
#[derive(Debug, Default)]
pub struct HandlePool {
    idle: BTreeMap<PieceKind, IdlePieces>,
    account: PieceAccount,
    pub(crate) keep: Keep,
    pub(crate) keep_elsewhere: KeepElsewhere,
    /// The least that was idle of pieces on the device since the period began, in bytes.
    least: u64,
    /// The same of the whole last period, until it is asked for.
    unused: u64,
    /// Bytes that may be made on the device before the driver is asked again.
    unasked: u64,
}

#[derive(Debug, Default)]
struct IdlePieces {
    /// When each became idle, and its number.
    by_age: BTreeSet<(u64, u64)>,
    reserved: usize,
}

impl IdlePieces {
    fn spare(&self) -> usize {
        self.by_age.len().saturating_sub(self.reserved)
    }
}

impl HandlePool {
    /// A handle is idle from now on.
    pub fn park(&mut self, kind: PieceKind, since: u64, number: u64) {
        self.idle.entry(kind).or_default().by_age.insert((since, number));
    }

    /// An idle handle is about to be released, and counts as held until it is discharged. `false`:
    /// it is not in the pool.
    pub fn unpark(&mut self, kind: PieceKind, since: u64, number: u64) -> bool {
        let is_idle = self.idle.entry(kind).or_default().by_age.remove(&(since, number));
        *self.account.held.bytes_mut(kind.tier) += if is_idle { kind.bytes } else { 0 };
        self.note_least();
        is_idle
    }

    /// A piece gets the idle handle `number`. It gives up the handle `before`, which is idle from
    /// now on, or else the reservation that it had. Each handle is told with the time since when it
    /// is idle.
    pub fn bind(&mut self, kind: PieceKind, number: (u64, u64), before: Option<(u64, u64)>) {
        let idle = self.idle.entry(kind).or_default();
        idle.by_age.remove(&number);
        match before {
            Some(before) => drop(idle.by_age.insert(before)),
            None => self.end_reservation(kind),
        }
    }

    /// A piece of this kind needs no handle any more.
    pub fn end_reservation(&mut self, kind: PieceKind) {
        let idle = self.idle.entry(kind).or_default();
        idle.reserved = idle.reserved.saturating_sub(1);
    }

    /// The longest idle handle of a kind.
    pub fn oldest(&self, kind: PieceKind) -> Option<u64> {
        self.idle.get(&kind)?.by_age.first().map(|(_, number)| *number)
    }

    /// The longest idle handle of a kind that fits and is not reserved: its kind, and since when it
    /// is idle with its number.
    fn oldest_spare(&self, fits: impl Fn(&PieceKind) -> bool) -> Option<(PieceKind, (u64, u64))> {
        let spare = self.idle.iter().filter(|(kind, idle)| fits(kind) && idle.spare() > 0);
        let oldest = spare.filter_map(|(kind, idle)| Some((*idle.by_age.first()?, *kind)));
        oldest.min().map(|(first, kind)| (kind, first))
    }

    /// The longest idle handle on a tier of so many bytes, if there is one of a kind that is not
    /// reserved, and that kind.
    pub fn oldest_on(&self, tier: Tier, bytes: u64) -> Option<(PieceKind, u64)> {
        let (kind, (_, number)) = self.oldest_spare(|kind| (kind.tier, kind.bytes) == (tier, bytes))?;
        Some((kind, number))
    }

    /// Takes the longest idle handle of a tier out of the pool, if there is one whose kind is not
    /// reserved. It counts as held until it is discharged.
    pub fn take_spare(&mut self, tier: Tier) -> Option<(PieceKind, u64)> {
        let (kind, (since, number)) = self.oldest_spare(|kind| kind.tier == tier)?;
        self.unpark(kind, since, number).then_some((kind, number))
    }

    /// Bytes on a tier that are idle and not reserved.
    pub fn idle(&self, tier: Tier) -> u64 {
        let kinds = self.idle.iter().filter(|(kind, _)| kind.tier == tier);
        kinds.map(|(kind, idle)| kind.bytes * idle.spare() as u64).sum()
    }

    /// Bytes of pieces on a tier, held by the program or idle.
    pub(crate) fn bytes(&self, tier: Tier) -> u64 {
        self.account.held.on(tier) + self.idle(tier)
    }

    /// The account of the device's pieces.
    pub fn account(&self) -> PieceAccount {
        PieceAccount { idle: self.idle_bytes(), ..self.account }
    }

    /// Bytes that are idle and not reserved.
    pub(crate) fn idle_bytes(&self) -> TierBytes {
        TierBytes { device: self.idle(Tier::Device), peer: 0, host: self.idle(Tier::Host) }
    }

    /// Counts a piece that is about to be made, unless pieces and the `blocks`' bytes exceed the
    /// limit then. Says whether it did.
    pub(crate) fn charge(&mut self, tier: Tier, bytes: u64, blocks: u64, limit: u64) -> bool {
        let other = if limit == u64::MAX { 0 } else { self.idle(tier).saturating_add(blocks) };
        let held = self.account.held.bytes_mut(tier);
        let fits = held.checked_add(bytes).is_some_and(|sum| sum <= limit.saturating_sub(other));
        *held += if fits { bytes } else { 0 };
        fits
    }

    /// The memory is gone, or was never made.
    pub fn discharge(&mut self, tier: Tier, bytes: u64) {
        let held = self.account.held.bytes_mut(tier);
        *held = held.saturating_sub(bytes);
    }

    /// A piece has moved.
    pub(crate) fn moved(&mut self, bytes: u64, [from, to]: [Tier; 2]) {
        self.discharge(from, bytes);
        *self.account.held.bytes_mut(to) += bytes;
        self.account.peaks.raise_to(&self.account.held);
    }

    /// Reserves an idle handle for a piece, and counts the piece. Says whether there is one.
    pub fn reserve(&mut self, kind: PieceKind) -> bool {
        let Some(idle) = self.idle.get_mut(&kind).filter(|idle| idle.spare() > 0) else { return false };
        idle.reserved += 1;
        *self.account.held.bytes_mut(kind.tier) += kind.bytes;
        self.count(kind.tier);
        self.note_least();
        true
    }

    /// Less is idle than before.
    fn note_least(&mut self) {
        self.least = self.least.min(self.idle(Tier::Device));
    }

    /// A piece was made for which memory is charged. `is_cached`: its handle becomes idle when the
    /// program gives it up.
    pub(crate) fn made(&mut self, tier: Tier, bytes: u64, is_cached: bool, now: Instant) {
        self.count(tier);
        if is_cached && tier == Tier::Device {
            self.keep.made(bytes, now);
        }
    }

    fn count(&mut self, tier: Tier) {
        self.account.overflows += u64::from(tier != Tier::Device);
        self.account.peaks.raise_to(&self.account.held);
    }

    /// A piece was refused, because all tiers were full.
    pub fn refused(&mut self) {
        self.account.refused += 1;
    }

    /// The part of one owner's `idle` bytes that may go, beside the other owner's. At least
    /// `stated` bytes stay of both together; `most` bounds the memory that stays because the
    /// program soon made such memory again, and 0 is for none of that.
    pub(crate) fn excess(&self, idle: u64, other: u64, stated: u64, most: u64) -> u64 {
        self.keep.excess(idle + other.min(stated), stated, most).min(idle)
    }

    /// A period is over in which so many bytes of blocks' memory were idle throughout.
    pub(crate) fn end_period(&mut self, blocks: u64, stated: u64) {
        let idle = self.idle(Tier::Device);
        self.unused = std::mem::replace(&mut self.least, idle).min(idle);
        self.keep.unused(blocks + self.unused, stated);
    }

    /// Bytes of pieces on the device that were idle throughout the last period and since, beyond
    /// the amount stated for both owners. Answered once a period.
    pub(crate) fn take_unused(&mut self, blocks: u64, stated: u64) -> u64 {
        let unused = std::mem::take(&mut self.unused).min(self.least);
        unused.saturating_sub(stated.saturating_sub(blocks))
    }

    /// May so many bytes be made on the device without a query of the driver for its free memory?
    pub(crate) fn is_unasked(&mut self, bytes: u64) -> bool {
        let rest = self.unasked.checked_sub(bytes);
        self.unasked = rest.unwrap_or(self.unasked);
        rest.is_some()
    }

    /// The device has so much left beside the headroom: is that enough? Half of the rest may be
    /// made without asking again, since other processes make memory, too.
    pub(crate) fn is_beside_headroom(&mut self, left: u64, bytes: u64) -> bool {
        let rest = left.checked_sub(bytes);
        self.unasked = rest.unwrap_or(0) / 2;
        rest.is_some()
    }

    /// The context is gone, and idle memory with it. The program still holds its pieces.
    pub(crate) fn forget_idle(&mut self) {
        *self = Self { account: self.account, ..Self::default() };
    }
}

#[cfg(test)]
mod tests;
